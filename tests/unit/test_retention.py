"""What of a tenant's data can be read as its retention changes, and what is told of that before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from widerow.config import Config, Store
from widerow.model.batch import Report, batch_of
from widerow.model.tenant import FOREVER, Retention, RetentionEpoch, Tenant
from widerow.model.times import DAY, HOUR, ManualClock, TimeSpan
from widerow.query.going import going, shortened
from widerow.query.kept import Kept
from widerow.service import Service

NOW = 1_800_000_000_000_000
keeps = st.lists(st.sampled_from([FOREVER, 1, 2, 7, 30, 400]), min_size=1, max_size=6)


def tenant_of(days: list[int]) -> Tenant:
    epochs = tuple(RetentionEpoch(NOW - (len(days) - k) * DAY if k else 0, keep * DAY) for k, keep in enumerate(days))
    last = Retention(raw_us=days[-1] * DAY, minute_us=FOREVER, hour_us=FOREVER)
    return Tenant(name="acme", retention=last, raw_epochs=epochs)


@given(keeps, st.sampled_from([FOREVER, 1, 2, 7, 30, 400]))
def test_a_change_never_brings_back_what_could_not_be_read(days: list[int], more: int) -> None:
    def readable(tenant: Tenant) -> tuple[TimeSpan, ...]:
        return Kept.of(tenant, NOW).levels[0]

    before, after = tenant_of(days), tenant_of([*days, more])
    # The same epochs, and one more that begins in a moment.
    after = replace(after, raw_epochs=(*before.raw_epochs, RetentionEpoch(NOW + HOUR, more * DAY)))
    for span in readable(after):
        until = TimeSpan(span.start_us, min(span.stop_us, NOW))
        assert any(old.start_us <= until.start_us and until.stop_us <= old.stop_us for old in readable(before))
    if more != FOREVER:
        assert all(span.start_us >= NOW - more * DAY for span in readable(after))
    held = after.raw_held()
    assert [h.start_us for h in held[1:]] == [h.stop_us for h in held[:-1]]
    assert held[-1].shown_us == held[-1].keep_us == more * DAY
    for h in held:
        assert FOREVER in (h.shown_us, h.keep_us) or h.shown_us <= h.keep_us


def test_which_levels_are_shortened() -> None:
    usual = Retention()
    assert shortened(usual, usual) == []
    assert shortened(usual, replace(usual, raw_us=31 * DAY, hour_us=FOREVER)) == []
    assert shortened(usual, replace(usual, raw_us=DAY, day_us=366 * DAY)) == ["raw", "day"]
    assert shortened(replace(usual, hour_us=FOREVER), usual) == ["hour"]


@pytest.fixture
def service() -> Iterator[Service]:
    with Service.open(Config(store=Store(url="memory:")), ManualClock(NOW)) as service:
        yield service


def test_a_few_devices_stand_for_all(service: Service) -> None:
    tenant = service.create_tenant(Tenant(name="acme"))
    names = [f"d{i}" for i in range(100)]
    batch = batch_of(
        [
            Report(name, NOW - age * DAY + i, {"x": 1.0, "y": 2.0}, {}, NOW)
            for name in names
            for age in (20, 10, 1)
            for i in range(5)
        ]
    )
    service.catalog.devices.register(tenant, batch.device.names)
    plan, marks = service.telemetry.plan(tenant, batch), service.pyramid.plan("acme", batch)
    service.engine.write([*marks.changes, *plan.changes])
    service.pyramid.settle(marks, plan, fresh=None, written=True)

    def told(**keep_us: int) -> list[tuple[str, int | None, int | None, int | None, bool]]:
        after = replace(tenant.retention, **keep_us)
        goes = going(service.queries.sources, service.catalog.devices, tenant, after)
        return [(g.level, g.days, g.devices, g.rows, g.certain) for g in goes]

    assert told(raw_us=7 * DAY) == [("raw", 2, 100, 1000, False)]
    assert told(raw_us=15 * DAY) == [("raw", 1, 100, 500, False)]
    assert told(raw_us=25 * DAY) == [("raw", 0, 0, 0, False)]
    assert told(raw_us=15 * DAY, minute_us=15 * DAY) == [("raw", 1, 100, 500, False), ("minute", 1, 100, 500, False)]
    assert told(raw_us=40 * DAY, minute_us=90 * DAY) == []
