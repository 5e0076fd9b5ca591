"""Routes that list and count devices, also by what they do."""

from __future__ import annotations

from typing import Any

from widerow.admit.controls import What
from widerow.catalog.forms import to_json
from widerow.catalog.match import Match, Page
from widerow.model.device import Device
from widerow.model.errors import Unavailable
from widerow.model.times import format_time
from widerow.query.listing import Listing
from widerow.server.call import Answer, Call, json_answer, list_answer
from widerow.server.devices import match_of, page_size

_PATIENCE_S = 2.0
"""How long a question waits until the devices of its tenant are read."""


def list_devices(call: Call) -> Answer:
    tenant = call.tenant().name
    page = _page(call, tenant, match_of(call))
    forms = [to_json(device) for device in page.devices]
    if call.query.text("activity") == "true":
        forms = _with_activity(call, tenant, page.devices, forms)
    return list_answer(call, "devices", forms, page.after)


def count_devices(call: Call) -> Answer:
    tenant, match = call.tenant().name, match_of(call)
    listing, service = _listing(call, tenant), call.service
    total = service.catalog.devices.counts_at_hand().get(tenant)
    if listing is None and (total is None or match.prefix or not match.everything()):
        raise _being_read(tenant)
    if listing is None:  # as far as is known without it
        assert total is not None
        online = service.presence.online(tenant, service.clock.now_us())
        hot = len(service.controls.in_force(tenant, What.HOT))
        return json_answer(
            {"total": total, "online": online, "stale": max(0, total - online), "hot": hot, "types": [], "locations": []}
        )
    counts = listing.counts(match)
    return json_answer(
        {
            "total": counts.total,
            "online": counts.online,
            "stale": counts.total - counts.online,
            "hot": counts.hot,
            "types": [{"type": name, "count": count} for name, count in counts.types],
            "locations": [{"location": name, "count": count} for name, count in counts.locations],
        }
    )


def _page(call: Call, tenant: str, match: Match) -> Page:
    query, devices = call.query, call.service.catalog.devices
    sort, state, limit, after = query.text("sort"), query.text("state"), page_size(call), query.text("after")
    if sort is None and state is None and not match.text:
        return devices.list(tenant, match, limit=limit, after=after)
    listing = _listing(call, tenant)
    if listing is None and sort == "name" and state is None and not match.text and after is None:
        whole = devices.list(tenant, match, limit=limit)
        if whole.after is None:  # these are all, so they need not be searched
            return Page(tuple(sorted(whole.devices, key=lambda device: device.name)), None)
    if listing is None:
        raise _being_read(tenant)
    return listing.page(
        match, lambda names: devices.some(tenant, names), sort=sort or "name", state=state, limit=limit, after=after
    )


def _being_read(tenant: str) -> Unavailable:
    return Unavailable(f"the devices of {tenant} are being read, to be searched and sorted: try again in some seconds")


def _listing(call: Call, tenant: str) -> Listing | None:
    """None: the devices are being read."""
    service = call.service
    directory = service.catalog.directories.at_hand(tenant, _PATIENCE_S)
    if directory is None:
        return None
    hot = list(service.controls.in_force(tenant, What.HOT))
    presence = service.presence
    return Listing(directory, presence.arrays(tenant), hot, service.clock.now_us(), presence.online_us)


def _with_activity(
    call: Call, tenant: str, devices: tuple[Device, ...], forms: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    service = call.service
    hot = service.controls.in_force(tenant, What.HOT)
    seen = service.presence.of(tenant, [device.name for device in devices], service.clock.now_us())
    return [
        {
            **form,
            "activity": {
                "last_seen": format_time(one.last_us) if one else None,
                "reports_per_s": float(f"{one.reports_per_s:.4g}") if one else 0.0,
                "online": one is not None and one.online,
                "hot": device.name in hot,
            },
        }
        for device, form, one in zip(devices, forms, seen, strict=True)
    ]
