"""Which requests are worked on at once, and which comes next; and when a window of rollups is."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from widerow.admit import question_slots
from widerow.admit.question_slots import QuestionSlots, Slot, SlotSettings, Standing
from widerow.model.errors import Overloaded, QueryBusy, Unavailable
from widerow.ops.counters import Counters

SETTINGS = SlotSettings(at_once=4, long_at_once=2, max_waiting=8)


@pytest.fixture
def slots() -> QuestionSlots:
    return QuestionSlots(SETTINGS, Counters())


def begun(slots: Sequence[Slot]) -> list[bool]:
    return [slot.begun.done() for slot in slots]


def test_one_tenant_leaves_a_place_to_others(slots: QuestionSlots) -> None:
    first = [slots.ask("a") for _ in range(5)]
    assert begun(first) == [True, True, True, False, False]
    assert begun([slots.ask("b"), slots.ask("b")]) == [True, False]
    first[0].end()
    assert begun(first) == [True, True, True, False, False], "the place is b's, who has fewer"
    assert slots.standing() == {"a": Standing(2, 2, 0), "b": Standing(0, 2, 0)}


def test_long_requests_leave_places_to_short_ones(slots: QuestionSlots) -> None:
    long = [slots.ask(tenant, long=True) for tenant in "abcd"]
    assert begun(long) == [True, True, False, False]
    assert begun([slots.ask("a"), slots.ask("b")]) == [True, True]
    everything = QuestionSlots(SlotSettings(at_once=2, long_at_once=2), Counters())
    assert begun([everything.ask(tenant, long=True) for tenant in "ab"]) == [True, False]
    assert begun([everything.ask("c")]) == [True]


def test_one_tenant_has_half_of_the_long_places(slots: QuestionSlots) -> None:
    first = [slots.ask("a", long=True) for _ in range(3)]
    assert begun(first) == [True, False, False]
    assert begun([slots.ask("b", long=True)]) == [True]
    first[0].end()
    assert begun(first) == [True, True, False]


def test_with_one_place_there_is_one_for_everything() -> None:
    slots = QuestionSlots(SlotSettings(at_once=1, long_at_once=1), Counters())
    first, second = slots.ask("a", long=True), slots.ask("a")
    assert begun([first, second]) == [True, False]
    first.end()
    assert begun([second]) == [True]


def test_a_full_line_refuses_its_own_tenant_alone(slots: QuestionSlots) -> None:
    for _ in range(3 + 8):
        slots.ask("a")
    with pytest.raises(QueryBusy, match=r"a: 8 requests wait, as query\.max_waiting allows") as refused:
        slots.ask("a")
    assert refused.value.retry_after_s >= 1
    assert begun([slots.ask("b")]) == [True]


def test_there_is_an_end_to_how_many_wait_in_all(slots: QuestionSlots) -> None:
    for number in range(1028):
        slots.ask(f"t{number}")
    with pytest.raises(Overloaded):
        slots.ask("another")


def test_what_is_not_wanted_any_more_leaves_the_line(slots: QuestionSlots) -> None:
    first = [slots.ask("a") for _ in range(5)]
    first[3].begun.cancel()
    first[3].end()
    first[0].end()
    first[0].end()
    assert begun(first[4:]) == [True]
    assert slots.standing() == {"a": Standing(0, 3, 0)}


def test_what_is_to_be_done_at_the_end_is_done_once(slots: QuestionSlots) -> None:
    slot, done = slots.ask("a"), list[str]()
    slot.at_end(lambda: done.append("it"))
    slot.bytes = 70
    assert slots.standing() == {"a": Standing(0, 1, 70)}
    slot.end()
    slot.end()
    assert done == ["it"]
    assert slots.standing() == {}


def test_who_works_for_nobody_finds_out_between_two_reads(slots: QuestionSlots) -> None:
    slot = slots.ask("a")
    slot.check()
    slot.give_up()
    with pytest.raises(Unavailable):
        slot.check()


class Roll:
    """A window that another thread rolls as soon as it may, and until it is told to stop."""

    def __init__(self, slots: QuestionSlots) -> None:
        self.begun, self._enough = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, args=(slots,), daemon=True)
        self._thread.start()

    def _run(self, slots: QuestionSlots) -> None:
        with slots.roll():
            self.begun.set()
            self._enough.wait(20)

    def end(self) -> None:
        self._enough.set()
        self._thread.join(20)


def test_no_window_is_rolled_while_a_question_waits(slots: QuestionSlots, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(question_slots, "ROLL_WAITS_S", 20.0)
    asked = [slots.ask("a", long=True) for _ in range(3)]
    roll = Roll(slots)
    for number, slot in enumerate(asked):
        assert roll.begun.wait(0.05) is (number == 2), "the last one does not wait"
        slot.end()
    roll.end()


def test_a_window_takes_one_place(slots: QuestionSlots) -> None:
    roll = Roll(slots)
    assert roll.begun.wait(20)
    asked = [slots.ask(tenant) for tenant in "abcd"]
    assert begun(asked) == [True, True, True, False]
    roll.end()
    assert begun(asked) == [True] * 4


def test_rolling_goes_on_where_questions_never_cease(slots: QuestionSlots, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(question_slots, "ROLL_WAITS_S", 0.05)
    for _ in range(5):
        slots.ask("a")
    roll = Roll(slots)
    assert roll.begun.wait(20)
    roll.end()


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.integers(0, 3)), max_size=40))
def test_bounds_hold_and_no_place_is_left_empty(steps: list[tuple[str, bool, int]]) -> None:
    slots, asked = QuestionSlots(SETTINGS, Counters()), list[Slot]()
    for tenant, long, ends in steps:
        if slots.standing().get(tenant, Standing(0, 0, 0)).waiting < 8:
            asked.append(slots.ask(tenant, long=long))
        for slot in [slot for slot in asked if slot.begun.done()][:ends]:
            asked.remove(slot)
            slot.end()
        running = [slot for slot in asked if slot.begun.done()]
        long_ones = Counter(slot.tenant for slot in running if slot.long)
        assert len(running) <= 4
        assert long_ones.total() <= 2
        assert not long_ones or max(long_ones.values()) == 1
        has = Counter(slot.tenant for slot in running)
        assert not has or max(has.values()) <= 3
        if len(running) < 4:
            waiting = [slot for slot in asked if not slot.begun.done()]
            assert all(slot.long or has[slot.tenant] == 3 for slot in waiting)
