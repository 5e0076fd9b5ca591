"""The planner's figures: the textbook's own, what is wrong with them, and those of designs on each engine."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner

from widerow.cli.commands import app
from widerow.model.tenant import FOREVER
from widerow.model.times import DAY, MINUTE, SECOND
from widerow.plan.advice import alternatives, simpler
from widerow.plan.fleet import DeviceClass, Fleet, simple_fleet
from widerow.plan.levels import Design, levels, partitions
from widerow.plan.nodes import sizings
from widerow.plan.prices import default_prices

TEXTBOOK = ("--textbook", "--devices", "1000000", "--interval", "10s", "--metrics", "10", "--retention", "30d", "--rf", "3")
MILLION = replace(simple_fleet(1_000_000, 10 * SECOND, 10, 30 * DAY), tenants=20)
PRICES = default_prices()


def planned(*options: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["plan", *options, "--json"])
    assert done.exit_code == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


# -- the textbook


def test_the_textbooks_inputs_give_the_textbooks_figures() -> None:
    answer = planned(*TEXTBOOK)
    assert answer["raw"] == {
        "device_day_bytes": 8_640_000,
        "day_bytes": 8_640_000_000_000,
        "total_bytes": 259_200_000_000_000,
    }
    assert answer["total_bytes"] == 285_120_000_000_000
    assert answer["cluster_bytes"] == 855_360_000_000_000
    rates = [level["writes_per_s"] for level in answer["levels"].values()]
    assert rates == pytest.approx([100_000, 1_667, 27.8, 1.157], rel=1e-3)
    (hour,) = answer["partitions"]
    assert (hour["rows"], hour["bytes"]) == (3_600, 360_000)
    assert answer["nodes"] == 428
    assert answer["bottleneck"] == "disk"


def test_the_textbook_is_corrected_with_figures() -> None:
    answer = planned(*TEXTBOOK)
    true = answer["corrected_levels"]
    windows = [true[name]["writes_per_s"] for name in ("minute", "hour", "day")]
    assert windows == pytest.approx([16_667, 277.8, 11.57], rel=1e-3)
    assert true["minute"]["rows_per_s"] == pytest.approx(166_667, rel=1e-3)
    assert true["minute"]["total_bytes"] == 129_600_000_000_000
    said = "\n".join(answer["corrections"])
    for words in (
        "16,700 device-minutes/s, 10 times the textbook's 1,670",
        "167,000 rows/s",
        "278 device-hours/s",
        "11.6 device-days/s",
    ):
        assert words in said
    assert "10% of raw is 25.92 TB. Minutes kept for 90d alone are 1.3e+12 rows, 129.6 TB." in said


def test_a_textbook_fleet_for_which_the_textbook_is_right_is_not_corrected() -> None:
    options = ("--minute-retention", "none", "--hour-retention", "none", "--day-retention", "none")
    assert planned(*TEXTBOOK, *options)["corrections"] == []


def test_another_size_of_a_row_goes_through_the_textbooks_arithmetic() -> None:
    answer = planned(*TEXTBOOK, "--row-bytes", "50")
    assert answer["cluster_bytes"] == 427_680_000_000_000


# -- levels


def test_rates_and_bytes_of_each_level() -> None:
    def check(design: Design, name: str, windows_per_s: float, rows_per_s: float, device_day_bytes: float) -> None:
        level = next(level for level in levels(design) if level.name == name)
        found = (level.windows_per_s, level.rows_per_s, level.device_day_bytes)
        assert found == pytest.approx((windows_per_s, rows_per_s, device_day_bytes), rel=1e-3), level

    cassandra = Design(fleet=MILLION)
    check(cassandra, "raw", 100_000, 1_000_000, 8640 * 10 * 70 * 0.27)
    check(cassandra, "minute", 16_667, 166_667, 1440 * 10 * (179 + 18.4) * 0.48)
    check(cassandra, "hour", 277.8, 2_778, 24 * 10 * 409 * 0.40)
    check(cassandra, "day", 11.57, 115.7, 10 * 409 * 0.63)
    rocksdb = Design(fleet=MILLION, engine="rocksdb", copies=1)
    check(rocksdb, "raw", 100_000, 100_000, 8640 * 141 * 0.257)
    check(rocksdb, "minute", 16_667, 16_667, 1440 * 285 * 0.30)
    bigtable = Design(fleet=MILLION, engine="bigtable", copies=1)
    check(bigtable, "raw", 100_000, 100_000, 8640 * (62 + 10 * 28))
    packed = Design(fleet=MILLION, layout="packed")
    check(packed, "raw", 100_000, 10, 8640 * 10 * 1.08)
    check(replace(cassandra, metric_bytes=5.0), "raw", 100_000, 1_000_000, 8640 * 10 * 5)
    check(replace(cassandra, minute_us=5 * MINUTE), "minute", 3_333, 33_333, 288 * 10 * (179 + 66.4) * 0.48)


def test_a_slow_device_fills_as_many_windows_as_it_reports_in() -> None:
    slow = Design(fleet=simple_fleet(1_000, 15 * MINUTE, 3, 30 * DAY))
    raw, minutes, hours, _ = levels(slow)
    assert raw.windows_per_s == minutes.windows_per_s == pytest.approx(1.111, rel=1e-3)
    assert hours.windows_per_s == pytest.approx(0.2778, rel=1e-3)


def test_a_level_stays_a_week_longer_on_the_disk_than_it_is_shown() -> None:
    raw, minutes, hours, days = levels(Design(fleet=MILLION))
    assert [level.stored_us // DAY for level in (raw, minutes, hours, days)] == [37, 97, 372, 5 * 365 + 7]
    assert days.kept_us == FOREVER
    assert raw.total_bytes == pytest.approx(37 * raw.day_bytes)


def test_quiet_nights_save_bytes_and_no_nodes() -> None:
    kind = DeviceClass(name="d", devices=1_000, at_night=0.5)
    day, night = (levels(Design(fleet=Fleet(classes=(one,))))[0] for one in (replace(kind, at_night=1.0), kind))
    assert night.day_bytes == pytest.approx(0.75 * day.day_bytes)
    assert night.windows_per_s == day.windows_per_s


def test_a_level_that_is_not_kept_takes_nothing() -> None:
    assert [level.name for level in levels(Design(fleet=MILLION, kept_us={"hour": DAY}))] == ["raw", "hour"]


def test_partitions_are_those_that_widerow_makes() -> None:
    found = {one.level: one for one in partitions(Design(fleet=MILLION))}
    assert (found["raw"].rows, found["raw"].plain_bytes) == (3_600, 252_000)
    assert (found["minute"].rows, found["hour"].rows, found["day"].rows) == (14_400, 7_200, 3_650)
    fast = Design(fleet=simple_fleet(10, SECOND // 100, 10, DAY))
    raw = partitions(fast)[0]
    assert (raw.span_us, raw.parts) == (15 * MINUTE, 16)
    assert raw.plain_bytes == pytest.approx(3.94e6, rel=1e-2)
    assert partitions(Design(fleet=MILLION, engine="bigtable")) == ()


# -- nodes


def test_the_largest_need_decides_on_nodes_and_is_the_bottleneck() -> None:
    def check(design: Design, nodes: int, bottleneck: str) -> None:
        sizing = sizings(design, levels(design), PRICES)[0]
        assert (sizing.nodes, sizing.bottleneck.limit) == (nodes, bottleneck), sizing

    check(Design(fleet=MILLION), 245, "disk")
    check(Design(fleet=simple_fleet(100, SECOND, 10, DAY)), 3, "copies")
    check(Design(fleet=simple_fleet(100_000, SECOND, 10, 3_600 * SECOND), kept_us={}), 29, "writes")
    check(Design(fleet=MILLION, engine="rocksdb", copies=1), 11, "disk")
    check(Design(fleet=MILLION, engine="bigtable", copies=1), 56, "storage")
    check(Design(fleet=MILLION, engine="bigtable", copies=2), 112, "storage")
    check(
        Design(fleet=simple_fleet(100_000, SECOND, 10, 3_600 * SECOND), engine="bigtable", copies=1, kept_us={}),
        11,
        "writes",
    )
    check(
        Design(fleet=simple_fleet(100_000, SECOND, 10, 3_600 * SECOND), engine="bigtable", copies=2, kept_us={}),
        42,
        "writes",
    )


def test_bigtable_costs_nodes_and_the_bytes_of_every_cluster() -> None:
    design = Design(fleet=MILLION, engine="bigtable", copies=2)
    found = levels(design)
    ssd, hdd = sizings(design, found, PRICES)
    stored = sum(level.total_bytes for level in found)
    assert ssd.month == pytest.approx(112 * 0.65 * 730 + 2 * stored / 2**30 * 0.17)
    assert hdd.month < ssd.month


# -- advice


def test_something_simpler_is_named_where_it_is_enough() -> None:
    def check(fleet: Fleet, kept_us: dict[str, int], *names: str, enough: bool) -> None:
        found = simpler(Design(fleet=fleet, kept_us=kept_us), PRICES)
        assert [one.name for one in found] == list(names)
        assert any(one.enough for one in found) == enough

    check(MILLION, {}, enough=False)
    check(replace(MILLION, tenants=1), {}, "single-tenant", enough=False)
    check(simple_fleet(20_000, 10 * SECOND, 10, 30 * DAY), {}, "single-tenant", enough=True)
    check(replace(simple_fleet(9_999, 10 * SECOND, 10, 30 * DAY), tenants=2), {}, "few-devices", enough=True)
    check(replace(simple_fleet(50_000, DAY, 10, 30 * DAY), tenants=2), {}, "daily-reports", enough=True)
    latest = replace(simple_fleet(50_000, SECOND, 10, MINUTE), tenants=2)
    check(latest, {}, "no-history", enough=True)
    check(latest, {"day": FOREVER}, enough=False)


def test_one_machine_is_enough_only_where_it_takes_the_rate_and_the_bytes() -> None:
    def check(fleet: Fleet, *names: str) -> None:
        found = simpler(Design(fleet=fleet, kept_us={}), PRICES)
        assert [one.name for one in found if one.enough] == list(names)

    check(simple_fleet(1, SECOND, 10, 30 * DAY), "few-devices", "single-tenant")
    check(simple_fleet(1, 1, 10, DAY))
    check(simple_fleet(100_000, 10 * SECOND, 10, 30 * DAY), "single-tenant")
    check(simple_fleet(100_000, 10 * SECOND, 10, FOREVER))
    check(simple_fleet(9_999, SECOND, 10, FOREVER))
    check(simple_fleet(1_000_000_000, DAY, 10, FOREVER))


def test_the_shorter_minutes_are_whole_days_and_outlive_raw_reports() -> None:
    def check(retention_us: int, want: str) -> None:
        design = Design(fleet=simple_fleet(100_000, 10 * SECOND, 10, retention_us))
        (what,) = [one.what for one in alternatives(design, PRICES) if one.name == "shorter-minutes"]
        assert what == f"minutes kept for {want}, longer than raw reports"

    check(SECOND, "2d")
    check(DAY, "2d")
    check(DAY + 1, "3d")
    check(30 * DAY, "31d")


def test_alternatives_are_the_plan_with_one_change_and_its_saving() -> None:
    design = Design(fleet=MILLION)
    found = {one.name: one for one in alternatives(design, PRICES)}
    assert list(found) == ["embedded", "columns", "coarser-minutes", "shorter-minutes", "shorter-raw"]
    now = sizings(design, levels(design), PRICES)[0].month
    for one in found.values():
        assert one.month + one.saved_month == pytest.approx(now)
    packed = replace(design, layout="packed")
    assert found["columns"].total_bytes == sum(level.total_bytes for level in levels(packed))
    assert "cold-hdd" in [one.name for one in alternatives(replace(design, engine="bigtable", copies=1), PRICES)]


def test_a_change_that_saves_no_money_is_not_named() -> None:
    assert alternatives(Design(fleet=simple_fleet(10, 10 * SECOND, 1, DAY), engine="rocksdb", copies=1), PRICES) == []
