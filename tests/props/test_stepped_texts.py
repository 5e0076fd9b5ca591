"""Texts over steps: the last, how many, and how long each lasted, whatever has been rolled."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.rollup_suite import NOW, TENANT, Site
from widerow.engine.memory import MemoryEngine
from widerow.model.batch import Report
from widerow.model.series import Reply
from widerow.model.times import HOUR, MINUTE, MS, SECOND, ManualClock, TimeSpan
from widerow.query import run
from widerow.query.budget import Budget, QuerySettings
from widerow.query.question import question_of
from widerow.query.stepped import Sources

SPAN = TimeSpan(NOW - NOW % HOUR - 5 * HOUR, NOW - NOW % HOUR)
reports = st.lists(
    st.tuples(st.integers(0, 299), st.sampled_from(["run", "idle", "stop", 'ü,"x'])),
    min_size=1,
    max_size=40,
    unique_by=lambda report: report[0],
)


def site_of(some: list[tuple[int, str]], rolled: int | None) -> Site:
    clock = ManualClock(NOW)
    site = Site(MemoryEngine(clock), clock)
    site.write([Report("a", SPAN.start_us + n * MINUTE, {"state": text, "n": float(n)}, {}, NOW) for n, text in some])
    site.roll(most=rolled)
    return site


def ask(
    site: Site,
    step: str | None,
    *aggregates: str,
    fill: str = "none",
    metrics: list[str] | None = None,
    span: TimeSpan = SPAN,
) -> Reply:
    sources = Sources(site.telemetry, site.rollups, site.roller.dirt, site.clock)
    question = question_of(span, step=step, aggregates=aggregates, fill=fill, metrics=metrics or ["state"])
    return run.of_device(sources, TENANT, "a", question, Budget(QuerySettings(), TENANT))


def plain(reply: Reply) -> dict[tuple[str, str, int], Any]:
    series = reply.series
    out: dict[tuple[str, str, int], Any] = {}
    for i in range(len(series)):
        value: Any = float(series.number[i])
        if series.text is not None and series.text.codes[i] < 0 and np.isnan(value):
            value = None
        if series.text is not None and series.text.codes[i] >= 0:
            value = series.text[i]
        agg = series.labels["agg"][i]
        out[series.labels["metric"][i], agg, int(series.time_us[i])] = (
            json.loads(value) if agg == "states" and value else value
        )
    return out


@settings(max_examples=60)
@given(reports, st.sampled_from(["10m", "1h", "2h", "1d", None]), st.integers(0, 6))
def test_the_last_text_and_the_count_are_of_the_reports_of_a_step(
    some: list[tuple[int, str]], step: str | None, rolled: int
) -> None:
    last: dict[int, str] = {}
    count: dict[int, int] = defaultdict(int)
    for n, text in sorted(some):
        at = start_of(SPAN.start_us + n * MINUTE, step)
        last[at] = text
        count[at] += 1
    want: dict[tuple[str, str, int], Any] = {("state", "last", at): text for at, text in last.items()}
    want |= {("state", "count", at): n for at, n in count.items()}
    assert plain(ask(site_of(some, rolled), step, "last", "count")) == want


@settings(max_examples=60)
@given(reports, st.sampled_from(["10m", "1h", "2h", "1d", None]), st.integers(0, 6), st.integers(0, 300))
def test_a_state_lasts_until_the_next_one_through_all_steps_between(
    some: list[tuple[int, str]], step: str | None, rolled: int, asked_from: int
) -> None:
    site, span = site_of(some, rolled), TimeSpan(SPAN.start_us + asked_from * MINUTE, SPAN.stop_us)
    ordered = [(SPAN.start_us + n * MINUTE, text) for n, text in sorted(some)]
    want: dict[tuple[str, str, int], dict[str, dict[str, float]]] = defaultdict(dict)
    for at_us, text in ordered:
        if at_us >= span.start_us:
            tally(want, start_of(at_us, step, span), text)["count"] += 1
    for (begin_us, text), (end_us, _) in itertools.pairwise([*ordered, (span.stop_us, "")]):
        for minute_us in range(max(begin_us, span.start_us), end_us, MINUTE):
            tally(want, start_of(minute_us, step, span), text)["seconds"] += 60
    found = plain(ask(site, step, "states", span=span))
    assert found == dict(want)
    told = sum(state["seconds"] for states in found.values() for state in states.values())
    assert told == (span.stop_us - max(span.start_us, ordered[0][0])) / SECOND, "no second is lost, none counts twice"


def start_of(time_us: int, step: str | None, span: TimeSpan = SPAN) -> int:
    width = {"10m": 10 * MINUTE, "1h": HOUR, "2h": 2 * HOUR, "1d": 24 * HOUR, None: 0}[step]
    return time_us - time_us % width if width else span.start_us


def tally(want: dict[tuple[str, str, int], dict[str, Any]], at: int, text: str) -> dict[str, float]:
    found: dict[str, float] = want["state", "states", at].setdefault(text, {"seconds": 0.0, "count": 0})
    return found


def test_a_state_lasts_into_the_present_and_no_further() -> None:
    site = site_of([(250, "run")], None)
    site.clock.time_us = SPAN.stop_us + 90 * MINUTE
    later = TimeSpan(SPAN.start_us, SPAN.stop_us + 5 * HOUR)
    found = plain(ask(site, "1h", "states", fill="previous", span=later))
    assert [states and states["run"] for states in found.values()] == [
        *[None] * 4,
        {"seconds": 3000.0, "count": 1},
        {"seconds": 3600.0, "count": 0},
        {"seconds": 1800.0, "count": 0},
        *[None] * 3,
    ]


def test_a_metric_with_numbers_and_texts_has_a_series_of_each() -> None:
    site = site_of([(0, "run")], None)
    site.write(
        [Report("a", SPAN.start_us + n * MINUTE, {"mixed": float(n) if n % 2 else "text"}, {}, NOW) for n in range(150)]
    )
    series = ask(site, "1h", "count", "last", metrics=["mixed"]).series
    cuts = series.cuts().tolist()
    told = [tuple(series.labels[name][i] for name in ("metric", "agg", "kind")) for i in cuts[:-1]]
    assert told == [("mixed", agg, kind) for agg in ("count", "last") for kind in ("number", "text")]
    for first, stop in itertools.pairwise(cuts):
        assert len(set(series.time_us[first:stop].tolist())) == stop - first == 3


def test_numbers_and_texts_stand_side_by_side() -> None:
    site = site_of([(0, "run"), (30, "idle"), (70, "run")], None)
    reply = ask(site, "1h", "avg", "last", metrics=["n", "state"])
    begin, later = SPAN.start_us, SPAN.start_us + HOUR
    assert plain(reply) == {
        ("n", "avg", begin): 15.0,
        ("n", "avg", later): 70.0,
        ("n", "last", begin): 30.0,
        ("n", "last", later): 70.0,
        ("state", "last", begin): "idle",
        ("state", "last", later): "run",
    }
    assert list(plain(ask(site, "1h", "max", metrics=["state"]))) == []


def test_texts_are_filled_by_what_was_before_and_never_by_a_line() -> None:
    site = site_of([(0, "run"), (130, "stop")], None)

    def check(fill: str, want: list[str | None]) -> None:
        series = ask(site, "1h", "last", fill=fill).series
        assert series.text is not None
        texts = [series.text[i] if series.text.codes[i] >= 0 else None for i in range(len(series))]
        assert texts == want

    check("none", ["run", "stop"])
    check("null", ["run", None, "stop", None, None])
    check("previous", ["run", "run", "stop", "stop", "stop"])
    check("linear", ["run", None, "stop", None, None])


def test_texts_that_come_late_count() -> None:
    site = site_of([(0, "run"), (50, "run")], None)
    site.write([Report("a", SPAN.start_us + 20 * MINUTE, {"state": "idle"}, {}, NOW + MS)])
    states = plain(ask(site, "1h", "states"))["state", "states", SPAN.start_us]
    assert states == {"run": {"seconds": 1800.0, "count": 2}, "idle": {"seconds": 1800.0, "count": 1}}
