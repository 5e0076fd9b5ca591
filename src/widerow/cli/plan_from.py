"""`widerow plan --from`: what a Cassandra keyspace of somebody else holds, and what the same data costs in Widerow.

Rule: the keyspace is read and never written to (`widerow.engine.cassandra.look`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from widerow.cli import output
from widerow.cli.connect import load_config
from widerow.cli.failure import Failed, Misused, as_misuse
from widerow.model.figures import figure
from widerow.model.times import format_time
from widerow.plan.foreign import Findings, Thresholds, findings
from widerow.plan.repack import Cost, cost
from widerow.plan.sampled import Bounds, Estimate, NodeFigures, Sample
from widerow.plan.shape import ForeignTable, Shape, shape_in_words

if TYPE_CHECKING:
    from widerow.engine.cassandra.look import Look

_SHOWN, _LISTED = 10, 100
"""Tenants or devices, partitions that are large, and those that are hot: in a table, and in JSON."""
_SIZE = re.compile(r"(\d{1,12}(?:\.\d{1,3})?)\s*(B|kB|KB|MB|GB|TB|KiB|MiB|GiB|TiB)")
_UNITS = {unit: 1000**i for i, unit in enumerate(("B", "kB", "MB", "GB", "TB"))} | {
    unit: 1024**i for i, unit in enumerate(("KiB", "MiB", "GiB", "TiB"), 1)
}
_UNITS["KB"] = 1000


def size_given(option: str, text: str) -> int:
    """`100MB`, `1.5GiB`."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or float(match[1]) <= 0:
        raise Misused(f"{option} {text!r}: give a number and a unit, such as 500kB, 100MB or 1GiB")
    return int(float(match[1]) * _UNITS[match[2]])


def look(url: str, tables: Sequence[str], bounds: Bounds, limits: Thresholds, *, config: Path | None, as_json: bool) -> None:
    """Look at the keyspace and print what was found."""
    from widerow.engine.open import look_at  # noqa: PLC0415

    with as_misuse("--from"):
        opened = look_at(url, load_config(config).cassandra)
    try:
        found = [_table(opened, table, bounds, limits) for table in _chosen(opened, tables)]
        keyspace = opened.keyspace
    finally:
        opened.close()
    if as_json:
        output.emit_json({"keyspace": keyspace, "tables": found})
        return
    for number, one in enumerate(found):
        if number:
            output.emit("")
        _draw(one)


def _chosen(opened: Look, names: Sequence[str]) -> list[ForeignTable]:
    tables = opened.tables()
    there = [table.name for table in tables]
    for name in names:
        if name not in there:
            raise Misused(f"--table {name}: {opened.keyspace} has no such table; it has {', '.join(there) or 'none'}")
    if not tables:
        raise Failed(f"the keyspace {opened.keyspace} has no tables", code="no-store")
    return [table for table in tables if not names or table.name in names]


def _table(opened: Look, table: ForeignTable, bounds: Bounds, limits: Thresholds) -> dict[str, Any]:
    """All about a table, as JSON has it."""
    with output.progress(f"partitions of {table.name}", None) as step:
        sample = opened.sample(table, bounds, step)
    nodes = opened.nodes(table)
    seen = findings(sample, limits)
    return _as_json(sample, nodes, seen, cost(sample))


def _as_json(sample: Sample, nodes: Sequence[NodeFigures], seen: Findings, price: Cost | None) -> dict[str, Any]:
    disk = [node.disk_bytes for node in nodes if node.disk_bytes is not None]
    largest = max((node.largest_partition_bytes or 0 for node in nodes), default=0)
    return {
        "table": sample.table.name,
        "known_as": sample.shape.known_as if sample.shape else "",
        "shape": _shape(sample.shape),
        "in_words": shape_in_words(sample.shape) if sample.shape else "",
        "copies": sample.table.copies,
        "partitions_read": len(sample.partitions),
        "partitions": asdict(seen.partitions),
        "rows": asdict(seen.rows),
        "bytes": asdict(seen.bytes),
        "disk_bytes": sum(disk) if disk else None,
        "nodes": [asdict(node) for node in nodes],
        "holders": [asdict(one) for one in seen.holders[:_LISTED]],
        "large": [asdict(one) for one in seen.large[:_LISTED]],
        "hot": [asdict(one) for one in seen.hot[:_LISTED]],
        "newest_write": format_time(seen.newest_us) if seen.newest_us else None,
        "notes": [*seen.notes, *_unmet(seen, largest, sample)],
        "widerow": asdict(price) if price else None,
    }


def _shape(shape: Shape | None) -> dict[str, Any] | None:
    if shape is None:
        return None
    return {
        "tenant": shape.tenant,
        "device": list(shape.entity),
        "metric": shape.metric,
        "bucket": list(shape.bucket),
        "time": shape.time,
        "values": list(shape.values),
        "not_packed": list(shape.rest),
    }


def _unmet(seen: Findings, largest_bytes: int, sample: Sample) -> list[str]:
    """A node knows of a partition that is far larger than those that were read."""
    if len(sample.partitions) >= sample.of.value or largest_bytes <= 2 * max(seen.largest_bytes, 1 << 20):
        return []
    return [f"a node has a partition of {output.size(largest_bytes)}, which was not among those read: raise --partitions"]


def _draw(found: Mapping[str, Any]) -> None:
    price = found["widerow"]
    output.emit_facts(
        {
            "table": found["table"],
            "known as": found["known_as"] or "-",
            "columns": found["in_words"] or "no time series: no column of its key is a time",
            "partitions": f"{_about(found['partitions'])}; {found['partitions_read']:,} were read",
            "rows": _about(found["rows"]),
            "bytes": f"{_size(found['bytes'])} before compression, one copy of {found['copies']}",
            "on disk": _disk(found),
            "writes": _writes(found),
            "newest write": found["newest_write"] or "-",
        }
    )
    _list("large partitions", found["large"], ("partition", "rows", "bytes"), _large_row)
    _list("hot partitions", found["hot"], ("partition", "share_of_recent_writes", "even_share"), _hot_row)
    holder = "tenants" if (found["shape"] or {}).get("tenant") else "devices"
    _list(holder, found["holders"], (holder.removesuffix("s"), "rows", "bytes"), _holder_row)
    if price:
        _draw_cost(found, price)
    for note in found["notes"]:
        output.emit(f"note: {note}")


def _disk(found: Mapping[str, Any]) -> str:
    """As the nodes say, which count whole MiB, all copies, compressed, and nothing that is in memory alone."""
    said = [node for node in found["nodes"] if node["disk_bytes"] is not None]
    if not said:
        return "no node says (system_views: Cassandra 4 and later, and the right to read it)"
    return f"{output.size(found['disk_bytes'])}, all copies, compressed, as {len(said)} of {len(found['nodes'])} nodes say"


def _writes(found: Mapping[str, Any]) -> str:
    """Averages of the last minutes."""
    rates = [node["writes_per_s"] for node in found["nodes"] if node["writes_per_s"] is not None]
    return (
        f"{figure(sum(rates))}/s of late, all copies, as {len(rates)} of {len(found['nodes'])} nodes say" if rates else "-"
    )


def _draw_cost(found: Mapping[str, Any], price: Mapping[str, Any]) -> None:
    values = price["values"]["value"] or 1
    rows = [
        ("this table, before compression", found["bytes"]),
        ("Widerow, rows on Cassandra, the same", price["rows_bytes"]),
    ]
    if price["packed_bytes"]:
        rows.append(("Widerow, packed columns, compressed", price["packed_bytes"]))
    output.emit(f"the same {_about(price['values'])} values, one copy:")
    output.emit_table(
        ["stored_as", "bytes", "bytes_per_value"],
        [[name, _size(one), f"{one['value'] / values:.2f}"] for name, one in rows],
        right=["bytes", "bytes_per_value"],
    )
    if price["packed_bytes"]:
        output.emit(f"note: {price['packed_values']:,} values were packed to know it")
    if price["left_out"]:
        output.emit(
            f"note: {price['left_out']:.0%} of the values are no number and no text: they are in no figure of Widerow"
        )


def _list(title: str, found: Sequence[Mapping[str, Any]], columns: Sequence[str], row: Any) -> None:
    if not found:
        if title.endswith("partitions"):
            output.emit(f"{title}: none was met")
        return
    more = f", the first {_SHOWN} of {len(found)}" if len(found) > _SHOWN else ""
    output.emit(f"{title}{more}:")
    output.emit_table(columns, [row(one) for one in found[:_SHOWN]], right=columns[1:])


def _large_row(one: Mapping[str, Any]) -> list[str]:
    return [one["partition"], f"{'' if one['counted'] else 'about '}{one['rows']:,}", output.size(one["bytes"])]


def _hot_row(one: Mapping[str, Any]) -> list[str]:
    return [one["partition"], f"{one['share']['value']:.1%} ±{one['share']['error']:.1%}", f"{one['even']:.2%}"]


def _holder_row(one: Mapping[str, Any]) -> list[str]:
    return [one["name"], _about(one["rows"]), _size(one["bytes"])]


def _about(found: Mapping[str, float]) -> str:
    return f"{found['value']:,.0f}{_margin(found)}"


def _size(found: Mapping[str, float]) -> str:
    return f"{output.size(found['value'])}{_margin(found)}"


def _margin(found: Mapping[str, float]) -> str:
    relative = Estimate(found["value"], found["error"]).relative
    return f" ±{relative:.1%}" if relative >= 0.0005 else ""
