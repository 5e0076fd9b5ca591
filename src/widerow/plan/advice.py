"""Whether something simpler is enough, and which changes make a design cheaper, each with its saving.

Rule 1: a reason not to build this is a sentence with the figure that makes it one, and says what to use. One machine is
enough only where it takes both the rate and the bytes.
Rule 2: an alternative is the same plan with one thing changed, computed anew; one that saves nothing is not named.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from widerow.model.figures import byte_figure, figure
from widerow.model.tenant import FOREVER
from widerow.model.times import DAY, MINUTE, format_duration
from widerow.plan.fleet import Fleet
from widerow.plan.levels import Design, levels
from widerow.plan.nodes import GIB, TB, Sizing, sizings
from widerow.plan.prices import HOURS_A_MONTH, Prices

FEW_DEVICES = 10_000
_COLD_AFTER_US = 7 * DAY
_SHORTER_US = 7 * DAY
_COARSER = 5
_LEAST_SAVED = 0.5
"""A month, in money. Fewer bytes on the same nodes save nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Simpler:
    name: str
    why: str
    use: str
    enough: bool = True
    """Whether this reason alone is enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    name: str
    what: str
    total_bytes: float
    nodes: int
    month: float
    saved_month: float
    saved_bytes: float
    """Of one copy."""
    remark: str = ""


def simpler(design: Design, prices: Prices) -> list[Simpler]:
    """The reasons to take something simpler."""
    fleet, found = design.fleet, []
    stored, sizing = _cost(_embedded(design), prices)
    fits = sizing.nodes == 1
    if fleet.devices < FEW_DEVICES and fits:
        devices, are = ("1 device", "is") if fleet.devices == 1 else (f"{fleet.devices:,} devices", "are")
        found.append(
            Simpler(
                name="few-devices",
                why=f"{devices} with {figure(fleet.metrics_per_s)} metrics/s {are} fewer than {FEW_DEVICES:,}",
                use="one machine with PostgreSQL, or `widerow serve` with an embedded store",
            )
        )
    if all(kind.interval_us >= DAY for kind in fleet.classes) and fits:
        found.append(
            Simpler(
                name="daily-reports",
                why=f"a device reports once a day or less: {figure(fleet.reports_per_s * 86_400)} reports a day in all",
                use="a table in PostgreSQL, partitioned by month",
            )
        )
    if fleet.retention_us != FOREVER and fleet.retention_us < DAY and not design.kept_us:
        kept = format_duration(fleet.retention_us)
        found.append(
            Simpler(
                name="no-history",
                why=f"raw reports are kept for {kept} and rolled up nowhere: nothing older can be asked for",
                use="a key-value store with the newest values, such as Redis",
            )
        )
    if fleet.tenants == 1:
        found.append(_single_tenant(fleet, stored if fits else None, prices))
    return found


def _single_tenant(fleet: Fleet, stored: float | None, prices: Prices) -> Simpler:
    """`stored`: bytes of an embedded store that one machine takes. None: one is too small."""
    why, use = "one tenant needs no quotas", "a time-series database such as QuestDB or VictoriaMetrics"
    if stored is None:
        return Simpler(name="single-tenant", why=why, use=f"{use}, if it takes this much", enough=False)
    rate = f"{figure(fleet.metrics_per_s)} metrics/s (up to {figure(prices.rocksdb.metrics_per_s * prices.rocksdb.busy)})"
    fits = f"one machine takes {rate} and {byte_figure(stored)}"
    return Simpler(name="single-tenant", why=f"{why}, and {fits}", use=use)


def alternatives(design: Design, prices: Prices) -> list[Alternative]:
    """Cheaper ones, the one that saves most first."""
    now_bytes, now = _cost(design, prices)
    found = []
    for name, what, changed, remark in _changes(design):
        total, sizing = _cost(changed, prices)
        found.append(_alternative(name, what, (total, sizing.nodes, sizing.month), (now_bytes, now), remark))
    if design.engine == "bigtable":
        found += _cold(design, prices, (now_bytes, now))
    cheaper = [one for one in found if one.saved_month > _LEAST_SAVED]
    return sorted(cheaper, key=lambda one: -one.saved_month)


def _cost(design: Design, prices: Prices) -> tuple[float, Sizing]:
    found = levels(design)
    return sum(level.total_bytes for level in found), sizings(design, found, prices)[0]


def _alternative(
    name: str, what: str, then: tuple[float, int, float], now: tuple[float, Sizing], remark: str
) -> Alternative:
    total, nodes, month = then
    return Alternative(
        name=name,
        what=what,
        total_bytes=total,
        nodes=nodes,
        month=month,
        saved_month=now[1].month - month,
        saved_bytes=now[0] - total,
        remark=remark,
    )


def _changes(design: Design) -> Iterator[tuple[str, str, Design, str]]:
    if design.layout == "rows":
        packed = replace(design, layout="packed", metric_bytes=None)
        yield "columns", "columns of many devices instead of rows", packed, "Widerow stores rows today"
    if "minute" in design.kept_us:
        width_us = _COARSER * design.minute_us
        remark = "Widerow's are of a minute" if design.minute_us == MINUTE else ""
        coarser = replace(design, minute_us=width_us)
        yield "coarser-minutes", f"windows of {format_duration(width_us)} instead of minutes", coarser, remark
        least_us = (2 + (design.fleet.retention_us - 1) // DAY) * DAY
        kept_us = design.kept_us["minute"]
        if design.fleet.retention_us != FOREVER and (kept_us == FOREVER or kept_us > least_us):
            shorter = replace(design, kept_us={**design.kept_us, "minute": least_us})
            yield (
                "shorter-minutes",
                f"minutes kept for {format_duration(least_us)}, longer than raw reports",
                shorter,
                "",
            )
    raw_us = design.fleet.retention_us
    if raw_us == FOREVER or raw_us > _SHORTER_US:
        shorter = replace(design, fleet=replace(design.fleet, retention_us=_SHORTER_US))
        yield "shorter-raw", f"raw reports kept for {format_duration(_SHORTER_US)}", shorter, ""
    if design.engine != "rocksdb":
        yield (
            "embedded",
            "embedded stores on machines of their own",
            _embedded(design),
            "one copy: a lost disk is restored from a backup",
        )


def _embedded(design: Design) -> Design:
    """The same in embedded stores."""
    if design.engine == "rocksdb":
        return design
    return replace(design, engine="rocksdb", layout="rows", copies=1, metric_bytes=None)


def _cold(design: Design, prices: Prices, now: tuple[float, Sizing]) -> list[Alternative]:
    """Raw reports older than a week in a second instance on HDD."""
    node, found = prices.bigtable, levels(design)
    raw = found[0]
    cold_us = raw.stored_us - _COLD_AFTER_US - design.guard_us
    if cold_us <= 0:
        return []
    cold_bytes = raw.day_bytes * cold_us / DAY
    hot = replace(design, fleet=replace(design.fleet, retention_us=_COLD_AFTER_US))
    hot_bytes, warm = _cost(hot, prices)
    full_bytes = node.hdd_tb * TB * node.full
    nodes = -(-cold_bytes // full_bytes) * design.copies
    month = warm.month + nodes * node.node_hour * HOURS_A_MONTH + cold_bytes * design.copies / GIB * node.hdd_gib_month
    what = f"raw reports older than {format_duration(_COLD_AFTER_US)} on HDD ({byte_figure(cold_bytes)})"
    then = (hot_bytes + cold_bytes, warm.nodes + int(nodes), month)
    return [_alternative("cold-hdd", what, then, now, "a second instance, to which a job of yours copies them")]
