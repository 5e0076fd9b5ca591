"""Routes about the process itself: is it alive, is it ready, how much does it do."""

from __future__ import annotations

from typing import Any

from widerow import __version__
from widerow.model.errors import WiderowError
from widerow.model.tenant import Tenant
from widerow.model.times import SECOND, format_time
from widerow.ops.figures import Sample
from widerow.rollup.guard import standing
from widerow.server.call import Answer, Call, json_answer
from widerow.server.overview import store_form

MOST_TENANTS = 1_000
"""Tenants that a status lists, the busiest first."""

INFLUX_VERSION = "1.8.10"
"""What clients of InfluxDB are told: the dialect of `/write` and `/api/v2/write` that we speak."""


def ping(_call: Call) -> Answer:
    headers = {"X-Influxdb-Version": INFLUX_VERSION, "X-Influxdb-Build": "Widerow", "X-Widerow-Version": __version__}
    return Answer(204, headers=headers)


def live(_call: Call) -> Answer:
    return json_answer({"status": "live"})


def ready(call: Call) -> Answer:
    """Say whether to send requests here. Degraded is no as well: a load balancer turns to others, and nobody restarts
    the process for it (`/health/live` goes on saying that it lives).
    """
    service, reasons = call.service, []
    if call.front.stopping:
        reasons.append("the process is stopping")
    if trouble := service.trouble():
        reasons.append(trouble)
    reasons += [trouble for ask in call.front.troubles if (trouble := ask())]
    strains = [strain for ask in call.front.strains if (strain := ask())]
    standing = service.pipeline.pressure.look()
    damage: tuple[str, ...] = ()
    if standing.healthy:  # otherwise it may not answer, and this should
        try:
            damage = service.engine.stats().damage
        except WiderowError as error:
            reasons.append(f"the store does not answer: {error.code}")
    reasons += [*strains, *standing.reasons]
    if (strains or not standing.healthy) and not call.front.stopping:
        return json_answer({"status": "degraded", "reasons": reasons}, 503, {"Retry-After": "1"})
    if reasons:
        return json_answer({"status": "not ready", "reasons": reasons}, 503, {"Retry-After": "1"})
    if damage:  # everything else is served: another server would not have what is damaged, either
        reason = "the store is damaged: reads that touch what is damaged fail; the log and `widerow doctor` name it"
        return json_answer({"status": "degraded", "reasons": [reason]})
    return json_answer({"status": "ready"})


def exposition(call: Call) -> Answer:
    call.service.gauges.refresh()
    return Answer(200, call.service.counters.exposition(), "text/plain; version=0.0.4; charset=utf-8")


def status(call: Call) -> Answer:
    """Rates and counts: of the token's tenant, or of all with those of the store."""
    service = call.service
    before, now = service.rates.span()
    name = call.tenant_name()
    tenants = list(service.catalog.tenants.list()) if name is None else [call.tenant()]
    shown = [_figures(tenant, before, now) for tenant in tenants]
    shown.sort(key=lambda figures: (-figures["reports_per_s"], figures["name"]))
    keys = ("reports_per_s", "values_per_s", "reports", "values", "refused")
    total = {key: sum(figures[key] for figures in shown) for key in keys}
    held = service.memory()
    for figures in shown[:MOST_TENANTS]:
        figures["memory_bytes"] = held.get(figures["name"], {})
        figures["devices"] = service.catalog.devices.count(figures["name"])
    answer: dict[str, Any] = {
        "version": __version__,
        "time": format_time(service.clock.now_us()),
        "started": format_time(service.started_us),
        "total": {**total, "tenants": len(shown), "devices": sum(f.get("devices", 0) for f in shown)},
        "tenants": shown[:MOST_TENANTS],
    }
    if name is None:
        answer["store"] = store_form(service, service.engine.stats())
        if guard := service.clock_guard:
            reason = guard.look()
            answer["clock"] = {"trusted": not reason, "reason": reason, "ahead_s": guard.ahead_us // SECOND}
        answer["rollups"] = standing(service.pyramid.guard.look())
    return json_answer(answer)


def _figures(tenant: Tenant, before: Sample, now: Sample) -> dict[str, Any]:
    name, passed_s = tenant.name, max(now.at_s - before.at_s, 1e-3)
    reports, values = now.reports.get(name, 0.0), now.values.get(name, 0.0)
    return {
        "name": name,
        "display_name": tenant.display_name,
        "reports_per_s": round((reports - before.reports.get(name, 0.0)) / passed_s, 1),
        "values_per_s": round((values - before.values.get(name, 0.0)) / passed_s, 1),
        "reports": int(reports),
        "values": int(values),
        "refused": int(now.refused.get(name, 0.0)),
    }
