"""The port: what a wide-column store must do for everything above it.

Coarse, synchronous, columnar. It promises only what every engine can keep; all meaning lives above it. An engine holds no
policy: no rollup, quota, cache of answers or hidden retry. The laws are in `engine/contract/`, as tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from widerow.engine.rows import Cursor, Key, Row, Rows
from widerow.model.arrays import Flags
from widerow.model.labels import Selectors
from widerow.model.times import Clock
from widerow.schema.table import Table

Columns: TypeAlias = Sequence[str] | Selectors
"""The cells that a scan wants: those with these names as they are stored, or those that selectors mean."""


@dataclass(frozen=True, slots=True)
class Features:
    """What an engine can do beyond the laws. A missing feature is data, and its skip is visible."""

    durable: bool
    """What is written survives the process."""
    drops_windows: bool
    """`expire` gives disk space back by whole windows; other engines' stores do so by themselves."""
    forgets_deletes: bool
    """What is older than a delete, and written after it, shows. Otherwise the delete goes on hiding it for some days."""


@dataclass(frozen=True, slots=True)
class Span:
    """Rows whose first clustering column lies in [start, stop), whatever the order of storage; None: open."""

    start: int | str | None = None
    stop: int | str | None = None

    def holds(self, value: int | str) -> bool:
        """Whether a value lies in it; texts by their bytes."""
        at = _ordered(value)
        return (self.start is None or at >= _ordered(self.start)) and (self.stop is None or at < _ordered(self.stop))


def _ordered(value: int | str) -> Any:
    return value.encode() if isinstance(value, str) else value


ALL = Span()


@dataclass(frozen=True, slots=True)
class Definition:
    """What makes a table, in the store's own words, and whether it is there."""

    table: str
    text: str
    exists: bool


@dataclass(frozen=True, slots=True)
class Expired:
    """What an `expire` gave back."""

    windows: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Figures for metrics and `doctor`. `detail` is whatever the engine finds worth showing."""

    disk_bytes: int | None = None
    memory_bytes: int | None = None
    """None: the store is elsewhere, and only its own tools know."""
    writes: int = 0
    syncs: int = 0
    tables: int = 0
    windows: int = 0
    detail: dict[str, float] = field(default_factory=dict)
    damage: tuple[str, ...] = ()
    """What is known to be damaged, a sentence each. Reads that do not touch it are served."""


@dataclass(frozen=True, slots=True)
class TableSize:
    """What a table takes in files, and what it would without compression: keys and values alone."""

    file_bytes: int
    plain_bytes: int


class Engine(Protocol):
    """A wide-column store: table -> partition -> rows in clustering order. Safe to share between threads.

    Errors: `Unavailable` (trying again is safe), `StorageFull`, `Corrupt`; ValueError where a caller breaks the contract.
    """

    features: Features

    @property
    def clock(self) -> Clock:
        """Gives the versions of what is written: where the store is embedded it is its own, which never runs back."""

    def apply(self, tables: Sequence[Table]) -> None:
        """Make the tables exist. Applying twice changes nothing."""

    def outline(self, tables: Sequence[Table]) -> Sequence[Definition]:
        """What `apply` runs for the tables, in order, and which of it was done already. Changes nothing."""

    def write(self, changes: Sequence[tuple[Table, Rows]]) -> None:
        """Durable on return. In order; a failure leaves whole earlier entries and any subset of the failing one.

        Writing twice changes nothing; a sparse row without cells stores nothing. For each cell (sparse) or row (fixed) the
        greatest version wins, whatever the order.
        """

    def put_if(self, table: Table, key: Key, row: Row | None, expected: Row | None) -> bool:
        """Set one row of a conditional table if it now equals `expected` (None: absent); a row of None removes it.

        Atomic and durable on return. False: it was something else, and nothing changed.
        """

    def insert(self, table: Table, rows: Rows) -> Flags:
        """`put_if` absent, for many rows of a conditional table at once: True for each row that this call inserted."""

    def get(self, table: Table, key: Key, *, may_lag: bool = False) -> Row | None:
        """One live row of a fixed table by its whole key: what a scan for that key gives, without columns."""

    def scan(
        self,
        table: Table,
        partitions: Sequence[Key] | None,
        span: Span = ALL,
        *,
        limit: int | None = None,
        columns: Columns | None = None,
        after: Cursor | None = None,
        first: bool = False,
        may_lag: bool = False,
    ) -> Iterator[Rows]:
        """Live rows of the given partitions (None: of all), as chunks.

        Keys may go on into the clustering columns (all of one length, each given once): then only the rows they are the
        start of are meant. With whole keys a scan is a bulk look-up, and an engine may serve it as such.

        Partitions come in the order asked (for all: in any order), rows in clustering order; a partition's rows are
        contiguous; a chunk may hold several partitions, or part of one. Nothing expired is ever shown. A scan sees what was
        written before it began, and may or may not see what is written while it runs.
        Cells of a fixed row come in the order of its table's columns, those of a sparse row in the same order every time.
        `limit` counts the logical rows that are shown, for each key asked for. `columns` names the cells wanted;
        what selectors mean is found among the names that are stored in each partition, whatever else is known. Every
        chunk has a cursor; resumed `after` it, the same scan gives exactly the rest of itself.
        `first` says that only each cell's first appearance in its partition is wanted: the engine may leave out others.
        `may_lag` says that the last seconds need not be seen: an engine whose store has copies that follow with a delay may
        read the nearest. It is for answering people, not for what is read in order to write.
        """

    def delete(
        self,
        table: Table,
        partitions: Sequence[Key],
        span: Span = ALL,
        *,
        version_us: int,
        columns: Sequence[str] | None = None,
    ) -> None:
        """Remove what was written there up to that version. Whether older data written later shows is a feature.

        Durable on return; repeating is harmless. Conditional tables ignore the version; `columns` are for sparse tables.
        """

    def expire(self, now_us: int) -> Expired:
        """Give back the space of what has expired by `now_us`, which is never ahead of the engine's clock.

        Reads never depend on it. Rows of a windowed table are not shown beyond the time their window is kept.
        """

    def stats(self) -> EngineStats: ...

    def pending_compactions(self) -> int | None:
        """Merges of files that run or wait, on all nodes. This asks the store. None: only its own tools know."""

    def sizes(self) -> Mapping[str, TableSize]:
        """By name of the table, as far as the engine knows: of what is in files, which the newest rows may not be. What was
        replaced or removed is part of it until files are written anew.
        """

    def close(self) -> None:
        """Everything acknowledged stays. Closing twice is harmless."""
