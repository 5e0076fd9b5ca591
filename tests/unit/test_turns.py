"""Whose turn it is to be worked on: laws of `admit.turns`, with a clock of its own and no threads."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from widerow.admit.turns import State, Turn, Turns, TurnSettings
from widerow.model.errors import Overloaded, QueryBusy, Unavailable
from widerow.ops.counters import Counters

LONG_S = 0.06
ALL = TurnSettings(at_once=4, long_at_once=2, max_waiting=8, max_wait_s=15.0, tenant_begun=6, most_begun=12)


@dataclass
class Room:
    """Turns, a clock that is set by hand, and what was begun and refused, in order."""

    settings: TurnSettings = ALL
    now_s: float = 100.0
    begun: list[Turn] = field(default_factory=list)
    refused: list[Exception] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.counters = Counters()
        self.turns = Turns(self.settings, self.counters, lambda: self.now_s)

    def ask(self, tenant: str) -> Turn:
        return self.turns.ask(tenant, self.begun.append, lambda _turn, error: self.refused.append(error))

    def begun_of(self, tenant: str) -> int:
        return sum(turn.tenant == tenant for turn in self.begun)

    def works(self, turn: Turn, seconds: float) -> None:
        """It is worked on for a while, and looks up. Where it would pause it is left paused, and does not wait."""
        self.now_s += seconds
        with self.turns._lock:
            begun = self.turns._look_up(turn, self.now_s) if turn.state is State.RUNNING else []
        self.begun += begun


def test_what_fits_is_begun_at_once() -> None:
    room = Room()
    turns = [room.ask("a") for _ in range(6)]
    assert [turn.state for turn in turns] == [State.RUNNING] * 4 + [State.WAITING] * 2
    turns[0].end()
    assert turns[4].state is State.RUNNING
    turns[0].end()  # again
    assert room.turns.standing()["a"].running == 4


def test_what_is_to_be_done_at_the_end_is_done_once_and_before_another_begins() -> None:
    room = Room(TurnSettings(at_once=1, long_at_once=1))
    turn, following = room.ask("a"), room.ask("a")
    states = list[State]()
    turn.at_end(lambda: states.append(following.state))
    turn.end()
    turn.end()
    assert states == [State.WAITING]
    assert following.state is State.RUNNING


def test_a_burst_waits_in_its_own_line() -> None:
    room = Room()
    burst = [room.ask("a") for _ in range(10)]
    other = room.ask("b")
    room.now_s += 0.01
    burst[0].end()
    assert other.state is State.RUNNING
    assert sum(turn.state is State.WAITING for turn in burst) == 6


def test_one_tenant_has_half_of_the_places_while_others_wait() -> None:
    room = Room()
    first = [room.ask("a") for _ in range(8)]
    others = [room.ask("b") for _ in range(4)]
    for turn in first[:4]:
        room.now_s += 0.001
        turn.end()
    assert sum(turn.state is State.RUNNING for turn in others) == 2
    assert sum(turn.state is State.RUNNING for turn in first) == 2


def test_the_one_who_used_less_comes_first() -> None:
    room = Room(TurnSettings(at_once=1, long_at_once=1))
    heavy = room.ask("a")
    room.now_s += 2
    heavy.end()
    now = room.ask("c")
    again, light = room.ask("a"), room.ask("b")
    now.end()
    assert (again.state, light.state) == (State.WAITING, State.RUNNING)
    light.end()
    assert again.state is State.RUNNING


def test_what_was_used_is_forgotten() -> None:
    room = Room(TurnSettings(at_once=1, long_at_once=1))
    heavy = room.ask("a")
    room.now_s += 2
    heavy.end()
    room.now_s += 120
    other = room.ask("b")
    room.now_s += 0.1
    now, again, more = room.ask("c"), room.ask("a"), room.ask("b")
    other.end()
    room.now_s += 0.05
    now.end()
    assert (again.state, more.state) == (State.RUNNING, State.WAITING)


def test_long_ones_leave_places_to_short_ones() -> None:
    room = Room()
    heavy = [room.ask("a") for _ in range(4)]
    for turn in heavy:
        room.works(turn, LONG_S)
    assert sum(turn.state is State.RUNNING for turn in heavy) == 2
    assert all(turn.long for turn in heavy)
    for tenant in ("a", "b"):
        assert room.ask(tenant).state is State.RUNNING


def test_long_ones_take_turns() -> None:
    room = Room(TurnSettings(at_once=2, long_at_once=1))
    one, other = room.ask("a"), room.ask("b")
    had = {"a": 0.0, "b": 0.0}
    for _ in range(200):
        room.now_s += 0.03
        for turn in [turn for turn in (one, other) if turn.state is State.RUNNING]:
            had[turn.tenant] += 0.03
            room.works(turn, 0)
    assert had["a"] == pytest.approx(had["b"], rel=0.1)


def test_a_long_one_is_not_starved_by_short_ones_of_its_own_tenant() -> None:
    room = Room(TurnSettings(at_once=1, long_at_once=1, max_waiting=1000))
    heavy = room.ask("a")
    room.works(heavy, LONG_S)
    had = 0
    for _ in range(100):
        room.ask("a")
        running = next(turn for turn in room.begun if turn.state is State.RUNNING)
        if running is heavy:
            had += 1
            room.works(heavy, 0.03)
        else:
            room.now_s += 0.01
            running.end()
    assert had > 5


def test_only_so_many_are_begun() -> None:
    room = Room()
    for tenant in "abc":
        for _ in range(8):
            room.ask(tenant)
    for _ in range(50):
        for turn in list(room.begun):
            room.works(turn, LONG_S)
    assert len(room.begun) == 12
    assert all(room.begun_of(tenant) <= 6 for tenant in "abc")


def test_a_full_line_refuses_its_own_tenant() -> None:
    room = Room()
    for _ in range(12):
        room.ask("a")
    with pytest.raises(QueryBusy, match=r"a: 8 requests wait .* query\.max_waiting") as refused:
        room.ask("a")
    assert refused.value.retry_after_s >= 1
    room.ask("b")
    assert room.counters.registry.get_sample_value("widerow_query_refused_total", {"tenant": "a", "code": "query-busy"}) == 1


def test_there_is_an_end_to_what_is_taken_in() -> None:
    room = Room()
    with pytest.raises(Overloaded):  # noqa: PT012 - which of them it is does not matter
        for n in range(2000):
            room.ask(f"t{n}")


def test_who_waits_for_too_long_is_refused() -> None:
    room = Room()
    turns = [room.ask("a") for _ in range(5)]
    room.now_s += 14.9
    room.turns.expire()
    assert not room.refused
    room.now_s += 0.2
    room.turns.expire()
    assert [error.code for error in room.refused if isinstance(error, QueryBusy)] == ["query-busy"]
    assert turns[4].state is State.OVER
    assert room.turns.standing()["a"].waiting == 0
    for turn in turns[:4]:
        turn.end()
    assert room.turns.standing() == {}


def test_a_pause_ends_with_the_turn_of_the_other() -> None:
    turns = Turns(TurnSettings(at_once=1, long_at_once=1, slice_s=0.0), Counters())
    begun: list[Turn] = []
    one = turns.ask("a", begun.append, _fail)
    turns.ask("b", begun.append, _fail)
    went_on = threading.Event()

    def work() -> None:
        one.tick()
        went_on.set()
        one.end()

    thread = threading.Thread(target=work)
    thread.start()
    while len(begun) < 2:
        threading.Event().wait(0.001)
    assert one.state is State.PAUSED
    assert not went_on.is_set()
    begun[1].end()
    thread.join(10)
    assert went_on.is_set()


def test_what_is_stopped_does_not_go_on() -> None:
    room = Room(TurnSettings(at_once=1, long_at_once=1))
    running, waiting = room.ask("a"), room.ask("a")
    waiting.stop()
    assert waiting.state is State.OVER
    running.stop()
    with pytest.raises(Unavailable):
        running.tick()
    running.end()
    assert room.turns.standing() == {}


def _fail(_turn: Turn, error: Exception) -> None:
    raise error


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["ask", "end", "work", "stop", "expire"]), st.integers(0, 5), st.integers(0, 90))))
def test_books_are_kept_whatever_happens(steps: list[tuple[str, int, int]]) -> None:
    """No more than may is worked on, long or begun; nobody waits while there is a place that could be given."""
    room = Room()
    asked: list[Turn] = []
    for what, n, ms in steps:
        room.now_s += ms / 1000
        if what == "ask":
            try:
                asked.append(room.ask("abc"[n % 3]))
            except QueryBusy:
                continue
        elif what == "expire":
            room.now_s += n * 5
            room.turns.expire()
        elif asked:
            turn = asked[n % len(asked)]
            if what == "work":
                room.works(turn, ms / 1000)
            elif what == "end":
                turn.end()
            else:
                turn.stop()
        running = [turn for turn in asked if turn.state is State.RUNNING]
        begun = [turn for turn in asked if turn.state in (State.RUNNING, State.PAUSED)]
        free = [turn for turn in asked if turn.state is State.WAITING or (turn.state is State.PAUSED and not turn.long)]
        assert len(running) <= ALL.at_once
        assert sum(turn.long for turn in running) <= ALL.long_at_once
        assert len(begun) <= ALL.most_begun
        if len(running) < ALL.at_once and len(begun) < ALL.tenant_begun:
            assert not free
        standing = room.turns.standing()
        assert sum(line.running for line in standing.values()) == len(running)
    for turn in asked:
        turn.end()
    assert room.turns.standing() == {}
