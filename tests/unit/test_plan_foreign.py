"""What is said of tables of others: their shapes, and estimates from samples of which the truth is known."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

import pytest
from typer.testing import CliRunner

from widerow.cli.commands import app
from widerow.cli.plan_from import size_given
from widerow.model.times import HOUR, MINUTE, SECOND
from widerow.plan.foreign import Thresholds, findings, total
from widerow.plan.repack import cost, packed
from widerow.plan.row_bytes import value_bytes, vint
from widerow.plan.sampled import Estimate, Partition, Sample, Stratum, times_us, unit_of
from widerow.plan.shape import CLUSTERING, PARTITION, REGULAR, Column, ForeignTable, Shape, Unit, shape_of

NOW_US = 1_763_000_000 * SECOND


def table(name: str, key: str, order: str, values: str, ttl_s: int = 0) -> ForeignTable:
    """Columns as `name type, name type`."""

    def columns(text: str, role: str) -> list[Column]:
        named = [part.split() for part in text.split(", ") if part]
        return [Column(name, kind, role) for name, kind in named]

    every = [*columns(key, PARTITION), *columns(order, CLUSTERING), *columns(values, REGULAR)]
    return ForeignTable(keyspace="plant", name=name, columns=tuple(every), ttl_s=ttl_s)


THINGSBOARD = table(
    "ts_kv_cf",
    "entity_type text, entity_id timeuuid, key text, partition bigint",
    "ts bigint",
    "bool_v boolean, dbl_v double, json_v text, long_v bigint, str_v text",
)
READINGS = table("readings", "day date", "ts timestamp, sensor text", "value double")


@pytest.mark.parametrize(
    ("found", "tenant", "entity", "metric", "bucket", "time", "values"),
    [
        (
            THINGSBOARD,
            *("", "entity_type entity_id", "key", "partition", "ts", "bool_v dbl_v long_v json_v str_v"),
        ),
        (READINGS, "", "sensor", "", "day", "ts", "value"),
        (
            table(
                "t", "tenant_id text, device_id text, bucket timestamp", "event_time timestamp, metric_name text", "v double"
            ),
            *("tenant_id", "device_id", "metric_name", "bucket", "event_time", "v"),
        ),
        (
            table("t", "sensor_id int", "reading_time timeuuid", "temperature float, humidity float, raw blob"),
            *("", "sensor_id", "", "", "reading_time", "temperature humidity"),
        ),
        (table("t", "name text", "ts bigint", "value double"), "", "name", "", "", "ts", "value"),
        (table("t", "site text, yyyymm int", "at timestamp, seq int", "v double"), "", "site", "", "yyyymm", "at", "v"),
        (table("t", "day date", "at timestamp, machine int", "v double"), "", "machine", "", "day", "at", "v"),
    ],
)
def test_columns_are_told_apart_by_name_type_and_place(
    found: ForeignTable, tenant: str, entity: str, metric: str, bucket: str, time: str, values: str
) -> None:
    shape = shape_of(found)
    assert shape is not None
    assert (shape.tenant, shape.metric, shape.time) == (tenant, metric, time)
    assert [list(part) for part in (shape.entity, shape.bucket, shape.values)] == [
        text.split() for text in (entity, bucket, values)
    ]


def test_a_table_without_a_time_in_its_key_is_no_time_series() -> None:
    assert shape_of(table("users", "id uuid", "", "name text, created timestamp")) is None
    assert shape_of(table("devices", "tenant text", "device text", "name text")) is None


def test_thingsboards_table_is_known_by_name_and_columns() -> None:
    def known(found: ForeignTable) -> str:
        shape = shape_of(found)
        assert shape is not None
        return shape.known_as

    assert known(THINGSBOARD) == "ThingsBoard"
    assert known(table("ts_kv_cf", "entity_id uuid", "ts bigint", "dbl_v double")) == ""


def test_times_are_read_in_the_unit_that_their_size_tells() -> None:
    def check(unit: Unit, raw: object, want_us: int) -> None:
        assert times_us(unit, [raw]) == [want_us]

    check(Unit.AUTO, NOW_US // SECOND, NOW_US)
    check(Unit.AUTO, NOW_US // 1000, NOW_US)
    check(Unit.AUTO, NOW_US, NOW_US)
    check(Unit.AUTO, NOW_US * 1000, NOW_US)
    check(Unit.TIMESTAMP, datetime.fromtimestamp(NOW_US / SECOND, UTC).replace(tzinfo=None), NOW_US)
    check(Unit.TIMEUUID, UUID("13814000-1dd2-11b2-8000-000000000000"), 0)
    check(Unit.DATE, date(1970, 1, 3), 48 * HOUR)
    assert unit_of(0) == (SECOND, 1)


def test_values_have_the_bytes_that_cassandra_writes() -> None:
    def check(kind: str, value: object, want: int) -> None:
        assert value_bytes(kind, value) == want, kind

    check("bigint", 1, 8)
    check("text", "größer", 8)
    check("varint", 128, 2)
    check("decimal", Decimal("1.25"), 5)
    check("inet", "10.0.0.1", 4)
    check("date", "2026-11-19", 4)
    check("frozen<list<int>>", [1, 2], 20)
    check("map<text, double>", {"a": 1.0}, 4 + 5 + 12)
    check("vector<float, 3>", [1.0, 2.0, 3.0], 12)
    assert [vint(number) for number in (0, 127, 128, 1 << 14, (1 << 63) - 1)] == [1, 1, 2, 3, 9]


def test_the_sum_over_random_partitions_holds_the_truth_within_its_error_mostly() -> None:
    chance = random.Random(7)
    every = [chance.expovariate(1 / 500) for _ in range(2_000)]
    truth, hits = sum(every), 0
    for _ in range(200):
        found = total(chance.sample(every, 100), Estimate(len(every)))
        hits += abs(found.value - truth) <= found.error
    assert hits >= 180, "two standard errors hold 95%, a little less of what is skewed"
    assert total(every, Estimate(len(every))).value == pytest.approx(truth)
    assert total(every, Estimate(len(every))).error == 0


def readings(day: int, devices: int, every_us: int, count: int, *, rows: int = 0) -> Partition:
    """A partition of `READINGS`, the newest rows first."""
    start_us = NOW_US + day * 24 * HOUR
    times = [(start_us - n * every_us, d) for n in range(count) for d in range(devices)]
    return Partition(
        key=(f"day-{day}",),
        rows=rows or len(times),
        clustering=[(datetime.fromtimestamp(t / SECOND, UTC), f"sensor-{d}") for t, d in times],
        values=[(20.5 + d,) for _, d in times],
        written_us=[t for t, _ in times],
    )


def sample_of(
    found: ForeignTable, partitions: Sequence[Partition], of: float = 0, packed: Sequence[Partition] = ()
) -> Sample:
    strata = [Stratum(keys=frozenset(p.key for p in partitions), partitions=packed)]
    return Sample(
        table=found, shape=shape_of(found), partitions=partitions, of=Estimate(of or len(partitions)), packed=strata
    )


def test_a_key_without_a_device_is_named_as_the_fault_that_it_is() -> None:
    notes = findings(sample_of(READINGS, [readings(0, 4, MINUTE, 10)]), Thresholds()).notes
    assert ["names no device" in note for note in notes] == [True]
    unbounded = table("t", "sensor text", "ts timestamp", "v double")
    notes = findings(sample_of(unbounded, []), Thresholds()).notes
    assert ["has no bucket of time" in note for note in notes] == [True]


def test_partitions_over_a_threshold_are_named_the_largest_first() -> None:
    found = findings(
        sample_of(READINGS, [readings(0, 2, MINUTE, 10), readings(1, 5, MINUTE, 100), readings(2, 5, MINUTE, 90)]),
        Thresholds(large_rows=400),
    )
    assert [(one.partition, one.rows) for one in found.large] == [("day=day-1", 500), ("day=day-2", 450)]
    assert findings(sample_of(READINGS, [readings(1, 5, MINUTE, 100)]), Thresholds(large_bytes=1000)).large


def series(number: int, every_us: int, count: int, rows: int = 0) -> Partition:
    times = [NOW_US - n * every_us for n in range(count)]
    return Partition(
        key=("DEVICE", UUID(int=number), "temperature", 0),
        rows=rows or count,
        clustering=[(t // 1000,) for t in times],
        values=[(None, 20.0 + t % 7, None, None, None) for t in times],
        written_us=times,
    )


def test_a_partition_with_many_times_an_even_share_of_recent_writes_is_hot() -> None:
    calm = [series(n, MINUTE, 100) for n in range(40)]
    found = findings(sample_of(THINGSBOARD, [*calm, series(99, SECOND, 3_600)]), Thresholds())
    (hot,) = found.hot
    assert f"entity_id={UUID(int=99)}" in hot.partition
    assert hot.share.value == pytest.approx(3_600 / (3_600 + 40 * 60), abs=0.01)
    assert hot.share.error < 0.05
    assert not findings(sample_of(THINGSBOARD, calm), Thresholds()).hot


def test_recent_rows_that_were_not_read_count_as_well() -> None:
    calm = [series(n, MINUTE, 100) for n in range(40)]
    (hot,) = findings(sample_of(THINGSBOARD, [*calm, series(99, SECOND, 100, rows=10_000)]), Thresholds()).hot
    assert hot.share.value == pytest.approx(3_600 / (3_600 + 40 * 60), abs=0.05)


def test_what_each_device_has_is_told_also_where_devices_share_partitions() -> None:
    found = findings(sample_of(READINGS, [readings(0, 4, MINUTE, 10), readings(1, 2, MINUTE, 10)]), Thresholds())
    assert {one.name: one.rows.value for one in found.holders} == pytest.approx(
        {"sensor-0": 20, "sensor-1": 20, "sensor-2": 10, "sensor-3": 10}
    )


def test_the_cost_of_all_follows_from_the_metrics_that_were_packed() -> None:
    chance = random.Random(3)

    def noisy(number: int, count: int) -> Partition:
        one = series(number, MINUTE, count)
        key, values = (*one.key[:2], "noise", 0), [(None, chance.random(), None, None, None) for _ in range(count)]
        return Partition(key=key, rows=count, clustering=one.clustering, values=values, written_us=one.written_us)

    every = [part for n in range(20) for part in (series(n, MINUTE, 300), noisy(n, 900))]
    shape = shape_of(THINGSBOARD)
    assert isinstance(shape, Shape)
    truth = packed(THINGSBOARD, shape, every)
    few = [replace(p, clustering=p.clustering[:300], values=p.values[:300], written_us=p.written_us[:300]) for p in every]
    found = cost(sample_of(THINGSBOARD, every, packed=few[:16]))
    assert found is not None
    assert found.packed_bytes is not None
    assert (found.values.value, found.packed_values) == (20 * 1_200, 16 * 300)
    assert found.packed_bytes.value == pytest.approx(truth.bytes, rel=0.15)


def test_values_that_no_metric_can_hold_are_counted_and_left_out() -> None:
    blobs = table("t", "sensor text", "ts timestamp", "raw blob, v double")
    at = datetime.fromtimestamp(NOW_US / SECOND, UTC)
    one = Partition(key=("s",), rows=1, clustering=[(at,)], values=[(b"1234", 1.0)], written_us=[NOW_US])
    found = cost(sample_of(blobs, [one], packed=[one]))
    assert found is not None
    assert (found.left_out, found.values.value) == (0.5, 1)


def test_sizes_are_given_with_their_unit() -> None:
    assert [size_given("--x", text) for text in ("100MB", "1.5GiB", "20 kB")] == [100_000_000, 3 << 29, 20_000]


@pytest.mark.parametrize(
    ("options", "want"),
    [
        (("--large-partition", "100"), "--large-partition '100': give a number and a unit"),
        (("--from", "rocksdb:here"), "--from: 'rocksdb:here' cannot be looked at: give cassandra://HOST[:PORT]/KEYSPACE"),
        (("--from", "cassandra://u:p@host/ks"), "credentials are given by cassandra.username"),
        (("--hot-window", "soon"), "--hot-window"),
    ],
)
def test_what_cannot_be_looked_at_is_refused_in_one_line(options: tuple[str, ...], want: str) -> None:
    given = options if "--from" in options else (*options, "--from", "cassandra://127.0.0.1/plant")
    done = CliRunner().invoke(app, ["plan", *given])
    assert done.exit_code == 2
    assert want in done.stderr
    assert len(done.stderr.splitlines()) == 1
