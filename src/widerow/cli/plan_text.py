"""A plan as data, which is what `--json` prints, and drawn for people from that data.

Rule 1: bytes are whole numbers, money and rates are rounded to what they are worth.
Rule 2: everything that is drawn is in the data.
"""

from __future__ import annotations

from typing import Any

from widerow.cli import output
from widerow.model.figures import byte_figure, figure
from widerow.model.tenant import FOREVER
from widerow.model.times import DAY, format_duration
from widerow.plan import textbook as book
from widerow.plan.advice import alternatives, simpler
from widerow.plan.levels import FOREVER_YEARS, Design, Level, Partition, levels, partitions
from widerow.plan.nodes import Sizing, sizings
from widerow.plan.prices import Prices

_LARGE_BYTES = 10 << 20
"""From here on Cassandra's partitions slow down reads and repairs."""


def planned(design: Design, prices: Prices, *, measured: bool = False) -> dict[str, Any]:
    found = levels(design)
    ways = sizings(design, found, prices)
    total = sum(level.total_bytes for level in found)
    return {
        **_load(design),
        "raw": _raw(found[0]),
        "levels": {level.name: _level(level) for level in found},
        "total_bytes": round(total),
        "cluster_bytes": round(total * design.copies),
        "copies": design.copies,
        "bytes_from": _source(design, measured=measured),
        "partitions": [_partition(one) for one in partitions(design)],
        **_nodes(ways[0], prices),
        "other_ways": [_nodes(way, prices) for way in ways[1:]],
        **_advice(design, prices),
    }


def _source(design: Design, *, measured: bool) -> str:
    if design.metric_bytes is None:
        return design.footprint.source
    told = "measured just now" if measured else "as given"
    return f"{figure(design.metric_bytes)} a raw value, {told}; rollups {design.footprint.source}"


def textbook(design: Design, prices: Prices) -> dict[str, Any]:
    """The textbook's figures; nodes for the bytes that it reckons with."""
    said, true = book.estimate(design), book.true_levels(design)
    return {
        **_load(design),
        "raw": {
            "device_day_bytes": round(said.device_day_bytes),
            "day_bytes": round(said.day_bytes),
            "total_bytes": round(said.raw_bytes),
        },
        "levels": {name: {"writes_per_s": _rounded(rate)} for name, rate in said.rates_per_s.items()},
        "total_bytes": round(said.total_bytes),
        "cluster_bytes": round(said.cluster_bytes),
        "copies": design.copies,
        "partitions": [{"level": "raw", "span": "1h", "rows": _rounded(said.hour_rows), "bytes": round(said.hour_bytes)}],
        **_nodes(book.sizing(design, prices.cassandra), prices),
        "corrected_levels": {
            level.name: {
                "writes_per_s": _rounded(level.windows_per_s),
                "rows_per_s": _rounded(level.rows_per_s),
                "total_bytes": round(level.total_bytes),
            }
            for level in true
        },
        "corrections": book.corrections(design),
    }


def _load(design: Design) -> dict[str, Any]:
    fleet = design.fleet
    return {
        "devices": fleet.devices,
        "reports_per_s": _rounded(fleet.reports_per_s),
        "metrics_per_s": _rounded(fleet.metrics_per_s),
        "engine": design.engine,
        "layout": design.layout,
    }


def _raw(level: Level) -> dict[str, Any]:
    return {
        "device_day_bytes": round(level.device_day_bytes),
        "day_bytes": round(level.day_bytes),
        "total_bytes": round(level.total_bytes),
    }


def _level(level: Level) -> dict[str, Any]:
    return {
        "kept": _kept(level.kept_us),
        "on_disk": format_duration(level.stored_us),
        "writes_per_s": _rounded(level.windows_per_s),
        "rows_per_s": _rounded(level.rows_per_s),
        "row_bytes": _rounded(level.row_bytes),
        **_raw(level),
    }


def _partition(one: Partition) -> dict[str, Any]:
    return {
        "class": one.kind,
        "level": one.level,
        "span": format_duration(one.span_us),
        "spread_over": one.parts,
        "rows": _rounded(one.rows),
        "bytes": round(one.plain_bytes),
        "large": one.plain_bytes > _LARGE_BYTES,
    }


def _nodes(way: Sizing, prices: Prices) -> dict[str, Any]:
    return {
        "nodes": way.nodes,
        "node_kind": way.kind,
        "clusters": way.clusters,
        "needs": [{"limit": need.limit, "nodes": need.nodes, "why": need.why} for need in way.needs],
        "bottleneck": way.bottleneck.limit,
        "month": round(way.month),
        "currency": prices.currency,
        "remarks": list(way.remarks),
    }


def _advice(design: Design, prices: Prices) -> dict[str, Any]:
    reasons = simpler(design, prices)
    return {
        "simpler_is_enough": any(one.enough for one in reasons),
        "simpler": [{"code": one.name, "why": one.why, "use": one.use, "enough": one.enough} for one in reasons],
        "alternatives": [
            {
                "code": one.name,
                "what": one.what,
                "total_bytes": round(one.total_bytes),
                "nodes": one.nodes,
                "month": round(one.month),
                "saved_month": round(one.saved_month),
                "saved_bytes": round(one.saved_bytes),
                "remark": one.remark,
            }
            for one in alternatives(design, prices)
        ],
    }


def _kept(kept_us: int) -> str:
    return "forever" if kept_us == FOREVER else format_duration(kept_us)


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


# -- for people


def draw(design: Design, answer: dict[str, Any]) -> None:
    _draw_load(answer)
    if "measured" in answer:
        _draw_measured(answer["measured"])
    output.emit_table(
        ("level", "kept", "writes/s", "rows/s", "bytes a row", "a device and day", "all, a day", "one copy"),
        [
            (
                name,
                level["kept"],
                figure(level["writes_per_s"]),
                figure(level["rows_per_s"]),
                figure(level["row_bytes"]),
                byte_figure(level["device_day_bytes"]),
                byte_figure(level["day_bytes"]),
                byte_figure(level["total_bytes"]),
            )
            for name, level in answer["levels"].items()
        ],
        right=("writes/s", "rows/s", "bytes a row", "a device and day", "all, a day", "one copy"),
    )
    output.emit(f"total: {byte_figure(answer['total_bytes'])}, {byte_figure(answer['cluster_bytes'])} in {_copies(design)}")
    if FOREVER in (design.fleet.retention_us, *design.kept_us.values()):
        output.emit(f"data without end is counted for {FOREVER_YEARS} years")
    output.emit(f"bytes: {answer['bytes_from']}; a copy has {design.guard_us // DAY} days more than is kept")
    if answer["partitions"]:
        _draw_partitions(answer["partitions"])
    _draw_nodes(answer)
    for way in answer["other_ways"]:
        _draw_nodes(way)
    _draw_advice(answer)


def draw_textbook(design: Design, answer: dict[str, Any]) -> None:
    _draw_load(answer)
    raw, (hour,) = answer["raw"], answer["partitions"]
    output.emit_facts(
        {
            "raw, a device and day": byte_figure(raw["device_day_bytes"]),
            "raw, all devices and a day": byte_figure(raw["day_bytes"]),
            f"raw, {_kept(design.fleet.retention_us)}": byte_figure(raw["total_bytes"]),
            "with 10% for aggregates": byte_figure(answer["total_bytes"]),
            f"in {_copies(design)}": byte_figure(answer["cluster_bytes"]),
            "writes/s, raw to days": ", ".join(figure(one["writes_per_s"]) for one in answer["levels"].values()),
            "an hour's partition": f"{figure(hour['rows'])} rows, {byte_figure(hour['bytes'])}",
        }
    )
    _draw_nodes(answer)
    if answer["corrections"]:
        output.emit("where the textbook is wrong:")
    for sentence in answer["corrections"]:
        output.emit(f"- {sentence}")


def _draw_load(answer: dict[str, Any]) -> None:
    rates = f"{figure(answer['reports_per_s'])} reports/s, {figure(answer['metrics_per_s'])} metrics/s"
    devices = "1 device" if answer["devices"] == 1 else f"{answer['devices']:,} devices"
    output.emit(f"{devices}: {rates}, as {answer['layout']} on {answer['engine']}")


def _draw_measured(found: dict[str, Any]) -> None:
    values = f"{found['metrics']:,} raw values in {found['seconds']:g} s"
    output.emit(
        f"measured: {values} on {found['nodes']} node{'s' if found['nodes'] > 1 else ''}; bytes are after compaction"
    )
    size, rate = found["metric_bytes"], found["metrics_per_s"]
    output.emit_table(
        ("", "predicted", "measured"),
        [
            ("bytes a raw value", figure(size["predicted"]), figure(size["measured"])),
            (f"raw values/s, predicted for {rate['predicted_for']}", figure(rate["predicted"]), figure(rate["measured"])),
        ],
        right=("predicted", "measured"),
    )


def _copies(design: Design) -> str:
    return "1 copy" if design.copies == 1 else f"{design.copies} copies"


def _draw_partitions(found: list[dict[str, Any]]) -> None:
    output.emit_table(
        ("partition of", "level", "span", "spread over", "rows", "bytes, uncompressed", ""),
        [
            (
                one["class"],
                one["level"],
                one["span"],
                one["spread_over"],
                figure(one["rows"]),
                byte_figure(one["bytes"]),
                "over 10 MiB" if one["large"] else "",
            )
            for one in found
        ],
        right=("spread over", "rows", "bytes, uncompressed"),
    )


def _draw_nodes(answer: dict[str, Any]) -> None:
    where = f" in {answer['clusters']} clusters" if answer["clusters"] > 1 else ""
    cost = f"{figure(answer['month'])} {answer['currency']} a month"
    one, of, size = answer["node_kind"].partition(" of ")
    nodes = f"{answer['nodes']:,} {one}{'s' if answer['nodes'] != 1 else ''}{of}{size}{where}"
    output.emit(f"nodes: {nodes}, {cost}; the bottleneck is {answer['bottleneck']}")
    each = " in each cluster" if answer["clusters"] > 1 else ""
    for need in answer["needs"]:
        output.emit(f"- {need['limit']}: {need['nodes']:,}{each}: {need['why']}")
    for remark in answer["remarks"]:
        output.emit(f"- {remark}")


def _draw_advice(answer: dict[str, Any]) -> None:
    for enough, heading in ((True, "something simpler is enough:"), (False, "before you build this:")):
        if reasons := [one for one in answer["simpler"] if one["enough"] == enough]:
            output.emit(heading)
        for one in reasons:
            output.emit(f"- {one['why']}: {one['use']}")
    if not answer["alternatives"]:
        return
    output.emit("cheaper:")
    output.emit_table(
        ("change", "one copy", "nodes", f"{answer['currency']} a month", "saved a month", "remark"),
        [
            (
                one["what"],
                byte_figure(one["total_bytes"]),
                one["nodes"],
                figure(one["month"]),
                f"{figure(one['saved_month'])} ({one['saved_month'] / max(1, answer['month']):.0%})",
                one["remark"],
            )
            for one in answer["alternatives"]
        ],
        right=("one copy", "nodes", f"{answer['currency']} a month", "saved a month"),
    )
