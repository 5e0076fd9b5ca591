"""The array types everything speaks, and how an array becomes immutable."""

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Codes = npt.NDArray[np.int32]
Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

PAD = 16
"""Spare bytes that follow the text of every `Names`, so that kernels may load whole words past its end."""


def frozen(array: npt.NDArray[np.generic]) -> None:
    """Forbid writing. Numba compiles read-only and writable arrays apart, so every column that is handed on is frozen."""
    array.flags.writeable = False


def picked(offsets: Ints, which: npt.NDArray[np.integer]) -> tuple[Ints, Ints]:
    """Of the parts between offsets those at `which`, in that order: their offsets, and where their elements are now."""
    starts = offsets[which]
    sizes = offsets[which + 1] - starts
    cuts = np.zeros(len(which) + 1, np.int64)
    np.cumsum(sizes, out=cuts[1:])
    return cuts, np.arange(cuts[-1]) + np.repeat(starts - cuts[:-1], sizes)


def lengths(offsets: Ints) -> Ints:
    """How long each part between offsets is. (`np.diff` takes eight times as long for small arrays.)"""
    return offsets[1:] - offsets[:-1]
