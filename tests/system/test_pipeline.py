"""The whole pipeline, from devices at a broker to rollups in a store, while its processes die and its brokers restart."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from servers.bigtable import Bigtable
from servers.cassandra import Cassandra
from servers.fixtures import had
from servers.kafka import Kafka
from servers.mosquitto import Mosquitto
from system.frozen import Sample, judge, watch
from system.pipeline_kills import Run
from system.works import TENANT, Devices, Sent, Works, past
from widerow.model.device import Device
from widerow.model.tenant import Tenant
from widerow.model.times import MINUTE, TimeSpan

pytestmark = pytest.mark.timeout(600)

FROZEN_S = float(os.environ.get("WIDEROW_FROZEN_S", "6"))
MAX_MIB = 1
"""In flight, from Kafka to the store."""
NOTE_BYTES, MESSAGE_KIB = 20_000, 32
"""Of a text in a report, and of a message: each report is one, and all are as large, so that it is known what is taken."""


@pytest.fixture(scope="module")
def log() -> Iterator[Kafka]:
    """One of its own: it is restarted."""
    with had(Kafka) as server:
        yield server


@pytest.fixture(scope="module")
def broker() -> Iterator[Mosquitto]:
    with had(Mosquitto) as server:
        yield server


@pytest.mark.rest
def test_nothing_is_lost_on_the_way_to_cassandra_while_processes_die_join_and_leave(
    tmp_path: Path, cassandra_server: Cassandra, broker: Mosquitto, log: Kafka
) -> None:
    name = f"works{uuid4().hex[:8]}"
    with Works(name, tmp_path, cassandra_server.store_url(name), broker, log) as works:
        Run(works, Sent(), tmp_path, 60_000, random.Random(6), print).go(kills=8, rebalance=True)


@pytest.mark.rest
def test_nothing_is_lost_on_the_way_to_bigtable_while_processes_die(
    tmp_path: Path, bigtable_server: Bigtable, broker: Mosquitto, log: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BIGTABLE_EMULATOR_HOST", bigtable_server.address)
    name = f"works{uuid4().hex[:8]}"
    with Works(name, tmp_path, bigtable_server.store_url(name), broker, log) as works:
        Run(works, Sent(), tmp_path, 35_000, random.Random(7), print).go(kills=5)


def test_a_store_that_stands_still_holds_everything_up_and_loses_nothing(
    tmp_path: Path, cassandra_server: Cassandra, broker: Mosquitto, log: Kafka
) -> None:
    """What waits for it waits in Kafka: the worker takes so much, and no more, and says so."""
    name, store = f"works{uuid4().hex[:8]}", cassandra_server
    settings = {
        "WIDEROW_KAFKA_MAX_IN_FLIGHT_MIB": str(MAX_MIB),
        "WIDEROW_KAFKA_MAX_MESSAGE_KIB": str(MESSAGE_KIB),
        "WIDEROW_PRESSURE_STALL_S": "2",
    }
    with Works(name, tmp_path, store.store_url(name), broker, log, workers=1, settings=settings) as works:
        (worker,) = works.workers
        sent, span = Sent(), past(1)
        devices = Devices(broker, sent)

        def in_flight() -> float:
            return worker.metric("widerow_kafka_in_flight_bytes")

        def look() -> Sample:
            return Sample(*worker.ready(), in_flight(), worker.resident_mib() * 1024)

        try:
            _send_large(devices, span, minutes=6)
            works.wait_for(sent, span)
            _until(lambda: works.lag() == 0 == in_flight(), "the worker has written everything")
            _until(lambda: worker.ready() == ("ready", []), "and is ready")  # it knows whose the token is, from now on
            store.pause()
            try:
                before_mib = worker.resident_mib()
                _send_large(devices, span, minutes=20, first=6)
                devices.wait(60.0)  # the gateway and Kafka go on
                samples = watch(look, FROZEN_S)
                left = works.uncommitted(works.parts)
            finally:
                store.resume()
            judge(samples, most=(MAX_MIB << 20) + (MESSAGE_KIB << 10), one=0)
            assert samples[-1].held >= MAX_MIB << 20, "it takes what it may"
            assert all(f"{works.topics[0]} is paused" in "; ".join(sample.reasons) for sample in samples[-3:])
            assert left == 200, "what is not committed; the worker has a quarter of it, and the rest is in Kafka"
            assert samples[-1].resident_kib / 1024 - before_mib < 64, "memory is bounded, whatever waits"
            works.wait_for(sent, span)
            _until(lambda: worker.ready() == ("ready", []), "it is held up no more")
            _until(lambda: works.lag() == 0 == in_flight(), "the lag drains")
        finally:
            devices.close()


def test_what_cannot_be_taken_is_refused_and_its_neighbours_pass(
    tmp_path: Path, cassandra_server: Cassandra, broker: Mosquitto, log: Kafka
) -> None:
    name = f"works{uuid4().hex[:8]}"
    with Works(name, tmp_path, cassandra_server.store_url(name), broker, log, workers=1) as works:
        sent, span = Sent(), past(2)
        devices = Devices(broker, sent)
        try:
            for topic, payload in (
                (f"widerow/v1/{TENANT}/broken/telemetry", b'{"time": 1'),
                ("widerow/v1/nobody/d0/telemetry", b'{"values": {"temp": 1}}'),
                (f"widerow/v1/{TENANT}/large/telemetry", b" " * (10 << 20)),
            ):
                devices.publish(topic, payload)
                _send_minutes(devices, span, minutes=1)
            devices.wait(60.0)
            works.wait_for(sent, span)
        finally:
            devices.close()
        assert works.gateway.metric("widerow_mqtt_refused_total") == 3
        assert "nobody" in works.gateway.whole_log()
        with works.service() as service:
            letters = [filed.letter for filed in service.dead_letters.store.newest(TENANT)]
        assert sorted(letter.code for letter in letters) == ["syntax", "too-large"]
        assert {letter.source for letter in letters} == {
            f"mqtt:widerow/v1/{TENANT}/{device}/telemetry" for device in ("broken", "large")
        }


def test_a_dead_letter_is_sent_again_once_its_cause_is_mended(
    tmp_path: Path, cassandra_server: Cassandra, broker: Mosquitto, log: Kafka
) -> None:
    name = f"works{uuid4().hex[:8]}"
    with Works(name, tmp_path, cassandra_server.store_url(name), broker, log, workers=1) as works:
        with works.service() as service:
            strict = service.create_tenant(Tenant(name="strict", registers_devices=False))
        span = past(2)
        devices = Devices(broker, Sent())
        try:
            payload = json.dumps({"time": span.start_us // 1000, "values": {"temp": 7.5}}).encode()
            devices.publish("widerow/v1/strict/late/telemetry", payload)
            devices.wait(60.0)
        finally:
            devices.close()
        with works.service() as service:
            _until(lambda: bool(list(service.dead_letters.store.newest("strict"))), "it is filed")
            (filed,) = service.dead_letters.store.newest("strict")
            assert filed.letter.code == "unknown-device"
            service.catalog.devices.create(strict, Device(name="late"))

            def stored() -> list[float]:
                return [
                    value
                    for rows in service.telemetry.read_many(strict, ["late"], span)
                    for value in rows.cells.number.tolist()
                ]

            again = {"ids": [filed.id]}  # a gateway that has just looked for a device looks again a while later
            _until(lambda: works.gateway.post("/v1/deadletters/replay?tenant=strict", again)["stored"] == 1, "it is taken")
            _until(lambda: stored() == [7.5], "the worker has written it")
            assert not list(service.dead_letters.store.newest("strict"))


def _send_minutes(devices: Devices, span: TimeSpan, *, minutes: int, first: int = 0) -> None:
    for n in range(first, first + minutes):
        for d in range(20):
            at = span.start_us + n * MINUTE + d * 1000
            devices.send(f"d{d}", [{"time": at // 1000, "values": {"temp": float(n), "flow": 0.5}}], [at])


def _send_large(devices: Devices, span: TimeSpan, *, minutes: int, first: int = 0) -> None:
    for n in range(first, first + minutes):
        for d in range(10):
            at = span.start_us + n * MINUTE + d * 1000
            values = {"temp": float(n), "flow": 0.5, "note": f"{n:04} {d:04} " * (NOTE_BYTES // 10)}
            devices.send(f"d{d}", [{"time": at // 1000, "values": values}], [at])


def _until(holds: Callable[[], bool], what: str, within_s: float = 60.0) -> None:
    until_s = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < until_s, what
        time.sleep(0.2)
