"""While an hour is open, its closed minutes and its raw reports together say what raw reports alone say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from contract.rollup_suite import DEVICES, NOW, TENANT, Site, reports_of
from props.test_stepped import check_against_raw
from widerow.engine.memory import MemoryEngine
from widerow.model.times import HOUR, MINUTE, MS, SECOND, ManualClock, TimeSpan
from widerow.query.budget import Budget, QuerySettings
from widerow.query.stepped import Sources, Stepped, stepped
from widerow.query.steps import Steps, steps_of, whole_span
from widerow.query.texts import lasting, text_values
from widerow.rollup.aggregate import TextSummary, states_of_raw

values = st.integers(-1000, 1000).map(lambda n: n / 8) | st.sampled_from(["on", "off"])


def cells(oldest: int) -> st.SearchStrategy[Any]:
    """Ages are in units of 10 s."""
    one = st.tuples(st.sampled_from(DEVICES), st.integers(0, oldest), st.sampled_from(["temp", "flow"]), values)
    return st.lists(one, min_size=1, max_size=12)


lives = st.tuples(st.just("live"), cells(5), st.sampled_from([10, 30, 60, 90, 400]))
"""Reports that come in time; then time passes, and what is due is closed."""
late = st.tuples(st.just("late"), cells(60) | cells(400), st.integers(0, 3))
asks = st.tuples(st.just("ask"), st.integers(1, len(DEVICES)))
others = st.tuples(st.sampled_from(["roll", "again", "fail", "erase", "restart"]))
histories = st.lists(st.one_of(lives, lives, lives, lives, asks, asks, late, others), min_size=5, max_size=24)
steps_asked = st.sampled_from(["30s", "1m", "7m", "10m", "90m", "1h", "1d", ""])


@settings(max_examples=60)
@given(histories, steps_asked, st.integers(0, 40))
def test_an_open_hour_says_what_its_raw_reports_say(history: list[Any], step: str, begin: int) -> None:
    clock = ManualClock(NOW + 40 * MINUTE)
    site = Site(MemoryEngine(clock), clock)
    sent: list[Any] = []
    for n, action in enumerate([*history, ("ask", len(DEVICES))]):
        clock.time_us += 7 * MS
        if action[0] in ("live", "late"):
            now_us = clock.time_us - clock.time_us % (10 * SECOND)
            at = [(device, now_us - age * 10 * SECOND, metric, value) for device, age, metric, value in action[1]]
            sent.append(reports_of(at, clock.time_us - (action[2] * 10 * MS if action[0] == "late" else 0)))
            site.write(sent[-1])
            if action[0] == "live":
                clock.time_us += action[2] * SECOND
                site.roller.close(TENANT)
        elif action[0] == "again" and sent:
            site.write(sent[n % len(sent)])
        elif action[0] == "fail":
            site.write(reports_of([("a", clock.time_us - HOUR // 2, "temp", 1.0)], NOW), written=False)
        elif action[0] == "roll":
            for unit in sorted(site.marks.pending()):
                if unit.start_us + HOUR <= clock.time_us:
                    site.roller.roll(TENANT, unit)
        elif action[0] == "erase":
            clock.time_us += MS
            span = TimeSpan(clock.time_us - 10 * MINUTE, clock.time_us - 5 * MINUTE)
            site.telemetry.erase(TENANT, device="a", metric="temp", span=span)
            clock.time_us += 2 * MS
        elif action[0] == "restart":
            site.restart()
        elif action[0] == "ask":
            check(site, DEVICES[: action[1]], TimeSpan(NOW - HOUR + begin * 97 * SECOND, clock.time_us + 1), step)


def check(site: Site, devices: Sequence[str], span: TimeSpan, step: str) -> None:
    sources = Sources(site.telemetry, site.rollups, site.roller.dirt, site.clock)
    steps = steps_of(step, span) if step else whole_span(span)
    budget = Budget(QuerySettings(), TENANT)
    found = stepped(sources, TENANT, devices, span=span, steps=steps, budget=budget, texts=True)
    check_against_raw(site, found, span, devices)
    raw = site.telemetry.read_many(TENANT, devices, span)
    assert texts_of(found) == texts_in(states_of_raw(raw, steps), steps, span)
    event("minutes answer" if site.roller.dirt(TENANT, devices).minutes and found.used.get("minute") else "raw answers")


def texts_of(found: Stepped) -> dict[Any, Any]:
    return texts_in(found.texts, found.steps, found.span) if found.texts is not None else {}


def texts_in(said: TextSummary, steps: Steps, span: TimeSpan) -> dict[Any, Any]:
    lasted = lasting(said, None, steps, steps.edges[:-1], span, span.stop_us, lambda _: None)
    last = text_values(said, "last")[1].to_list()
    states = {
        (lasted.device[i], lasted.metric[i], int(lasted.start_us[i])): {
            text: (state["count"], pytest.approx(state["seconds"])) for text, state in lasted.states[i].items()
        }
        for i in range(len(lasted))
    }
    return {"states": states} | {(said.device[i], said.metric[i], int(said.start_us[i])): last[i] for i in range(len(said))}
