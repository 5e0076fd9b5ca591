"""The route that verifies rollups and mends them, a slice at a time.

Rule: one call does a bounded piece of work and says where to go on. So nothing long runs in a request, and whoever asks sees
how far it is, and may stop at any time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from widerow.model.errors import Rejected
from widerow.model.tenant import FOREVER, Tenant
from widerow.model.times import DAY, HOUR, SECOND, TimeSpan, format_time
from widerow.rollup.repair import mend_fleet
from widerow.rollup.verify import Checked, Finding, Kind
from widerow.schema.rollups import FLEET
from widerow.server.admin import text_in, time_in
from widerow.server.call import Answer, Call, json_answer

_DEVICES_AT_ONCE = 16
_LONGEST_US = SECOND
_MOST_STEPS = 64
"""A call ends after this time, or so many days of some devices; a day of some devices is done in any case."""
_MOST_LISTED = 1_000
"""Findings that one answer lists. All are counted, and mended."""
_WHOLE_DAYS = 2_000
"""Up to so many devices a day of the fleet is looked at at once, beyond an hour at a time."""
_FLEET_CURSOR = "fleet"

_FIELDS = ("start", "end", "device", "repair", "after")


@dataclass(frozen=True, slots=True)
class _Step:
    """A day of a few devices; or, without any, hours of the fleet."""

    cursor: str
    devices: list[str]
    span: TimeSpan


def _nothing() -> Checked:
    done = Checked()
    done.checked[FLEET.name] = 0
    return done


@dataclass(slots=True)
class _Slice:
    """What one call comes to."""

    done: Checked = field(default_factory=_nothing)
    mended: list[Finding] = field(default_factory=list)
    device_days: int = 0

    def add(self, part: Checked, mended: Sequence[Finding], devices: int) -> None:
        self.done.add(part)
        self.mended += mended
        self.device_days += devices


def verify(call: Call) -> Answer:
    form = call.form(_FIELDS)
    tenant, service = call.tenant(), call.service
    device, repair = text_in(form, "device", ""), form.get("repair", False)
    if not isinstance(repair, bool):
        raise Rejected("repair: give true or false", code="field")
    call.trail.changes_nothing = not repair
    only = service.catalog.devices.get(tenant.name, device).name if device else None
    days = _days(call, form, tenant)
    out, following = _Slice(), None
    deadline_us = service.clock.now_us() + _LONGEST_US
    for n, step in enumerate(_steps(call, tenant.name, only, days, text_in(form, "after", ""))):
        if n and (n == _MOST_STEPS or service.clock.now_us() >= deadline_us):
            following = step.cursor
            break
        if call.slot:
            call.slot.check()
        part, mended = _done(call, tenant, step, repair=repair)
        out.add(part, mended, len(step.devices))
    every = (1 if only else service.catalog.devices.count(tenant.name)) * len(days)
    return json_answer(_shown(tenant.name, out, every) | {"next": following})


def _done(call: Call, tenant: Tenant, step: _Step, *, repair: bool) -> tuple[Checked, list[Finding]]:
    pyramid = call.service.pyramid
    if not step.devices:
        part = pyramid.fleet_verifier.check(tenant, step.span)
        return part, mend_fleet(pyramid.fleet, tenant, part.findings) if repair else []
    read_us = call.service.clock.version_us()
    part = pyramid.verifier.check(tenant, step.devices, step.span.start_us)
    return part, pyramid.repairer.mend(tenant, part.findings, read_us=read_us) if repair else []


def _days(call: Call, form: dict[str, Any], tenant: Tenant) -> range:
    """The days that the asked span touches; without one, those that raw reports are kept of."""
    now_us, keeps = call.service.clock.now_us(), [tenant.retention.raw_us, *(e.raw_us for e in tenant.raw_epochs)]
    oldest_us = tenant.created_us if FOREVER in keeps else now_us - max(keeps)
    span = TimeSpan(time_in(call, form, "start", oldest_us), time_in(call, form, "end", now_us))
    return range(span.start_us - span.start_us % DAY, span.stop_us, DAY)


def _steps(call: Call, tenant: str, only: str | None, days: range, after: str) -> Iterator[_Step]:
    """Days of a few devices, from a cursor on, then hours of the fleet: what is wrong beneath it is mended by then."""
    if only is None and after.startswith(_FLEET_CURSOR):
        yield from _fleet_steps(call, tenant, days, _read_cursor(after.removeprefix(_FLEET_CURSOR), HOUR)[0])
        return
    yield from _device_steps(call, tenant, only, days, after)
    if only is None:
        yield from _fleet_steps(call, tenant, days, 0)


def _fleet_steps(call: Call, tenant: str, days: range, from_us: int) -> Iterator[_Step]:
    width_us = DAY if call.service.catalog.devices.count(tenant) <= _WHOLE_DAYS else HOUR
    for day_us in days:
        start_us = max(day_us, from_us)
        while start_us < day_us + DAY:
            stop_us = min(start_us + width_us, day_us + DAY)
            yield _Step(f"{_FLEET_CURSOR}{start_us // HOUR}.", [], TimeSpan(start_us, stop_us))
            start_us = stop_us


def _device_steps(call: Call, tenant: str, only: str | None, days: range, after: str) -> Iterator[_Step]:
    day_us, cursor = _read_cursor(after, DAY) if after else (0, "")
    while True:
        if only is not None:
            devices, following = [only], None
        else:
            page = call.service.catalog.devices.list(tenant, limit=_DEVICES_AT_ONCE, after=cursor or None)
            devices, following = [device.name for device in page.devices], page.after
        for day in days if devices else ():
            if day >= day_us:
                yield _Step(f"{day // DAY}.{cursor}", devices, TimeSpan(day, day + DAY))
        if following is None:
            return
        day_us, cursor = 0, following


def _read_cursor(text: str, width_us: int) -> tuple[int, str]:
    number, dot, devices = text.partition(".")
    if not dot or not (number.isascii() and number.isdigit() and len(number) < 8):
        raise Rejected(f"after: {text[:40]!r} is not a cursor of this answer", code="cursor")
    return int(number) * width_us, devices


def _shown(tenant: str, out: _Slice, every: int) -> dict[str, Any]:
    mended = set(out.mended)
    listed = out.done.findings[:_MOST_LISTED]
    return {
        "checked": out.done.checked,
        "frozen": out.done.frozen,
        "behind": out.done.behind,
        "wrong": len(out.done.findings),
        "cannot_tell": sum(f.kind is Kind.UNKNOWN for f in out.done.findings),
        "unreadable": sum(f.kind is Kind.UNREADABLE for f in out.done.findings),
        "repaired": len(mended),
        "findings": [finding_shown(tenant, f) | {"repaired": f in mended} for f in listed],
        "unlisted": len(out.done.findings) - len(listed),
        "device_days": out.device_days,
        "of": every,
    }


def finding_shown(tenant: str, f: Finding) -> dict[str, Any]:
    of_fleet = {"device": "*", "type": f.type, "shard": f.shard} if f.level is FLEET else {}
    return {
        "kind": f.kind,
        "tenant": tenant,
        "device": f.device,
        "level": f.level.name,
        "start": format_time(f.start_us),
        "metric": f.metric,
        "frozen": f.frozen,
        "mendable": f.mendable,
        "note": f.note,
    } | of_fleet
