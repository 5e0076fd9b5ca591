"""`widerow plan`: what a fleet costs to store, before anything runs. Needs no server and no store.

With `--from` it looks at a Cassandra keyspace of somebody else instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from widerow.cli import output
from widerow.cli.failure import Failed, Misused, as_misuse
from widerow.cli.session import JsonOption, duration
from widerow.model.system import explained

if TYPE_CHECKING:
    from widerow.plan.fleet import Fleet
    from widerow.plan.levels import Design
    from widerow.plan.prices import Prices


class EngineName(StrEnum):
    CASSANDRA = "cassandra"
    BIGTABLE = "bigtable"
    ROCKSDB = "rocksdb"


class Layout(StrEnum):
    ROWS = "rows"
    PACKED = "packed"


_COPIES = {EngineName.CASSANDRA: 3, EngineName.BIGTABLE: 1, EngineName.ROCKSDB: 1}
_FLEET_OPTIONS = ("--devices", "--interval", "--metrics", "--tenants", "--retention")
_LOOK = "Looking at a cluster (--from)"
_ROLLUPS = ("minute", "hour", "day")


def add_to(app: typer.Typer) -> None:
    app.command("plan")(plan)


def plan(
    devices: Annotated[
        int | None, typer.Option("--devices", min=1, max=1_000_000_000, help="How many devices.", show_default=False)
    ] = None,
    interval: Annotated[
        str | None, typer.Option("--interval", metavar="TIME", help="Between two reports of a device; 10s.")
    ] = None,
    metrics: Annotated[
        int | None, typer.Option("--metrics", min=1, max=10_000, help="Numbers in a report; 10.", show_default=False)
    ] = None,
    tenants: Annotated[
        int | None, typer.Option("--tenants", min=1, max=1_000_000, help="Customers; 1.", show_default=False)
    ] = None,
    retention: Annotated[
        str | None, typer.Option("--retention", metavar="TIME", help="Raw reports are kept so long, or forever; 30d.")
    ] = None,
    fleet: Annotated[
        Path | None,
        typer.Option("--fleet", metavar="FILE", help="A described fleet, instead of these options.", show_default=False),
    ] = None,
    minute_retention: Annotated[
        str, typer.Option("--minute-retention", metavar="TIME", help="The same of minutes; none: no minutes.")
    ] = "90d",
    hour_retention: Annotated[str, typer.Option("--hour-retention", metavar="TIME", help="The same of hours.")] = "365d",
    day_retention: Annotated[str, typer.Option("--day-retention", metavar="TIME", help="The same of days.")] = "forever",
    rf: Annotated[
        int | None,
        typer.Option(
            "--rf", min=1, max=16, help="Copies: Cassandra's replicas (3), Bigtable's clusters (1).", show_default=False
        ),
    ] = None,
    engine: Annotated[
        EngineName | None, typer.Option("--engine", help="The kind of store; cassandra.", show_default=False)
    ] = None,
    layout: Annotated[
        Layout, typer.Option("--layout", help="How reports lie in the store: rows, or packed as columns.")
    ] = Layout.ROWS,
    row_bytes: Annotated[
        float | None,
        typer.Option(
            "--row-bytes", min=0.01, max=1e6, help="Bytes that a raw value takes on disk, if you know.", show_default=False
        ),
    ] = None,
    textbook: Annotated[
        bool,
        typer.Option(
            "--textbook", help="The textbook's figures: 100 bytes a metric, 10% for aggregates.", show_default=False
        ),
    ] = False,
    prices: Annotated[
        Path | None, typer.Option("--prices", metavar="FILE", help="Your prices of nodes.", show_default=False)
    ] = None,
    print_prices: Annotated[
        bool, typer.Option("--print-prices", help="Print the price table, to edit it.", show_default=False)
    ] = False,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure", help="Try it: write reports of the fleet to a store, and plan with that.", show_default=False
        ),
    ] = False,
    store: Annotated[
        str | None,
        typer.Option("--store", metavar="URL", help="For --measure: a store that is not there yet. It is removed again."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", metavar="FILE", help="Settings for reaching a store (--measure, --from); or WIDEROW_CONFIG."
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds",
            min=1,
            max=86_400,
            help="How long --measure writes (10), or --from reads a table at most (60).",
            show_default=False,
        ),
    ] = None,
    from_url: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="URL",
            help="Look at this Cassandra keyspace, which is only read: cassandra://HOST[:PORT]/KEYSPACE.",
            rich_help_panel=_LOOK,
            show_default=False,
        ),
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(
            "--table", metavar="NAME", help="This table alone; repeatable.", rich_help_panel=_LOOK, show_default=False
        ),
    ] = None,
    partitions: Annotated[
        int, typer.Option("--partitions", min=10, max=1_000_000, help="Read no more of a table.", rich_help_panel=_LOOK)
    ] = 5_000,
    rows: Annotated[
        int,
        typer.Option(
            "--rows",
            min=1_000,
            max=100_000_000,
            help="Read so many rows of a table whole, or few more.",
            rich_help_panel=_LOOK,
        ),
    ] = 200_000,
    large_partition: Annotated[
        str, typer.Option("--large-partition", metavar="SIZE", help="Name larger partitions.", rich_help_panel=_LOOK)
    ] = "100MB",
    large_rows: Annotated[
        int, typer.Option("--large-rows", min=1, help="Name partitions with more rows.", rich_help_panel=_LOOK)
    ] = 100_000,
    hot_window: Annotated[
        str,
        typer.Option(
            "--hot-window", metavar="TIME", help="Recent writes: so long before the newest.", rich_help_panel=_LOOK
        ),
    ] = "1h",
    as_json: JsonOption = False,
) -> None:
    """Compute rates, bytes, nodes and cost of a fleet, before anything runs. Needs no store.

    With --from: tell what tables of a Cassandra keyspace hold, which partitions are too large or hot, and how many bytes the
    same data has in Widerow. The keyspace is read and never written to.

    Example: widerow plan --devices 1000000 --interval 10s --metrics 10 --tenants 20

    Example: widerow plan --devices 50000 --interval 1m --metrics 20 --engine bigtable --rf 2

    Example: widerow plan --textbook --devices 1000000 --interval 10s --metrics 10 --retention 30d --rf 3 --json

    Example: widerow plan --devices 1000 --engine rocksdb --measure --seconds 2

    Example: widerow plan --print-prices

    Example: widerow plan --from cassandra://10.0.0.1/thingsboard --table ts_kv_cf
    """
    if from_url is None and table:
        raise Misused("--table is for --from")
    if from_url is not None:
        others = {"--devices": devices, "--fleet": fleet, "--measure": measure, "--store": store, "--textbook": textbook}
        if also := [name for name, value in others.items() if value]:
            raise Misused(f"--from and {also[0]} contradict each other: --from looks at a cluster that is there")
        from widerow.cli.plan_from import look, size_given  # noqa: PLC0415
        from widerow.plan.foreign import Thresholds  # noqa: PLC0415
        from widerow.plan.sampled import Bounds  # noqa: PLC0415

        large_bytes, window_us = size_given("--large-partition", large_partition), _longer("--hot-window", hot_window)
        limits = Thresholds(large_bytes=large_bytes, large_rows=large_rows, hot_window_us=window_us)
        bounds = Bounds(partitions=partitions, rows=rows, seconds=seconds or 60)
        look(from_url, table or (), bounds, limits, config=config, as_json=as_json)
        return
    if print_prices:
        from widerow.plan.prices import price_table  # noqa: PLC0415

        output.emit_bytes(price_table().encode())
        return
    if not measure and (store or config):
        raise Misused("--store and --config are for --measure, and --config for --from")
    engine = _engine(engine, store)
    given = dict(zip(_FLEET_OPTIONS, (devices, interval, metrics, tenants, retention), strict=True))
    kept = {"minute": minute_retention, "hour": hour_retention, "day": day_retention}
    with as_misuse():
        chosen = _prices(prices)
        design = _design(_fleet(fleet, given), kept, engine, layout, rf)
        design = replace(design, metric_bytes=row_bytes)
    from widerow.cli import plan_text  # noqa: PLC0415

    if textbook:
        if measure:
            raise Misused("--textbook and --measure contradict each other: the textbook's bytes are given")
        if layout is not Layout.ROWS or engine is not EngineName.CASSANDRA:
            raise Misused("--textbook is about rows on Cassandra", todo="leave out --engine and --layout")
        answer = plan_text.textbook(design, chosen)
        output.emit_json(answer) if as_json else plan_text.draw_textbook(design, answer)
        return
    run: dict[str, object] = {}
    if measure:
        from widerow.cli import plan_measure  # noqa: PLC0415 - everything heavy hangs on it

        if layout is not Layout.ROWS:
            raise Misused("--measure writes rows, as stores of this release do", todo="leave out --layout")
        found = plan_measure.measure(design, store, config, seconds or 10)
        run = {"measured": plan_measure.compared(design, chosen, found)}
        design, chosen = plan_measure.calibrated(design, chosen, found)
    answer = {**plan_text.planned(design, chosen, measured=measure), **run}
    output.emit_json(answer) if as_json else plan_text.draw(design, answer)


def _engine(given: EngineName | None, store: str | None) -> EngineName:
    """As it is named, or the one of the store that is measured."""
    if store is None:
        return given or EngineName.CASSANDRA
    from widerow.model.store import Embedded, OnCassandra, parse_store  # noqa: PLC0415

    with as_misuse("--store"):
        place = parse_store(store)
    if not isinstance(place, Embedded | OnCassandra):
        raise Misused(f"--store {store}: it tells nobody its size", todo="use rocksdb:PATH or cassandra://HOST/KEYSPACE")
    engine = EngineName.ROCKSDB if isinstance(place, Embedded) else EngineName.CASSANDRA
    if given not in (None, engine):
        raise Misused(f"--engine {given} and --store {store} contradict each other")
    return engine


def _fleet(file: Path | None, given: Mapping[str, object]) -> Fleet:
    from widerow.plan.fleet import read_fleet, simple_fleet  # noqa: PLC0415

    if file is not None:
        if also := [name for name, value in given.items() if value is not None]:
            raise Misused(f"--fleet and {also[0]} contradict each other: the file says it")
        return read_fleet(text_of(file), str(file))
    if given["--devices"] is None:
        raise Misused("how large is the fleet?", todo="give --devices N, or --fleet FILE")
    interval_us = _longer("--interval", str(given["--interval"] or "10s"))
    retention_us = _kept("--retention", str(given["--retention"] or "30d"))
    fleet = simple_fleet(int(str(given["--devices"])), interval_us, int(str(given["--metrics"] or 10)), retention_us)
    tenants = int(str(given["--tenants"] or 1))
    if tenants > fleet.devices:
        raise Misused(f"--tenants {tenants}: these are more than the devices", todo=f"give {fleet.devices} at most")
    return replace(fleet, tenants=tenants)


def _design(fleet: Fleet, kept: dict[str, str], engine: EngineName, layout: Layout, rf: int | None) -> Design:
    from widerow.plan.levels import Design  # noqa: PLC0415

    if engine is EngineName.ROCKSDB and (rf or 1) > 1:
        raise Misused(f"--rf {rf}: an embedded store has one copy", todo="leave --rf out, or take --engine cassandra")
    kept_us = {level: _kept(f"--{level}-retention", text) for level, text in kept.items() if text != "none"}
    return Design(fleet=fleet, engine=engine.value, layout=layout.value, copies=rf or _COPIES[engine], kept_us=kept_us)


def _kept(option: str, text: str) -> int:
    from widerow.model.tenant import FOREVER  # noqa: PLC0415

    return FOREVER if text == "forever" else _longer(option, text)


def _longer(option: str, text: str) -> int:
    width_us = duration(option, text)
    if width_us <= 0:
        raise Misused(f"{option} {text}: it must be longer than nothing")
    return width_us


def _prices(file: Path | None) -> Prices:
    from widerow.plan.prices import default_prices, read_prices  # noqa: PLC0415

    return default_prices() if file is None else read_prices(text_of(file), str(file))


def text_of(file: Path) -> str:
    """A file that the user wrote."""
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise Failed(f"{file} is not UTF-8 ({error.reason} at byte {error.start})", code="file") from None
    except OSError as error:
        raise Failed(explained(error, file), code="file") from None
