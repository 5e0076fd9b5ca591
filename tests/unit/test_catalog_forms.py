"""The JSON forms: strict, a patch of what exists, and the same way back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from widerow.catalog.forms import check, from_json, to_json
from widerow.model.device import Device, Metric, MetricKind, Profile
from widerow.model.errors import Rejected
from widerow.model.tenant import FOREVER, MODED, Limits, Retention, RetentionEpoch, Tenant
from widerow.model.times import DAY, HOUR
from widerow.model.token import Role, Token

NOW_US = 1_800_000_000_000_000
TENANT = Tenant(
    name="acme",
    display_name="Acme",
    limits=Limits(devices=5),
    raw_epochs=(RetentionEpoch(0, 30 * DAY),),
    created_us=NOW_US,
    revision=3,
)
DEVICE = Device(
    name="a", type="pump", tags={"floor": "1"}, profile=Profile(reports_per_s=0.5), created_us=NOW_US, revision=1
)
METRIC = Metric(name="temp", unit="°C", description="two\nlines", created_us=NOW_US, revision=1)


def test_forms_are_what_the_api_shows() -> None:
    assert to_json(TENANT) == {
        "name": "acme",
        "display_name": "Acme",
        "limits": {
            "writes_per_s": 0,
            "writes_burst": 0,
            "storage_bytes": 0,
            "devices": 5,
            "series": 0,
            "values_per_report": 1000,
            "query_rows": 0,
            "query_seconds": 0,
            "query_cost_per_s": 0,
            "query_cost_burst": 0,
        },
        "limit_modes": dict.fromkeys(MODED, "enforce"),
        "hot_steps": {"limit": "auto", "spread": "auto", "sample": "forbid"},
        "retention": {"raw": "30d", "minute": "90d", "hour": "365d", "day": "forever"},
        "raw_epochs": [{"from": "1970-01-01T00:00:00Z", "raw": "30d"}],
        "registers_devices": True,
        "row_attributes": [],
        "device_tags": [],
        "attribute_tags": [],
        "created": "2027-01-15T08:00:00Z",
        "revision": 3,
    }
    assert to_json(DEVICE) == {
        "name": "a",
        "display_name": "",
        "type": "pump",
        "location": "",
        "tags": {"floor": "1"},
        "profile": {"reports_per_s": 0.5, "max_reports_per_s": 0.0, "metrics_per_report": 0},
        "hardware": [],
        "created": "2027-01-15T08:00:00Z",
        "revision": 1,
    }
    assert to_json(METRIC) == {
        "name": "temp",
        "kind": "gauge",
        "unit": "°C",
        "description": "two\nlines",
        "created": "2027-01-15T08:00:00Z",
        "revision": 1,
    }
    assert to_json(Token(id="0" * 16, role=Role.READ, tenant="acme")) == {
        "id": "0" * 16,
        "role": "read",
        "tenant": "acme",
        "device": "",
        "description": "",
        "created": None,
        "expires": None,
    }


def test_a_form_sent_back_changes_nothing() -> None:
    assert from_json(to_json(TENANT), TENANT) == TENANT
    assert from_json(to_json(DEVICE), DEVICE) == DEVICE
    assert from_json(to_json(METRIC), METRIC) == METRIC
    assert from_json({}, DEVICE) == DEVICE


def test_a_form_is_a_patch() -> None:
    changed = from_json(
        {
            "limits": {"series": 9},
            "retention": {"raw": "6h", "minute": 7 * DAY, "hour": "forever"},
            "registers_devices": False,
            "row_attributes": ["location", "type", "location"],
            "device_tags": ["host", "sn"],
            "attribute_tags": ["site"],
        },
        TENANT,
    )
    assert changed == replace(
        TENANT,
        limits=Limits(devices=5, series=9),
        retention=Retention(raw_us=6 * HOUR, minute_us=7 * DAY, hour_us=FOREVER),
        registers_devices=False,
        row_attributes=("type", "location"),
        device_tags=("host", "sn"),
        attribute_tags=("site",),
    )
    assert from_json({"profile": {"max_reports_per_s": 10}}, DEVICE).profile == Profile(
        reports_per_s=0.5, max_reports_per_s=10.0
    )
    assert from_json({"profile": {"metrics_per_report": 12}}, DEVICE).profile == Profile(
        reports_per_s=0.5, metrics_per_report=12
    )
    assert from_json({"kind": "counter"}, METRIC) == replace(METRIC, kind=MetricKind.COUNTER)


def test_tags_are_patched_one_by_one_and_removed_by_null() -> None:
    assert from_json({"tags": {"line": "x"}}, DEVICE).tags == {"floor": "1", "line": "x"}
    assert from_json({"tags": {"floor": None, "line": "x", "none": None}}, DEVICE).tags == {"line": "x"}
    assert from_json({"tags": None}, DEVICE).tags == {}
    assert DEVICE.tags == {"floor": "1"}


def test_what_is_wrong_is_named() -> None:
    def refused(base: Any, form: object, says: str, code: str = "field") -> None:
        with pytest.raises(Rejected) as caught:
            from_json(form, base)
        assert caught.value.code == code
        assert says in str(caught.value)

    refused(DEVICE, {"colour": "red"}, "unknown key 'colour': use display_name, type, location, tags, profile")
    refused(DEVICE, {"profile": {"rate": 1}}, "use reports_per_s, max_reports_per_s, metrics_per_report")
    refused(TENANT, {"limits": {"wings": 1}}, "use writes_per_s, writes_burst, storage_bytes, devices, series")
    refused(TENANT, {"retention": {"raw_us": 1}}, "use raw, minute, hour, day")
    refused(DEVICE, [], "give an object")
    refused(DEVICE, {"tags": ["a"]}, "tags: give an object")
    refused(DEVICE, {"type": None}, "type: give a text")
    refused(DEVICE, {"tags": {"floor": 1}}, "tags.floor: give a text")
    refused(DEVICE, {"name": "b"}, "name is 'a' and cannot be set")
    refused(TENANT, {"revision": 4}, "revision is 3 and cannot be set")
    refused(TENANT, {"registers_devices": 1}, "give true or false")
    for attributes in ("type", ["colour"], None, [["type"]]):
        refused(TENANT, {"row_attributes": attributes}, "row_attributes: give a list of type, location")
    for key in ("device_tags", "attribute_tags"):
        refused(TENANT, {key: "host"}, f"{key}: give a list of tags")
        refused(TENANT, {key: [1]}, f"{key}: give a list of tags")
        refused(TENANT, {key: [""]}, f"{key}: the tag '' is empty")
        refused(TENANT, {key: ["a", "b", "a"]}, f"{key}: the tag 'a' is listed twice")
        refused(TENANT, {key: [f"t{i}" for i in range(65)]}, f"{key}: 65 are listed, at most 64 may be")
    for limit in (-1, 1.5, True, "5", None, 2**60):
        refused(TENANT, {"limits": {"devices": limit}}, "limits.devices: give a whole number")
    refused(METRIC, {"kind": "level"}, "one of gauge, counter, text")
    refused(METRIC, {"kind": []}, "one of gauge, counter, text")
    refused(METRIC, {"description": "x" * 4097}, "description is longer than 4096 bytes")
    refused(METRIC, {"unit": "V\x00"}, "unit holds a control character")
    refused(DEVICE, {"location": "\ud800"}, "location holds a control character")
    refused(DEVICE, {"display_name": "ü" * 129}, "display_name is longer than 256 bytes")
    refused(DEVICE, {"tags": {"a": "x" * 257}}, "tags.a is longer than 256 bytes")
    refused(DEVICE, {"tags": {"a\n": "x"}}, "holds a control character", "name")
    refused(DEVICE, {"tags": {str(i): "" for i in range(64)}}, "65 are given, at most 64")
    refused(DEVICE, {"profile": {"reports_per_s": "1"}}, "give a number")
    refused(DEVICE, {"profile": {"reports_per_s": 10**400}}, "give a number")
    refused(DEVICE, {"profile": {"reports_per_s": -1}}, "give 0 to 1,000,000", "profile")
    refused(DEVICE, {"profile": {"reports_per_s": float("nan")}}, "give 0 to 1,000,000", "profile")
    for count in ("1", 1.5, True, None, 10**5000):
        refused(DEVICE, {"profile": {"metrics_per_report": count}}, "profile.metrics_per_report: give a whole number")
    refused(DEVICE, {"profile": {"metrics_per_report": 1001}}, "give 0 (unknown) to 1000", "profile")
    refused(DEVICE, {"profile": {"reports_per_s": 1705}}, "profile: 1,705 reports/s of 10 values are too many", "profile")
    refused(TENANT, {"retention": {"raw": 1.5}}, 'give a duration such as "30d"')
    refused(TENANT, {"retention": {"raw": "soon"}}, "give a number and a unit", "duration")
    refused(TENANT, {"retention": {"raw": "1s"}}, "give 1h to 7300d", "retention")
    refused(TENANT, {"retention": {"raw": "91d"}}, "raw may not outlive minute", "retention")


def test_texts_have_room_to_their_last_byte() -> None:
    full = {"display_name": "x" * 256, "tags": {str(i): "y" * 256 for i in range(63)}}
    check(from_json(full, DEVICE))
    check(from_json({"description": "z" * 4096}, METRIC))
