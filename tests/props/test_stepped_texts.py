"""Texts over steps: the last, how many, and how long each lasted, whatever has been rolled."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from typing import Any

import pytest
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


def ask(site: Site, step: str | None, *aggregates: str, fill: str = "none", metrics: list[str] | None = None) -> Reply:
    sources = Sources(site.telemetry, site.rollups, site.roller.dirt, site.clock)
    question = question_of(SPAN, step=step, aggregates=aggregates, fill=fill, metrics=metrics or ["state"])
    return run.of_device(sources, TENANT, "a", question, Budget(QuerySettings(), TENANT))


def plain(reply: Reply) -> dict[tuple[str, str, int], Any]:
    series = reply.series
    out: dict[tuple[str, str, int], Any] = {}
    for i in range(len(series)):
        value: Any = float(series.number[i])
        if series.text is not None and series.text.codes[i] >= 0:
            value = series.text[i]
        agg = series.labels["agg"][i]
        out[series.labels["metric"][i], agg, int(series.time_us[i])] = json.loads(value) if agg == "states" else value
    return out


@settings(max_examples=60)
@given(reports, st.sampled_from(["10m", "1h", "2h", "1d", None]), st.integers(0, 6))
def test_states_last_until_the_next_report(some: list[tuple[int, str]], step: str | None, rolled: int) -> None:
    reply = ask(site_of(some, rolled), step, "last", "count", "states")
    width = {"10m": 10 * MINUTE, "1h": HOUR, "2h": 2 * HOUR, "1d": 24 * HOUR, None: 1 << 60}[step]
    ordered = [(SPAN.start_us + n * MINUTE, text) for n, text in sorted(some)]

    def start(time_us: int) -> int:
        return time_us - time_us % width if step else SPAN.start_us

    last: dict[int, str] = {}
    counts: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    seconds: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for time_us, text in ordered:
        last[start(time_us)] = text
        counts[start(time_us)][text] += 1
        seconds[start(time_us)][text] += 0
    for (begin, text), (end, _) in itertools.pairwise(ordered):
        one, other = start(begin), start(end)
        if one == other:
            seconds[one][text] += (end - begin) / SECOND
        else:
            seconds[one][text] += (min(one + width, SPAN.stop_us) - begin) / SECOND
            seconds[other][text] += (end - other) / SECOND
    want: dict[tuple[str, str, int], Any] = {}
    for at, text in last.items():
        want["state", "last", at] = text
        want["state", "count", at] = sum(counts[at].values())
        want["state", "states", at] = {
            text: {"seconds": pytest.approx(lasted), "count": counts[at].get(text, 0)}
            for text, lasted in seconds[at].items()
        }
    assert plain(reply) == want


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
    (states,) = plain(ask(site, "1h", "states")).values()
    assert states == {"run": {"seconds": 1200.0, "count": 2}, "idle": {"seconds": 1800.0, "count": 1}}
