"""`GET /v1/overview`: how things stand, from memory alone, so that it is cheap and answers while the store stands still.

Rule 1: a tenant's overview has nothing of another tenant, also of an earlier one of its name. Of the process it has the
version and the start alone.
Rule 2: an overview is made once in `FRESH_S` for each scope, however many ask for it.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import msgspec

from widerow import __version__
from widerow.admit.controls import What
from widerow.alerts.alert import FIRING, PENDING, Alert, shown
from widerow.engine.port import EngineStats
from widerow.model.figures import byte_figure, figure
from widerow.model.times import SECOND, about_duration, format_time
from widerow.ops.figures import Figures, Sample, between, figures, quantile, tenant_figures, writes_fail
from widerow.ops.hour import ONLINE, TENANT_FIGURES
from widerow.rollup.guard import LATE_US, standing
from widerow.server.headline import SILENT_WITHIN_US, Facts, Hot, Line, Silent, headline
from widerow.service import Service

FRESH_S = 2.0
MOST_TENANTS, MOST_REFUSALS, MOST_HOT, MOST_ALERTS = 10, 8, 20, 20
_MOST_SCOPES = 256
_SLOW_COMMIT_S = 0.05
_BEHIND_US = LATE_US // 12
UNITS = {
    "ingestion_rate": "reports/s",
    "metrics_rate": "values/s",
    "ingestion_latency_p99": "s",
    "batch_size_avg": "reports",
    "hot_partitions": "",
    "quota_rejections": "",
    "refused_rate": "reports/s",
    "backpressure_events": "per minute",
    "pending_compactions": "",
    ONLINE: "",
}
_TOLD = {"hot_partitions": "hot", "quota_rejections": "refusals", "backpressure_events": "troubles"}
"""Alerts whose matter the headline tells in better words, where it has them."""
_DONE = {What.HOT_RATE: "limited", What.SPREAD: "spread", What.SAMPLE: "sampled"}


class Overviews:
    """Those of a process, as JSON. Safe to share between threads."""

    def __init__(
        self, service: Service, troubles: Callable[[], list[str]], clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        """`troubles`: what is wrong with the process and its fronts, in words."""
        self._service, self._troubles, self._clock_s, self._lock = service, troubles, clock_s, threading.Lock()
        self._made: OrderedDict[str, tuple[float, bytes]] = OrderedDict()

    def of(self, tenant: str) -> bytes:
        """Empty: of all."""
        with self._lock:
            made = self._made.get(tenant)
            now_s = self._clock_s()
            if made is None or now_s - made[0] >= FRESH_S:
                made = self._made[tenant] = now_s, msgspec.json.encode(overview(self._service, self._troubles, tenant))
                self._made.move_to_end(tenant)
                if len(self._made) > _MOST_SCOPES:
                    self._made.popitem(last=False)
            return made[1]


def for_role(made: bytes, role: str) -> bytes:
    """The overview that all callers of a scope share, with the role of one caller's token."""
    return b'{"role":"%s",' % role.encode() + made[1:]


def overview(service: Service, troubles: Callable[[], list[str]], tenant: str = "") -> dict[str, Any]:
    """`tenant`: empty for all."""
    now_us = service.clock.now_us()
    before, now = service.rates.latest()
    found = tenant_figures(before, now, tenant) if tenant else figures(before, now)
    online = _online(service, tenant, now_us)
    total = _devices(service, tenant)
    hour, known = service.hour, service.catalog.tenants.at_hand(tenant, now_us) if tenant else None
    if known:
        hour.begin(tenant, known.created_us)
    alerts = [alert for alert in service.alerts.store.known(tenant or None) if alert.state in (FIRING, PENDING)]
    facts = _facts(service, troubles, tenant, found, before, now, now_us)
    answer: dict[str, Any] = {
        "time": format_time(now_us),
        "version": __version__,
        "started": format_time(service.started_us),
        "scope": tenant or "all",
        "headline": [_line_form(line) for line in headline(_with_alerts(facts, alerts))],
        "minutes": [format_time(minute_us) for minute_us in hour.minutes_us()],
        "figures": _figures_form(service, tenant, found, online, now_us),
        "devices": {"total": total, "online": online, "stale": max(0, total - online)},
        "refusals": [
            {"code": one.code, "count": int(one.count), "minutes": one.minutes}
            for one in hour.refusals(tenant)[:MOST_REFUSALS]
        ],
        "stages": [] if tenant else _stages(service, before, now),
        "tenants": _tenants_form(service, [tenant] if tenant else _busiest(before, now), before, now, now_us),
        "store": None,
        "rollups": None,
        "alerts": [shown(alert, silenced=service.alerts.silenced(alert)) for alert in alerts[:MOST_ALERTS]],
    }
    if not tenant and service.gauges.stats is not None:
        answer["store"] = store_form(service, service.gauges.stats)
        answer["rollups"] = standing(service.gauges.lags)
    return answer


def store_form(service: Service, stats: EngineStats) -> dict[str, Any]:
    """What is known of the store, for operators."""
    return {
        "disk_bytes": stats.disk_bytes,
        "memory_bytes": stats.memory_bytes,
        "windows": stats.windows,
        "syncs": stats.syncs,
        "in_flight_bytes": service.pipeline.in_flight(),
        "healthy": service.pipeline.pressure.healthy,
        "detail": stats.detail,
        "damage": stats.damage,
    }


# -- figures


def _figures_form(service: Service, tenant: str, found: Figures, online: int, now_us: int) -> dict[str, Any]:
    names = (*TENANT_FIGURES, ONLINE) if tenant else UNITS
    values = {**asdict(found), ONLINE: online}
    limits = _limits(service, found)
    known = service.catalog.tenants.at_hand(tenant, now_us) if tenant else None
    if known:
        limits["ingestion_rate"] = known.limits.writes_per_s or None
    form = {}
    for name in names:
        minutes = service.hour.of(name, tenant)
        value = values[name]
        if name == "backpressure_events":  # events of ten seconds are not yet those of a minute
            value = max((count for count in minutes[-2:] if count is not None), default=value)
        form[name] = {
            "now": _rounded(value),
            "unit": UNITS[name],
            "minutes": [_rounded(minute) for minute in minutes],
            "limit": limits.get(name),
        }
    return form


def _limits(service: Service, found: Figures) -> dict[str, float | None]:
    """From where on a figure is worth a look: as the built-in alerts are set. At a low rate batches are small."""
    alerts = service.config.alerts
    are_batches_judged = found.ingestion_rate >= alerts.batch_from_per_s
    return {
        "ingestion_latency_p99": alerts.latency_ms / 1000,
        "batch_size_avg": alerts.batch_size if are_batches_judged else None,
        "hot_partitions": 0,
        "quota_rejections": alerts.quota_percent / 100,
        "backpressure_events": 0,
        "pending_compactions": alerts.compactions,
    }


def _rounded(value: float | None) -> float | None:
    """Four digits are enough for a chart, and keep a snapshot small."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.4g}") if abs(value) < 1_000 else round(value)


def _online(service: Service, tenant: str, now_us: int) -> int:
    return sum(service.presence.online(name, now_us) for name in ([tenant] if tenant else service.presence.tenants()))


def _devices(service: Service, tenant: str) -> int:
    """As far as it is known without asking the store."""
    counts = service.catalog.devices.counts_at_hand()
    return counts.get(tenant, 0) if tenant else sum(counts.values())


def _busiest(before: Sample, now: Sample) -> list[str]:
    def busy(name: str) -> tuple[float, float, str]:
        came = now.reports.get(name, 0.0) + now.refused.get(name, 0.0)
        return before.reports.get(name, 0.0) + before.refused.get(name, 0.0) - came, -came, name

    return sorted({*now.reports, *now.refused}, key=busy)[:MOST_TENANTS]


def _tenants_form(service: Service, names: Sequence[str], before: Sample, now: Sample, now_us: int) -> list[dict[str, Any]]:
    counts = service.catalog.devices.counts_at_hand()
    forms = []
    for name in names:
        known, found = service.catalog.tenants.at_hand(name, now_us), tenant_figures(before, now, name)
        allowed = known.limits.writes_per_s if known else 0
        forms.append(
            {
                "name": name,
                "display_name": known.display_name if known else "",
                "reports_per_s": _rounded(found.ingestion_rate),
                "refused_per_s": _rounded(found.refused_rate),
                "devices": counts.get(name),
                "share": _rounded((found.ingestion_rate + found.refused_rate) / allowed) if allowed else None,
                "minutes": [_rounded(minute) for minute in service.hour.of("ingestion_rate", name)],
            }
        )
    return forms


# -- stages


def _stages(service: Service, before: Sample, now: Sample) -> list[dict[str, Any]]:
    pressure = service.pipeline.pressure.look()
    commit_s = quantile(0.99, between(before.commit_latency, now.commit_latency))
    fails = writes_fail(before, now)
    refused = sum(now.refused.values()) - sum(before.refused.values())
    syncs = service.gauges.stats.syncs if service.gauges.stats else 0
    oldest_s = max(lane.oldest_s for lane in pressure.lanes.values())
    behind_s = max(now.behind_s.values(), default=0.0)
    return [
        _stage("decode", "ok" if pressure.healthy else "slow", f"{byte_figure(pressure.bytes)} in flight", oldest_s),
        _stage("admit", "ok", f"{figure(round(refused))} reports refused in the last seconds", None),
        _stage(
            "commit",
            "failed" if fails else "slow" if (commit_s or 0.0) > _SLOW_COMMIT_S else "ok",
            "no write works" if fails else "idle" if commit_s is None else f"{_spaced(commit_s)} (p99)",
            commit_s,
        ),
        _stage("sync", "ok" if syncs else "unused", f"{syncs:,} since the start", None),
        _stage(
            "rollup",
            _rollup_state(service, behind_s),
            f"{_spaced(behind_s)} behind" if behind_s > 0 else "up to date",
            behind_s,
        ),
        _link("mqtt", now.mqtt_connected, "connected" if now.mqtt_connected == 1 else "not connected to the broker"),
        _link("kafka", None if now.kafka_lag is None else 1.0, f"{now.kafka_lag or 0:,.0f} messages wait"),
    ]


def _spaced(took_s: float) -> str:
    """A duration with a space before its unit, as people read it."""
    return re.sub(r"(?<=\d)(?=[a-z])", " ", about_duration(took_s * SECOND))


def _rollup_state(service: Service, behind_s: float) -> str:
    if not service.config.rollup.enabled:
        return "unused"
    return "failed" if behind_s * SECOND > LATE_US else "slow" if behind_s * SECOND > _BEHIND_US else "ok"


def _link(name: str, there: float | None, detail: str) -> dict[str, Any]:
    """A connection that a process may not need."""
    if there is None:
        return _stage(name, "unused", "", None)
    return _stage(name, "ok" if there == 1 else "failed", detail, None)


def _stage(name: str, state: str, detail: str, value_s: float | None) -> dict[str, Any]:
    return {"name": name, "state": state, "detail": detail, "value": _rounded(value_s)}


# -- the headline


def _facts(
    service: Service,
    troubles: Callable[[], list[str]],
    tenant: str,
    found: Figures,
    before: Sample,
    now: Sample,
    now_us: int,
) -> Facts:
    hot = [one for name in ([tenant] if tenant else service.controls.tenants()) for one in _hot(service, name)]
    silent = [
        Silent(tenant=name, count=count, device=device, last_us=last_us)
        for name in ([tenant] if tenant else service.presence.tenants())
        for count, device, last_us in [service.presence.silent(name, now_us, SILENT_WITHIN_US)]
        if count
    ]
    facts = Facts(
        hot=sorted(hot, key=lambda one: -one.reports_per_s)[:MOST_HOT],
        silent=silent,
        refusals=service.hour.refusals(tenant),
        refused_per_s=found.refused_rate,
        reports_per_s=found.ingestion_rate,
    )
    if tenant:
        return facts
    stats = service.gauges.stats
    return replace(
        facts,
        troubles=troubles(),
        damage=stats.damage if stats else (),
        writes_fail=writes_fail(before, now),
        behind_us=int(max(now.behind_s.values(), default=0.0) * SECOND),
    )


def _with_alerts(facts: Facts, alerts: Sequence[Alert]) -> Facts:
    lines = [
        Line(
            severity=alert.severity,
            text=alert.summary or alert.rule,
            since_us=alert.since_us,
            view="device" if alert.device else "alerts",
            tenant=alert.tenant,
            device=alert.device,
        )
        for alert in alerts
        if alert.state == FIRING
        and not (alert.source == "builtin" and alert.rule in _TOLD and getattr(facts, _TOLD[alert.rule]))
    ]
    return replace(facts, alerts=lines)


def _hot(service: Service, tenant: str) -> list[Hot]:
    controls = service.controls
    taken: Mapping[What, Mapping[str, object]] = {what: controls.in_force(tenant, what) for what in _DONE}
    return [
        Hot(
            tenant=tenant,
            device=device,
            reports_per_s=fact.value,
            since_us=(controls.hot_since(tenant, device) or fact).created_us,
            steps=[word for what, word in _DONE.items() if device in taken[what]],
        )
        for device, fact in controls.in_force(tenant, What.HOT).items()
    ]


def _line_form(line: Line) -> dict[str, Any]:
    return {
        "severity": line.severity,
        "text": line.text,
        "since": None if line.since_us is None else format_time(line.since_us),
        "view": line.view,
        "tenant": line.tenant or None,
        "device": line.device or None,
    }
