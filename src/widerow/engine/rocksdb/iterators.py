"""Iterators that serve many partitions, one after the other.

Making one costs as much as five look-ups with it, and a question about a fleet looks into thousands of partitions.
Rule: from the first on they are inside `Database.reading()`, and they are given back before anybody is waited for, and after
`_STEP` rows in any case: a store that is to be reopened waits for them.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import cached_property
from typing import TYPE_CHECKING

from rocksdict import ReadOptions

from widerow.engine.rocksdb.database import Database

if TYPE_CHECKING:
    from rocksdict import Rdict, RdictIter

_STEP = 256
"""Rows that are read in one go: about half a millisecond."""
_LOOK_UP = 8
"""What it costs to look into a partition, in rows."""


class Opened:
    """A column family while it is read from."""

    def __init__(self, family: Rdict, scan: Iterators) -> None:
        self.family, self.scan = family, scan

    @cached_property
    def at(self) -> RdictIter:
        """An iterator for all who ask, which shows everything as it was when the first did."""
        self._options = ReadOptions()  # the iterator only borrows it
        return self.family.iter(self._options)


class Iterators:
    """Of one scan."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self._reading = ExitStack()
        self._opened: dict[str, Opened] = {}
        self._used = 0
        self.small = True
        """Whether partitions have few rows of what is wanted, as far as is known."""

    def of(self, family: str) -> Opened | None:
        """None: its window was dropped."""
        if self._used >= _STEP:
            self.give_back()
        if not self._used:
            self._reading.enter_context(self.db.reading())
        self._used += _LOOK_UP
        found = self._opened.get(family)
        if found is None:
            handle = self.db.family(family)
            if handle is None:
                return None
            found = self._opened[family] = Opened(handle, self)
        return found

    def has_read(self, rows: int) -> None:
        self._used += rows

    def give_back(self) -> None:
        """Before rows are handed on, and at the end. Whoever goes on to read gets others."""
        self._opened.clear()
        self._reading.close()
        self._used = 0
