"""`widerow schema`: the tables of a store: what they are, what is missing, and making them.

These commands open the store itself, without a server: they are for whoever looks after the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from widerow.cli import output
from widerow.cli.connect import load_config, resolve, store_exists
from widerow.cli.failure import Failed, Misused

if TYPE_CHECKING:
    from widerow.engine.port import Definition, Engine

app = typer.Typer(help="The tables of a store, and the commands that make them.", no_args_is_help=True)

StoreOption = Annotated[
    str | None, typer.Option("--store", metavar="URL", help="The store: cassandra://HOST/KEYSPACE, rocksdb:PATH, ...")
]
ConfigOption = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="Configuration file.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


@app.command("show")
def show(store: StoreOption = None, config: ConfigOption = None, json: JsonOption = False) -> None:
    """Print the statements that make all tables of a store, those that exist included. Changes nothing.

    Example: widerow schema show --store cassandra://10.0.0.1/widerow
    """
    with _opened(store, config) as engine:
        _print(_outline(engine), json)


@app.command("diff")
def diff(store: StoreOption = None, config: ConfigOption = None, json: JsonOption = False) -> None:
    """What `apply` would run. Changes nothing; ends with 1 if something is missing.

    Example: widerow schema diff --store cassandra://10.0.0.1/widerow
    """
    with _opened(store, config) as engine:
        missing = [definition for definition in _outline(engine) if not definition.exists]
    _print(missing, json)
    if missing:
        raise typer.Exit(1)


@app.command("apply")
def apply(store: StoreOption = None, config: ConfigOption = None, json: JsonOption = False) -> None:
    """Make what is missing, and bring an older store to this release. Doing it twice changes nothing.

    Example: widerow schema apply --store cassandra://10.0.0.1/widerow
    """
    from widerow.catalog.audit import record_command  # noqa: PLC0415 - everything heavy hangs on these
    from widerow.catalog.store import bring_up, tables_of  # noqa: PLC0415
    from widerow.model.times import DAY, SystemClock  # noqa: PLC0415

    with _opened(store, config, makes=True) as engine:
        missing = [definition for definition in _outline(engine) if not definition.exists]
        bring_up(engine)
        engine.apply(tables_of(_tenants(engine)))
        if missing:
            made = [f"{definition.table}: made" for definition in missing]
            keep_us = load_config(config).audit.keep_days * DAY
            record_command(engine, SystemClock(), "widerow schema apply", made, keep_us=keep_us)
    _print(missing, json)
    if not json:
        output.note(f"{len(missing)} made" if missing else "nothing to do")


@contextmanager
def _opened(store: str | None, config: Path | None, *, makes: bool = False) -> Iterator[Engine]:
    from widerow.engine.open import open_engine  # noqa: PLC0415
    from widerow.model.times import SystemClock  # noqa: PLC0415

    where = resolve(server=None, token=None, store=store, config=config, environment=None)
    if where.store is None:
        raise Misused("schema works on a store, not on a server", todo="give --store URL")
    if not makes and not store_exists(where.store):
        raise Failed(f"there is no store at {where.store}", code="no-store", todo="`widerow schema apply` makes one")
    engine = open_engine(where.config, SystemClock())
    try:
        yield engine
    finally:
        engine.close()


def _outline(engine: Engine) -> list[Definition]:
    from widerow.catalog.store import outline  # noqa: PLC0415

    return list(outline(engine, _tenants(engine)))


def _tenants(engine: Engine) -> Any:
    """The store's tenants; None while it has no tables for them."""
    from widerow.catalog.tenants import Tenants  # noqa: PLC0415
    from widerow.model.times import SystemClock  # noqa: PLC0415
    from widerow.schema.tables import TENANTS  # noqa: PLC0415

    if not all(definition.exists for definition in engine.outline([TENANTS])):
        return None
    engine.apply([TENANTS])
    return Tenants(engine, SystemClock())


def _print(definitions: list[Definition], json: bool) -> None:
    if json:
        output.emit_json([{"table": d.table, "text": d.text, "exists": d.exists} for d in definitions])
        return
    for definition in definitions:
        output.emit(definition.text)
