"""Series of the last sixty minutes, in bounded memory: 480 bytes each.

Rule 1: a minute that nothing was put into is None.
Rule 2: there are `most` series. When there are more, those that had nothing but zeros in the hour make room; if there are
none of these, the new one is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeVar

import numpy as np

K = TypeVar("K", bound=Hashable)

MINUTES = 60


class Rings(Generic[K]):
    """By name. One thread at a time."""

    def __init__(self, most: int) -> None:
        self.minute = -MINUTES
        """The newest."""
        self._most = most
        self._rows: dict[K, int] = {}
        self._cells = np.full((0, MINUTES), np.nan)

    def __len__(self) -> int:
        return len(self._rows)

    def put(self, minute: int, values: Mapping[K, float | None]) -> None:
        """Set the slots of a minute; None: it stays empty. A minute before the newest one is too late."""
        if minute < self.minute:
            return
        self._move_on(minute)
        if len(self._rows.keys() | values.keys()) > self._most:
            self._drop_idle()
        rows = [self._row(key) for key in values]
        found = [
            (row, np.nan if value is None else value) for row, value in zip(rows, values.values(), strict=True) if row >= 0
        ]
        if found:
            where, what = zip(*found, strict=True)
            self._cells[list(where), minute % MINUTES] = what

    def of(self, key: K) -> list[float | None]:
        """Its last sixty minutes, the newest last."""
        row = self._rows.get(key)
        if row is None:
            return [None] * MINUTES
        return [None if value != value else value for value in self._cells[row, self._columns()].tolist()]  # noqa: PLR0124

    def sums(self) -> dict[K, float]:
        """Over the hour, by name."""
        sums = np.nansum(self._cells, axis=1)
        return {key: float(sums[row]) for key, row in self._rows.items()}

    def drop(self, which: Callable[[K], bool]) -> None:
        self._keep([(key, row) for key, row in self._rows.items() if not which(key)])

    def blank(self, which: Callable[[K], bool], before: int) -> None:
        """Empty the slots of the minutes before this one."""
        rows = [row for key, row in self._rows.items() if which(key)]
        early = [minute % MINUTES for minute in range(self.minute - MINUTES + 1, min(before, self.minute + 1))]
        if rows and early:
            self._cells[np.ix_(rows, early)] = np.nan

    def _columns(self) -> list[int]:
        return [minute % MINUTES for minute in range(self.minute - MINUTES + 1, self.minute + 1)]

    def _move_on(self, minute: int) -> None:
        fresh = range(max(self.minute + 1, minute - MINUTES + 1), minute + 1)
        self._cells[:, [m % MINUTES for m in fresh]] = np.nan
        self.minute = minute

    def _row(self, key: K) -> int:
        """-1: there is no room."""
        row = self._rows.get(key)
        if row is not None:
            return row
        if len(self._rows) >= self._most:
            return -1
        if len(self._rows) == len(self._cells):
            more = min(max(16, len(self._cells)), self._most - len(self._cells))
            self._cells = np.concatenate([self._cells, np.full((more, MINUTES), np.nan)])
        row = self._rows[key] = len(self._rows)
        self._cells[row] = np.nan
        return row

    def _drop_idle(self) -> None:
        busy = np.nansum(np.abs(self._cells), axis=1) > 0
        self._keep([(key, row) for key, row in self._rows.items() if busy[row]])

    def _keep(self, left: list[tuple[K, int]]) -> None:
        self._cells[: len(left)] = self._cells[[row for _, row in left]]
        self._rows = {key: i for i, (key, _) in enumerate(left)}
