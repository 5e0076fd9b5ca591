"""The key lab takes any text and any key: a design or one line of refusal, and a scan that leaves no wanted row out."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from widerow.keylab.facts import columns_for
from widerow.keylab.finding import ADVICE
from widerow.keylab.lint import lint
from widerow.keylab.read import read_design
from widerow.keys.scan import Question, scan_for, shard_of
from widerow.keys.spec import KeySpec
from widerow.keys.template import parts_of
from widerow.model.errors import ConfigError
from widerow.model.names import Coded
from widerow.model.times import DAY, HOUR, SECOND
from widerow.plan.fleet import example_fleet

NOW_US = 1_795_000_000 * SECOND
FLEET = example_fleet()

FIELDS = [
    "{tenant}", "{device}", "{metric}", "{type}", "{location}", "{device:domain}", "{salt:1}", "{salt:2}", "{shard:N}",
    "{shard:NN}", "{random:N}", "{time:s}", "{time:ms}", "{time:us}", "{time:iso}", "{reversed:10}", "{reversed:13}",
    "{reversed:16}", "{bucket:hour}", "{bucket:day}", "{bucket:month}", "{bucket:ms}", "{bucket:iso}", "{sequence:12}",
    "{time:s:9}", "{time:ms:unpadded}", "{hash}", "agg", "raw",
]  # fmt: skip
WORDS = [
    "CREATE TABLE", "t", "(", ")", "((", "))", ",", "device text", "ts timestamp", "day date", "v double", "PRIMARY KEY",
    "device", "ts", "day", "WITH", "default_time_to_live = 86400", "AND", "n counter", "{", "}", "#", "key =", '"',
    "[family.m]", "max_age", "= 3", "\n", "sensor", "timestamp", "reversed:13", "md5:2", "shard-NN", "-", "/",
]  # fmt: skip
templates = st.lists(st.sampled_from(FIELDS), min_size=1, max_size=6).map("#".join)
texts = st.one_of(st.text(max_size=40), st.lists(st.sampled_from(WORDS), max_size=18).map(" ".join), templates)


@given(texts)
def test_any_text_is_judged_or_refused_in_one_line(text: str) -> None:
    try:
        design = read_design(text, "the test")
    except ConfigError:
        return
    verdict = lint(design, FLEET, NOW_US)
    if verdict.suggestion:
        mended = lint(read_design(verdict.suggestion, "the suggestion"), FLEET, NOW_US)
        assert [one for one in mended.findings if one.severity != ADVICE] == [], verdict.suggestion


reports = st.lists(
    st.fixed_dictionaries(
        {
            "tenant": st.sampled_from(["acme", "acme-2", "b"]),
            "device": st.sampled_from(["p-1", "p-10", "p-2.hall.x", "q"]),
            "metric": st.sampled_from(["t", "t2"]),
            "type": st.sampled_from(["press", "pump"]),
            "location": st.sampled_from(["north", "south"]),
            "time": st.integers(NOW_US - 70 * DAY, NOW_US),
        }
    ),
    min_size=1,
    max_size=30,
)
knowns = st.dictionaries(st.sampled_from(["tenant", "device", "metric", "type", "location"]), st.integers(0, 29), max_size=4)


@settings(max_examples=300)
@given(templates, reports, knowns, st.integers(0, 70 * DAY), st.integers(1, 70 * DAY))
def test_a_scan_holds_every_row_that_is_wanted(
    template: str, rows: list[dict[str, Any]], known: dict[str, int], back_us: int, width_us: int
) -> None:
    try:
        spec = KeySpec.of(parts_of(template))
    except ValueError:
        return
    times = np.array([row["time"] for row in rows], np.int64)
    given_columns: Any = {name: Coded.of([row[name] for row in rows]) for name in rows[0] if name != "time"}
    keys = spec.encode(columns_for(spec, given_columns, times, HOUR), len(rows)).to_bytes_list()
    values: dict[str, str | int] = {name: rows[i % len(rows)][name] for name, i in known.items()}
    span = (NOW_US - back_us - width_us, NOW_US - back_us)
    scan = scan_for(spec, Question(values, span), HOUR)
    assert list(scan.ranges) == sorted(scan.ranges)
    for key, row in zip(keys, rows, strict=True):
        if span[0] <= row["time"] < span[1] and all(row[name] == value for name, value in values.items()):
            assert any(start <= key < stop for start, stop in scan.ranges), (template, key, scan)


def test_a_month_is_not_left_out() -> None:
    spec = KeySpec.parse("{device}#{bucket:month}")
    start, stop = (int(np.datetime64(day, "us").astype(int)) for day in ("2026-01-31", "2026-03-02"))
    scan = scan_for(spec, Question({"device": "p"}, (start, stop)))
    assert [start for start, _ in scan.ranges] == [b"p#202601", b"p#202602", b"p#202603"]


def test_shards_are_numbers_of_their_width() -> None:
    assert {shard_of(f"device-{n}", 1) for n in range(200)} == set(range(10))
    assert all(0 <= shard_of(f"device-{n}", 2) < 100 for n in range(200))
