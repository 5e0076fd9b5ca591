"""The route about the live key space: how much is written and read in each range of keys, by minute."""

from __future__ import annotations

from typing import Any

from widerow.model.times import format_time
from widerow.ops.keyspace import EVERY_S, MINUTES, MOST_RANGES, KeyRange, Use
from widerow.server.call import Answer, Call, Param, json_answer
from widerow.server.parameters import TENANT

_RANGES = 64
PARAMETERS = (
    Param(name="minutes", doc="So many of the last minutes.", schema={"type": "integer", "minimum": 1, "maximum": MINUTES}),
    Param(name="start", doc="From this key on: `TENANT/DEVICE`, or the start of one."),
    Param(name="stop", doc="To before this key."),
    Param(
        name="ranges",
        doc=f"As so many ranges at most; {_RANGES} if it is left out.",
        schema={"type": "integer", "minimum": 1, "maximum": MOST_RANGES},
    ),
    TENANT,
)


def key_space(call: Call) -> Answer:
    query, service = call.query, call.service
    start, stop = query.text("start") or "", query.text("stop") or ""
    tenant = call.tenant_name()
    if tenant is not None:
        first, behind = f"{tenant}/", f"{tenant}{chr(ord('/') + 1)}"
        start, stop = max(start, first), min(stop or behind, behind)
    view = service.key_space.view(
        service.clock.now_us(),
        minutes=query.whole("minutes", default=MINUTES, most=MINUTES),
        start=start,
        stop=stop,
        most=query.whole("ranges", default=_RANGES, most=MOST_RANGES),
    )
    return json_answer(
        {
            "since": format_time(view.since_us),
            "interval_s": EVERY_S,
            "minutes": [format_time(minute_us) for minute_us in view.minutes_us],
            "ranges": [_range_form(one) for one in view.ranges],
            "writes": _use_form(view.writes),
            "reads": _use_form(view.reads),
        }
    )


def _range_form(one: KeyRange) -> dict[str, Any]:
    return {
        "start": one.start,
        "stop": one.stop or None,
        "since": format_time(one.since_us),
        "keys": one.keys,
        "writes": [round(count, 1) for count in one.writes],
        "reads": [round(count, 1) for count in one.reads],
        "writes_error": round(one.writes_error, 1),
        "reads_error": round(one.reads_error, 1),
        "bytes": round(one.bytes),
    }


def _use_form(use: Use) -> dict[str, Any]:
    return {
        "count": use.count,
        "skew": round(use.skew, 2),
        "gini": round(use.gini, 4),
        "hottest": [
            {
                "key": one.key,
                "tenant": one.key.partition("/")[0],
                "device": one.key.partition("/")[2],
                "count": round(one.count, 1),
                "error": round(one.error, 1),
                "share": round(min(1.0, one.count / max(1, use.count)), 4),
            }
            for one in use.hottest
        ],
    }
