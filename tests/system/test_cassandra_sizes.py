"""Partitions on a real Cassandra stay below 10 MiB, and are as large as the model says.

Of each profile one whole partition is written, the fullest of its bucket: where a bucket is spread, writing all of it would
take minutes and show nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from uuid import uuid4

import numpy as np
import pytest
from cassandra.cluster import Session

from patient import PATIENT, cql
from servers.cassandra import Cassandra
from servers.sstables import Partition, flush, partitions
from widerow.config import Config, Store
from widerow.model.arrays import Ints
from widerow.model.batch import Report, batch_of
from widerow.model.device import Device, Profile
from widerow.model.names import Names
from widerow.model.tenant import Tenant
from widerow.model.times import DAY, HOUR, MINUTE, MS, SECOND, ManualClock, SystemClock
from widerow.service import Service
from widerow.telemetry.places import place_batch

LIMIT_BYTES = 10 << 20
FACTOR = 1.1
"""How far an estimate may be from what is measured, either way."""
ACME = Tenant(name="acme")
TABLE = "telemetry_30d"
CHUNK = 500
"""Reports of one write."""


@dataclass(frozen=True)
class Case:
    """A device, and the width and the sub-buckets it is to have."""

    profile: Profile
    width_us: int
    sub_buckets: int
    tags: dict[str, str] = field(default_factory=dict)

    @property
    def estimated_bytes(self) -> float:
        return self.profile.bucket_bytes() / self.sub_buckets


CASES = {
    "slow": Case(Profile(reports_per_s=1 / 61, metrics_per_report=10), 6 * HOUR, 1),
    "each-second": Case(Profile(reports_per_s=1), HOUR, 1),
    "many-values": Case(Profile(reports_per_s=10, metrics_per_report=50), 15 * MINUTE, 8),
    "fast": Case(Profile(reports_per_s=100, metrics_per_report=10), 15 * MINUTE, 16),
    "fastest": Case(Profile(reports_per_s=1704, metrics_per_report=10), 15 * MINUTE, 256),
    "tagged": Case(Profile(reports_per_s=5), 15 * MINUTE, 1, {"line": "L2", "tool": "T-07"}),
}
PLAIN = [name for name, case in CASES.items() if not case.tags]


@pytest.fixture(scope="module")
def measured(cassandra_server: Cassandra) -> Iterator[tuple[dict[str, Partition], int]]:
    """The partition of each device, as it is on disk; and the MiB of the largest, as the server says."""
    keyspace = f"sizes_{uuid4().hex[:12]}"
    now_us = SystemClock().now_us()
    clock = ManualClock(now_us - DAY)
    config = Config(store=Store(url=cassandra_server.store_url(keyspace)), cassandra=PATIENT)
    with cql(cassandra_server) as session:
        with Service.open(config, clock) as service:
            for name, case in CASES.items():
                service.save_device(ACME, Device(name=name, profile=case.profile))
            clock.time_us = now_us
            start_us = now_us - now_us % (6 * HOUR) - 6 * HOUR
            rows = {name: write_partition(service, name, case, start_us) for name, case in CASES.items()}
        flush(cassandra_server, session, keyspace, TABLE)
        found = {p.key.split(":")[1]: p for p in partitions(cassandra_server, keyspace, TABLE)}
        assert {name: p.rows for name, p in found.items()} == rows, "all that was written, each device in one partition"
        yield found, largest_mib(session, keyspace)
        session.execute(f"DROP KEYSPACE {keyspace}")


def write_partition(service: Service, device: str, case: Case, start_us: int) -> int:
    """Write the fullest partition of the bucket that starts then, through telemetry; the CQL rows that makes."""
    per_s, metrics = case.profile.reports_per_s, case.profile.metrics_per_report or 10
    time_us = start_us + (np.arange(int(per_s * case.width_us / SECOND)) * (SECOND / per_s)).astype(np.int64)
    names = [f"channel-{i:04d}" for i in range(metrics)]
    times = fullest(service, device, case, time_us).tolist()
    for k in range(0, len(times), CHUNK):
        reports = [
            Report(device, t, dict.fromkeys(names, t % 1000 / 10), case.tags, t - t % MS) for t in times[k : k + CHUNK]
        ]
        service.telemetry.write(ACME, batch_of(reports))
    return len(times) * (metrics + len(case.tags))


def fullest(service: Service, device: str, case: Case, time_us: Ints) -> Ints:
    """The reports of the sub-bucket that has most of them."""
    state = service.telemetry.places.state(ACME.name)
    ids = np.repeat(state.ids(Names.of((device,))), len(time_us))
    placed = place_batch(state, ids, time_us)
    counts = np.bincount(placed.sub_bucket)
    assert (len(set(placed.bucket.tolist())), len(counts)) == (1, case.sub_buckets), (
        "one bucket, spread as the profile calls for"
    )
    chosen: Ints = time_us[placed.sub_bucket == counts.argmax()]
    return chosen


def largest_mib(session: Session, keyspace: str) -> int:
    cql = "SELECT mebibytes FROM system_views.max_partition_size WHERE keyspace_name = %s AND table_name = %s"
    return int(session.execute(cql, (keyspace, TABLE)).one().mebibytes)


def test_no_partition_is_larger_than_10_mib(measured: tuple[dict[str, Partition], int]) -> None:
    found, server_says_mib = measured
    for name, partition in sorted(found.items()):
        size, rows = partition.size_bytes, partition.rows
        print(f"{name}: {size / (1 << 20):.2f} MiB in {rows} rows, {size / rows:.1f} bytes each")
        assert size < LIMIT_BYTES, name
    assert 0 < server_says_mib <= 10


@pytest.mark.parametrize("name", PLAIN)
def test_a_partition_is_as_large_as_was_estimated(name: str, measured: tuple[dict[str, Partition], int]) -> None:
    size, estimated = measured[0][name].size_bytes, CASES[name].estimated_bytes
    assert estimated / FACTOR < size < estimated * FACTOR


def test_tags_take_what_was_left_for_them_and_no_more(measured: tuple[dict[str, Partition], int]) -> None:
    size, estimated = measured[0]["tagged"].size_bytes, CASES["tagged"].estimated_bytes
    assert estimated * FACTOR < size < 2 * estimated
