"""Attributes of devices, stored with each report where the tenant wants it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from widerow.catalog.attributes import Attributes
from widerow.catalog.devices import Devices
from widerow.engine.memory import MemoryEngine
from widerow.model.batch import Report, batch_of, reports_of
from widerow.model.device import Device
from widerow.model.names import Coded, Names
from widerow.model.tenant import Tenant
from widerow.model.times import MINUTE, SECOND, ManualClock
from widerow.pipeline.attach import attached
from widerow.schema.tables import TABLES

NOW = 1_800_000_000_000_000


def test_a_report_gets_what_its_device_has_and_keeps_its_own_tags() -> None:
    reports = [
        Report("a", 1, {"x": 1.0, "y": "on"}, {}),
        Report("b", 2, {"x": 2.0}, {"location": "its own"}),
        Report("c", 3, {"location": 3.0}, {"other": "tag"}),
        Report("a", 4, {"x": 4.0}, {}),
    ]
    batch = batch_of(reports)
    names = batch.device.names.to_list()
    location = {"a": "Linz", "b": "Graz", "c": "Wien"}
    kind = Coded(Names.of(("pump",)), np.array([0 if name == "a" else -1 for name in names], np.int32))
    done = reports_of(attached(batch, {"location": Coded.of([location[n] for n in names]), "type": kind}))
    assert [(r.device, r.time_us, r.values) for r in done] == [(r.device, r.time_us, r.values) for r in reports]
    assert [r.tags for r in done] == [
        {"location": "Linz", "type": "pump"},
        {"location": "its own"},
        {"other": "tag", "location": "Wien"},
        {"location": "Linz", "type": "pump"},
    ]


def test_what_nobody_has_changes_nothing() -> None:
    batch = batch_of([Report("a", 1, {"x": 1.0}, {})])
    assert attached(batch, {"type": Coded(Names.of(()), np.array([-1], np.int32))}) is batch


def test_a_change_is_seen_within_a_minute_and_devices_are_read_once_until_then() -> None:
    clock = ManualClock(NOW)
    engine = MemoryEngine(clock)
    engine.apply(TABLES)
    tenant, devices, attributes = Tenant(name="acme"), Devices(engine, clock), Attributes(engine, clock)
    devices.create(tenant, Device(name="a", type="pump", location="Linz"))
    devices.create(tenant, Device(name="b", location="Graz"))

    def seen(*names: str) -> list[tuple[str | None, ...]]:
        found = attributes.of("acme", Names.of(names), ["type", "location"])
        columns = [[None if c < 0 else f.names[c] for c in f.codes.tolist()] for f in found.values()]
        return list(zip(*columns, strict=True))

    assert seen("b", "a", "nobody") == [(None, "Graz"), ("pump", "Linz"), (None, None)]
    devices.update("acme", "a", lambda d: replace(d, type="", location="Wien"))
    clock.time_us += MINUTE - SECOND
    assert seen("a") == [("pump", "Linz")]
    clock.time_us += SECOND
    assert seen("a", "b") == [(None, "Wien"), (None, "Graz")]
    assert attributes.of("other", Names.of(("a",)), ["location"])["location"].codes.tolist() == [-1]
