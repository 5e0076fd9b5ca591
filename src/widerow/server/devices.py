"""Routes about devices and metrics: what the catalog knows of them. Pages of devices are in `device_pages`."""

from __future__ import annotations

from typing import Any

from widerow.catalog.devices import Applied
from widerow.catalog.forms import from_json, shown_time, to_json
from widerow.catalog.match import Match
from widerow.model.device import Device, Hardware, Metric, swapped
from widerow.model.errors import Conflict, Rejected
from widerow.model.times import format_time
from widerow.server.admin import text_in, time_in
from widerow.server.call import NO_CONTENT, Answer, Call, entity_answer, json_answer, list_answer
from widerow.server.failures import PreconditionFailed
from widerow.server.placement import epoch_form

PAGE_SIZE, MOST_ON_A_PAGE = 100, 1_000
MOST_IN_A_BATCH = 10_000

_SHOWN_ONLY = ("created", "revision", "placement", "online", "hardware")
"""Keys of a device's form that nobody sets, so that a form that was read can be sent back."""


def match_of(call: Call) -> Match:
    tags = {}
    for pair in call.query.texts("tag"):
        name, colon, value = pair.partition(":")
        if not colon:
            raise Rejected(f"tag is {pair[:80]!r}: give NAME:VALUE", code="parameter")
        tags[name] = value
    return Match(
        type=call.query.text("type"),
        location=call.query.text("location"),
        tags=tags,
        prefix=call.query.text("prefix") or "",
        text=call.query.text("q") or "",
    )


def page_size(call: Call) -> int:
    return call.query.whole("limit", default=PAGE_SIZE, most=MOST_ON_A_PAGE)


def get_device(call: Call) -> Answer:
    tenant = call.tenant()
    device = call.service.catalog.devices.get(tenant.name, call.path["device"])
    return _device_answer(call, tenant.name, device)


def device_history(call: Call) -> Answer:
    states = call.service.catalog.devices.history(call.tenant().name, call.path["device"])
    shown = [{**to_json(s.device), "from": shown_time(s.from_us), "until": shown_time(s.until_us)} for s in states]
    return list_answer(call, "states", shown)


def patch_device(call: Call) -> Answer:
    tenant, form = call.tenant(), call.form()
    form = {key: value for key, value in form.items() if key not in ("placement", "online")}

    def change(device: Device) -> Device:
        return from_json(form, device)

    expected = call.expected_revision()
    try:
        after = call.service.catalog.devices.update(tenant.name, call.path["device"], call.noted(change), expected=expected)
    except Conflict as error:
        raise PreconditionFailed(str(error)) from error
    call.service.save_device(tenant, after)
    return _device_answer(call, tenant.name, after)


def swap_device(call: Call) -> Answer:
    """Other hardware stands in the device's place: its name, its data and its history stay. Repeating changes nothing."""
    tenant, form = call.tenant(), call.form(("hardware", "note", "since"))
    since_us = time_in(call, form, "since", call.service.clock.now_us())
    if since_us > call.service.clock.now_us():
        raise Rejected(f"since is {format_time(since_us)}: give a time that is not ahead", code="field")
    hardware = Hardware(text_in(form, "hardware"), since_us, text_in(form, "note", ""))
    expected = call.expected_revision()
    try:
        after = call.service.catalog.devices.update(
            tenant.name, call.path["device"], call.noted(lambda device: swapped(device, hardware)), expected=expected
        )
    except Conflict as error:
        raise PreconditionFailed(str(error)) from error
    now, before = [*(h.id for h in after.hardware), "-"][:2]
    call.trail.changes = [f"hardware: {before} -> {now}"]
    return _device_answer(call, tenant.name, after)


def _device_answer(call: Call, tenant: str, device: Device) -> Answer:
    epochs = call.service.telemetry.places.epochs(tenant, device.name)
    placement = [epoch_form(epoch) for epoch in epochs]
    told = call.service.catalog.online.of(tenant, device.name)
    online = None if told is None else {"is": told.online, "told": format_time(told.at_us)}
    return entity_answer({**to_json(device), "placement": placement, "online": online})


def delete_device(call: Call) -> Answer:
    tenant = call.tenant()
    try:
        call.service.delete_device(tenant, call.path["device"], expected=call.expected_revision())
    except Conflict as error:
        raise PreconditionFailed(str(error)) from error
    return NO_CONTENT


def batch_devices(call: Call) -> Answer:
    """Create or replace many. One that is refused does not keep the others from being stored."""
    tenant = call.tenant()
    forms = call.form(("devices",)).get("devices")
    if not isinstance(forms, list) or not 1 <= len(forms) <= MOST_IN_A_BATCH:
        raise Rejected(f"devices: give an array of 1 to {MOST_IN_A_BATCH} devices", code="field")
    results: list[dict[str, Any]] = [{} for _ in forms]
    devices: dict[int, Device] = {}
    for i, form in enumerate(forms):
        try:
            devices[i] = _described(form)
        except Rejected as error:
            results[i] = {"index": i, "outcome": "refused", "code": error.code, "reason": str(error)}
    applied = call.service.catalog.devices.apply(tenant, list(devices.values()))
    for i, result in zip(devices, applied, strict=True):
        results[i] = _result(i, result)
        if result.device is not None:
            call.service.save_device(tenant, result.device)
    counts = {word: sum(r["outcome"] == word for r in results) for word in ("created", "updated", "refused")}
    call.trail.notes = [f"{count} {word}" for word, count in counts.items() if count]
    kept = counts["created"] + counts["updated"]
    status = 200 if not counts["refused"] else 207 if kept else 422
    return json_answer({**counts, "results": results}, status)


def _described(form: object) -> Device:
    if not isinstance(form, dict) or not isinstance(form.get("name"), str):
        raise Rejected('give an object with a "name"', code="field")
    base = Device(name=form["name"])
    return from_json({key: value for key, value in form.items() if key not in _SHOWN_ONLY}, base)


def _result(index: int, result: Applied) -> dict[str, Any]:
    shown: dict[str, Any] = {"index": index, "name": result.name, "outcome": result.outcome}
    if result.device is None:
        return {**shown, "code": result.code, "reason": result.reason}
    return {**shown, "revision": result.device.revision}


def list_metrics(call: Call) -> Answer:
    metrics = call.service.catalog.metrics.list(call.tenant().name)
    return list_answer(call, "metrics", [to_json(metric) for metric in metrics])


def get_metric(call: Call) -> Answer:
    return entity_answer(to_json(call.service.catalog.metrics.get(call.tenant().name, call.path["metric"])))


def patch_metric(call: Call) -> Answer:
    tenant, form = call.tenant(), call.form()

    def change(metric: Metric) -> Metric:
        return from_json(form, metric)

    metrics, expected = call.service.catalog.metrics, call.expected_revision()
    try:
        after = metrics.update(tenant.name, call.path["metric"], call.noted(change), expected=expected)
    except Conflict as error:
        raise PreconditionFailed(str(error)) from error
    return entity_answer(to_json(after))


def delete_metric(call: Call) -> Answer:
    """Forgets what is known of the metric. Its values stay; `POST /v1/admin/erase` erases those."""
    try:
        call.service.catalog.metrics.delete(call.tenant().name, call.path["metric"], expected=call.expected_revision())
    except Conflict as error:
        raise PreconditionFailed(str(error)) from error
    return NO_CONTENT
