"""A year of 50 devices: what the rollups say of it is what Polars says of the reports.

Count, extremes, first and last are equal. A sum is so to 1e-12 of the sum of the absolute values, a standard deviation to
1e-12 of the greatest: what adding in another order can change. A quantile lies between two ranks; what the rollup says is
within the sketch's error of what lies between the values there.

Reports each 10 minutes, on every thirtieth day (so on every day of the week), to take half a minute. `make test-year` takes
all days, and `make test-year N=60` has a report each minute.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from contract.rollup_suite import Site
from fleets import days_of
from widerow.codec.sketch import RELATIVE_ERROR
from widerow.codec.stats import QUANTILES
from widerow.engine.rocksdb import RocksEngine
from widerow.model.batch import Batch, CellKind
from widerow.model.tenant import Retention, Tenant
from widerow.model.times import DAY, HOUR, SECOND, ManualClock, TimeSpan
from widerow.rollup.aggregate import summary_of_rollups
from widerow.schema.rollups import DAYS, HOURS, Level

START_US = 1_767_225_600 * SECOND  # 2026 begins
PACE_US = int(os.environ.get("WIDEROW_YEAR_PACE_S", "600")) * SECOND
APART = int(os.environ.get("WIDEROW_YEAR_DAYS_APART", "30"))
DEVICES = 50
LAST_BITS = 1e-12
TENANT = Tenant(name="acme", retention=Retention(hour_us=400 * DAY))
KEY = ["device", "metric", "start_us"]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    clock = ManualClock(START_US)
    engine = RocksEngine(tmp_path / "store", clock=clock)
    yield Site(engine, clock, TENANT)
    engine.close()


@pytest.mark.rest
@pytest.mark.timeout(900 if APART > 1 else 7200)
def test_a_year_of_rollups_is_what_polars_computes_from_the_reports(site: Site) -> None:
    expected: dict[str, list[pl.DataFrame]] = {HOURS.name: [], DAYS.name: []}
    devices: list[str] = []
    reports = 0
    for begin_us, batch in days_of(DEVICES, range(0, 365, APART), start_us=START_US, pace_us=PACE_US, one_shard=True):
        site.clock.time_us = begin_us + DAY + HOUR
        site.write(batch)
        site.roll()
        devices, reports = batch.device.names.to_list(), reports + len(batch)
        raw = values_of(batch)
        for level in (HOURS, DAYS):
            expected[level.name].append(computed(raw, level.width_us))
    assert reports > 0.98 * DEVICES * (365 // APART) * (DAY // PACE_US)
    for level in (HOURS, DAYS):
        want = pl.concat(expected[level.name])
        check(rolled(site, devices, level, want["metric"].unique().to_list()), want)


def values_of(batch: Batch) -> pl.DataFrame:
    """The numbers of a batch, a row for each."""
    cells = batch.cells
    number = np.flatnonzero(cells.kind == CellKind.NUMBER)
    row = cells.rows()[number]
    return pl.DataFrame(
        {
            "device": pl.Series(batch.device.names.to_list()).gather(batch.device.codes[row]),
            "metric": pl.Series(cells.names.to_list()).gather(cells.name[number]),
            "time_us": batch.time_us[row],
            "value": cells.number[number],
        }
    )


def computed(raw: pl.DataFrame, width_us: int) -> pl.DataFrame:
    """What Polars makes of it, without our help."""
    value = pl.col("value")
    ranks = {f"{edge}{100 * q:g}": value.quantile(q, interpolation=edge) for q in QUANTILES for edge in ("lower", "higher")}
    windows = raw.sort("time_us").with_columns((pl.col("time_us") // width_us * width_us).alias("start_us"))
    return windows.group_by(KEY, maintain_order=True).agg(
        value.len().cast(pl.Int64).alias("count"),
        value.min().alias("min"),
        value.max().alias("max"),
        value.first().alias("first"),
        value.last().alias("last"),
        pl.col("time_us").first().alias("first_us"),
        pl.col("time_us").last().alias("last_us"),
        value.sum().alias("sum"),
        value.std(ddof=0).alias("stddev"),
        value.abs().sum().alias("size"),
        value.abs().max().alias("greatest"),
        **ranks,
    )


def rolled(site: Site, devices: list[str], level: Level, metrics: list[str]) -> pl.DataFrame:
    """What is stored."""
    span = TimeSpan(START_US, START_US + 365 * DAY)
    summary = summary_of_rollups(site.rollups.read(TENANT, devices, level, span, metrics=metrics), level.width_us)
    stats = summary.stats
    names = ("count", "min", "max", "first", "last", "first_us", "last_us", "sum", "p50", "p95", "p99")
    columns = {name: np.array(getattr(stats, name)) for name in names}
    return pl.DataFrame(
        {
            "device": pl.Series(summary.device.names.to_list()).gather(summary.device.codes),
            "metric": pl.Series(summary.metric.names.to_list()).gather(summary.metric.codes),
            "start_us": np.array(summary.start_us),
            **columns,
            "stddev": np.array(stats.stddev()),
        }
    )


def check(got: pl.DataFrame, want: pl.DataFrame) -> None:
    assert len(got) == len(want) == len(got.select(KEY).unique())
    both = want.join(got, on=KEY, how="inner", suffix="_got", validate="1:1")
    assert len(both) == len(want), "every window of every metric, and no other"
    for name in ("count", "min", "max", "first", "last", "first_us", "last_us"):
        wrong = both.filter(pl.col(name) != pl.col(f"{name}_got"))
        assert wrong.is_empty(), (name, wrong.head())
    for name, scale in (("sum", "size"), ("stddev", "greatest")):
        off = (pl.col(name) - pl.col(f"{name}_got")).abs()
        wrong = both.filter(off > LAST_BITS * pl.col(scale))
        assert wrong.is_empty(), (name, wrong.head())
    for q in QUANTILES:
        low, high, said = (pl.col(f"{what}{100 * q:g}") for what in ("lower", "higher", "p"))
        error = RELATIVE_ERROR * (1 + 1e-9)
        wrong = both.filter((said < low - error * low.abs()) | (said > high + error * high.abs()))
        assert wrong.is_empty(), (q, wrong.head())
