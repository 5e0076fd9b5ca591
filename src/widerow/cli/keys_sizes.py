"""`widerow keys sizes`: how the tables of a store lie on its nodes: the sizes of partitions, token ranges, tablets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from widerow.cli import output
from widerow.cli.connect import resolve
from widerow.cli.failure import Misused, as_misuse
from widerow.cli.keys import keys
from widerow.cli.schema import ConfigOption, JsonOption, StoreOption
from widerow.config import Config
from widerow.model.figures import figure
from widerow.model.store import OnBigtable, OnCassandra, parse_store

if TYPE_CHECKING:
    from widerow.engine.bigtable.tablets import Tablet
    from widerow.plan.sampled import NodeFigures, Sample

_SHOWN = 10
"""Tablets and hot tablets in a table; JSON has all."""
_OURS = "telemetry"
"""Tables that grow with the fleet begin with this."""
_BYTES_READ = 20_000
"""Rows that are read whole of a table, and a tenth of those that are counted."""


@keys.command("sizes")
def sizes(
    store: StoreOption = None,
    tables: Annotated[
        list[str] | None,
        typer.Option("--table", metavar="NAME", help="Only this table. Can be given several times.", show_default=False),
    ] = None,
    partitions: Annotated[
        int, typer.Option("--partitions", min=10, max=100_000, help="Partitions to read of a table on Cassandra, at most.")
    ] = 500,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Show how large the partitions of a store on Cassandra are, from a sample, and how even its nodes' parts; or how the
    tables of one on Bigtable lie on its tablets. Reads only.

    Example: widerow keys sizes --store cassandra://10.0.0.1/widerow --partitions 2000

    Example: widerow keys sizes --store bigtable://my-project/fleet/widerow
    """
    where = resolve(server=None, token=None, store=store, config=config, environment=None)
    if where.store is None:
        raise Misused("sizes looks at a store, not at a server", todo="give --store URL")
    with as_misuse():
        place = parse_store(where.store)
    if isinstance(place, OnCassandra):
        found = _partitions(where.store, where.config, tables or (), partitions)
    elif isinstance(place, OnBigtable):
        found = _tablets(place, where.config, tables or ())
    else:
        raise Misused(
            f"store {where.store!r} has neither partitions on nodes nor tablets",
            todo="`widerow keys heat` shows how its keys are used",
        )
    if json:
        output.emit_json(found)
    elif isinstance(place, OnCassandra):
        _draw_partitions(found)
    else:
        _draw_tablets(found)


def _chosen(there: Sequence[str], named: Sequence[str]) -> list[str]:
    for name in named:
        if name not in there:
            raise Misused(f"--table {name}: there is no such table; there are {', '.join(there) or 'none'}")
    return [name for name in there if (name in named if named else name.startswith(_OURS))]


# -- Cassandra


def _partitions(url: str, config: Config, named: Sequence[str], partitions: int) -> dict[str, Any]:
    from widerow.engine.open import look_at  # noqa: PLC0415
    from widerow.plan.sampled import Bounds  # noqa: PLC0415

    bounds = Bounds(partitions=partitions, rows=_BYTES_READ)
    opened = look_at(url, config.cassandra)
    try:
        there = {table.name: table for table in opened.tables()}
        tables = []
        for name in _chosen(list(there), named):
            with output.progress(f"partitions of {name}", None) as step:
                sample = opened.sample(there[name], bounds, step)
            tables.append(_sizes_of(sample, opened.nodes(there[name])))
        ring = opened.ring()
    finally:
        opened.close()
    return {
        "engine": "cassandra",
        "balance": max(ring.values()) * len(ring),
        "ring": [{"node": node, "share": share} for node, share in sorted(ring.items())],
        "tables": tables,
    }


def _sizes_of(sample: Sample, nodes: Sequence[NodeFigures]) -> dict[str, Any]:
    from widerow.plan.foreign import named, partition_sizes, total  # noqa: PLC0415
    from widerow.plan.histogram import histogram, quantile  # noqa: PLC0415

    sizes = partition_sizes(sample)
    largest = max(zip(sizes, sample.partitions, strict=True), key=lambda one: one[0], default=None)
    return {
        "table": sample.table.name,
        "partitions": asdict(sample.of),
        "read": len(sample.partitions),
        "unread": sample.unread,
        "in_time": sample.in_time,
        "bytes": asdict(total(sizes, sample.of)),
        **{f"p{q}_bytes": round(quantile(sizes, q / 100)) for q in (50, 90, 99)},
        "largest_bytes": round(largest[0]) if largest else 0,
        "largest": named(sample.table, largest[1].key) if largest else None,
        "histogram": [asdict(one) for one in histogram(sizes, sample.of.value)],
        "nodes": [{"node": one.node, "largest_partition_bytes": one.largest_partition_bytes} for one in nodes],
    }


def _draw_partitions(found: Mapping[str, Any]) -> None:
    rows = []
    for one in found["tables"]:
        told = [node["largest_partition_bytes"] for node in one["nodes"] if node["largest_partition_bytes"] is not None]
        rows.append(
            (
                one["table"],
                _about(one["partitions"], figure),
                f"{one['read']:,}",
                _about(one["bytes"], output.size),
                *(output.size(one[key]) for key in ("p50_bytes", "p99_bytes", "largest_bytes")),
                output.size(max(told)) if told else "-",
            )
        )
    columns = ("table", "partitions", "read", "bytes", "half up to", "99% up to", "largest read", "largest, says a node")
    output.emit_table(columns, rows, right=columns[1:])
    for one in found["tables"]:
        if not one["histogram"]:
            continue
        output.emit(f"{one['table']}: the largest that was read is {output.printable(one['largest'])}")
        for each in one["histogram"]:
            share, error = each["share"]["value"], each["share"]["error"]
            bar = "█" * round(40 * share)
            output.emit(f"  up to {output.size(each['up_to_bytes']):>9} {share:>6.1%} ± {error:<6.1%} {bar}".rstrip())
    shares = ", ".join(f"{one['node']} {one['share']:.1%}" for one in found["ring"])
    output.emit(f"ring: {shares}; the largest part is {found['balance']:.2f} times the mean")
    for one in found["tables"]:
        if one["unread"] or not one["in_time"]:
            output.note(f"{one['table']}: {one['unread']:,} partitions could not be read, or the time was over")


def _about(estimate: Mapping[str, float], shown: Callable[[float], str]) -> str:
    value, error = estimate["value"], estimate["error"]
    return f"{shown(round(value))} ± {shown(round(error))}" if error >= 0.5 else shown(round(value))


# -- Bigtable


def _tablets(place: OnBigtable, config: Config, named: Sequence[str]) -> dict[str, Any]:
    from widerow.engine.open import tablets_of  # noqa: PLC0415

    opened = tablets_of(place, config.bigtable)
    try:
        tables = [_tablet_facts(table, opened.of(table)) for table in _chosen(opened.tables(), named)]
        hot = opened.hot()
    finally:
        opened.close()
    return {"engine": "bigtable", "tables": tables, "hot": None if hot is None else [asdict(one) for one in hot]}


def _tablet_facts(table: str, tablets: Sequence[Tablet]) -> dict[str, Any]:
    total = sum(one.bytes for one in tablets)
    largest = max(tablets, key=lambda one: one.bytes)
    return {
        "table": table,
        "bytes": total,
        "skew": largest.bytes * len(tablets) / total if total else 1.0,
        "tablets": [asdict(one) for one in tablets],
    }


def _draw_tablets(found: Mapping[str, Any]) -> None:
    rows = []
    for one in found["tables"]:
        largest = max(one["tablets"], key=lambda tablet: tablet["bytes"])
        begin = (largest["start"] or "(first)") if one["bytes"] else "-"
        rows.append((one["table"], output.size(one["bytes"]), len(one["tablets"]), f"{one['skew']:.1f}", begin))
    columns = ("table", "bytes", "tablets", "largest/mean", "the largest begins at")
    output.emit_table(columns, rows, right=("bytes", "tablets", "largest/mean"))
    hot: Sequence[Mapping[str, Any]] | None = found["hot"]
    if hot is None:
        output.note("this service, or this token, has no list of hot tablets")
    elif hot:
        output.emit_table(
            ("hot tablet", "from", "to", "cluster", "CPU of a node", "minute"),
            [(h["table"], h["start"], h["stop"], h["cluster"], f"{h['cpu_share']:.0%}", h["minute"]) for h in hot[:_SHOWN]],
            right=("CPU of a node",),
        )
    else:
        output.note("no tablet is hot")
