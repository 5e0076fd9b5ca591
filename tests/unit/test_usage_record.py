"""Recorded use: whole values by hour and process, and what a crash or a failed write leaves of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from widerow.catalog.store import bring_up
from widerow.engine.memory import MemoryEngine
from widerow.engine.rows import Rows
from widerow.model.errors import Unavailable
from widerow.model.lane import Lane
from widerow.model.times import DAY, HOUR, SECOND, ManualClock, TimeSpan
from widerow.schema.table import Table
from widerow.schema.usage import USAGE
from widerow.usage.record import Recorder, UsageSettings
from widerow.usage.recorded import Recorded

NOON_US = 1_800_000_000_000_000 // DAY * DAY + 12 * HOUR
EVERYTHING = TimeSpan(NOON_US - 2 * DAY, NOON_US + 2 * DAY)


class Unsteady(MemoryEngine):
    """Fails when told to."""

    down = False

    def write(self, changes: Sequence[tuple[Table, Rows]]) -> None:
        if self.down:
            raise Unavailable("down")
        super().write(changes)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOON_US)


@pytest.fixture
def engine(clock: ManualClock) -> Unsteady:
    engine = Unsteady(clock)
    bring_up(engine)
    return engine


def offer(recorder: Recorder, count: int, refused: int = 0, lane: Lane = Lane.LIVE, tenant: str = "acme") -> None:
    codes = {"future": refused} if refused else {}
    recorder.offered(tenant, lane, count, count - refused, 10 * (count - refused), 100 * count, codes)


def test_what_is_flushed_is_read_and_flushing_again_changes_nothing(clock: ManualClock, engine: Unsteady) -> None:
    recorder, recorded = Recorder(engine, clock, "one"), Recorded(engine, clock)
    offer(recorder, 5, refused=2)
    recorder.asked("acme", 100, 2000, 0.25)
    for _ in range(2):
        recorder.flush()
        hour = recorded.hours("acme", EVERYTHING)[NOON_US]
        assert (hour["offered"], hour["accepted"], hour["values"], hour["received_bytes"]) == (5, 3, 30, 500)
        assert hour["refused:future"] == 2
        assert (hour["questions"], hour["rows_read"], hour["answered_bytes"], hour["question_seconds"]) == (
            1,
            100,
            2000,
            0.25,
        )
    assert recorded.hours("other", EVERYTHING) == {}


def test_processes_of_an_hour_are_added_up_and_a_crash_loses_what_was_not_flushed(
    clock: ManualClock, engine: Unsteady
) -> None:
    before, after = Recorder(engine, clock, "one"), Recorder(engine, clock, "two")
    offer(before, 5)
    before.flush()
    offer(before, 7)  # and then it is killed
    offer(after, 11)
    after.flush()
    assert Recorded(engine, clock).hours("acme", EVERYTHING)[NOON_US]["offered"] == 16


def test_a_write_that_failed_is_made_up_for_by_the_next(clock: ManualClock, engine: Unsteady) -> None:
    recorder, recorded = Recorder(engine, clock, "one"), Recorded(engine, clock)
    offer(recorder, 5)
    engine.down = True
    with pytest.raises(Unavailable):
        recorder.flush()
    engine.down = False
    offer(recorder, 3)
    recorder.flush()
    assert recorded.hours("acme", EVERYTHING)[NOON_US]["offered"] == 8
    assert next(recorded.seconds("acme", EVERYTHING)).live.sum() == 8


def test_seconds_say_when_reports_were_offered_live_and_backlog_apart(clock: ManualClock, engine: Unsteady) -> None:
    recorder, other = Recorder(engine, clock, "one"), Recorder(engine, clock, "two")
    for at, count in ((0, 3), (1, 4), (3599, 5)):
        clock.time_us = NOON_US + at * SECOND
        offer(recorder, count)
        offer(other, 100, lane=Lane.BACKFILL)
    clock.time_us = NOON_US + HOUR + 7 * SECOND
    offer(recorder, 6)
    recorder.offered("acme", Lane.LIVE, 2, 2, 20, 10, {}, at_us=NOON_US + SECOND)  # looked at an hour ago, answered now
    recorder.flush()
    other.flush()
    first, second = Recorded(engine, clock).seconds("acme", EVERYTHING)
    assert {i: int(first.live[i]) for i in np.flatnonzero(first.live).tolist()} == {0: 3, 1: 6, 3599: 5}
    assert {i: int(first.backlog[i]) for i in np.flatnonzero(first.backlog).tolist()} == {0: 100, 1: 100, 3599: 100}
    assert {i: int(second.live[i]) for i in np.flatnonzero(second.live).tolist()} == {7: 6}


def test_an_hour_that_was_let_go_is_not_begun_anew(clock: ManualClock, engine: Unsteady) -> None:
    recorder, recorded = Recorder(engine, clock, "one"), Recorded(engine, clock)
    offer(recorder, 5)
    recorder.flush()
    clock.time_us += 3 * HOUR
    recorder.flush()
    recorder.offered("acme", Lane.LIVE, 2, 2, 20, 10, {}, at_us=NOON_US)
    recorder.flush()
    hours = recorded.hours("acme", EVERYTHING)
    assert hours[NOON_US]["offered"] == 5
    assert hours[NOON_US + 2 * HOUR]["offered"] == 2


def test_detail_goes_before_totals_and_both_in_the_end(clock: ManualClock, engine: Unsteady) -> None:
    settings = UsageSettings(keep_us=10 * DAY, detail_us=2 * DAY)
    recorder, recorded = Recorder(engine, clock, "one", settings), Recorded(engine, clock)
    offer(recorder, 5)
    recorder.flush()
    clock.time_us += 3 * DAY
    assert recorded.hours("acme", EVERYTHING)[NOON_US]["offered"] == 5
    assert list(recorded.seconds("acme", EVERYTHING)) == []
    clock.time_us += 8 * DAY
    assert recorded.hours("acme", EVERYTHING) == {}


def test_a_tenant_that_is_gone_leaves_nothing(clock: ManualClock, engine: Unsteady) -> None:
    recorder, recorded = Recorder(engine, clock, "one"), Recorded(engine, clock)
    offer(recorder, 5)
    offer(recorder, 5, tenant="other")
    recorder.flush()
    recorded.forget("acme")
    assert recorded.hours("acme", EVERYTHING) == {}
    assert recorded.hours("other", EVERYTHING)[NOON_US]["offered"] == 5


def test_what_a_tenant_did_is_not_that_of_another_of_its_name(clock: ManualClock, engine: Unsteady) -> None:
    recorder = Recorder(engine, clock, "p1")
    recorder.offered("acme", Lane.LIVE, 5, 5, 5, 100, {}, written_bytes=70, at_us=clock.time_us)
    recorder.forget("acme")
    assert recorder.written("acme") == 0
    assert recorder.written_by_hour("acme") == {}
    recorder.flush()
    assert list(engine.scan(USAGE, None)) == []
