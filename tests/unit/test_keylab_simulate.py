"""The simulation counts as one would count key by key, and tells a hot design from an even one."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from widerow.cli.commands import app
from widerow.keylab.atoms import atoms_of
from widerow.keylab.design import Design, for_engine
from widerow.keylab.facts import columns_for
from widerow.keylab.picture import html, svg
from widerow.keylab.read import read_design
from widerow.keylab.sample import sample_of
from widerow.keylab.simulate import Simulation, gini, simulate
from widerow.model.errors import ConfigError
from widerow.model.times import HOUR, MINUTE, SECOND
from widerow.plan.fleet import Fleet, example_fleet, read_fleet

START_US = 1_795_046_400 * SECOND  # a midnight
SMALL = read_fleet(
    """
    tenants = 3
    retention = "2h"
    [[class]]
    devices = 30
    interval = "1m"
    metrics = 4
    types = 3
    locations = 2
    id = "press-{n:04}"
    [[hot]]
    factor = 500
    [questions]
    latest = 2
    device_hour = 1
    """,
    "the test",
)
LARGE = read_fleet(
    """
    tenants = 20
    largest_tenant = 0.25
    [[class]]
    devices = 20_000
    types = 4
    at_night = 0.6
    """,
    "the test",
)
READINGS = "CREATE TABLE readings (tenant text, device text, day date, ts timestamp, type text, v double, PRIMARY KEY "


def design_of(spec: str, engine: str = "") -> Design:
    return for_engine(read_design(spec, "the test"), engine)


def run(spec: str, fleet: Fleet = SMALL, *, nodes: int = 6, hours: int = 1, engine: str = "") -> Simulation:
    return simulate(design_of(spec, engine), fleet, nodes=nodes, hours=hours, start_us=START_US)


@pytest.mark.parametrize(
    ("spec", "hot"),
    [
        ("timestamp#sensor", True),
        ("{reversed:13}#{device}", True),
        ("raw#{sequence:12}#{device}", True),
        (READINGS + "((day), ts, device))", True),
        ("sensor#timestamp", False),
        ("{tenant}#{device}#{reversed:13}", False),
        ("md5:2#sensor#reversed:13", False),
        ("{random:NN}#{device}#{time:ms}", False),
        ("{hash}", False),
        ("{device}#{metric}#{time:ms}", False),
        ("{metric}#{device}#{time:ms}", False),
        (READINGS + "((tenant, device, day), ts))", False),
    ],
)
def test_a_hot_design_fills_one_node_and_an_even_one_all(spec: str, *, hot: bool) -> None:
    found = run(spec, LARGE, nodes=8, hours=3)
    assert sum(found.write_share) == pytest.approx(1)
    assert found.rows_per_s > 0
    if hot:
        assert found.write_share[0] > 0.9
        assert any("high write pressure" in told for told in found.diagnostics)
    else:
        assert found.skew <= 1.2


def test_a_million_devices_are_counted_in_seconds() -> None:
    found = run("{tenant}#{device}#{reversed:13}", example_fleet(), nodes=8, hours=24)
    assert found.skew <= 1.2
    assert found.rows_per_s == pytest.approx(72_114, rel=0.01), (
        "a mean over day and night of 90,111 by day, and the hot device"
    )


def test_few_values_before_the_time_are_as_hot_as_they_are_few() -> None:
    found = run("{type}#{time:ms}#{device}", LARGE, nodes=8, hours=3)
    # Four types, a quarter of the writes each: at best four of eight nodes work.
    assert 0.2 < found.hottest_share < 0.35
    assert found.skew >= 1.9


@pytest.mark.parametrize(
    "spec",
    ["{device}#{time:ms}", "{time:ms}#{device}", "{type}#{reversed:13}#{device}", "{bucket:hour}#{device}#{time:ms}",
     "{salt:1}#{tenant}#{device}#{time:s}", "{shard:N}#{time:ms}"],
)  # fmt: skip
def test_heat_is_what_counting_each_key_gives(spec: str) -> None:
    found = run(spec)
    design, sample = design_of(spec), sample_of(SMALL, 1000)
    times = np.arange(START_US, START_US + HOUR, MINUTE, dtype=np.int64)
    # A report a minute of each; the hot one sends 500 in its hour's minutes, which stand for as many rows of that minute.
    rows, moments = np.repeat(np.arange(len(sample)), len(times)), np.tile(times, len(sample))
    keys = design.spec.encode(columns_for(design.spec, sample.rows(rows), moments, design.bucket_us), len(rows))
    weights = np.where(sample.hot[rows] >= 0, 500.0, 1.0)
    first = np.array([key.encode() for key in found.heat.first_keys])
    range_of = np.searchsorted(first, np.array(keys.to_bytes_list()), "right") - 1
    counted = np.bincount(range_of, weights, len(first))
    simulated = found.heat.writes.sum(axis=1) * 60  # a column is a minute
    assert simulated == pytest.approx(counted)
    assert found.rows_per_s == pytest.approx(counted.sum() / 3600)


def test_atoms_lie_in_the_order_of_their_keys_and_hold_all_devices() -> None:
    for spec in ("{device}#{time:ms}", "{reversed:13}#{device}", READINGS + "((tenant, device, day), ts))"):
        atoms = atoms_of(design_of(spec), LARGE, START_US, START_US + HOUR)
        keys = atoms.keys.tolist()
        assert keys == sorted(keys)
        assert atoms.weights.sum() == pytest.approx(LARGE.devices)
        assert sorted(np.unique(atoms.place).tolist()) == list(range(len(keys)))


def test_a_hot_device_is_named_where_it_lies() -> None:
    found = run("{device}#{time:ms}")
    hottest = int(found.heat.writes.max(axis=1).argmax())
    assert found.heat.first_keys[hottest].startswith("press-0015#")
    assert any("single hot row" in told and "press-0015" in told for told in found.diagnostics)
    assert found.hottest_share >= 500 / 529


def test_rows_and_partitions_that_grow_too_large_are_told() -> None:
    def large(spec: str, fleet: Fleet = SMALL) -> list[str]:
        return [told for told in run(spec, fleet).diagnostics if told.startswith("large rows")]

    # A report a minute: 69.4 days. Ten numbers with their times each ten seconds, 1,382,400 bytes a day: 72.3 days.
    assert large(READINGS + "(device, ts))") == ["large rows: a partition of device passes 100,000 rows after 69d"]
    assert large("{device}", LARGE) == ["large rows: a row of device passes 100 MB after 72d"]
    assert not large("{device}#{time:ms}")
    assert not large(READINGS + "((device, day), ts))")


def test_questions_cost_what_the_key_makes_them_cost() -> None:
    good, bad = run("{tenant}#{device}#{reversed:13}"), run("{time:ms}#{device}")
    assert good.questions["device_hour"].rows == good.questions["device_hour"].wanted == 60
    assert good.questions["latest"].rows == 1
    assert bad.questions["device_hour"].rows == 60 * 30
    assert bad.questions["latest"].is_full_scan
    assert good.questions["tenant_latest"].ranges == 1
    salted = run("{salt:1}#{tenant}#{device}#{reversed:13}")
    assert salted.questions["tenant_latest"].ranges == 16
    assert salted.questions["device_day"].ranges == 1


def test_tables_of_cassandra_find_their_partitions() -> None:
    good = run(READINGS + "((tenant, device, day), ts))", hours=2)
    assert good.questions["device_hour"].ranges == 1
    assert good.questions["device_day"].ranges == 2, "a day that ends at two reaches into the day before"
    assert good.questions["tenant_latest"].is_full_scan
    by_type = run(READINGS + "(type, ts, device))")
    assert by_type.questions["device_hour"].rows == 60 * 10, "the rows of all ten devices of a type"
    assert run("{tenant}#{device}#{time:ms}", engine="cassandra").questions["device_hour"].rows == 60
    with pytest.raises(ConfigError, match="Cassandra hashes partition keys itself"):
        design_of("{salt:2}#{device}#{time:ms}", "cassandra")


def test_gini_is_0_for_equals_and_near_1_for_one_that_has_all() -> None:
    assert gini(np.ones(50)) == pytest.approx(0)
    assert gini(np.array([0.0] * 99 + [1.0])) == pytest.approx(0.99)


def test_pictures_hold_each_design_and_nothing_from_elsewhere() -> None:
    found = [run("{time:ms}#{device}"), run("{tenant}#{device}#{reversed:13}<b>")]
    for text in (svg(found), html(found, [["a<b>", "1"]], ["spec", "skew"])):
        assert "{time:ms}#{device}" in text
        assert "the busiest of 6 nodes takes 100% of all writes" in text
        assert "<b>" not in text
        assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert len(svg(found)) < 200_000


def test_the_command_compares_keys(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.toml"
    fleet.write_text('[[class]]\ndevices = 50\ninterval = "1m"\n')
    picture, page = tmp_path / "heat.svg", tmp_path / "heat.html"

    def invoke(*args: str, code: int = 0) -> str:
        result = CliRunner().invoke(app, ["keys", "simulate", "--fleet", str(fleet), "--hours", "1", *args])
        assert result.exit_code == code, result.output
        return result.stdout

    told = json.loads(invoke("timestamp#sensor", "sensor#timestamp", "--nodes", "3", "--json"))
    assert [one["spec"] for one in told["specs"]] == ["timestamp#sensor", "sensor#timestamp"]
    assert {"write_share", "hottest_share", "skew", "gini", "splits", "bytes_per_row", "questions"} <= told["specs"][
        0
    ].keys()
    assert told["specs"][0]["write_share"] == [1, 0, 0]
    drawn = invoke("sensor#timestamp", "--svg", str(picture), "--html", str(page))
    assert "an even share is 12%" in drawn
    assert picture.read_text().startswith("<svg")
    assert page.read_text().startswith("<!doctype html>")
    invoke("{device", code=2)
    invoke("sensor#timestamp", "--engine", "cassandra")
    fleet.write_text("[[class]]\ndevices = -1\n")
    invoke("sensor#timestamp", code=2)
