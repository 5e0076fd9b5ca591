"""`widerow migrate FROM TO`: a store, moved to another engine, and compared."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from widerow.cli import output
from widerow.cli.connect import load_config, store_exists
from widerow.cli.failure import Failed, Misused, as_misuse
from widerow.model.store import is_shared, parse_store

if TYPE_CHECKING:
    from widerow.engine.port import Engine
    from widerow.migrate.checksum import Contents


def add_to(app: typer.Typer) -> None:
    app.command("migrate")(migrate)


def migrate(
    source: Annotated[str, typer.Argument(metavar="FROM", help="The store to copy. No process may write to it meanwhile.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="An empty store, or one that holds part of this copy.")],
    verify: Annotated[bool, typer.Option("--verify/--no-verify", help="Compare both, value by value, at the end.")] = True,
    config: Annotated[Path | None, typer.Option("--config", metavar="FILE", help="Configuration file.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Copy a store to another engine: reports with their versions, the catalog, erase marks. It only reads the source.

    If it is interrupted, the same command goes on where it was. Where the target is shared, no other process can write to it
    meanwhile: this one has its lease.

    Example: widerow migrate rocksdb:widerow-data cassandra://10.0.0.1/widerow
    """
    from widerow.catalog.audit import record_command  # noqa: PLC0415 - everything heavy hangs on these
    from widerow.catalog.lease import keep  # noqa: PLC0415
    from widerow.engine.open import open_engine  # noqa: PLC0415
    from widerow.migrate.checksum import contents_of  # noqa: PLC0415
    from widerow.migrate.copy import copy, tables_to_copy  # noqa: PLC0415
    from widerow.model.times import DAY, SECOND, SystemClock  # noqa: PLC0415
    from widerow.schema.tables import AUDIT, META  # noqa: PLC0415

    if source == target:
        raise Misused("FROM and TO are the same store")
    with as_misuse():
        exists, settings = store_exists(source), load_config(config)
        parse_store(target)
    if not exists:
        raise Failed(f"there is no store at {source}", code="no-store", todo="check the URL")
    clock = SystemClock()
    with ExitStack() as stack:

        def opened(url: str) -> Engine:
            engine = open_engine(replace(settings, store=replace(settings.store, url=url)), clock)
            stack.callback(engine.close)
            return engine

        old, new = opened(source), opened(target)
        keeper = None
        if is_shared(target):
            keeper = keep(new, clock, length_us=settings.store.lease_s * SECOND, say=output.note)
            stack.callback(keeper.stop)
        with output.progress("copied values", None) as advance:
            for piece in copy(old, new, clock, source):
                advance(piece.values)
                if keeper is not None:
                    keeper.lease.check()
        record_command(new, new.clock, "widerow migrate", [f"copied from {source}"], keep_us=settings.audit.keep_days * DAY)
        if not verify:
            output.note("copied; not compared")
            return
        tables = [table for table in tables_to_copy(old, clock) if table not in (AUDIT, META)]  # where the copy is noted
        new.apply(tables)
        with output.progress("compared values", None) as advance:
            before = contents_of(old, tables, advance)
            after = contents_of(new, tables, advance)
    _report(before, after, json)


def _report(before: Contents, after: Contents, json: bool) -> None:
    parts = [_part(part, before, after) for part in sorted(before.counts)]
    different = list(before.differences(after))
    if json:
        output.emit_json({"same": not different, "parts": parts})
    else:
        columns = ["table", "tenant", "day", "values", "checksum"]
        output.emit_table(columns, [[part[column] for column in columns] for part in parts], right=["values"])
    if different:
        (table, tenant, day), here, there = different[0]
        raise Failed(
            f"{len(different)} parts differ; the first is {table} of {tenant!r} {_day(day)}: {here} values, and {there}",
            code="migration-differs",
            todo="was the source written to meanwhile? run the command again",
        )
    output.note(f"{sum(before.counts.values()):,} values, the same on both sides")


def _part(part: tuple[str, str, int], before: Contents, after: Contents) -> dict[str, Any]:
    table, tenant, day = part
    count, checksum = before.counts[part], before.sums[part]
    return {
        "table": table,
        "tenant": tenant,
        "day": _day(day),
        "values": count,
        "checksum": f"{checksum:016x}",
        "same": (count, checksum) == (after.counts[part], after.sums[part]),
    }


def _day(number: int) -> str:
    return datetime.fromtimestamp(number * 86_400, UTC).strftime("%Y-%m-%d") if number else ""
