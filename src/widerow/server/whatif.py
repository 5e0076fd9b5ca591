"""What proposed limits and retentions would have refused and taken away."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from widerow.catalog.forms import from_json
from widerow.model.errors import Rejected
from widerow.model.tenant import Limits, Tenant
from widerow.model.times import HOUR, TimeSpan, bucket_start, format_time, parse_duration
from widerow.query.going import going
from widerow.server.admin import going_form
from widerow.server.call import Answer, Call, json_answer
from widerow.service import Service
from widerow.usage.whatif import HourOver, ReadOver, reads_over, replay

_MOST_HOURS = 1_000
"""Hours that an answer names one by one: those in which most would have been refused."""


def whatif(call: Call) -> Answer:
    """Changes nothing."""
    call.trail.changes_nothing = True
    form = call.form(("limits", "retention", "last"))
    tenant = call.service.catalog.tenants.get(call.path["tenant"])
    last = form.pop("last", "7d")
    if not isinstance(last, str):
        raise Rejected('last: give a duration such as "7d"', code="field")
    now_us = call.service.clock.now_us()
    span = TimeSpan(max(0, bucket_start(now_us - parse_duration(last), HOUR)), now_us)
    proposed = from_json(form, tenant)
    return json_answer(
        {
            "tenant": tenant.name,
            "start": format_time(span.start_us),
            "end": format_time(now_us),
            "limits": {name: value for name, value in asdict(proposed.limits).items() if value},
            "writes": _writes(call.service, tenant, proposed.limits, span),
            "reads": _reads(call.service, tenant, proposed.limits, span),
            "now": _now(call.service, tenant, proposed.limits),
            "retention": [
                going_form(level)
                for level in going(call.service.queries.sources, call.service.catalog.devices, tenant, proposed.retention)
            ],
        }
    )


def _writes(service: Service, tenant: Tenant, limits: Limits, span: TimeSpan) -> dict[str, Any]:
    found = replay(service.recorded.seconds(tenant.name, span), limits)
    worst = sorted(found.hours, key=lambda hour: -hour.refused)[:_MOST_HOURS]
    return {
        "offered": found.offered,
        "refused": found.refused,
        "hours_over": len(found.hours),
        "hours": [_hour(hour) for hour in sorted(worst, key=lambda hour: hour.hour_us)],
    }


def _reads(service: Service, tenant: Tenant, limits: Limits, span: TimeSpan) -> dict[str, Any]:
    hours = service.recorded.hours(tenant.name, span)
    rows_read = {hour_us: int(numbers.get("rows_read", 0)) for hour_us, numbers in hours.items()}
    found = reads_over(rows_read, limits)
    worst = sorted(found, key=lambda hour: -hour.over)[:_MOST_HOURS]
    return {
        "rows": sum(rows_read.values()),
        "over": sum(hour.over for hour in found),
        "hours_over": len(found),
        "hours": [_hour(hour) for hour in sorted(worst, key=lambda hour: hour.hour_us)],
    }


def _hour(hour: HourOver | ReadOver) -> dict[str, Any]:
    return {"time": format_time(hour.hour_us), **{name: value for name, value in asdict(hour).items() if name != "hour_us"}}


def _now(service: Service, tenant: Tenant, limits: Limits) -> list[dict[str, Any]]:
    """What is counted as it is: a tenant that is over such a limit gets nothing more of it."""
    counted = {
        "devices": service.catalog.devices.count(tenant.name),
        "series": service.house.count_series(tenant) if limits.series else 0,
        "storage_bytes": sum(service.storage.levels(tenant).values()),
    }
    return [
        {"limit": name, "allowed": allowed, "seen": seen, "over": max(0, seen - allowed)}
        for name, seen in counted.items()
        if (allowed := getattr(limits, name))
    ]
