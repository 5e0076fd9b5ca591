"""The law of placement, on whatever histories Hypothesis comes up with."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from contract.placement_law import Step, check_placement
from widerow.engine.memory import MemoryEngine
from widerow.engine.rocksdb import RocksEngine, RocksSettings
from widerow.model.times import ManualClock

NOW = 1_800_000_000_123_456
SMALL = RocksSettings(cache_bytes=1 << 20, write_buffer_bytes=1 << 20, reserve_bytes=0)
SPEEDS_UP_AND_DOWN: list[Step] = [
    ("send", 0, "a", 120, 4),
    ("look", True),
    ("send", 1, "a", 120, 5),
    ("late", 1, "a", 300),
    ("send", 0, "a", 3, 20),
    ("look", True),
    ("look", True),
    ("send", 1, "a", 3, 8),
]

process = st.integers(0, 1)
device = st.sampled_from(["a", "a", "a", "b"])
sends = st.tuples(st.just("send"), process, device, st.sampled_from([3, 30, 90, 240]), st.sampled_from([1, 4, 15]))
lates = st.tuples(st.just("late"), process, device, st.integers(0, 600))
looks = st.tuples(st.just("look"), st.booleans())
declares = st.tuples(st.just("declare"), process, device, st.sampled_from([0.0, 0.001, 0.5, 5.0, 300.0]))
restarts = st.tuples(st.just("restart"), process)
histories = st.lists(sends | sends | looks | lates | declares | restarts, max_size=14)


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(histories)
@example(SPEEDS_UP_AND_DOWN)
def test_every_accepted_report_is_read_by_its_span_in_memory(history: list[Step]) -> None:
    clock = ManualClock(NOW)
    check_placement(MemoryEngine(clock), clock, history)


@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(histories)
@example(SPEEDS_UP_AND_DOWN)
def test_every_accepted_report_is_read_by_its_span_on_rocksdb(history: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        clock = ManualClock(NOW)
        engine = RocksEngine(Path(folder), clock=clock, settings=SMALL)
        try:
            check_placement(engine, clock, history)
        finally:
            engine.close()


def test_such_a_history_leads_to_epochs() -> None:
    clock = ManualClock(NOW)
    epochs = check_placement(MemoryEngine(clock), clock, SPEEDS_UP_AND_DOWN)
    assert [e.width_us // 60_000_000 for e in epochs] == [15, 60]
    assert all(e.reason.startswith("observed rate: ") for e in epochs)
