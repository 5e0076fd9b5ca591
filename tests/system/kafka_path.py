"""Both halves of the path through Kafka in one process: a front's pipeline that ends in it, and workers behind it."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition, cimpl

from servers.kafka import Kafka as Broker
from widerow.catalog.known import KnownTenants
from widerow.codec.decoded import Decoded
from widerow.codec.json import JsonDecoder
from widerow.config import Backfill, Config, Kafka, Store
from widerow.ingest.kafka.connect import client_settings
from widerow.ingest.kafka.letters import letters_to
from widerow.ingest.kafka.produce import KafkaSink
from widerow.ingest.kafka.receive import Receiver
from widerow.ingest.kafka.worker import Worker
from widerow.model.batch import Report, batch_of
from widerow.model.errors import NotFound
from widerow.model.tenant import Tenant
from widerow.model.times import DAY, HOUR, SECOND, SystemClock, TimeSpan, whole_ms
from widerow.ops.counters import Counters
from widerow.pipeline.job import Job, Outcome
from widerow.pipeline.letter import Filed
from widerow.pipeline.pipeline import Pipeline, PipelineSettings
from widerow.service import Service

_numbers = count()
_STILL_LOADING = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError._WAIT_COORD,
}


@dataclass
class Path:
    """A front, a store in memory, and how to start workers."""

    config: Config
    service: Service
    tenant: Tenant
    front: Pipeline
    sink: KafkaSink
    """The end of the front."""
    counters: Counters
    """The front's."""

    def send(self, reports: Sequence[Reports], timeout_s: float = 60.0) -> list[Outcome]:
        """Each a job of its own; what became of them."""
        outcomes: dict[int, Outcome] = {}
        all_there = threading.Event()

        def finish(k: int, outcome: Outcome) -> None:
            outcomes[k] = outcome
            if len(outcomes) == len(reports):
                all_there.set()

        for k, several in enumerate(reports):
            batch = batch_of(list(several))
            job = Job(self.tenant, 100, lambda batch=batch: Decoded(batch), lambda outcome, k=k: finish(k, outcome))  # type: ignore[misc]
            self.front.submit(job)
        assert all_there.wait(timeout_s)
        return [outcomes[k] for k in range(len(reports))]

    def report(self, device: str, x: float, *, ago_us: int = 0) -> Report:
        now_us = self.service.clock.now_us()
        return Report(device, now_us - ago_us, {"x": x}, {}, whole_ms(now_us))

    @contextmanager
    def worker(self, **changes: int) -> Iterator[Worker]:
        """A worker, with other settings of `[kafka]`."""
        config = replace(self.config, kafka=replace(self.config.kafka, **changes))  # type: ignore[arg-type]
        clock = self.service.clock
        worker = Worker(
            config,
            self.service.pipeline,
            KnownTenants(self.service.catalog.tenants, clock),
            Receiver(JsonDecoder(), clock),
            letters_to(self.service.dead_letters),
            clock,
            self.service.counters,
        )
        worker.start()
        try:
            yield worker
        finally:
            worker.close()
        assert worker.failed() is None

    def stored(self, device: str) -> list[float]:
        """Values of x, in the order of their times."""
        now_us = self.service.clock.now_us()
        span = TimeSpan(now_us - 2 * DAY, now_us + HOUR)
        try:
            points = self.service.queries.series(self.tenant, device, span=span, limit=100_000).points
        except NotFound:
            return []
        return [float(x) for x in points.number]

    def letters(self) -> list[Filed]:
        """The oldest first."""
        store = self.service.dead_letters.store
        return [store.get("acme", filed.id) for filed in reversed(list(store.newest("acme")))]

    def lag(self, topic: str | None = None) -> int:
        """Messages that are in Kafka and that no worker has committed, as Kafka itself sees it."""
        return lag_of(self.config.kafka, topic)


def lag_of(kafka: Kafka, topic: str | None = None) -> int:
    topic = topic or kafka.topic
    group = kafka.group if topic == kafka.topic else f"{kafka.group}.backfill"
    asker = Consumer(client_settings(kafka) | {"group.id": group})
    try:
        parts = [TopicPartition(topic, p) for p in range(kafka.partitions)]
        done = {part.partition: max(0, part.offset) for part in committed(asker, parts)}
        return sum(asker.get_watermark_offsets(part, timeout=10)[1] - done[part.partition] for part in parts)
    finally:
        asker.close()


def committed(asker: Consumer, parts: list[TopicPartition], within_s: float = 10.0) -> list[TopicPartition]:
    """As the group's coordinator says. One that has just started is asked again: first it loads what groups there are."""
    deadline_s = time.monotonic() + within_s
    while True:
        try:
            return asker.committed(parts, timeout=max(0.1, deadline_s - time.monotonic()))
        except KafkaException as error:
            if error.args[0].code() not in _STILL_LOADING or time.monotonic() >= deadline_s:
                raise
        time.sleep(0.05)


Reports = Sequence[Report]


@contextmanager
def kafka_path(broker: Broker, *, partitions: int = 4, create: bool = True, **changes: int | str) -> Iterator[Path]:
    """With topics of its own; `changes` are settings of `[kafka]`."""
    name = f"path-{next(_numbers)}"
    kafka = Kafka(
        brokers=broker.address,
        topic=f"{name}.reports",
        backfill_topic=f"{name}.backfill",
        group=name,
        partitions=partitions,
        send_timeout_s=30,
        session_timeout_s=30,
    )
    config = Config(kafka=replace(kafka, **changes), backfill=Backfill(after_s=3600), store=Store(url="memory:"))  # type: ignore[arg-type]
    if create:
        broker.create_topic(kafka.topic, partitions)
        broker.create_topic(kafka.backfill_topic, partitions)
    clock, counters = SystemClock(), Counters()
    with Service.open(config) as service:
        devices = service.catalog.devices
        sink = KafkaSink(config, clock, counters, lambda tenant, names, used: devices.register(tenant, names, used).codes)
        front = Pipeline(
            sink,
            clock,
            counters,
            PipelineSettings(max_future_us=300 * SECOND, max_in_flight_bytes=1 << 30, max_tenant_in_flight_bytes=1 << 30),
        )
        try:
            yield Path(config, service, service.catalog.tenants.create(Tenant(name="acme")), front, sink, counters)
        finally:
            front.close()


def fail_for_good(producer: Producer) -> None:
    """As an idempotent one does that lost count of what it has sent: librdkafka has a function for such tests.

    Python's object has the client right behind what every object begins with.
    """
    client = ctypes.c_void_p.from_address(id(producer) + object.__basicsize__)
    fail = ctypes.CDLL(cimpl.__file__).rd_kafka_test_fatal_error
    fail.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p]
    assert fail(client, KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, b"lost count") == 0


def until(what: Callable[[], bool], within_s: float = 30.0) -> None:
    """Wait until something holds."""
    deadline_s = time.monotonic() + within_s
    while not what():
        assert time.monotonic() < deadline_s, "it did not come to pass"
        time.sleep(0.02)
