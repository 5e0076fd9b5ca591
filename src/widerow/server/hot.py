"""Routes about devices that send far too much: who they are, what is done about them, and what was."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from widerow.admit.controls import Control, SampledSpan
from widerow.admit.hot import HotDevice
from widerow.catalog.forms import shown_time
from widerow.catalog.match import Match
from widerow.model.errors import Rejected
from widerow.model.hot import Step, StepMode
from widerow.model.points import Points
from widerow.model.tenant import Tenant
from widerow.model.times import TimeSpan, format_time
from widerow.server.call import Answer, Call, json_answer

_MOST_TOLD = 1_000
"""Facts of the story: the newest."""


def get_hot(call: Call) -> Answer:
    """An operator that names no tenant gets those of all."""
    name, device, hot = call.tenant_name(), call.query.text("device") or "", call.service.hot
    tenants = [call.tenant()] if name else call.service.catalog.tenants.list()
    now = [_shown(one) for tenant in tenants for one in hot.hot(tenant, device)]
    story = [(tenant.name, fact) for tenant in tenants for fact in hot.story(tenant.name, device, tenant.created_us)]
    story.sort(key=lambda told: told[1].created_us)
    return json_answer({"hot": now, "story": [_told(tenant, fact) for tenant, fact in story[-_MOST_TOLD:]]})


def sampled_in(call: Call, tenant: str, devices: Iterable[str], span: TimeSpan) -> list[dict[str, Any]]:
    """The spans that touch this one of which part of the reports of some devices was kept."""
    controls = call.service.controls
    controls.follow(tenant)
    known = controls.sampled(tenant)
    if not known:  # the usual case
        return []
    names = sorted(known.keys() & set(devices))
    return [_span(name, each) for name in names for each in known[name] if each.touches(span)]


def sampled_among(call: Call, tenant: str, match: Match, span: TimeSpan) -> list[dict[str, Any]]:
    """The same, of the devices that match. Only those that were sampled are looked up: few, if any."""
    controls = call.service.controls
    controls.follow(tenant)
    known = [name for name, spans in controls.sampled(tenant).items() if any(each.touches(span) for each in spans)]
    if not known:  # the usual case
        return []
    devices = call.service.catalog.devices.some(tenant, known)
    return sampled_in(call, tenant, [device.name for device in devices if match.holds(device)], span)


def sampled_at(call: Call, tenant: str, points: Points) -> list[dict[str, Any]]:
    """The spans that the newest points of devices lie in."""
    controls = call.service.controls
    controls.follow(tenant)
    known = controls.sampled(tenant)
    if not known or not len(points):
        return []
    latest: dict[str, int] = {}
    for name in known.keys() & set(points.device.names):
        codes = [code for code, other in enumerate(points.device.names) if other == name]
        times = points.time_us[np.isin(points.device.codes, codes)]
        if len(times):
            latest[name] = int(times.max())
    return [
        _span(name, each)
        for name, time_us in sorted(latest.items())
        for each in known[name]
        if each.touches(TimeSpan(time_us, time_us + 1))
    ]


def _span(device: str, span: SampledSpan) -> dict[str, Any]:
    return {
        "device": device,
        "start": format_time(span.start_us),
        "end": None if span.stop_us is None else format_time(span.stop_us),
        "rate": span.rate,
    }


def get_controls(call: Call) -> Answer:
    tenant, device = call.tenant(), call.path["device"]
    call.service.catalog.devices.get(tenant.name, device)
    return _controls(call, tenant, device)


def patch_controls(call: Call) -> Answer:
    """Pin or forbid steps of a device, or leave them to what is seen."""
    tenant, device, form = call.tenant(), call.path["device"], call.form(list(Step))
    call.service.catalog.devices.get(tenant.name, device)
    call.service.hot.control(tenant, device, {Step(name): _meant(name, value) for name, value in form.items()})
    return _controls(call, tenant, device)


def _meant(name: str, value: object) -> tuple[StepMode, float]:
    if value is None or value == StepMode.AUTO:
        return StepMode.AUTO, 0.0
    if value == StepMode.FORBID:
        return StepMode.FORBID, 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1 << 53:
        raise Rejected(f'{name}: give the number to pin it at, "forbid", or "auto"', code="field")
    return StepMode.PIN, float(value)


def _controls(call: Call, tenant: Tenant, device: str) -> Answer:
    hot = call.service.hot
    call.service.controls.follow(tenant.name)
    modes, steps = hot.modes(tenant, device), hot.steps(tenant.name, device)
    return json_answer({step.value: {"mode": modes[step].value, "value": steps.get(step)} for step in Step})


def _shown(one: HotDevice) -> dict[str, Any]:
    return {
        "tenant": one.tenant,
        "device": one.device,
        "since": shown_time(one.since_us),
        "reports_per_s": round(one.rate, 3),
        "share": round(one.share, 4),
        "reason": one.reason,
        "steps": {step.value: value for step, value in one.steps.items()},
        "modes": {step.value: mode.value for step, mode in one.modes.items()},
    }


def _told(tenant: str, fact: Control) -> dict[str, Any]:
    return {
        "time": format_time(fact.created_us),
        "tenant": tenant,
        "device": fact.device,
        "what": fact.what.value,
        "value": fact.value,
        "from": format_time(fact.from_us),
        "reason": fact.reason,
    }
