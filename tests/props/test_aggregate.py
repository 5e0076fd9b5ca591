"""Rows of one level from the rows beneath it: the same whatever they came in, and what plain Python says."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from operator import itemgetter
from random import Random
from typing import Any, TypeAlias

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.rollup import PlainStates, said_by_states, states_of
from widerow.codec.record import decode, has_numbers, has_texts
from widerow.codec.text_record import decode_states
from widerow.engine.contract import Fragment, rows_from
from widerow.engine.rows import Rows
from widerow.model.arrays import Ints
from widerow.model.names import Coded, Names
from widerow.model.times import DAY, HOUR, MS
from widerow.rollup.aggregate import (
    Summary,
    TextSummary,
    coarser_of,
    combined,
    combined_states,
    minutes_of,
    states_of_raw,
    states_of_rollups,
    summary_of_raw,
    summary_of_rollups,
)
from widerow.schema.rollups import DAYS, HOURS, MINUTES, Level, rollups
from widerow.schema.tables import telemetry

RAW = telemetry(30 * DAY)
BEGIN = 1_800_000_000_000_000 // DAY * DAY
SPAN = 3 * HOUR

Reports: TypeAlias = dict[tuple[str, int, str], float | str]
"""(device, time, metric) -> value."""

reports = st.dictionaries(
    st.tuples(
        st.sampled_from(["a", "b", "ü#/"]),
        st.integers(0, SPAN - 1) | st.integers(0, 200).map(lambda s: s * 10**6),
        st.sampled_from(["temp", "flow", "state"]),
    ),
    st.integers(-(10**6), 10**6).map(lambda i: i / 100) | st.floats(-1e6, 1e6) | st.sampled_from(["on", "off", "ü"]),
    max_size=80,
)
"""A metric may have numbers and texts, even within a minute."""


def raw_rows(reports: Reports) -> Rows:
    by_row: dict[tuple[str, int], dict[str, Any]] = defaultdict(dict)
    for (device, at, metric), value in reports.items():
        by_row[device, BEGIN + at][metric] = value
    fragments = [Fragment(("acme", device, at - at % HOUR, 0, at), cells, MS) for (device, at), cells in by_row.items()]
    return rows_from(RAW, fragments)


def in_parts(rows: Rows, random: Random) -> list[Rows]:
    """The same rows in any order and any chunks."""
    order = list(range(len(rows)))
    random.shuffle(order)
    cuts = sorted([0, len(order), *(random.randint(0, len(order)) for _ in range(3))])
    return [rows.take(np.array(order[a:b], np.int64)) for a, b in pairwise(cuts)]


def plain(rows: Rows) -> dict[tuple[str, int], dict[str, bytes]]:
    """(device, window) -> metric -> record."""
    device, start_us = rows.keys["device_id"], np.asarray(rows.keys["start_us"])
    assert isinstance(device, Coded)
    cells, out = rows.cells, {}
    for i in range(len(rows)):
        which = range(int(cells.offsets[i]), int(cells.offsets[i + 1]))
        out[device[i], int(start_us[i]) - BEGIN] = {
            cells.names[int(cells.name[c])]: cells.texts.bytes_at(int(cells.text[c])) for c in which
        }
    return out


def said(record: bytes, start_us: int) -> dict[str, Any]:
    found = decode(Names.of_bytes([record]), np.array([start_us]))
    return {
        name: getattr(found, name)[0].item()
        for name in ("count", "first_us", "last_us", "min", "max", "sum", "first", "last")
    }


def states_in(record: bytes, start_us: int) -> PlainStates:
    return said_by_states(decode_states(Names.of_bytes([record]), np.zeros(1, np.int64), np.array([start_us])))[0]


def numbers_of(values: Iterable[tuple[int, float | str]]) -> list[tuple[int, float]]:
    return [(at, value) for at, value in values if not isinstance(value, str)]


def texts_of(values: Iterable[tuple[int, float | str]]) -> list[tuple[int, str]]:
    return [(at, value) for at, value in values if isinstance(value, str)]


def minutes(rows: list[Rows]) -> Rows:
    return minutes_of("acme", rows, version_us=5 * MS)


@given(reports)
def test_every_window_says_what_its_values_say(reports: Reports) -> None:
    made = minutes([raw_rows(reports)])
    hours = coarser_of("acme", [made], HOURS, version_us=6 * MS)
    days = coarser_of("acme", [hours], DAYS, version_us=7 * MS)
    for rows, level in ((made, MINUTES), (hours, HOURS), (days, DAYS)):
        groups: dict[tuple[str, int], dict[str, list[tuple[int, float | str]]]] = defaultdict(lambda: defaultdict(list))
        for (device, at, metric), value in sorted(reports.items(), key=itemgetter(0)):
            groups[device, at - at % level.width_us][metric].append((BEGIN + at, value))
        found = plain(rows)
        assert {key: sorted(cells) for key, cells in found.items()} == {key: sorted(cells) for key, cells in groups.items()}
        for (device, start), cells in groups.items():
            for metric, values in cells.items():
                record, texts = found[device, start][metric], texts_of(values)
                assert has_texts(np.array([record[0]], np.uint8))[0] == (len(texts) > 0)
                if texts:
                    assert states_in(record, BEGIN + start) == states_of(texts)
                numbers = [value for _, value in numbers_of(values)]
                assert has_numbers(np.array([record[0]], np.uint8))[0] == (len(numbers) > 0)
                if not numbers:
                    continue
                assert said(record, BEGIN + start) == {
                    "count": len(numbers),
                    "first_us": numbers_of(values)[0][0],
                    "last_us": numbers_of(values)[-1][0],
                    "min": min(numbers),
                    "max": max(numbers),
                    "sum": pytest.approx(sum(numbers), rel=1e-9, abs=1e-6),
                    "first": numbers[0],
                    "last": numbers[-1],
                }


@given(reports, st.randoms())
def test_it_does_not_matter_in_which_chunks_and_order_rows_come(reports: Reports, random: Random) -> None:
    rows = raw_rows(reports)
    made = minutes([rows])
    again = minutes(in_parts(rows, random))
    assert plain(again) == plain(made)
    for level in (HOURS, DAYS):
        want = coarser_of("acme", [made], level, version_us=MS)
        assert plain(coarser_of("acme", in_parts(again, random), level, version_us=MS)) == plain(want)


def test_rows_have_the_key_and_the_version_of_their_table() -> None:
    def check(rows: Rows, level: Level, version_us: int) -> None:
        table = rollups(level, 0)
        start = BEGIN + HOUR - (BEGIN + HOUR) % level.width_us
        assert rows.key(table, 0) == ("acme", "a", start - start % level.period_us, start)
        assert rows.version_us.tolist() == [version_us]

    made = minutes([raw_rows({("a", HOUR, "temp"): 1.5, ("a", HOUR + 5, "state"): "on"})])
    check(made, MINUTES, 5 * MS)
    assert list(plain(made)["a", HOUR]) == ["state", "temp"]
    check(coarser_of("acme", [made], HOURS, version_us=MS), HOURS, MS)
    check(coarser_of("acme", [made], DAYS, version_us=MS), DAYS, MS)


def said_of(summary: Summary) -> dict[tuple[str, str, int], tuple[int, float, float]]:
    found = zip(summary.device.to_list(), summary.metric.to_list(), summary.start_us.tolist(), strict=True)
    stats = summary.stats
    return dict(zip(found, zip(stats.count.tolist(), stats.min.tolist(), stats.last.tolist(), strict=True), strict=True))


def states_said(summary: TextSummary) -> dict[tuple[str, str, int], PlainStates]:
    found = zip(summary.device.to_list(), summary.metric.to_list(), summary.start_us.tolist(), strict=True)
    return dict(zip(found, said_by_states(summary.states), strict=True))


@given(reports, st.integers(0, SPAN // 60_000_000))
def test_summaries_of_parts_of_time_combine_to_that_of_all(reports: Reports, minute: int) -> None:
    cut = minute * 60_000_000
    early = raw_rows({key: value for key, value in reports.items() if key[1] < cut})
    late = raw_rows({key: value for key, value in reports.items() if key[1] >= cut})
    whole = raw_rows(reports)
    together = combined_states([states_of_rollups([minutes([early])], HOUR), states_of_raw([late], HOUR)])
    assert states_said(together) == states_said(states_of_raw([whole], HOUR))
    numbers = combined([summary_of_rollups([minutes([early])], HOUR), summary_of_raw([late], HOUR)])
    assert said_of(numbers) == said_of(summary_of_raw([whole], HOUR))


@given(reports, st.lists(st.integers(0, SPAN // 60_000_000), max_size=5))
def test_steps_need_not_be_regular(reports: Reports, minutes_: list[int]) -> None:
    begins = np.array(sorted({BEGIN, *(BEGIN + m * 60_000_000 for m in minutes_)}), np.int64)

    def starts(time_us: Ints) -> Ints:
        return begins[np.searchsorted(begins, time_us, side="right") - 1]

    want: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    states: dict[tuple[str, str, int], list[tuple[int, str]]] = defaultdict(list)
    for (device, at, metric), value in sorted(reports.items(), key=itemgetter(0)):
        key = device, metric, int(starts(np.array([BEGIN + at]))[0])
        if isinstance(value, str):
            states[key].append((BEGIN + at, value))
        else:
            want[key].append(value)
    raw = raw_rows(reports)
    expected = {key: (len(values), min(values), values[-1]) for key, values in want.items()}
    for texts in (states_of_raw([raw], starts), states_of_rollups([minutes([raw])], starts)):
        assert states_said(texts) == {key: states_of(values) for key, values in states.items()}
    for quantiles in (False, True):
        assert said_of(summary_of_raw([raw], starts, quantiles=quantiles)) == expected
        assert said_of(summary_of_rollups([minutes([raw])], starts, quantiles=quantiles)) == expected
    regular = said_of(summary_of_raw([raw], HOUR))
    assert said_of(summary_of_raw([raw], lambda time_us: time_us - time_us % HOUR)) == regular
    assert said_of(summary_of_rollups([minutes([raw])], HOUR)) == regular


def test_devices_that_share_no_metric_take_no_room_for_those_of_others() -> None:
    reports: Reports = {(f"d{n % 70}", at, f"m{n}"): float(n) for n in range(140) for at in (5, HOUR)}
    found = said_of(summary_of_raw([raw_rows(reports)], HOUR))
    assert found == {
        (f"d{n % 70}", f"m{n}", BEGIN + start): (1, float(n), float(n)) for n in range(140) for start in (0, HOUR)
    }
    assert list(found) == sorted(found, key=lambda key: (list(dict.fromkeys(k[0] for k in found)).index(key[0]), *key[1:]))


def test_of_nothing_comes_nothing() -> None:
    assert len(minutes([])) == 0
    assert len(coarser_of("acme", [], HOURS, version_us=MS)) == 0
    assert len(summary_of_rollups([minutes([raw_rows({("a", 0, "state"): "on"})])], HOUR)) == 0
    for nothing in (states_of_raw([], HOUR), states_of_rollups([minutes([raw_rows({("a", 0, "temp"): 1.0})])], HOUR)):
        assert len(combined_states([nothing, nothing])) == 0


def test_tables_are_named_as_people_know_them_and_windows_hold_whole_periods() -> None:
    assert rollups(MINUTES, 90 * DAY).name == "telemetry_1min_90d"
    assert rollups(HOURS, 365 * DAY).name == "telemetry_hourly_365d"
    assert rollups(DAYS, 0).name == "telemetry_daily_forever"
    for level in (MINUTES, HOURS, DAYS):
        for keep_us in (HOUR, DAY, 90 * DAY, 365 * DAY, 20 * 365 * DAY):
            window = rollups(level, keep_us).window
            assert window is not None
            assert window.width_us % level.period_us == 0
