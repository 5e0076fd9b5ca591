"""Rollups in Cassandra, as somebody with `cqlsh` finds them: plain columns that say what the reports say."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from itertools import pairwise
from math import isclose
from random import Random
from typing import Any
from uuid import uuid4

import msgspec
import numpy as np
import pytest
from cassandra.cluster import Session

import patient
from contract.rollup_suite import Site
from servers.cassandra import Cassandra
from servers.sstables import flush, partitions
from widerow.codec.record import decode, encode_stats
from widerow.codec.stats import Stats
from widerow.engine.cassandra import CassandraEngine
from widerow.engine.contract import logical
from widerow.engine.contract.plain import Fragment, Tag, gather, keys, rows_from
from widerow.engine.memory import MemoryEngine
from widerow.engine.port import Engine, Span
from widerow.engine.rows import NEVER
from widerow.model.batch import Report
from widerow.model.tenant import GUARD_US, Tenant
from widerow.model.times import DAY, HOUR, MINUTE, MS, SECOND, ManualClock, SystemClock, TimeSpan, whole_ms
from widerow.schema.rollups import DAYS, HOURS, LEVELS, MINUTES, Level, rollups

ACME = Tenant(name="acme")
DEVICE = "press 1/#ü"
METRICS = ("temp", "parts", "#odd")
STATISTICS = "count, min, max, sum, avg, stddev, p50, p95, p99, increase, first, first_time, last, last_time"
LIMIT_BYTES = 10 << 20
TABLES = {MINUTES: "telemetry_1min_90d", HOURS: "telemetry_hourly_365d", DAYS: "telemetry_daily_forever"}
KNOWN_AS = {MINUTES: ("day", "minute"), HOURS: ("period", "hour_bucket"), DAYS: ("period", "day")}


@dataclass
class Rolled:
    """A store in which two hours of reports are rolled."""

    site: Site
    keyspace: str
    begin_us: int
    reports: list[Report]

    def values(self, metric: str, start_us: int, width_us: int) -> list[tuple[int, float]]:
        """Of one window, in order of time."""
        found = [(r.time_us, r.values[metric]) for r in self.reports if metric in r.values]
        return [(t, float(v)) for t, v in found if start_us <= t < start_us + width_us]


@pytest.fixture(scope="module")
def rolled(cassandra_server: Cassandra) -> Iterator[Rolled]:
    clock, keyspace = ManualClock(SystemClock().now_us()), f"rollups_{uuid4().hex[:12]}"
    engine = CassandraEngine(patient.settings(cassandra_server, keyspace), clock=clock)
    try:
        site = Site(engine, clock, ACME)
        random, begin_us = Random(5), (clock.time_us // HOUR - 3) * HOUR
        version_us = whole_ms(clock.time_us)
        reports = [
            Report(DEVICE, begin_us + k * 20 * SECOND + 7, values_of(random, k), {}, version_us)
            for k in range(2 * HOUR // (20 * SECOND))
        ]
        site.write(reports)
        site.roll()
        yield Rolled(site, keyspace, begin_us, reports)
        engine._connection.define(f"DROP KEYSPACE {keyspace}")
    finally:
        engine.close()


def values_of(random: Random, k: int) -> dict[str, float | str]:
    values: dict[str, float | str] = {"temp": random.randrange(-500, 500) / 10, "parts": float(k % 50)}
    return values | ({"#odd": random.random()} if k % 7 == 0 else {})


@pytest.fixture(scope="module")
def session(cassandra_server: Cassandra) -> Iterator[Session]:
    with patient.cql(cassandra_server) as session:
        yield session


def us_of(moment: Any) -> int:
    """A date or a timestamp, as the driver gives it."""
    if isinstance(moment, datetime):
        return round(moment.replace(tzinfo=UTC).timestamp() * 1000) * MS
    return int(moment.days_from_epoch) * DAY


def shown(session: Session, rolled: Rolled, level: Level) -> dict[tuple[int, str], Any]:
    """(window, name) -> its CQL row."""
    period, window = KNOWN_AS[level]
    cql = (
        f"SELECT {window} AS at, metric_name, {STATISTICS} FROM {rolled.keyspace}.{TABLES[level]} "
        f"WHERE tenant_id = 'acme' AND device_id = '{DEVICE}' AND {period} = %s"
    )
    found: dict[tuple[int, str], Any] = {}
    for start_us in {t - t % level.period_us for t in (rolled.begin_us, rolled.begin_us + 2 * HOUR - 1)}:
        found |= {(us_of(row.at), row.metric_name): row for row in session.execute(cql, (day_of(start_us),))}
    return found


def day_of(time_us: int) -> date:
    return datetime.fromtimestamp(time_us // SECOND, UTC).date()


@pytest.mark.parametrize("level", LEVELS, ids=[level.name for level in LEVELS])
def test_a_rollup_table_has_a_column_for_each_statistic(level: Level, session: Session, rolled: Rolled) -> None:
    found = session.execute(
        "SELECT column_name, type, kind, clustering_order FROM system_schema.columns "
        "WHERE keyspace_name = %s AND table_name = %s",
        (rolled.keyspace, TABLES[level]),
    )
    period, window = KNOWN_AS[level]
    doubles = ("min", "max", "sum", "avg", "stddev", "p50", "p95", "p99", "increase", "first", "last", "metric_value")
    assert {row.column_name: (row.type, row.kind, row.clustering_order) for row in found} == {
        "tenant_id": ("text", "partition_key", "none"),
        "device_id": ("text", "partition_key", "none"),
        period: ("date", "partition_key", "none"),
        window: ("date" if level is DAYS else "timestamp", "clustering", "desc"),
        "metric_name": ("text", "clustering", "asc"),
        "cell_names": ("set<text>", "static", "none"),
        "count": ("bigint", "regular", "none"),
        **dict.fromkeys(doubles, ("double", "regular", "none")),
        "first_time": ("timestamp", "regular", "none"),
        "last_time": ("timestamp", "regular", "none"),
        "metric_text": ("text", "regular", "none"),
        "metric_record": ("blob", "regular", "none"),
        "tags": ("frozen<map<text, text>>", "regular", "none"),
        "expires": ("timestamp", "regular", "none"),
    }


@pytest.mark.parametrize("level", LEVELS, ids=[level.name for level in LEVELS])
def test_what_is_written_again_is_not_compacted_by_windows(level: Level, session: Session, rolled: Rolled) -> None:
    cql = "SELECT compaction FROM system_schema.tables WHERE keyspace_name = %s AND table_name = %s"
    compaction = session.execute(cql, (rolled.keyspace, TABLES[level])).one().compaction
    assert compaction["class"].endswith("LeveledCompactionStrategy")


def test_minutes_say_what_their_reports_say(session: Session, rolled: Rolled) -> None:
    found = shown(session, rolled, MINUTES)
    starts = range(rolled.begin_us, rolled.begin_us + 2 * HOUR, MINUTE)
    expected = {(s, m): rolled.values(m, s, MINUTE) for s in starts for m in METRICS}
    expected = {(s, m.replace("#odd", "#odd:#odd")): values for (s, m), values in expected.items() if values}
    assert found.keys() == expected.keys()
    for key, timed in expected.items():
        row, values = found[key], [v for _, v in timed]
        assert (row.count, row.min, row.max) == (len(values), min(values), max(values))
        assert (row.first, row.last) == (values[0], values[-1])
        assert (us_of(row.first_time), us_of(row.last_time)) == tuple(t // MS * MS for t in (timed[0][0], timed[-1][0]))
        assert isclose(row.sum, sum(values), rel_tol=1e-12, abs_tol=1e-9)
        assert isclose(row.avg, float(np.mean(values)), rel_tol=1e-12, abs_tol=1e-9)
        assert isclose(row.stddev, float(np.std(values)), rel_tol=1e-9, abs_tol=1e-9)
        for quantile in (50, 95, 99):
            want = float(np.percentile(values, quantile))
            assert isclose(getattr(row, f"p{quantile}"), want, rel_tol=1e-12, abs_tol=1e-9)
        steps = [after - before if after >= before else after for before, after in pairwise(values)]
        assert isclose(row.increase, sum(steps), rel_tol=1e-12, abs_tol=1e-9)


@pytest.mark.parametrize("level", LEVELS, ids=[level.name for level in LEVELS])
def test_columns_say_what_the_record_says(level: Level, session: Session, rolled: Rolled) -> None:
    found = shown(session, rolled, level)
    span = TimeSpan(rolled.begin_us - DAY, rolled.begin_us + DAY)
    seen = 0
    for rows in rolled.site.rollups.read(ACME, [DEVICE], level, span):
        starts = np.repeat(np.asarray(rows.keys["start_us"]), np.diff(rows.cells.offsets))
        stats = decode(rows.cells.texts.take(rows.cells.text), starts)
        for c, start_us in enumerate(starts.tolist()):
            name = rows.cells.names[int(rows.cells.name[c])]
            row = found[start_us, name.replace("#odd", "#odd:#odd")]
            pairs = {n: n for n in ("count", "min", "max", "sum", "increase", "p50", "p95", "p99", "first", "last")}
            for column, statistic in (pairs | {"avg": "mean"}).items():
                assert getattr(row, column) == getattr(stats, statistic)[c], column
            assert row.stddev == stats.stddev()[c]
            assert row.count == len(rolled.values(name, start_us, level.width_us))
            seen += 1
    assert seen == len(found) > 0


def test_columns_have_the_version_and_the_lifetime_of_their_record(session: Session, rolled: Rolled) -> None:
    names = ["metric_record", "expires", *STATISTICS.split(", ")]
    parts = [f"WRITETIME({name}) AS v{i}, TTL({name}) AS t{i}" for i, name in enumerate(names)]
    rows = list(session.execute(f"SELECT minute, {', '.join(parts)} FROM {rolled.keyspace}.telemetry_1min_90d"))
    assert rows
    for row in rows:
        assert len({getattr(row, f"v{i}") for i in range(len(parts))}) == 1
        (ttl,) = {getattr(row, f"t{i}") for i in range(len(parts))}
        expire_s = (us_of(row.minute) + MINUTE + 90 * DAY + GUARD_US) // SECOND
        assert abs(ttl - (expire_s - time.time())) < 120


# -- rewriting


def record_of(hundredths: Sequence[int], offset_ms: int = 0, step_ms: int = 10_000) -> bytes:
    """A record of a few values, byte by byte as docs/format/rollup.md has it."""
    steps = [after - before for before, after in pairwise([0, *hundredths])]
    head = (len(hundredths), offset_ms, (len(hundredths) - 1) * step_ms)
    return bytes([1, 0x82]) + b"".join(map(varint, (*head, *(2 * s if s >= 0 else -2 * s - 1 for s in steps))))


def varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)


def test_columns_follow_the_greatest_version_whatever_it_says(session: Session, rolled: Rolled) -> None:
    engine, table = rolled.site.engine, rollups(HOURS, 365 * DAY)
    start_us = rolled.begin_us - rolled.begin_us % DAY
    partition = ("acme", "rewritten", start_us - start_us % HOURS.period_us)
    version_us = whole_ms(rolled.site.clock.time_us)
    one, two, none = record_of([100]), record_of([100, 200]), b"\x63of a newer release"

    def check(record: bytes, version: int, want: tuple[bytes, int | None, float | None]) -> None:
        fragment = Fragment((*partition, start_us), {"temp": record}, version_us + version * MS, start_us + 400 * DAY)
        engine.write([(table, rows_from(table, [fragment]))])
        (row,) = session.execute(
            f"SELECT metric_record, count, max FROM {rolled.keyspace}.{table.name} "
            "WHERE tenant_id = 'acme' AND device_id = 'rewritten' AND period = %s",
            (day_of(int(partition[2])),),
        )
        assert (row.metric_record, row.count, row.max) == want

    check(one, 1, (one, 1, 1.0))
    check(two, 3, (two, 2, 2.0))
    check(one, 2, (two, 2, 2.0))
    check(none, 4, (none, None, None))
    check(two, 3, (none, None, None))
    check(one, 5, (one, 1, 1.0))


def test_a_broken_record_does_not_hide_its_neighbours(session: Session, rolled: Rolled) -> None:
    engine, table = rolled.site.engine, rollups(DAYS, 0)
    start_us = rolled.begin_us - rolled.begin_us % DAY
    key = ("acme", "broken", start_us - start_us % DAYS.period_us, start_us)
    cells: dict[str | Tag, float | str | bytes] = {
        "a": record_of([100]),
        "b": b"\x01\x02",
        "c": b"",
        "d": record_of([300]),
        "e": "a text",
        "f": 7.0,
    }
    engine.write([(table, rows_from(table, [Fragment(key, cells | {Tag("type"): "press"}, MS)]))])
    ((_, back),) = logical(engine, table, [key[:3]])[key[:3]]
    assert {name: cell.value for name, cell in back.items()} == cells | {Tag("type"): "press"}
    rows = session.execute(
        f"SELECT metric_name, max, metric_text, metric_value, tags FROM {rolled.keyspace}.{table.name} "
        "WHERE tenant_id = 'acme' AND device_id = 'broken' AND period = %s",
        (day_of(int(key[2])),),
    )
    tags = {"type": "press"}
    assert [tuple(row) for row in rows] == [
        ("#tag:type", None, "press", None, None),
        ("a", 1.0, None, None, tags),
        ("b", None, None, None, tags),
        ("c", None, None, None, tags),
        ("d", 3.0, None, None, tags),
        ("e", None, "a text", None, tags),
        ("f", None, None, 7.0, tags),
    ]


# -- the port, where key columns are dates and timestamps


@pytest.mark.parametrize("level", LEVELS, ids=[level.name for level in LEVELS])
def test_dates_and_timestamps_in_keys_are_times_to_the_port(level: Level, rolled: Rolled) -> None:
    """The same calls on memory and here, spans and cursors that fall between windows among them."""
    table = rollups(level, 0)
    plain: Engine = MemoryEngine(rolled.site.clock)
    base = -2 * level.period_us
    parts = [("acme", f"{level.name}-{n}", base + n * level.period_us) for n in range(4)]
    fragments = [
        Fragment((*part, int(part[2]) + k * level.width_us), {"a": b"\x01", **({"b": 1.5} if k % 2 else {})}, 5 * MS)
        for part in parts
        for k in range(6)
    ]
    for engine in (plain, rolled.site.engine):
        engine.apply([table])
        engine.write([(table, rows_from(table, fragments))])
    between = (*parts[0][:2], base + 1)

    def check(**options: Any) -> None:
        found = rolled.site.engine.scan(table, [*parts, between], **options)
        assert gather(table, found) == logical(plain, table, [*parts, between], **options)

    first = base + 2 * level.width_us
    check()
    for row, there in ((*parts[1], int(parts[1][2]) + 2 * level.width_us), 1), ((*parts[1], int(parts[1][2]) + 1), 0):
        assert len(logical(rolled.site.engine, table, [row])) == there
    check(limit=2)
    check(columns=["b"])
    for start, stop in ((first, first + 2 * level.width_us), (first - 1, first + 1), (first + 1, None), (None, first + 1)):
        check(span=Span(start, stop))
    behind = msgspec.msgpack.encode((0, [*parts[0], first], 2))  # a cursor as a page of two rows would have it
    rest = logical(rolled.site.engine, table, parts[:2], after=behind)
    assert keys(rest[parts[0]]) == [(base + level.width_us,), (base,)]
    assert len(rest[parts[1]]) == 6
    everything = list(rolled.site.engine.scan(table, None))
    assert {key for rows in everything for key in gather(table, [rows])} >= set(parts)
    assert not list(rolled.site.engine.scan(table, None, after=everything[-1].cursor))
    for engine in (plain, rolled.site.engine):
        engine.delete(table, [parts[0], between], Span(first - 1, first + level.width_us + 1), version_us=5 * MS)
        engine.delete(table, [parts[1]], version_us=5 * MS)
        engine.delete(table, [parts[2]], columns=["b"], version_us=5 * MS)
    check()


def test_a_window_that_is_none_is_refused(rolled: Rolled) -> None:
    table = rollups(HOURS, 365 * DAY)
    engine, start_us = rolled.site.engine, rolled.begin_us + 1
    key = ("acme", "odd", rolled.begin_us - rolled.begin_us % HOURS.period_us, start_us)
    with pytest.raises(ValueError, match="no multiple of 1000 microseconds"):
        engine.write([(table, rows_from(table, [Fragment(key, {"a": b"\x01"}, MS, NEVER)]))])


# -- sizes


def records_of(level: Level, keep_us: int, metrics: int, start_us: int) -> list[Fragment]:
    """A period's windows of a device that reports each 10 s, numbers with two decimals."""
    windows, each = level.period_us // level.width_us, level.width_us // (10 * SECOND)
    values = np.rint(2000 + 500 * np.random.default_rng(7).standard_normal((windows * metrics, each))).astype(int)
    if level is MINUTES:
        records = [record_of(some) for some in values.tolist()]
    else:
        window_us = start_us + np.repeat(np.arange(windows), metrics) * level.width_us
        time_us = (window_us[:, None] + np.arange(each) * 10 * SECOND).ravel()
        stats = Stats.of(time_us, values.ravel() / 100, np.arange(windows * metrics + 1) * each)
        records = encode_stats(window_us, stats).to_bytes_list()
    key = ("acme", "sized", start_us)
    return [
        Fragment(
            (*key, start_us + w * level.width_us),
            {f"channel-{m:04d}": records[w * metrics + m] for m in range(metrics)},
            start_us + (w * level.width_us // HOUR + 1) * HOUR,  # rolled when its hour is over
            start_us + (w + 1) * level.width_us + keep_us + GUARD_US,
        )
        for w in range(windows)
    ]


@pytest.mark.parametrize("level", [MINUTES, HOURS], ids=["minute", "hour"])
def test_a_period_of_a_device_is_a_partition_of_less_than_10_mib(
    level: Level, session: Session, rolled: Rolled, cassandra_server: Cassandra
) -> None:
    keep_us = {MINUTES: 91 * DAY, HOURS: 366 * DAY}[level]
    table = rollups(level, keep_us)
    rolled.site.engine.apply([table])
    windows, start_us = level.period_us // level.width_us, rolled.begin_us - rolled.begin_us % level.period_us
    rows = rows_from(table, records_of(level, keep_us, 10, start_us))
    began_s = time.perf_counter()
    rolled.site.engine.write([(table, rows)])
    took_s = time.perf_counter() - began_s
    flush(cassandra_server, session, rolled.keyspace, table.name)
    (partition,) = partitions(cassandra_server, rolled.keyspace, table.name)
    assert partition.rows == 10 * windows
    size_mib, each = partition.size_bytes / (1 << 20), partition.size_bytes / partition.rows
    print(f"{level.name}: {size_mib:.2f} MiB, {each:.0f} bytes a record, {partition.rows / took_s:.0f} records/s")
    assert partition.size_bytes < LIMIT_BYTES / 2, "half of it is for long names, and for copies that late reports make"
