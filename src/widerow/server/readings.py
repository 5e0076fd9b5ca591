"""Routes that read telemetry: points, statistics over steps, and the latest values, of one, some or all devices."""

from __future__ import annotations

from typing import Any

from widerow.model.errors import Rejected
from widerow.model.labels import cut_names
from widerow.query.fleet import ask, fleet_question
from widerow.query.question import check_groups, question_of
from widerow.server.call import Answer, Call, points_answer, reply_answer
from widerow.server.devices import match_of, page_size
from widerow.server.hot import sampled_among, sampled_at, sampled_in

MOST_DEVICES = 10_000


def series(call: Call) -> Answer:
    """Raw points over a span, oldest first, cut between reports; `next` goes on behind the cut. With `step` or `agg`,
    statistics over steps, which are never cut.
    """
    if any(call.query.text(name) is not None for name in ("step", "agg", "fill", "tz", "group_by")):
        return _steps(call)
    tenant, most, span = call.tenant(), call.service.config.http.max_points, call.span()
    answer = call.service.queries.series(
        tenant,
        call.path["device"],
        metrics=call.query.names("metrics"),
        span=span,
        limit=call.query.whole("limit", default=most, most=most),
        after=call.query.text("after"),
        tags=call.query.text("tags") == "true",
        budget=call.budget(tenant),
    )
    return points_answer(call, answer.points, answer.next, sampled_in(call, tenant.name, [call.path["device"]], span))


def _steps(call: Call) -> Answer:
    for name in ("after", "limit", "tags"):
        if call.query.text(name) is not None:
            raise Rejected(f"{name} is for raw points; answers over steps come whole, without tags", code="parameter")
    tenant, queries = call.tenant(), call.service.queries
    question = question_of(
        call.span(),
        step=call.query.text("step"),
        aggregates=call.query.names("agg"),
        fill=call.query.text("fill"),
        tz=call.query.text("tz"),
        metrics=call.query.names("metrics"),
    )
    group_by = call.query.names("group_by")
    by = None if group_by is None else check_groups(group_by, question.aggregates)
    budget = call.budget(tenant)
    reply = queries.steps(tenant, call.path["device"], question, budget, group_by=by)
    return reply_answer(call, reply, budget, sampled_in(call, tenant.name, [call.path["device"]], question.span))


def device_latest(call: Call) -> Answer:
    tenant, device = call.tenant(), call.path["device"]
    metrics = call.query.names("metrics")
    points = call.service.queries.latest(tenant, [device], metrics=metrics, budget=call.budget(tenant))
    if not len(points):
        call.service.catalog.devices.get(tenant.name, device)  # silent, or not there?
    return points_answer(call, points, sampled=sampled_at(call, tenant.name, points))


def many_latest(call: Call) -> Answer:
    """The latest values of the devices in the body; those that are unknown or silent have none."""
    form = call.form(("devices", "metrics"))
    devices = names_in(form, "devices")
    if devices is None or not 1 <= len(devices) <= MOST_DEVICES:
        raise Rejected(f"devices: give an array of 1 to {MOST_DEVICES} names", code="field")
    tenant, metrics = call.tenant(), listed(form, "metrics")
    points = call.service.queries.latest(tenant, devices, metrics=metrics, budget=call.budget(tenant))
    return points_answer(call, points, sampled=sampled_at(call, tenant.name, points))


def fleet_series(call: Call) -> Answer:
    """What all devices that match say together."""
    tenant, query = call.tenant(), call.query
    question = fleet_question(
        match_of(call),
        call.span(),
        step=query.text("step"),
        aggregates=query.names("agg"),
        fill=query.text("fill"),
        tz=query.text("tz"),
        metrics=query.names("metrics"),
        by=query.text("group_by"),
    )
    budget = call.budget(tenant)
    reply = ask(call.service.fleet, tenant, question, budget)
    sampled = sampled_among(call, tenant.name, question.match, question.question.span)
    return reply_answer(call, reply, budget, sampled)


def fleet_latest(call: Call) -> Answer:
    """The latest values of the devices that match, a page of devices at a time."""
    tenant = call.tenant()
    budget = call.budget(tenant)
    page = call.service.catalog.devices.list(
        tenant.name, match_of(call), limit=page_size(call), after=call.query.text("after")
    )
    names = [device.name for device in page.devices]
    points = call.service.queries.latest(tenant, names, metrics=call.query.names("metrics"), budget=budget)
    return points_answer(call, points, page.after, sampled_at(call, tenant.name, points))


def listed(form: dict[str, Any], key: str) -> list[str] | None:
    """An array of names, or one text with commas outside braces. None: there are none."""
    value = form.get(key)
    return (list(dict.fromkeys(cut_names(value))) if isinstance(value, str) else names_in(form, key)) or None


def names_in(form: dict[str, Any], key: str) -> list[str] | None:
    names = form.get(key)
    if names is None:
        return None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise Rejected(f"{key}: give an array of names", code="field")
    return list(dict.fromkeys(names))
