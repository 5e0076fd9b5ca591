"""Columns of several makers as one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from widerow.model.arrays import PAD, Bytes, Codes, Hashes, Ints, lengths
from widerow.model.batch import Cells
from widerow.model.intern import NameTable
from widerow.model.kernel import kernel
from widerow.model.names import NO_NAMES, Coded, Names

_FEW_NAMES = 256
"""So many are looked up in Python sooner than in a table that must be made first."""
_LONG_NAME = 64
"""Longer names are compared in Python."""


def stacked(columns: Sequence[Coded]) -> Coded:
    """All rows in order, the dictionaries one behind the other. Cheap, but a name may stand in it several times."""
    if len(columns) == 1:
        return columns[0]
    bases = np.cumsum([0, *[len(c.names) for c in columns[:-1]]])
    codes = np.concatenate([c.codes for c in columns])
    base = np.repeat(bases, [len(c) for c in columns])
    return Coded(concatenated([c.names for c in columns]), np.where(codes < 0, -1, codes + base).astype(np.int32))


def united(columns: Sequence[Coded]) -> Coded:
    """All rows in order, with one dictionary in which each name stands once: equal codes mean equal names."""
    stack = stacked(columns)
    table = NameTable(max(1, len(stack.names)))
    ids = table.add(stack.names)
    return Coded(
        table.names(), np.where(stack.codes < 0, -1, ids[stack.codes]).astype(np.int32) if len(ids) else stack.codes
    )


def in_order(column: Coded) -> Coded:
    """The same column with its dictionary in the order of bytes, so that it does not matter which name came first."""
    order, rank = byte_order(column.names)
    codes = np.where(column.codes < 0, -1, rank[column.codes]).astype(np.int32) if len(rank) else column.codes
    return Coded(column.names.take(order), codes)


def byte_order(names: Names) -> tuple[Ints, Codes]:
    """Where the distinct names are, in the order of their bytes; and the place of each name in that order."""
    count, longest = len(names), int(lengths(names.offsets).max(initial=0))
    if count > _FEW_NAMES and longest <= _LONG_NAME:
        words = np.zeros((longest // 8 + 2, count), np.uint64)
        _put_words(names.data, names.offsets, words)
        order = np.lexsort(words)
        fresh = (words[:, order[1:]] != words[:, order[:-1]]).any(axis=0)
    else:
        texts = names.to_bytes_list()
        order = np.array(sorted(range(count), key=texts.__getitem__), np.int64)
        listed = order.tolist()
        fresh = np.array([texts[a] != texts[b] for a, b in pairwise(listed)], np.bool_)
    rank = np.zeros(count, np.int32)
    rank[order[1:]] = np.cumsum(fresh)
    return order[np.concatenate([[True], fresh])] if count else order, rank


@kernel
def _put_words(data: Bytes, offsets: Ints, words: Hashes) -> None:
    """Of each name: its length, then its bytes as words from the last to the first, as `lexsort` compares them."""
    last = len(words) - 1
    for i in range(len(offsets) - 1):
        words[0, i] = offsets[i + 1] - offsets[i]
        for k in range(offsets[i + 1] - offsets[i]):
            words[last - k // 8, i] |= np.uint64(data[offsets[i] + k]) << np.uint64(56 - 8 * (k % 8))


def concatenated(parts: Sequence[Names]) -> Names:
    """One list after the other."""
    if len(parts) == 1:
        return parts[0]
    texts = [p.data[: p.offsets[-1]] for p in parts]
    starts: Ints = np.cumsum([0, *[len(t) for t in texts]])
    offsets = np.concatenate([*[p.offsets[:-1] + start for p, start in zip(parts, starts, strict=False)], starts[-1:]])
    return Names(np.concatenate([*texts, np.zeros(PAD, np.uint8)]), offsets)


def on_end(parts: Sequence[Names]) -> tuple[Names, Ints]:
    """One dictionary after the other, each once; and where that of each part begins. (Parts often share one.)"""
    base: list[int] = []
    distinct: dict[int, tuple[int, Names]] = {}
    used = 0
    for names in parts:
        if id(names) not in distinct:
            distinct[id(names)] = used, names
            used += len(names)
        base.append(distinct[id(names)][0])
    if not distinct:
        return NO_NAMES, np.zeros(0, np.int64)
    return concatenated([names for _, names in distinct.values()]), np.array(base)


def each_once(names: Names) -> tuple[Names, Codes]:
    """Each name once, and the place of each in that."""
    if len(names) == 1:
        return names, np.zeros(1, np.int32)
    if len(names) > _FEW_NAMES:
        every = united([Coded(names, np.arange(len(names), dtype=np.int32))])
        return every.names, every.codes
    texts = names.to_bytes_list()
    place = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    return Names.of_bytes(list(place)), np.array([place[text] for text in texts], np.int32)


def joined_cells(parts: Sequence[Cells]) -> Cells:
    """The rows of one part after the other. Names stand in their dictionary once; texts perhaps several times."""
    sizes = [len(part) for part in parts]
    starts = np.cumsum([0, *sizes])
    names, base = on_end([part.names for part in parts])
    names, place = each_once(names)
    texts, text_base = on_end([part.texts for part in parts])
    text = np.concatenate([part.text for part in parts])
    if text_base.any():
        text = np.where(text < 0, -1, text + np.repeat(text_base, sizes)).astype(np.int32)
    return Cells(
        np.concatenate([*[part.offsets[:-1] + start for part, start in zip(parts, starts, strict=False)], starts[-1:]]),
        names,
        place[np.concatenate([part.name for part in parts]) + np.repeat(base, sizes)],
        np.concatenate([part.kind for part in parts]),
        np.concatenate([part.number for part in parts]),
        texts,
        text,
    )
