"""Lists of bytes put together from pieces of others, without a Python object for each."""

from __future__ import annotations

from typing import Any

import numpy as np

from widerow.model.arrays import PAD, Bytes, Ints, lengths
from widerow.model.kernel import kernel, pasted
from widerow.model.names import Names


def chosen(these: Names, others: Names, other: Ints) -> Names:
    """Number i of these; where `other[i]` is not negative, that of the others instead."""
    sizes = lengths(these.offsets)
    instead = np.flatnonzero(other >= 0)
    sizes[instead] = lengths(others.offsets)[other[instead]]
    offsets = np.zeros(len(these) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    data = np.zeros(int(offsets[-1]) + PAD, np.uint8)
    _choose(these.data, these.offsets, others.data, others.offsets, other, offsets, data)
    return Names(data, offsets)


def cut_out(data: Bytes, at: Ints, size: Ints) -> Names:
    """The bytes that begin at these places, of these sizes."""
    offsets = np.zeros(len(at) + 1, np.int64)
    np.cumsum(size, out=offsets[1:])
    out = np.zeros(int(offsets[-1]) + PAD, np.uint8)
    _cut_out(data, at, offsets, out)
    return Names(out, offsets)


@pasted
def copy(data: Any, at: Any, out: Any, to: Any, size: Any) -> None:
    """Bytes from one place to another. (Assigning a slice does the same, and takes seconds to compile.)"""
    for k in range(size):
        out[to + k] = data[at + k]


@kernel
def _choose(these: Bytes, these_at: Ints, others: Bytes, others_at: Ints, other: Ints, offsets: Ints, data: Bytes) -> None:
    for i in range(len(other)):
        if other[i] >= 0:
            copy(others, others_at[other[i]], data, offsets[i], offsets[i + 1] - offsets[i])
        else:
            copy(these, these_at[i], data, offsets[i], offsets[i + 1] - offsets[i])


@kernel
def _cut_out(data: Bytes, at: Ints, offsets: Ints, out: Bytes) -> None:
    for i in range(len(at)):
        copy(data, at[i], out, offsets[i], offsets[i + 1] - offsets[i])
