"""Catalog entities as rows of conditional tables.

A row's `body` is the JSON of the entity without its name and revision; `revision` grows by one with each change.
Rule 1: bodies evolve. Keys we do not know are ignored, keys that are missing get their defaults.
Rule 2: a change is a `put_if` on the row that was read, so no change of another process is ever overwritten unseen.
Rule 3: changes of one process to one name wait for each other, so only other processes can make them try again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np

from widerow.engine.port import ALL, Engine, Span
from widerow.engine.rows import Key, Row, Rows
from widerow.model.arrays import Codes, Ints
from widerow.model.batch import CellKind
from widerow.model.check import metric_fault
from widerow.model.errors import Conflict, Corrupt, NotFound, Rejected, Unavailable
from widerow.model.names import Coded
from widerow.schema.shards import SHARDS, shard_of
from widerow.schema.table import Table

T = TypeVar("T")

FIRST_REVISION = 1
_IN_KEY_OR_COLUMN = ("name", "id", "revision")
_TRIES = 32
"""How often a change is tried again when other processes were faster each time."""


@dataclass(frozen=True, slots=True)
class Stored(Generic[T]):
    """An entity, and the row it was read from, as `put_if` expects it."""

    name: str
    value: T
    row: Row

    @property
    def revision(self) -> int:
        return int(self.row.get("revision", 0))


def named(name: str, row: Row) -> dict[str, Any]:
    """What a body leaves out, of entities that have a name and a revision."""
    return {"name": name, "revision": int(row["revision"])}


def _nothing(_: Stored[Any]) -> None: ...


class Records(Generic[T]):
    """The entities of one table. `scope` is what comes before the shard in its key: nothing, or the tenant.

    Safe to share between threads. `NotFound` and `Conflict` are raised as their names say.
    """

    def __init__(
        self,
        engine: Engine,
        table: Table,
        kind: type[T],
        what: str,
        left_out: Callable[[str, Row], dict[str, Any]] = named,
    ) -> None:
        self.engine, self.table, self.what = engine, table, what
        self._kind, self._left_out = kind, left_out
        self._body = msgspec.json.Decoder(dict[str, Any])
        # Two threads that are the first to use a type of msgspec's at the same moment crash the process: so it is used here.
        msgspec.json.Decoder(kind)
        self._revised = "revision" in table.columns
        self._locks = [threading.Lock() for _ in range(SHARDS)]

    def find(self, scope: Key, name: str) -> Stored[T] | None:
        if metric_fault(name):
            return None  # never stored; what came from a URL may not even be valid UTF-8
        row = self.engine.get(self.table, self._key(scope, name))
        return None if row is None else self.decoded(name, row)

    def get(self, scope: Key, name: str) -> Stored[T]:
        found = self.find(scope, name)
        if found is None:
            raise NotFound(f"no {self.what} {name[:80]!r}")
        return found

    def create(self, scope: Key, name: str, value: T) -> T:
        """Store what must not exist yet."""
        row = self.row(value, FIRST_REVISION)
        if not self.engine.put_if(self.table, self._key(scope, name), row, None):
            raise Conflict(f"{self.what} {name!r} exists already")
        return self.decoded(name, row).value

    def update(
        self,
        scope: Key,
        name: str,
        change: Callable[[T], T],
        expected: int | None,
        before: Callable[[Stored[T]], None] = _nothing,
    ) -> T:
        """Store what `change` makes of the entity; its name and revision are not up to `change`.

        With an `expected` revision it must be that one. A change that changes nothing leaves the revision alone.
        `before` gets what is about to be replaced; again, if another process was faster.
        """
        with self._locks[shard_of(name)]:
            for _ in range(_TRIES):
                old = self._expect(scope, name, expected)
                new = change(old.value)
                if pack(new) == pack(old.value):
                    return old.value
                row = self.row(new, old.revision + 1)
                before(old)
                if self.engine.put_if(self.table, self._key(scope, name), row, old.row):
                    return self.decoded(name, row).value
        raise Unavailable(f"{self.what} {name!r} keeps changing")

    def remove(
        self, scope: Key, name: str, expected: int | None = None, before: Callable[[Stored[T]], None] = _nothing
    ) -> T:
        """Remove it and give what it was. `before` gets what is about to go; again, if another process was faster."""
        with self._locks[shard_of(name)]:
            for _ in range(_TRIES):
                old = self._expect(scope, name, expected)
                before(old)
                if self.engine.put_if(self.table, self._key(scope, name), None, old.row):
                    return old.value
        raise Unavailable(f"{self.what} {name!r} keeps changing")

    def scan(
        self,
        scope: Key,
        shards: Iterable[int] = range(SHARDS),
        span: Span = ALL,
        *,
        limit: int | None = None,
        wanted: Callable[[str, str], bool] | None = None,
    ) -> Iterator[Stored[T]]:
        """Shard by shard, by name within each. `wanted(name, body)` may spare decoding; `limit` is per shard."""
        for rows in self.engine.scan(self.table, [(*scope, shard) for shard in shards], span, limit=limit):
            yield from self._each(rows, wanted)

    def bodies(self, scope: Key) -> Iterator[tuple[list[str], list[str]]]:
        """The names of all entities and their bodies as they are stored, some at a time."""
        for rows in self.engine.scan(self.table, [(*scope, shard) for shard in range(SHARDS)]):
            yield self.names(rows).to_list(), _bodies(rows)

    def find_all(self, scope: Key, names: Sequence[str]) -> Iterator[Stored[T]]:
        """Those of the names that exist. The names are distinct, and such as can be stored."""
        for rows in self.engine.scan(self.table, [self._key(scope, name) for name in names]):
            yield from self._each(rows, None)

    def remove_all(self, scope: Key, version_us: int) -> None:
        self.engine.delete(self.table, [(*scope, shard) for shard in range(SHARDS)], version_us=version_us)

    def names(self, rows: Rows) -> Coded:
        column = rows.keys[self.table.clustering[0].name]
        assert isinstance(column, Coded)
        return column

    def row(self, value: T, revision: int) -> Row:
        body = pack(value)
        return {"body": body, "revision": float(revision)} if self._revised else {"body": body}

    def decoded(self, name: str, row: Row) -> Stored[T]:
        """The entity of a row, which may also be one that another table has kept."""
        try:
            fields = self._body.decode(str(row["body"])) | self._left_out(name, row)
            return Stored(name, msgspec.convert(fields, self._kind), row)
        except (msgspec.MsgspecError, Rejected) as error:
            raise Corrupt(f"{self.table.name}: the body of {self.what} {name!r} cannot be read: {error}") from error

    def _each(self, rows: Rows, wanted: Callable[[str, str], bool] | None) -> Iterator[Stored[T]]:
        bodies = _bodies(rows)
        revisions = _revisions(rows) if self._revised else None
        for i, name in enumerate(self.names(rows).to_list()):
            if wanted is None or wanted(name, bodies[i]):
                row: Row = {"body": bodies[i]}
                yield self.decoded(name, row if revisions is None else {**row, "revision": revisions[i]})

    def _expect(self, scope: Key, name: str, expected: int | None) -> Stored[T]:
        old = self.get(scope, name)
        if expected is not None and old.revision != expected:
            raise Conflict(f"{self.what} {name!r} is at revision {old.revision}, not {expected}: read it again")
        return old

    def _key(self, scope: Key, name: str) -> Key:
        return (*scope, shard_of(name), name)


def pack(value: object) -> str:
    """The body of an entity."""
    fields = msgspec.to_builtins(value)
    for left_out in _IN_KEY_OR_COLUMN:
        fields.pop(left_out, None)
    return msgspec.json.encode(fields).decode()


def _bodies(rows: Rows) -> list[str]:
    texts = rows.cells.texts.to_list()
    return [texts[code] for code in rows.cells.text[_cell_of_each_row(rows, "body", CellKind.TEXT)].tolist()]


def _revisions(rows: Rows) -> list[float]:
    revisions: list[float] = rows.cells.number[_cell_of_each_row(rows, "revision", CellKind.NUMBER)].tolist()
    return revisions


def _cell_of_each_row(rows: Rows, column: str, kind: CellKind) -> Ints | Codes:
    """Where each row's cell of that column is. A fixed row is written as a whole, so each has exactly one."""
    cells = rows.cells
    codes = [code for code, name in enumerate(cells.names.to_list()) if name == column]
    where = np.flatnonzero(np.isin(cells.name, codes) & (cells.kind == kind))
    if len(where) != len(rows):
        raise Corrupt(f"a catalog row has no {column!r}")
    return where
