"""`widerow schema`: the tables of a store: what they are, what is missing, and making them.

`show` can do without a store. The others open it themselves, without a server.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from widerow.cli import output
from widerow.cli.connect import load_config, resolve, store_exists
from widerow.cli.failure import Failed, Misused, as_misuse

if TYPE_CHECKING:
    from widerow.engine.port import Definition, Engine

app = typer.Typer(help="The tables of a store, and the commands that make them.", no_args_is_help=True)

StoreOption = Annotated[
    str | None, typer.Option("--store", metavar="URL", help="The store: cassandra://HOST/KEYSPACE, rocksdb:PATH, ...")
]
ConfigOption = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="Configuration file.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


class EngineName(StrEnum):
    MEMORY = "memory"
    ROCKSDB = "rocksdb"
    CASSANDRA = "cassandra"
    BIGTABLE = "bigtable"


_NEW_STORES = {
    EngineName.MEMORY: "memory:",
    EngineName.ROCKSDB: "rocksdb:widerow-data",
    EngineName.CASSANDRA: "cassandra://HOST/widerow",
    EngineName.BIGTABLE: "bigtable://PROJECT/INSTANCE/widerow",
}


@app.command("show")
def show(
    engine: Annotated[
        EngineName | None,
        typer.Option("--engine", help="The tables of a new store on this engine. Nothing is opened.", show_default=False),
    ] = None,
    store: StoreOption = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Print the statements for all tables of a store, in its own words: CQL, cbt commands, column families. Changes
    nothing.

    With --engine, or where no store is yet, these are the tables of a new store; --store then gives the names, such as
    the keyspace. Otherwise it opens the store, because each retention of its tenants has tables of its own.

    Example: widerow schema show --engine cassandra

    Example: widerow schema show --engine bigtable --store bigtable://my-project/fleet/widerow

    Example: widerow schema show --store cassandra://10.0.0.1/widerow
    """
    url = store or os.environ.get("WIDEROW_STORE") or load_config(config).store.url
    with as_misuse():
        is_new = engine is not None or not store_exists(url)
    if engine is not None and not url.startswith(f"{engine}:"):
        if store is not None:
            raise Misused(f"--engine {engine} and --store {store} contradict each other")
        url = _NEW_STORES[engine]
    if is_new:
        _print(_statements(url), json)
        return
    with _opened(url, config) as opened:
        _print([(definition.table, definition.text) for definition in _outline(opened)], json)


@app.command("diff")
def diff(store: StoreOption = None, config: ConfigOption = None, json: JsonOption = False) -> None:
    """Print the statements that `apply` would run. Changes nothing; ends with 1 if there are any.

    Example: widerow schema diff --store cassandra://10.0.0.1/widerow
    """
    with _opened(store, config) as engine:
        missing = [definition for definition in _outline(engine) if not definition.exists]
    _print([(definition.table, definition.text) for definition in missing], json)
    if missing:
        raise typer.Exit(1)


@app.command("apply")
def apply(store: StoreOption = None, config: ConfigOption = None, json: JsonOption = False) -> None:
    """Make missing tables, and bring an older store to this release. Running it twice changes nothing.

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
    _print([(definition.table, definition.text) for definition in missing], json)
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


def _statements(url: str) -> list[tuple[str, str]]:
    """Of a new store at the URL, which has no tenants."""
    from widerow.catalog.store import tables_of  # noqa: PLC0415
    from widerow.engine.open import statements  # noqa: PLC0415

    return statements(url, tables_of(None))


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


def _print(made: list[tuple[str, str]], json: bool) -> None:
    if json:
        output.emit_json([{"table": table, "text": text} for table, text in made])
        return
    for _, text in made:
        output.emit(text)
