"""What makes an hour whole in memory, and what makes it stale."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.rollup_suite import NOW, TENANT, Site
from widerow.engine.memory import MemoryEngine
from widerow.model.arrays import Flags
from widerow.model.batch import Report, batch_of
from widerow.model.errors import Unavailable
from widerow.model.names import Names
from widerow.model.tenant import Tenant
from widerow.model.times import HOUR, MINUTE, MS, SECOND, ManualClock
from widerow.rollup import windows as windows_module
from widerow.rollup.counts import Counted
from widerow.rollup.roll import Rolled, Roller
from widerow.rollup.room import Room
from widerow.rollup.windows import Windows, WindowSettings
from widerow.schema.rollups import DAYS, HOURS

BEGAN = NOW - NOW % HOUR
"""A whole hour."""


@pytest.fixture
def site() -> Site:
    clock = ManualClock(BEGAN)
    return Site(MemoryEngine(clock), clock)


def send(site: Site, *times_us: int, device: str = "a", value: float = 1.0) -> None:
    """Reports of times from the begin of the hour on."""
    site.clock.time_us += MS
    site.write([Report(device, BEGAN + at, {"temp": value}, {}, site.clock.time_us) for at in times_us])


def rolled(site: Site) -> list[Rolled]:
    """Roll everything, and see that it is what raw reports say."""
    done = [site.roller.roll(TENANT, unit) for unit in sorted(site.marks.pending())]
    assert not list(site.marks.units())
    found = {key: record for key, record in site.records().items() if key[0] != DAYS.name}
    for device, hour in sorted({(device, start - start % HOUR) for _, device, start, _ in found}):
        site.marks.again(TENANT.name, device, np.array([hour]))
    knows_nothing = Roller(site.engine, site.telemetry, site.rollups, site.marks, site.clock)
    for unit in sorted(site.marks.pending()):
        knows_nothing.roll(TENANT, unit)
    assert {key: record for key, record in site.records().items() if key[0] != DAYS.name} == found
    return done


def test_a_minute_closes_when_it_is_over_its_reports_had_time_to_come_and_it_rests(site: Site) -> None:
    send(site, 5 * SECOND, 50 * SECOND, 65 * SECOND)

    def check(at_us: int, closed: int) -> None:
        site.clock.time_us = BEGAN + at_us
        assert site.roller.close(TENANT) == closed

    check(60 * SECOND, 0)
    check(119 * SECOND, 0)
    send(site, 55 * SECOND)
    check(120 * SECOND, 0)  # something came a second ago
    check(121 * SECOND, 3)
    check(179 * SECOND, 0)
    check(190 * SECOND, 1)
    assert site.windows.bytes == 0


def test_an_hour_whose_reports_all_came_in_time_is_rolled_from_its_minutes(site: Site) -> None:
    send(site, SECOND, 61 * SECOND)
    site.clock.time_us = BEGAN + 10 * MINUTE
    site.roller.close(TENANT)
    send(site, 11 * MINUTE)
    assert rolled(site) == [Rolled(1, from_minutes=1)]


def test_what_breaks_an_hour_has_it_rolled_from_raw(site: Site) -> None:
    def close() -> None:
        site.clock.time_us += 10 * MINUTE
        site.roller.close(TENANT)

    # A report that comes after its minute was closed.
    send(site, SECOND)
    close()
    send(site, 2 * SECOND)
    assert rolled(site) == [Rolled(1, from_minutes=0)]
    # One that comes twice.
    site.clock.time_us += HOUR
    send(site, HOUR + SECOND)
    send(site, HOUR + SECOND, value=2.0)
    assert rolled(site) == [Rolled(1, from_minutes=0)]
    # One whose write failed: nobody knows what of it is there.
    site.write([Report("a", BEGAN + 2 * HOUR, {"temp": 1.0}, {}, NOW)], written=False)
    assert rolled(site) == [Rolled(1, from_minutes=0)]
    # A report of an hour that was rolled.
    send(site, 10 * SECOND)
    assert rolled(site) == [Rolled(1, from_minutes=0)]
    # A process before this one, which may have written reports of the hours ahead.
    site.restart()
    send(site, 2 * HOUR + SECOND)
    assert rolled(site) == [Rolled(1, from_minutes=0)]


def test_other_devices_of_a_broken_hour_are_not_touched(site: Site) -> None:
    send(site, SECOND)
    send(site, SECOND, device="b")
    site.clock.time_us += 10 * MINUTE
    site.roller.close(TENANT)
    send(site, 2 * SECOND)
    assert sorted(r.from_minutes for r in rolled(site)) == [0, 1]


def test_devices_that_were_registered_here_have_no_past(site: Site) -> None:
    site.restart()
    old = BEGAN - 3 * HOUR
    for fresh, whole in ((Names.of(["a"]), 1), (None, 0)):
        device = "a" if fresh else "b"
        batch = batch_of([Report(device, old, {"temp": 1.0}, {}, NOW)])
        plan, marks = site.telemetry.plan(TENANT, batch), site.marks.plan(TENANT.name, batch)
        site.engine.write([*marks.changes, *plan.changes])
        site.windows.add(TENANT.name, plan.reports, fresh=fresh)
        site.marks.settle(marks, written=True)
        assert rolled(site) == [Rolled(1, from_minutes=whole)]


def test_what_does_not_fit_into_memory_is_rolled_from_raw(site: Site) -> None:
    site.windows = Windows(site.clock, WindowSettings(max_bytes=100), alone_from_us=0)
    site.roller._windows = site.windows
    for at in range(5):
        send(site, at * SECOND)
        assert 0 < site.windows.bytes < 200, "what does not fit is not kept"
    assert rolled(site) == [Rolled(1, from_minutes=0)]
    assert site.windows.bytes == 0
    send(site, HOUR)
    site.clock.time_us = BEGAN + 2 * HOUR
    assert rolled(site) == [Rolled(1, from_minutes=1)], "there is room again"


def test_when_memory_runs_out_the_tenant_that_has_most_gives_way(site: Site) -> None:
    site.windows = Windows(site.clock, WindowSettings(max_bytes=1000), alone_from_us=0)
    site.roller._windows = site.windows
    rival = Tenant(name="rival")
    for at in range(12):
        batch = batch_of([Report("r", BEGAN + at * SECOND, {"temp": 1.0}, {}, site.clock.time_us)])
        site.windows.add(rival.name, site.telemetry.plan(rival, batch).reports)
    full = site.windows.bytes
    assert full >= 1000
    send(site, SECOND)  # of one that has less: it is kept, and the other lets go when its minutes are next looked at
    assert site.windows.held() == {"rival": full, TENANT.name: site.windows.bytes - full}
    site.windows.add(rival.name, site.telemetry.plan(rival, batch).reports)
    assert site.windows.held()["rival"] == full
    assert not site.windows.close(rival.name, before_us=BEGAN + HOUR)
    assert "rival" not in site.windows.held()
    assert not site.windows.take(rival.name, BEGAN, ["r"])[0], "its hour is stale"
    assert site.windows.closed_until(TENANT.name, [BEGAN], ["a"]) == {}
    site.clock.time_us = BEGAN + HOUR
    assert rolled(site) == [Rolled(1, from_minutes=1)]
    assert site.windows.bytes == 0


@given(
    st.integers(0, 400),
    st.lists(st.tuples(st.sampled_from(("take", "free", "let go")), st.sampled_from("abc"), st.integers(1, 100))),
)
def test_whoever_holds_less_than_another_is_never_turned_away_for_it(most: int, steps: list[tuple[str, str, int]]) -> None:
    room = Room(most)
    held = dict.fromkeys("abc", 0)
    for what, tenant, size in steps:
        if what == "take":
            small = held[tenant] + size < max(held.values()) and room.bytes < 1.125 * most
            taken = room.take(tenant, size)
            held[tenant] += size if taken else 0
            assert taken or not small or room.must_let_go(tenant)
        elif what == "free":
            freed = min(size, held[tenant])
            room.free(tenant, freed)
            held[tenant] -= freed
        elif room.must_let_go(tenant):
            room.free(tenant, held[tenant])
            held[tenant] = 0
        assert room.bytes == sum(held.values()) <= 1.125 * most + 100
        assert room.held() == {name: size for name, size in held.items() if size}


def test_forgetting_makes_everything_stale(site: Site) -> None:
    send(site, SECOND)
    site.windows.forget(site.clock.time_us + HOUR)
    assert rolled(site) == [Rolled(1, from_minutes=0)]
    assert site.windows.bytes == 0


def test_backlog_is_not_kept_and_its_hours_are_rolled_from_raw(site: Site) -> None:
    site.windows = Windows(site.clock, WindowSettings(late_us=HOUR), alone_from_us=0)
    site.roller._windows = site.windows
    site.clock.time_us = BEGAN + 90 * MINUTE
    send(site, 10 * MINUTE, 20 * MINUTE)
    assert site.windows.bytes == 0
    assert rolled(site) == [Rolled(1, from_minutes=0)]
    send(site, 10 * MINUTE, 70 * MINUTE, device="b")  # both at once
    assert site.windows.bytes > 0
    site.clock.time_us = BEGAN + 2 * HOUR
    assert rolled(site) == [Rolled(1, from_minutes=0), Rolled(1, from_minutes=1)]


@given(st.integers(1, 40), st.integers(1, 40), st.data())
def test_how_chunks_are_joined_and_parted_makes_no_difference(together: int, part: int, data: st.DataObject) -> None:
    reports = [
        Report(f"d{n % 7}", BEGAN + at * SECOND, {"temp": float(n), "mode": "on" if n % 3 else "off"}, {}, BEGAN + MS)
        for n, at in enumerate(data.draw(st.lists(st.integers(0, 300), min_size=1, max_size=60)))
    ]

    def minutes(sizes: int, sorts: int) -> tuple[dict[tuple[str, str, int, str], bytes], list[Rolled]]:
        """Written so many at a time, and sorted after so many of these."""
        clock = ManualClock(BEGAN)
        site = Site(MemoryEngine(clock), clock)
        for number, first in enumerate(range(0, len(reports), sizes)):
            site.write(reports[first : first + sizes])
            if number % sorts == 0:
                site.windows.sort()
        clock.time_us = BEGAN + 10 * MINUTE
        assert site.roller.close(TENANT) == len(reports)
        closed = site.records()
        return closed, rolled(site)

    wanted = minutes(len(reports), 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows_module, "_TOGETHER", together)
        patch.setattr(windows_module, "_PART", part)
        assert minutes(data.draw(st.integers(1, 10)), data.draw(st.integers(1, 10))) == wanted


def test_when_a_part_cannot_be_written_its_hours_are_rolled_from_raw(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows_module, "_PART", 1)
    for device in "abc":
        send(site, SECOND, device=device)
    site.clock.time_us = BEGAN + 10 * MINUTE
    write, calls = site.engine.write, []

    def fails_the_second_time(changes: object) -> None:
        calls.append(changes)
        if len(calls) == 2:
            raise Unavailable("no")
        write(changes)  # type: ignore[arg-type]

    monkeypatch.setattr(site.engine, "write", fails_the_second_time)
    with pytest.raises(Unavailable):
        site.roller.close(TENANT)
    monkeypatch.setattr(site.engine, "write", write)
    assert [r.from_minutes for r in rolled(site)] == [0, 0, 0]


def test_an_hour_that_is_stale_is_so_until_it_was_rolled(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    send(site, SECOND)
    site.clock.time_us = BEGAN + 10 * MINUTE
    site.roller.close(TENANT)
    send(site, 2 * SECOND)  # late

    def away(*_: object) -> None:
        raise Unavailable("the store is away")

    monkeypatch.setattr(site.roller, "_some_erased", away)  # it has to look there
    for unit in site.marks.pending():
        with pytest.raises(Unavailable):
            site.roller.roll(TENANT, unit)
    monkeypatch.undo()
    assert rolled(site) == [Rolled(1, from_minutes=0)]


def test_a_late_report_that_comes_while_its_hour_is_taken_is_counted(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    send(site, SECOND)
    take = site.windows.take

    def meanwhile(tenant: str, hour_us: int, devices: Sequence[str]) -> tuple[Flags, Counted]:
        monkeypatch.undo()
        send(site, 2 * SECOND)
        return take(tenant, hour_us, devices)

    monkeypatch.setattr(site.windows, "take", meanwhile)
    for _ in range(2):
        site.clock.time_us += MINUTE
        for unit in site.marks.pending():
            site.roller.roll(TENANT, unit)
    assert site.marks.pending() == {}
    assert [reports for reports, *_ in site.stored(HOURS, [BEGAN]).values()] == [2]


def test_what_is_remembered_of_stale_hours_is_bounded(site: Site) -> None:
    def stale() -> list[int]:
        site.roll()
        return [sum(map(len, ids)) for ids in site.windows._tenants[TENANT.name].stale.values()]

    for hour in range(12):
        send(site, hour * HOUR + SECOND)
        site.clock.time_us = BEGAN + hour * HOUR + 10 * MINUTE
        site.roller.close(TENANT)
        for second in range(2, 5):
            send(site, hour * HOUR + second * SECOND)  # late
            assert 1 <= len(stale()) <= 5
    assert set(stale()) == {1}, "each device once"
    site.windows = Windows(site.clock, WindowSettings(late_us=HOUR), alone_from_us=0)
    site.roller._windows = site.windows
    for hour in range(10):
        send(site, hour * HOUR + 5 * SECOND)
        assert stale() == [], "nothing of backlog is counted"
