"""The route about how a device is stored: the epochs of its buckets and why they are, and what it is seen to send.

What it sends is what the process that writes it has measured. A process that does not write it, or not for long enough,
counts what is in the store: the last minute, or the last hour of a device that has little in a minute.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from widerow.model.batch import CellKind
from widerow.model.tenant import Tenant
from widerow.model.times import HOUR, MINUTE, SECOND, TimeSpan, format_duration, format_time
from widerow.server.call import Answer, Call, json_answer
from widerow.service import Service
from widerow.telemetry.observed import Rate
from widerow.telemetry.placement import FIRST_EPOCH, Epoch

_FEW = 60
"""Reports in a minute: with fewer, an hour says more, and is as quick to read."""


def device_placement(call: Call) -> Answer:
    tenant = call.tenant()
    device = call.service.catalog.devices.get(tenant.name, call.path["device"])
    now_us = call.service.clock.now_us()
    epochs = call.service.telemetry.places.epochs(tenant.name, device.name)
    current = [e for e in (FIRST_EPOCH, *epochs) if e.from_us <= now_us][-1]
    shown = {
        "device": device.name,
        "bucket": format_duration(current.width_us),
        "sub_buckets": current.sub_buckets,
        "epochs": [epoch_form(epoch) for epoch in epochs],
        "observed": observed(call.service, tenant, device.name),
    }
    return json_answer(shown)


def epoch_form(epoch: Epoch) -> dict[str, Any]:
    return {
        "from": format_time(epoch.from_us),
        "bucket": format_duration(epoch.width_us),
        "sub_buckets": epoch.sub_buckets,
        "reason": epoch.reason,
    }


def observed(service: Service, tenant: Tenant, device: str) -> dict[str, Any]:
    """What a device is seen to send, and by whom."""
    places, now_us = service.telemetry.places, service.clock.now_us()
    measured = places.known_state(tenant.name).rate(device, now_us)
    if measured is not None:
        return _form(measured, places.observed.interval_us, "writer")
    counted, over_us = _counted(service, tenant, device, TimeSpan(now_us - MINUTE, now_us)), MINUTE
    if counted.reports_per_s * MINUTE / SECOND < _FEW:
        counted, over_us = _counted(service, tenant, device, TimeSpan(now_us - HOUR, now_us)), HOUR
    return _form(counted, over_us, "store")


def _form(rate: Rate, over_us: int, by: str) -> dict[str, Any]:
    values = rate.values_per_s / rate.reports_per_s if rate.reports_per_s else 0.0
    return {
        "reports_per_s": float(f"{rate.reports_per_s:.4g}"),
        "values_per_report": float(f"{values:.4g}"),
        "over": format_duration(over_us),
        "by": by,
    }


def _counted(service: Service, tenant: Tenant, device: str, span: TimeSpan) -> Rate:
    reports = values = 0
    for _, chunks in service.telemetry.read(tenant, device, span, may_lag=True):
        reports += sum(len(rows) for rows in chunks)
        values += sum(int(np.count_nonzero(rows.cells.kind != CellKind.TAG)) for rows in chunks)
    seconds = (span.stop_us - span.start_us) / SECOND
    return Rate(reports / seconds, values / seconds)
