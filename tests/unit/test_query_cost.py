"""What all questions of a tenant may read: a bucket of rows that may be in debt."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from widerow.admit.cost import Bucket, Costs
from widerow.model.errors import QuotaExceeded
from widerow.model.tenant import LimitMode, Limits, Tenant
from widerow.ops.counters import Counters


def tenant(per_s: int, burst: int = 0) -> Tenant:
    return Tenant(name="acme", limits=Limits(query_cost_per_s=per_s, query_cost_burst=burst))


def test_a_question_is_charged_what_it_read_and_the_next_one_waits() -> None:
    now = [50.0]
    counters = Counters()
    costs = Costs(counters, lambda: now[0])
    acme = tenant(100, 200)
    costs.admit(acme).count(700)
    with pytest.raises(QuotaExceeded) as refused:
        costs.admit(acme)
    error = refused.value
    assert (error.limit, error.allowed, error.seen) == ("query_cost_per_s", 100, 350)
    assert error.retry_after_s == pytest.approx(5.01)
    now[0] += error.retry_after_s
    costs.admit(acme)
    read = counters.registry.get_sample_value
    assert read("widerow_query_refused_total", {"tenant": "acme", "code": "quota-exceeded"}) == 1
    assert read("widerow_query_rows_total", {"tenant": "acme"}) == 700


def test_whoever_has_nothing_left_is_turned_away_and_told_the_same() -> None:
    now, counters = [50.0], Counters()
    costs = Costs(counters, lambda: now[0])
    acme = tenant(100, 200)
    costs.turn_away(acme)
    costs.admit(acme).count(700)
    told = []
    for ask in (costs.admit, costs.turn_away):
        with pytest.raises(QuotaExceeded) as refused:
            ask(acme)
        told.append(str(refused.value))
    assert told[0] == told[1]
    labels = {"tenant": "acme", "code": "quota-exceeded"}
    assert counters.registry.get_sample_value("widerow_query_refused_total", labels) == 2
    for other in (
        replace(acme, name="other"),
        replace(acme, limit_modes={"query_cost_per_s": LimitMode.SHADOW}),
        replace(acme, limit_modes={"query_cost_per_s": LimitMode.OFF}),
        tenant(0),
        tenant(1000),
    ):
        costs.turn_away(other)
    now[0] += 5.01
    costs.turn_away(acme)


def test_nobody_is_turned_away_because_of_what_is_only_promised() -> None:
    now = [0.0]
    costs = Costs(Counters(), lambda: now[0])
    acme = tenant(100, 1000)
    usual = costs.admit(acme)
    usual.count(900)
    usual.end()
    now[0] += 9
    under_way, other = costs.admit(acme), costs.admit(acme)
    with pytest.raises(QuotaExceeded):
        costs.admit(acme)
    costs.turn_away(acme)
    under_way.count(1000)
    with pytest.raises(QuotaExceeded):
        costs.turn_away(acme)
    other.end()


def test_without_a_limit_rows_are_counted_and_nothing_is_refused() -> None:
    costs = Costs(Counters(), lambda: 0.0)
    for _ in range(3):
        costs.admit(tenant(0)).count(10**9)


def test_in_shadow_what_would_be_refused_is_counted_and_answered() -> None:
    counters = Counters()
    costs = Costs(counters, lambda: 0.0)
    acme = replace(tenant(10), limit_modes={"query_cost_per_s": LimitMode.SHADOW})
    for _ in range(3):
        costs.admit(acme).count(1000)
    assert counters.registry.get_sample_value("widerow_query_shadowed_total", {"tenant": "acme"}) == 2


def test_another_limit_holds_at_once() -> None:
    now = [0.0]
    costs = Costs(Counters(), lambda: now[0])
    costs.admit(tenant(10)).count(1000)
    with pytest.raises(QuotaExceeded):
        costs.admit(tenant(10))
    now[0] += 1
    with pytest.raises(QuotaExceeded):
        costs.admit(tenant(1000))
    now[0] += 1
    costs.admit(tenant(1000))


def test_what_others_under_way_are_expected_to_read_is_not_left() -> None:
    now = [0.0]
    costs = Costs(Counters(), lambda: now[0])
    acme = tenant(100, 1000)
    usual = costs.admit(acme)
    usual.count(700)
    usual.end()
    now[0] += 7  # full again
    first, second = costs.admit(acme), costs.admit(acme)
    with pytest.raises(QuotaExceeded) as refused:
        costs.admit(acme)
    assert refused.value.seen == 140, "of ten seconds that allow 100 each"
    assert refused.value.retry_after_s == pytest.approx(4.01)
    first.count(600)
    with pytest.raises(QuotaExceeded):
        costs.admit(acme)
    first.end()
    first.end()
    with pytest.raises(QuotaExceeded):
        costs.admit(acme)
    second.end()  # it came to nothing
    costs.admit(acme)


def test_whoever_asks_alone_may_read_more_than_is_left() -> None:
    costs = Costs(Counters(), lambda: 0.0)
    acme = tenant(100, 1000)
    for rows in (900, 900):
        meter = costs.admit(acme)
        meter.count(rows)
        meter.end()
    with pytest.raises(QuotaExceeded):
        costs.admit(acme)


@given(st.integers(1, 300), st.integers(1, 2000), st.lists(st.tuples(st.floats(0, 5), st.booleans()), max_size=80))
def test_however_many_ask_at_once_all_but_one_question_fit(rows: int, burst: int, steps: list[tuple[float, bool]]) -> None:
    """Each reads as many rows, in the end."""
    now, per_s, read = [0.0], 50, 0
    costs = Costs(Counters(), lambda: now[0])
    acme = tenant(per_s, burst)
    first = costs.admit(acme)
    first.count(rows)
    first.end()
    read, going = rows, []
    for pause_s, asks in steps:
        now[0] += pause_s
        if asks:
            try:
                going.append(costs.admit(acme))
            except QuotaExceeded:
                continue
            promised = rows * len(going)
            assert read + promised <= per_s * now[0] + burst + rows + 1e-6
        elif going:
            meter = going.pop(0)
            meter.count(rows)
            meter.end()
            read += rows


@given(
    st.floats(1, 1000),
    st.floats(1, 5000),
    st.lists(st.tuples(st.floats(0, 20), st.integers(0, 3000)), max_size=60),
)
def test_never_more_than_rate_and_burst_allow_but_for_the_last_question(
    per_s: float, burst: float, questions: list[tuple[float, int]]
) -> None:
    now_s, read = 0.0, 0
    bucket = Bucket(per_s, burst, now_s)
    for pause_s, rows in questions:
        now_s += pause_s
        if bucket.left(now_s) > 0:
            assert read <= per_s * now_s + burst + 1e-6  # before this one
            bucket.take(rows, now_s)
            read += rows
        else:
            assert bucket.seen_per_s(now_s) >= per_s * (1 - 1e-9)
            assert copy(bucket).left(now_s + bucket.retry_after_s() + 1e-6) > 0
