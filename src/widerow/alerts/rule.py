"""Rules: what a tenant wants to be told of. A form of JSON or TOML becomes a `Rule`, and a `Rule` a form.

Rule 1: strict. A key that is not known, or means nothing for this kind of rule, is refused with its name (code `field`).
Rule 2: a rule watches one device, those that match, or all of the tenant (`fleet`), each by itself: each has its own alert.
A rule of kind `quota` watches the tenant.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from widerow.alerts.alert import SEVERITIES
from widerow.alerts.builtin import UNITS
from widerow.catalog.match import Match
from widerow.model.check import check_metric, check_name, text_fault
from widerow.model.errors import Rejected
from widerow.model.labels import Selector
from widerow.model.times import DAY, HOUR, MINUTE, format_duration, parse_duration

THRESHOLD, OFFLINE, RATE, QUOTA = "threshold", "offline", "rate_of_change", "quota"
KINDS = (THRESHOLD, OFFLINE, RATE, QUOTA)
AGGREGATES = ("mean", "min", "max", "last", "sum", "count")
LIMITS = ("writes_per_s", "devices", "series", "storage_bytes")
"""Limits of a tenant that a rule of kind `quota` can watch."""
MOST_WEBHOOKS = 8
MOST_TEXT_BYTES = 500
LONGEST_WINDOW_US = HOUR

_RATE_WINDOW_US = 5 * MINUTE

_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
_COMMON = ("name", "kind", "for", "severity", "webhooks", "summary")
_SCOPE = ("device", "match", "fleet")
_KEYS = {
    THRESHOLD: ("metric", "aggregate", "window", "above", "below", "clear", *_SCOPE),
    RATE: ("metric", "window", "above", "below", "clear", *_SCOPE),
    OFFLINE: ("after", *_SCOPE),
    QUOTA: ("limit", "percent", "clear"),
}
_SHOWN_ONLY = ("source", "readonly", "revision", "tenant")
"""Keys of a form that nobody sets, so that a form that was read can be sent back."""


class Matching(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    type: str | None = None
    location: str | None = None
    tags: dict[str, str] = {}

    def match(self) -> Match:
        return Match(type=self.type, location=self.location, tags=self.tags)


class Rule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    kind: str
    metric: str = ""
    aggregate: str = "mean"
    window_us: int = MINUTE
    above: float | None = None
    below: float | None = None
    clear: float | None = None
    for_us: int = 0
    after_us: int = 0
    limit: str = ""
    percent: float = 0.0
    device: str = ""
    """The only one that is watched; empty: all, or those that match."""
    match: Matching | None = None
    severity: str = "warning"
    webhooks: tuple[str, ...] = ()
    summary: str = ""
    revision: int = 0

    @property
    def threshold(self) -> float:
        if self.kind == OFFLINE:
            return self.after_us / 1e6
        if self.kind == QUOTA:
            return self.percent / 100
        return self.above if self.above is not None else self.below or 0.0

    @property
    def unit(self) -> str:
        """Of the figures of its alerts."""
        return {OFFLINE: "s", RATE: "/min", QUOTA: "ratio"}.get(self.kind, "")

    @property
    def is_below(self) -> bool:
        return self.below is not None

    @property
    def clear_at(self) -> float:
        """Where an alert that fires is over."""
        if self.kind == QUOTA:
            return self.percent / 100 if self.clear is None else self.clear / 100
        return self.threshold if self.clear is None else self.clear

    def covers(self, unit: str, metric: str, device: str) -> bool:
        """Whether an alert can be of it. Whether the device matches is not looked at."""
        of_metric = Selector.of(self.metric).means(metric) if self.metric and metric else self.metric == metric
        of_device = not device if self.kind == QUOTA else bool(device) and self.device in ("", device)
        return self.unit == unit and of_metric and of_device

    def says(self) -> str:
        """What it watches for, in words."""
        if self.summary:
            return self.summary
        if self.kind == OFFLINE:
            return f"no data for {format_duration(self.after_us)}"
        if self.kind == QUOTA:
            return f"more than {self.percent:g}% of limits.{self.limit} is used"
        side = "below" if self.is_below else "above"
        over = f" over {format_duration(self.window_us)}" if self.window_us > MINUTE else ""
        if self.kind == RATE:
            return f"{self.metric} changes by {side} {self.threshold:g} a minute{over}"
        return f"the {self.aggregate} of {self.metric}{over} is {side} {self.threshold:g}"


def shown(rule: Rule) -> dict[str, Any]:
    """As the API gives it, and takes it."""
    form: dict[str, Any] = {"name": rule.name, "kind": rule.kind}
    if rule.kind in (THRESHOLD, RATE):
        form |= {"metric": rule.metric, "window": format_duration(rule.window_us)}
        form |= {"aggregate": rule.aggregate} if rule.kind == THRESHOLD else {}
        form |= {"below" if rule.is_below else "above": rule.threshold}
    if rule.kind == OFFLINE:
        form["after"] = format_duration(rule.after_us)
    if rule.kind == QUOTA:
        form |= {"limit": rule.limit, "percent": rule.percent}
    if rule.clear is not None:
        form["clear"] = rule.clear
    if rule.device:
        form["device"] = rule.device
    elif rule.match is not None:
        form["match"] = msgspec.to_builtins(rule.match)
    elif rule.kind != QUOTA:
        form["fleet"] = True
    form |= {"for": format_duration(rule.for_us), "severity": rule.severity, "webhooks": list(rule.webhooks)}
    return {**form, "summary": rule.summary}


def read(form: object, name: str | None = None) -> Rule:
    """The rule that a form means. `name`: the one it must have, if it gives any."""
    if not isinstance(form, Mapping):
        raise _wrong("the rule", "an object")
    given = {key: value for key, value in form.items() if value is not None and key not in _SHOWN_ONLY}
    if name is not None and given.setdefault("name", name) != name:
        raise Rejected(f"name is {str(given['name'])[:80]!r}, and the address says {name[:80]!r}", code="field")
    kind = _one_of("kind", given.get("kind"), KINDS)
    known = (*_COMMON, *_KEYS[kind])
    for key in given:
        if key not in known:
            raise Rejected(f"unknown key {str(key)[:80]!r}: a rule of kind {kind} has {', '.join(known)}", code="field")
    fields: dict[str, Any] = {"kind": kind} | ({"window_us": _RATE_WINDOW_US} if kind == RATE else {})
    for key, value in given.items():
        if key not in ("kind", "fleet"):
            field, reader = _READERS[key]
            fields[field] = reader(key, value)
    rule = Rule(**({"name": ""} | fields))
    _check(rule, given)
    return rule


def _check(rule: Rule, given: Mapping[str, Any]) -> None:
    if not rule.name:
        raise _wrong("name", "1 to 64 of a-z, 0-9, `.`, `_` and -")
    if rule.kind != QUOTA:
        scopes = [key for key in _SCOPE if given.get(key)]
        if len(scopes) != 1 or ("fleet" in given and given["fleet"] is not True):
            raise _wrong("device, match, fleet", "one of them: a device, a match, or fleet = true")
    if rule.kind in (THRESHOLD, RATE):
        _check_threshold(rule)
    if rule.kind == OFFLINE and not MINUTE <= rule.after_us <= 30 * DAY:
        raise _wrong("after", "a time of 1m to 30d, such as 10m")
    if rule.kind == QUOTA and not (rule.limit and 0 < rule.percent <= 100):
        raise _wrong("limit, percent", "a limit and a percentage of it, up to 100")
    if rule.kind == QUOTA and rule.clear is not None and not 0 <= rule.clear <= rule.percent:
        raise _wrong("clear", "at most `percent`: an alert is over at or below it")


def _check_threshold(rule: Rule) -> None:
    if not rule.metric:
        raise _wrong("metric", "the name of a metric")
    if (rule.above is None) == (rule.below is None):
        raise _wrong("above, below", "one of them, a number")
    shortest_us = 2 * MINUTE if rule.kind == RATE else MINUTE
    if rule.window_us % MINUTE or not shortest_us <= rule.window_us <= LONGEST_WINDOW_US:
        raise _wrong("window", f"whole minutes, {format_duration(shortest_us)} to 60m")
    if rule.clear is not None and (rule.clear < rule.threshold if rule.is_below else rule.clear > rule.threshold):
        side = "at least `below`" if rule.is_below else "at most `above`"
        raise _wrong("clear", f"a number that is {side}: an alert that fires is over there")


def _wrong(key: str, wanted: str) -> Rejected:
    return Rejected(f"{key}: give {wanted}", code="field")


def _text(key: str, value: object) -> str:
    if not isinstance(value, str):
        raise _wrong(key, "a text")
    fault = text_fault(value, MOST_TEXT_BYTES)
    if fault:
        raise Rejected(f"{key} {fault}", code="field")
    return value


def _name(key: str, value: object) -> str:
    name = check_slug(key, value)
    if name in UNITS:
        raise Rejected(f"{key}: {name} is a built-in alert; choose another name", code="field")
    return name


def check_slug(key: str, value: object) -> str:
    """A name that can stand in an address and in a file."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise _wrong(key, "1 to 64 of a-z, 0-9, `.`, `_` and -")
    return value


def _one_of(key: str, value: object, known: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in known:
        raise _wrong(key, f"one of {', '.join(known)}")
    return value


def _number(key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise _wrong(key, "a number")
    return float(value)


def _duration(key: str, value: object) -> int:
    if not isinstance(value, str):
        raise _wrong(key, "a time such as 90s, 10m or 2h")
    width_us = parse_duration(value)
    if width_us > 30 * DAY:
        raise _wrong(key, "at most 30d")
    return width_us


def _match(key: str, value: object) -> Matching:
    if not isinstance(value, Mapping) or not value:
        raise _wrong(key, "an object with type, location or tags")
    for name in value:
        if name not in Matching.__struct_fields__:
            raise Rejected(f"{key}: unknown key {str(name)[:80]!r}: use type, location, tags", code="field")
    try:
        matching = msgspec.convert(dict(value), Matching)
    except msgspec.ValidationError as error:
        raise Rejected(f"{key}: {error}", code="field") from None
    matching.match()  # refuses texts that no device can have
    return matching


def _webhooks(key: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or len(value) > MOST_WEBHOOKS:
        raise _wrong(key, f"a list of at most {MOST_WEBHOOKS} names")
    return tuple(check_slug(key, name) for name in value)


def _device(key: str, value: object) -> str:
    return check_name(key, _text(key, value))


def _metric(key: str, value: object) -> str:
    if not isinstance(value, str):
        raise _wrong(key, "the name of a metric")
    return check_metric(value)


_READERS: dict[str, tuple[str, Callable[[str, Any], Any]]] = {
    "name": ("name", _name),
    "metric": ("metric", _metric),
    "aggregate": ("aggregate", lambda key, value: _one_of(key, value, AGGREGATES)),
    "window": ("window_us", _duration),
    "above": ("above", _number),
    "below": ("below", _number),
    "clear": ("clear", _number),
    "for": ("for_us", _duration),
    "after": ("after_us", _duration),
    "limit": ("limit", lambda key, value: _one_of(key, value, LIMITS)),
    "percent": ("percent", _number),
    "device": ("device", _device),
    "match": ("match", _match),
    "severity": ("severity", lambda key, value: _one_of(key, value, SEVERITIES)),
    "webhooks": ("webhooks", _webhooks),
    "summary": ("summary", _text),
}
