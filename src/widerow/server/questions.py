"""`POST /v1/query`: a question about many devices, as its body puts it.

Rule: what is not understood is refused, and so is what does not go together.
"""

from __future__ import annotations

from typing import Any

from widerow.catalog.match import Match
from widerow.model.errors import QueryLimit, Rejected
from widerow.model.times import TimeSpan, parse_time
from widerow.query.question import DEFAULT_AGGREGATE, MOST_TOP, ORDERS, Top, check_groups, check_top, question_of
from widerow.server.call import Answer, Call, points_answer, reply_answer
from widerow.server.hot import sampled_in
from widerow.server.readings import MOST_DEVICES, listed, names_in

_QUERY_KEYS = (
    "devices",
    "match",
    "metrics",
    "start",
    "end",
    "step",
    "agg",
    "group_by",
    "tz",
    "fill",
    "limit",
    "top",
    "by",
    "order",
)


def query(call: Call) -> Answer:
    """A question about many devices, as the body puts it."""
    tenant, queries, form = call.tenant(), call.service.queries, call.form(_QUERY_KEYS)
    budget = call.budget(tenant)
    names, match, metrics = names_in(form, "devices"), _match(form), listed(form, "metrics")
    if (names is None) == (match is None):
        raise Rejected("say which devices: either devices or match", code="field")
    if names is not None and not 1 <= len(names) <= MOST_DEVICES:
        raise Rejected(f"devices: give an array of 1 to {MOST_DEVICES} names", code="field")
    span, most, top = _span(call, form), _whole(form, "limit"), _top(form)
    step, aggregates, group_by = _text(form, "step"), listed(form, "agg"), names_in(form, "group_by")
    tz, fill = _text(form, "tz"), _text(form, "fill")
    if step is None and aggregates is None and group_by is None and top is None and fill is None and tz is None:
        wanted = [device.name for device in queries.chosen(tenant, names, match, described=False)]
        limit = call.service.config.http.max_points
        points = queries.raw(
            tenant, sorted(wanted), span=span, most=min(most or limit, limit), metrics=metrics, budget=budget
        )
        return points_answer(call, points, sampled=sampled_in(call, tenant.name, wanted, span))
    if top is not None and aggregates is None:
        aggregates = [top.by]
    question = question_of(span, step=step, aggregates=aggregates, fill=fill, tz=tz, metrics=metrics)
    if top is not None:
        check_top(top, question)
    if top is not None and group_by is not None:
        raise Rejected("top is of devices: leave group_by out", code="top")
    by = None if group_by is None else check_groups(group_by, question.aggregates)
    devices = queries.chosen(tenant, names, match, described=bool(by))
    reply = queries.ask(tenant, devices, question, budget, group_by=by, top=top)
    if most is not None and len(reply.series) > most:
        raise QueryLimit(
            f"the answer has {len(reply.series):,} points",
            "limit",
            most,
            len(reply.series),
            "ask for a coarser step, a shorter span or fewer devices, or raise the limit",
        )
    return reply_answer(call, reply, budget, sampled_in(call, tenant.name, [device.name for device in devices], span))


def _match(form: dict[str, Any]) -> Match | None:
    """Which devices: what all of them must have."""
    given = form.get("match")
    if given is None:
        return None
    known = ("type", "location", "tags", "prefix", "q")
    if not isinstance(given, dict) or not all(key in known for key in given):
        raise Rejected(f"match: give an object with some of {', '.join(known)}", code="field")
    tags = given.get("tags", {})
    if not isinstance(tags, dict) or not all(isinstance(value, str) for value in tags.values()):
        raise Rejected("match.tags: give an object of texts", code="field")
    texts = {key: _text(given, key, "match.") for key in ("type", "location", "prefix", "q")}
    return Match(
        type=texts["type"],
        location=texts["location"],
        tags=tags,
        prefix=texts["prefix"] or "",
        text=texts["q"] or "",
    )


def _top(form: dict[str, Any]) -> Top | None:
    count, by, order = _whole(form, "top", MOST_TOP), _text(form, "by"), _text(form, "order")
    if count is None:
        if by is not None or order is not None:
            raise Rejected("by, order: they are for top, and it is not given", code="top")
        return None
    if order not in (None, *ORDERS):
        raise Rejected(f"order: give {' or '.join(ORDERS)}", code="top")
    return Top(count, by or DEFAULT_AGGREGATE, order == "asc")


def _span(call: Call, form: dict[str, Any]) -> TimeSpan:
    now_us = call.service.clock.now_us()
    times = {}
    for key, default in (("start", "-1h"), ("end", "now")):
        given = form.get(key, default)
        if isinstance(given, bool) or not isinstance(given, str | int):
            raise Rejected(f"{key}: give RFC 3339, epoch milliseconds, or relative: -1h", code="field")
        times[key] = parse_time(str(given), now_us)
    return TimeSpan(times["start"], times["end"])


def _text(form: dict[str, Any], key: str, of: str = "") -> str | None:
    value = form.get(key)
    if value is not None and not isinstance(value, str):
        raise Rejected(f"{of}{key}: give a text", code="field")
    return value


def _whole(form: dict[str, Any], key: str, most: int = 1 << 53) -> int | None:
    value = form.get(key)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most):
        raise Rejected(f"{key}: give a whole number from 1 to {most}", code="field")
    return value
