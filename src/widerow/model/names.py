"""Columns of text.

`Names` is an immutable list of UTF-8 strings in one buffer, the layout Arrow uses, so that no string is a Python object
until somebody asks for it. `Coded` is a text column: codes into a `Names`. Code -1 means "none".
Rule: the buffer is followed by at least `PAD` spare bytes, and both arrays are read-only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from widerow.model.arrays import PAD, Bytes, Codes, Ints, frozen, picked


@dataclass(frozen=True, slots=True, eq=False)
class Names:
    """An immutable list of UTF-8 strings; `data[offsets[i]:offsets[i + 1]]` is string i."""

    data: Bytes
    offsets: Ints

    def __post_init__(self) -> None:
        if len(self.data) < self.offsets[-1] + PAD:
            raise ValueError(f"Names needs {PAD} spare bytes after its text")
        frozen(self.data)
        frozen(self.offsets)

    @classmethod
    def of(cls, strings: Iterable[str]) -> Names:
        return cls.of_bytes([s.encode() for s in strings])

    @classmethod
    def of_bytes(cls, parts: Sequence[bytes]) -> Names:
        offsets = np.fromiter(accumulate(map(len, parts), initial=0), np.int64, len(parts) + 1)  # mostly of a few
        return cls(np.frombuffer(b"".join((*parts, bytes(PAD))), np.uint8), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> str:
        return self.bytes_at(i).decode()

    def __iter__(self) -> Iterator[str]:
        return iter(self.to_list())

    def bytes_at(self, i: int) -> bytes:
        return self.data[self.offsets[i] : self.offsets[i + 1]].tobytes()

    def to_list(self) -> list[str]:
        return [b.decode() for b in self.to_bytes_list()]

    def to_bytes_list(self) -> list[bytes]:
        text, cuts = self.data.tobytes(), self.offsets.tolist()
        return [text[a:b] for a, b in pairwise(cuts)]

    def between(self, first: int, last: int) -> Names:
        """The strings `first` to `last - 1`, without copying their text."""
        start = self.offsets[first]
        return Names(self.data[start : self.offsets[last] + PAD], self.offsets[first : last + 1] - start)

    def take(self, codes: Codes | Ints) -> Names:
        """The strings at `codes`, in that order, as a `Names` of its own."""
        offsets, where = picked(self.offsets, codes)
        return Names(np.concatenate([self.data[where], np.zeros(PAD, np.uint8)]), offsets)


NO_NAMES = Names.of(())


@dataclass(frozen=True, slots=True, eq=False)
class Coded:
    """A column of text: row i holds `names[codes[i]]`, or nothing where the code is -1."""

    names: Names
    codes: Codes

    def __post_init__(self) -> None:
        frozen(self.codes)

    @classmethod
    def of(cls, strings: Sequence[str]) -> Coded:
        """One entry per distinct string, in order of first appearance."""
        distinct = {string: code for code, string in enumerate(dict.fromkeys(strings))}
        return cls(Names.of(distinct), np.fromiter(map(distinct.__getitem__, strings), np.int32, len(strings)))

    @classmethod
    def constant(cls, string: str, n: int) -> Coded:
        return cls(Names.of((string,)), np.zeros(n, np.int32))

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, i: int) -> str:
        return self.names[int(self.codes[i])]

    def to_list(self) -> list[str]:
        strings = self.names.to_list()
        return [strings[c] for c in self.codes.tolist()]

    def take(self, rows: Ints | Codes | np.ndarray) -> Coded:
        return Coded(self.names, self.codes[rows])
