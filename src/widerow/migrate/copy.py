"""Copying a store, table by table, with versions, expiry and erase marks; it can be stopped and goes on where it was.

Rule 1: what the target acknowledged is noted in the target itself, so a copy that was killed resumes from there, whoever
resumes it. Copying a piece twice is harmless: rows carry their versions.
Rule 2: the catalog goes first: nothing is readable in the target that its erase marks would hide.
Rule 3: the target is empty, or holds an earlier part of the same copy. Anything else is refused, not merged.
Rule 4: a target that is not whole says so, and cannot be opened by anything but this; nor is it a source.
Rule 5: a source that a process writes to is refused: the copy would be of no one moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from widerow.catalog import lease
from widerow.catalog.clock import KEY as CLOCK
from widerow.catalog.store import COPY, bring_up, tables_of, unfinished_copy
from widerow.catalog.tenants import Tenants
from widerow.engine.port import Engine
from widerow.engine.rows import Cursor, Rows
from widerow.model.arrays import lengths
from widerow.model.errors import Conflict, Unavailable
from widerow.model.times import Clock
from widerow.schema.table import Table
from widerow.schema.tables import ERASED, LAST_SEEN, META, TABLES, TENANTS

_OWN = ("schema", "backup", *COPY, *lease.KEY, *CLOCK)
"""What META says of a store that is not so of its copy."""


class Progress(msgspec.Struct, frozen=True):
    """How far a copy is."""

    source: str
    """The URL it copies from."""
    table: str = ""
    """What is being copied; empty before the first."""
    after: str = ""
    """Behind which piece of it, as hexadecimal digits of the source's cursor."""
    done: bool = False
    """Then the store is whole, and may be opened."""


_PROGRESS_DECODER = msgspec.json.Decoder(Progress)


@dataclass(frozen=True, slots=True)
class Copied:
    """A piece that the target has acknowledged."""

    table: str
    values: int


def tables_to_copy(source: Engine, clock: Clock) -> list[Table]:
    """Those the source has, in the order they are copied: what hides comes before what is hidden.

    Applied to the source, which changes nothing there: they exist.
    """
    tables = _existing(source, TABLES)
    source.apply(tables)
    tables = _existing(source, tables_of(Tenants(source, clock) if TENANTS in tables else None))
    source.apply(tables)
    return sorted(tables, key=lambda table: table not in (META, ERASED))


def _existing(engine: Engine, tables: Sequence[Table]) -> list[Table]:
    there = {definition.table for definition in engine.outline(tables) if definition.exists}
    return [table for table in tables if table.name in there]


def progress_of(target: Engine) -> Progress | None:
    found = target.get(META, COPY)
    return None if found is None else _PROGRESS_DECODER.decode(str(found["body"]))


def copy(
    source: Engine, target: Engine, clock: Clock, source_url: str, *, stop: Callable[[], bool] = lambda: False
) -> Iterator[Copied]:
    """Copy what is not copied yet. Each item was noted as done; ends early when `stop` says so."""
    tables = tables_to_copy(source, clock)
    if META in tables and (writer := lease.writer_of(source, clock.now_us())) is not None:
        raise Conflict(f"the source is being written to: {writer}; stop that one, or wait for its lease to run out")
    if META in tables and (origin := unfinished_copy(source)):
        raise Conflict(f"the source is an unfinished copy of {origin}: finish that first")
    at = _begun(target, source_url)
    target.apply(tables)
    if at.done:
        return
    names = [table.name for table in tables]
    for table in tables[names.index(at.table) if at.table else 0 :]:
        after: Cursor | None = bytes.fromhex(at.after) if at.table == table.name and at.after else None
        for rows in source.scan(table, None, after=after):
            values = _put(target, table, rows)
            at = _noted(target, at, Progress(source_url, table.name, (rows.cursor or b"").hex()))
            yield Copied(table.name, values)
            if stop():
                return
        at = _noted(target, at, Progress(source_url, _next(names, table.name)))
    _noted(target, at, Progress(source_url, done=True))


def _begun(target: Engine, source_url: str) -> Progress:
    """Where the copy stands; a new one is noted."""
    target.apply([META, TENANTS])
    found = progress_of(target)
    if found is None:
        if any(len(rows) for rows in target.scan(TENANTS, None)):
            raise Conflict("the target has tenants of its own: migrate into an empty store")
        bring_up(target)
        return _noted(target, None, Progress(source_url))
    if found.source != source_url:
        raise Conflict(f"the target holds part of a copy of {found.source}: finish that, or use an empty store")
    return found


def _noted(target: Engine, before: Progress | None, now: Progress) -> Progress:
    expected = None if before is None else {"body": msgspec.json.encode(before).decode()}
    if before != now and not target.put_if(META, COPY, {"body": msgspec.json.encode(now).decode()}, expected):
        raise Unavailable("another process copies into this store")
    return now


def _next(names: list[str], name: str) -> str:
    following = names.index(name) + 1
    return names[following] if following < len(names) else name


def _newest_us(table: Table, rows: Rows) -> int:
    """The greatest version that the target's clock must not fall behind."""
    if table == ERASED:
        return max((int(rows.row(i)["version_us"]) for i in range(len(rows))), default=0)
    # Where devices were last seen is versioned by event time.
    return 0 if table == LAST_SEEN or not len(rows) else int(rows.version_us.max())


def _put(target: Engine, table: Table, rows: Rows) -> int:
    """Give the rows to the target; how many values that were."""
    target.clock.cover(_newest_us(table, rows))
    if not table.conditional:
        target.write([(table, rows)])
        return len(rows.cells)
    if table == META:  # facts about the store itself: the target has its own
        kept = [rows.key(META, i)[0] not in _OWN for i in range(len(rows))]
        rows = rows.take(np.array(kept, np.bool_))
    if len(rows):
        target.insert(table, rows)
    return int(lengths(rows.cells.offsets).sum())
