"""The JSON forms of catalog entities, for the HTTP API and the command line; and what an entity may hold.

Rule 1: strict. A key that is not known, or a value of the wrong type, is refused with the key's name (code `field`).
Rule 2: reading a form is a patch of `base`: keys that are absent stay as they are. `limits`, `limit_modes`, `retention`,
`profile` and `tags` are patched key by key; a tag given as null is removed, `"tags": null` removes all.
Rule 3: what a form shows but nobody may set (name, created, revision, raw_epochs, hardware) may be sent back unchanged, so
that a form that was read can be edited and sent.
Rule 4: `check` holds for every entity that is stored, whoever made it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeAlias, TypeVar

from widerow.model.check import MAX_NAME_BYTES, check_metric, check_name, check_tenant, name_fault, tags_fault, text_fault
from widerow.model.device import Device, Metric, MetricKind, Profile
from widerow.model.errors import Rejected
from widerow.model.hot import DEFAULT_MODES, Step, StepMode
from widerow.model.tenant import FOREVER, MODED, ROW_ATTRIBUTES, LimitMode, Limits, Retention, Tenant
from widerow.model.times import format_duration, format_time, parse_duration
from widerow.model.token import Token

Json: TypeAlias = dict[str, Any]
Entity = TypeVar("Entity", Tenant, Device, Metric)

MAX_TAGS = 64
MAX_DESCRIPTION_BYTES = 4096
MAX_LIMIT = 1 << 53
"""Beyond it, a JSON number is no longer exact."""

LEVELS = ("raw", "minute", "hour", "day")


def to_json(entity: Tenant | Device | Metric | Token) -> Json:
    """The entity as the API shows it."""
    if isinstance(entity, Tenant):
        return {
            "name": entity.name,
            "display_name": entity.display_name,
            "limits": _plain(entity.limits),
            "limit_modes": {name: entity.mode(name).value for name in MODED},
            "hot_steps": {step.value: mode.value for step, mode in (DEFAULT_MODES | entity.hot_steps).items()},
            "retention": {level: _kept(getattr(entity.retention, f"{level}_us")) for level in LEVELS},
            "raw_epochs": [{"from": format_time(e.from_us), "raw": _kept(e.raw_us)} for e in entity.raw_epochs],
            "registers_devices": entity.registers_devices,
            "row_attributes": list(entity.row_attributes),
            "device_tags": list(entity.device_tags),
            "attribute_tags": list(entity.attribute_tags),
            "created": shown_time(entity.created_us),
            "revision": entity.revision,
        }
    if isinstance(entity, Device):
        return {
            "name": entity.name,
            "display_name": entity.display_name,
            "type": entity.type,
            "location": entity.location,
            "tags": dict(entity.tags),
            "profile": _plain(entity.profile),
            "hardware": [{"id": h.id, "since": format_time(h.since_us), "note": h.note} for h in entity.hardware],
            "created": shown_time(entity.created_us),
            "revision": entity.revision,
        }
    if isinstance(entity, Metric):
        return {
            "name": entity.name,
            "kind": entity.kind.value,
            "unit": entity.unit,
            "description": entity.description,
            "created": shown_time(entity.created_us),
            "revision": entity.revision,
        }
    return {
        "id": entity.id,
        "role": entity.role.value,
        "tenant": entity.tenant,
        "device": entity.device,
        "description": entity.description,
        "created": shown_time(entity.created_us),
        "expires": shown_time(entity.expires_us),
    }


def from_json(form: object, base: Entity) -> Entity:
    """`base`, changed as the form says."""
    readers = _READERS[type(base)]
    shown = to_json(base)
    changes: Json = {}
    for key, value in _mapping("the form", form).items():
        if key in readers:
            changes[key] = readers[key](key, value, getattr(base, key))
        elif key not in shown:
            raise _unknown(key, readers)
        elif value != shown[key]:
            raise Rejected(f"{key} is {shown[key]!r} and cannot be set", code="field")
    changed = replace(base, **changes)
    check(changed)
    return changed


def check(entity: Tenant | Device | Metric) -> None:
    """Raise `Rejected` unless the entity may be stored."""
    if isinstance(entity, Tenant):
        check_tenant(entity.name)
        _check_label("display_name", entity.display_name)
        for name, limit in _plain(entity.limits).items():
            if not 0 <= limit <= MAX_LIMIT:
                raise Rejected(f"limits.{name} is {limit}: give 0 (no limit) to 2^53", code="field")
        for key in ("device_tags", "attribute_tags"):
            tags = getattr(entity, key)
            fault = f"{len(tags)} are listed, at most {MAX_TAGS} may be" if len(tags) > MAX_TAGS else tags_fault(tags)
            if fault:
                raise Rejected(f"{key}: {fault}", code="field")
    elif isinstance(entity, Device):
        check_name("device", entity.name)
        for key in ("display_name", "type", "location"):
            _check_label(key, getattr(entity, key))
        if len(entity.tags) > MAX_TAGS:
            raise Rejected(f"tags: {len(entity.tags)} are given, at most {MAX_TAGS} may be", code="field")
        for tag, content in entity.tags.items():
            check_name("tag", tag)
            _check_text(f"tags.{tag}", content, MAX_NAME_BYTES)
        for hardware in entity.hardware:
            check_name("hardware", hardware.id)
            _check_text("note", hardware.note, MAX_DESCRIPTION_BYTES)
        overload = entity.profile.overload()
        if overload:
            raise Rejected(f"profile: {overload}", code="profile")
    else:
        check_metric(entity.name)
        _check_label("unit", entity.unit)
        check_description(entity.description)


def check_description(text: str) -> None:
    _check_text("description", text, MAX_DESCRIPTION_BYTES)


def _check_label(key: str, text: str) -> None:
    fault = name_fault(text) if text else None
    if fault:
        raise Rejected(f"{key} {fault}", code="field")


def _check_text(key: str, text: str, max_bytes: int) -> None:
    fault = text_fault(text, max_bytes)
    if fault:
        raise Rejected(f"{key} {fault}", code="field")


def _plain(entity: Limits | Profile) -> Json:
    return {f.name: getattr(entity, f.name) for f in fields(entity)}


def _kept(keep_us: int) -> str:
    return "forever" if keep_us == FOREVER else format_duration(keep_us)


def shown_time(time_us: int) -> str | None:
    """Null for 0: it never was, or is not known."""
    return format_time(time_us) if time_us else None


def _unknown(key: object, allowed: Mapping[str, object] | Sequence[str]) -> Rejected:
    return Rejected(f"unknown key {str(key)[:80]!r}: use {', '.join(allowed)}", code="field")


# Readers: (key, value of the form, current value) -> new value.


def _mapping(key: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(k, str) for k in value):
        raise _wrong(key, "an object")
    return value


def _wrong(key: str, wanted: str) -> Rejected:
    return Rejected(f"{key}: give {wanted}", code="field")


def _text(key: str, value: object, _current: str) -> str:
    if not isinstance(value, str):
        raise _wrong(key, "a text")
    return value


def _flag(key: str, value: object, _current: bool) -> bool:
    if not isinstance(value, bool):
        raise _wrong(key, "true or false")
    return value


def _attributes(key: str, value: object, _current: tuple[str, ...]) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(name in ROW_ATTRIBUTES for name in value):
        raise _wrong(key, f"a list of {', '.join(ROW_ATTRIBUTES)}, or an empty one")
    return tuple(name for name in ROW_ATTRIBUTES if name in value)


def _tag_names(key: str, value: object, _current: tuple[str, ...]) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise _wrong(key, "a list of tags, or an empty one for what the server's configuration says")
    return tuple(value)


def _kind(key: str, value: object, _current: MetricKind) -> MetricKind:
    if not isinstance(value, str) or value not in list(MetricKind):
        raise _wrong(key, f"one of {', '.join(MetricKind)}")
    return MetricKind(value)


def _tags(key: str, value: object, current: Mapping[str, str]) -> dict[str, str]:
    if value is None:
        return {}
    tags = dict(current)
    for tag, content in _mapping(key, value).items():
        if content is None:
            tags.pop(tag, None)
        else:
            tags[tag] = _text(f"{key}.{tag[:80]}", content, "")
    return tags


def _limits(key: str, value: object, current: Limits) -> Limits:
    changes = {}
    for name, limit in _mapping(key, value).items():
        if name not in _plain(current):
            raise _unknown(f"{key}.{name}", list(_plain(current)))
        if isinstance(limit, bool) or not isinstance(limit, int) or not 0 <= limit <= MAX_LIMIT:
            raise _wrong(f"{key}.{name}", "a whole number, 0 (no limit) to 2^53")
        changes[name] = limit
    return replace(current, **changes)


def _modes(key: str, value: object, current: Mapping[str, LimitMode]) -> dict[str, LimitMode]:
    modes = dict(current)
    for name, mode in _mapping(key, value).items():
        if name not in MODED:
            raise _unknown(f"{key}.{name}", MODED)
        if not isinstance(mode, str) or mode not in list(LimitMode):
            raise _wrong(f"{key}.{name}", f"one of {', '.join(LimitMode)}")
        modes[name] = LimitMode(mode)
        if modes[name] is LimitMode.ENFORCE:
            del modes[name]
    return modes


def _steps(key: str, value: object, current: Mapping[Step, StepMode]) -> dict[Step, StepMode]:
    steps = dict(current)
    for name, mode in _mapping(key, value).items():
        if name not in list(Step):
            raise _unknown(f"{key}.{name}", list(Step))
        if not isinstance(mode, str) or mode not in list(StepMode):
            raise _wrong(f"{key}.{name}", f"one of {', '.join(StepMode)}")
        steps[Step(name)] = StepMode(mode)
    return {step: mode for step, mode in steps.items() if mode is not DEFAULT_MODES[step]}


def _profile(key: str, value: object, current: Profile) -> Profile:
    changes: Json = {}
    for name, number in _mapping(key, value).items():
        if name not in _plain(current):
            raise _unknown(f"{key}.{name}", list(_plain(current)))
        whole = name == "metrics_per_report"
        # The bound is here, too: an int too long for a float, or to be printed, must not reach the profile's own check.
        if isinstance(number, bool) or not isinstance(number, int if whole else int | float) or number > MAX_LIMIT:
            raise _wrong(f"{key}.{name}", "a whole number of values" if whole else "a number of reports per second")
        changes[name] = number if whole else float(number)
    return replace(current, **changes)


def _retention(key: str, value: object, current: Retention) -> Retention:
    changes = {}
    for level, keep in _mapping(key, value).items():
        if level not in LEVELS:
            raise _unknown(f"{key}.{level}", LEVELS)
        changes[f"{level}_us"] = _duration(f"{key}.{level}", keep)
    return replace(current, **changes)


def _duration(key: str, value: object) -> int:
    if value == "forever":
        return FOREVER
    if isinstance(value, str):
        return parse_duration(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(key, 'a duration such as "30d", "forever", or microseconds')
    return value


_READERS: dict[type, dict[str, Callable[[str, Any, Any], Any]]] = {
    Tenant: {
        "display_name": _text,
        "limits": _limits,
        "limit_modes": _modes,
        "hot_steps": _steps,
        "retention": _retention,
        "registers_devices": _flag,
        "row_attributes": _attributes,
        "device_tags": _tag_names,
        "attribute_tags": _tag_names,
    },
    Device: {"display_name": _text, "type": _text, "location": _text, "tags": _tags, "profile": _profile},
    Metric: {"kind": _kind, "unit": _text, "description": _text},
}
