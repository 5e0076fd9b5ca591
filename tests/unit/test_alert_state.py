"""When an alert fires and when it is over: the states, one figure after the other."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from widerow.alerts.state import State, States, step, step_one

OK, PENDING, FIRING = State.OK, State.PENDING, State.FIRING


def run(values: list[float], *, above: float, clear: float, for_us: int) -> list[State]:
    """The states after each of some values, a microsecond apart."""
    state, since_us, states = OK, 0, []
    for now_us, value in enumerate(values):
        state, since_us = step_one(state, since_us, bad=value > above, clear=value <= clear, now_us=now_us, for_us=for_us)
        states.append(state)
    return states


def test_an_alert_fires_when_its_figure_has_been_bad_for_long_enough() -> None:
    def check(values: list[float], for_us: int, want: list[State]) -> None:
        assert run(values, above=5, clear=5, for_us=for_us) == want

    check([4, 6, 6], 0, [OK, FIRING, FIRING])
    check([4, 6, 6, 6, 6], 2, [OK, PENDING, PENDING, FIRING, FIRING])
    check([6, 6, 4, 6, 6, 6], 2, [PENDING, PENDING, OK, PENDING, PENDING, FIRING])
    check([5, 5, 5], 0, [OK, OK, OK])


def test_between_bad_and_clear_nothing_changes() -> None:
    def check(values: list[float], want: list[State]) -> None:
        assert run(values, above=80, clear=70, for_us=1) == want

    check([75, 81, 82, 75, 71, 70, 75], [OK, PENDING, FIRING, FIRING, FIRING, OK, OK])
    check([81, 75, 81, 82], [PENDING, OK, PENDING, FIRING])


def test_the_time_of_a_state_is_when_it_began() -> None:
    def check(before: tuple[State, int], bad: bool, want: tuple[State, int]) -> None:
        assert step_one(*before, bad=bad, clear=not bad, now_us=100, for_us=50) == want

    check((OK, 7), True, (PENDING, 100))
    check((PENDING, 60), True, (PENDING, 60))
    check((PENDING, 50), True, (FIRING, 100))
    check((FIRING, 20), True, (FIRING, 20))
    check((FIRING, 20), False, (OK, 100))


@given(
    st.lists(
        st.tuples(st.sampled_from(State), st.integers(0, 100), st.booleans(), st.booleans(), st.integers(100, 200)),
        min_size=1,
    ),
    st.integers(0, 100),
)
def test_many_at_once_are_what_each_is_by_itself(rows: list[tuple[State, int, bool, bool, int]], for_us: int) -> None:
    state, since_us, bad, clear, now_us = (np.array(column) for column in zip(*rows, strict=True))
    after = step(States(state.astype(np.uint8), since_us), bad, clear, now_us, for_us)
    alone = [
        step_one(one, since, bad=is_bad, clear=is_clear, now_us=now, for_us=for_us)
        for one, since, is_bad, is_clear, now in rows
    ]
    assert list(zip(after.state.tolist(), after.since_us.tolist(), strict=True)) == alone
