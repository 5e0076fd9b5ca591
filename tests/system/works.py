"""The whole pipeline as processes: broker, gateway, Kafka, workers, store; and devices with a ledger of what they sent.

Rule 1: what a device was told is the broker's word. A report is *acknowledged* when the broker took its message (PUBACK).
Rule 2: each works has topics, a consumer group and a tenant of its own; servers may be shared.
Rule 3: what the store says is compared with what devices sent, never with itself alone: every value of every metric, and how
many reports it counted of each device and hour.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import paho.mqtt.client as paho
from confluent_kafka import Consumer, KafkaException, TopicPartition
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from servers.kafka import Kafka
from servers.mosquitto import PASSWORD, USER, Mosquitto
from system.processes import Part, Process, Unexpected
from widerow.config import Config, Store
from widerow.model.batch import CellKind
from widerow.model.names import Coded
from widerow.model.tenant import Tenant
from widerow.model.times import DAY, HOUR, MINUTE, SystemClock, TimeSpan
from widerow.model.token import Role
from widerow.rollup.counts import SIZE_NAMES
from widerow.rollup.guard import marked_in_store
from widerow.schema.rollups import FLEET, HOURS, MINUTES
from widerow.schema.shards import SHARDS
from widerow.service import Service

TENANT = "acme"
METRICS = ("temp", "flow")
_ASK_S = 10.0
_NOBODY = 16
"""What a broker says of a message that it has no subscriber for (MQTT 5, "no matching subscribers")."""
Place = tuple[str, int]
"""A device, and the time of a report."""
Values = tuple[float | None, ...]
"""Of METRICS, in their order; None: the report has none."""


@dataclass
class Sent:
    """What devices sent, and what of it the broker acknowledged."""

    values: dict[Place, Values] = field(default_factory=dict)
    acknowledged: set[Place] = field(default_factory=set)

    def wrong(self, found: Mapping[Place, Values]) -> list[str]:
        lost = [f"lost: {place}" for place in self.acknowledged if place not in found]
        invented = [f"invented: {place}" for place in found if place not in self.values]
        changed = [
            f"changed: {place} has {values}, sent were {self.values[place]}"
            for place, values in found.items()
            if self.values.get(place, values) != values
        ]
        return lost + invented + changed

    def windows(self, width_us: int) -> Counter[Place]:
        """How many reports there are of each device in each window of time that has any."""
        return Counter((device, time_us - time_us % width_us) for device, time_us in self.values)


class Devices:
    """Devices behind one connection to the broker, by a plain client. It connects again by itself."""

    def __init__(self, broker: Mosquitto, sent: Sent, *, topic: str = "widerow/v1/{tenant}/{device}/telemetry") -> None:
        self._sent, self._topic = sent, topic
        self._lock = threading.Lock()
        self._under_way: dict[int, list[Place]] = {}
        self._early: dict[int, bool] = {}
        self._messages: dict[int, tuple[str, str | bytes]] = {}
        self._again: list[tuple[str, str | bytes, list[Place]]] = []
        self._room = threading.Semaphore(200)
        self.returned = 0
        """Messages that came back because the broker had nobody to give them to."""
        self._client = paho.Client(CallbackAPIVersion.VERSION2, client_id=f"devices-{id(self)}", protocol=paho.MQTTv5)
        self._client.username_pw_set(USER, PASSWORD)
        self._client.max_inflight_messages_set(100)
        self._client.on_publish = self._published
        self._client.reconnect_delay_set(1, 2)
        session = Properties(PacketTypes.CONNECT)
        session.SessionExpiryInterval = 3600
        self._client.connect(broker.host, broker.port, clean_start=False, properties=session)
        self._client.loop_start()

    def send(self, device: str, reports: Sequence[Mapping[str, Any]], times_us: Sequence[int], tenant: str = TENANT) -> None:
        """One message. Waits while many are not acknowledged."""
        while not self._room.acquire(timeout=0.5):
            self._send_again()
        places = [(device, time_us) for time_us in times_us]
        for place, report in zip(places, reports, strict=True):
            self._sent.values[place] = tuple(report["values"].get(metric) for metric in METRICS)
        topic = self._topic.format(tenant=tenant, device=device)
        self._publish(topic, json.dumps(reports), places)

    def publish(self, topic: str, payload: bytes) -> None:
        """Anything, to anywhere."""
        self._room.acquire()
        self._publish(topic, payload, [])

    def _publish(self, topic: str, payload: str | bytes, places: list[Place]) -> None:
        told = self._client.publish(topic, payload, qos=1)  # the answer may be there before it returns
        with self._lock:
            self._under_way[told.mid], self._messages[told.mid] = places, (topic, payload)
            if told.mid in self._early:
                self._answered(told.mid, taken=self._early.pop(told.mid))

    def _published(self, _client: object, _data: object, number: int, reason: Any, _properties: object) -> None:
        assert not reason.is_failure, reason
        with self._lock:
            if number in self._under_way:
                self._answered(number, taken=reason.value != _NOBODY)
            else:
                self._early[number] = reason.value != _NOBODY

    def _answered(self, number: int, *, taken: bool) -> None:
        """A message that the broker has nobody for is not acknowledged: a device keeps it, and sends it again."""
        places, message = self._under_way.pop(number), self._messages.pop(number)
        if taken:
            self._sent.acknowledged.update(places)
            self._room.release()
        else:
            self._again.append((*message, places))

    def _send_again(self) -> None:
        with self._lock:
            again, self._again = self._again, []
        for topic, payload, places in again:
            self.returned += 1
            self._publish(topic, payload, places)

    def wait(self, within_s: float) -> None:
        """Until everything is acknowledged."""
        until_s = time.monotonic() + within_s
        while self._under_way or self._again:
            self._send_again()
            if time.monotonic() > until_s:
                raise Unexpected(f"the broker did not acknowledge {len(self._under_way)} messages")
            time.sleep(0.02)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


class Works:
    """Everything, from the broker to the store. A context manager: our processes end with it."""

    def __init__(
        self,
        name: str,
        folder: Path,
        store_url: str,
        broker: Mosquitto,
        log: Kafka,
        *,
        partitions: int = 4,
        workers: int = 2,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.store_url, self.broker, self.log = store_url, broker, log
        self.topics = (f"{name}.reports", f"{name}.backfill")
        self._groups = dict(zip(self.topics, (name, f"{name}.backfill"), strict=True))
        self.parts: set[Part] = {(topic, n) for topic in self.topics for n in range(partitions)}
        for topic in self.topics:
            log.create_topic(topic, partitions)
        self.environment = {
            "WIDEROW_STORE_URL": store_url,
            "WIDEROW_STORE_LEASE_S": "10",
            "WIDEROW_KAFKA_BROKERS": log.address,
            "WIDEROW_KAFKA_TOPIC": self.topics[0],
            "WIDEROW_KAFKA_BACKFILL_TOPIC": self.topics[1],
            "WIDEROW_KAFKA_GROUP": name,
            "WIDEROW_KAFKA_SESSION_TIMEOUT_S": "6",
            "WIDEROW_BACKFILL_AFTER_S": "7200",
            "WIDEROW_MQTT_URL": broker.url(None),
            "WIDEROW_MQTT_USERNAME": USER,
            "WIDEROW_MQTT_PASSWORD": PASSWORD,
            "WIDEROW_MQTT_CLIENT_ID": f"{name}-gateway",
            "WIDEROW_MQTT_GROUP": name,
            "WIDEROW_ROLLUP_SHARE_S": "2",
            "WIDEROW_ROLLUP_LATENESS_S": "1",
            "WIDEROW_ROLLUP_SETTLE_S": "1",
            **(settings or {}),
        }
        with self.service() as service:
            service.create_tenant(Tenant(name=TENANT))
            self._token, _ = service.catalog.tokens.create(Role.OPERATOR)
        self.gateway = Process("gateway", ["gateway"], self.environment, folder)
        self.workers = [Process(f"worker-{n}", ["worker"], self.environment, folder) for n in range(workers)]

    def __enter__(self) -> Self:
        for process in (self.gateway, *self.workers):
            process.token = self._token
        self.gateway.start(wait=False)
        for worker in self.workers:
            worker.start(wait=False)
        try:
            for process in (self.gateway, *self.workers):
                process.wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in (self.gateway, *self.workers):
            process.kill()

    def another_worker(self, folder: Path) -> Process:
        worker = Process(f"worker-{len(self.workers)}", ["worker"], self.environment, folder)
        worker.token = self._token
        self.workers.append(worker)
        worker.start(wait=False)
        return worker

    def service(self) -> Service:
        """The store, for reading."""
        return Service.open(Config(store=Store(url=self.store_url)), writes=False)

    def lag(self) -> float:
        """Messages that the workers which run have not committed."""
        return sum(worker.metric("widerow_kafka_lag") for worker in self.workers if worker.runs())

    def uncommitted(self, parts: Iterable[Part]) -> int:
        """Messages of some partitions that no worker has said it is done with, by Kafka's word: they come (again)."""
        parts, until_s = list(parts), time.monotonic() + _ASK_S
        while True:
            try:
                return sum(self._uncommitted(topic, [n for of, n in parts if of == topic]) for topic in self.topics)
            except KafkaException:  # it was restarted a moment ago
                if time.monotonic() > until_s:
                    raise
                time.sleep(0.1)

    def _uncommitted(self, topic: str, numbers: Sequence[int]) -> int:
        settings = {"bootstrap.servers": self.log.address, "group.id": self._groups[topic], "enable.auto.commit": False}
        left = 0
        with closing(Consumer(settings)) as consumer:  # which takes nothing, and so joins no group
            asked = [TopicPartition(topic, n) for n in numbers]
            for told in consumer.committed(asked, timeout=_ASK_S) if asked else ():
                if told.error is not None:
                    raise KafkaException(told.error)
                low, high = consumer.get_watermark_offsets(TopicPartition(topic, told.partition), timeout=_ASK_S)
                left += high - (told.offset if told.offset >= 0 else low)
        return left

    def found(self, service: Service, devices: Iterable[str], span: TimeSpan) -> dict[Place, Values]:
        """What the store has."""
        tenant = service.catalog.tenants.get(TENANT)
        found: dict[Place, list[float | None]] = {}
        for rows in service.telemetry.read_many(tenant, list(devices), span, metrics=METRICS):
            device, event_us, cells = rows.keys["device_id"], rows.keys["event_us"], rows.cells
            assert isinstance(device, Coded)
            places = list(zip(device.to_list(), np.asarray(event_us).tolist(), strict=True))
            metric = [METRICS.index(name) for name in cells.names.to_list()]
            number = (cells.kind == CellKind.NUMBER).nonzero()[0]
            columns = (cells.rows()[number], cells.name[number], cells.number[number])
            for row, name, value in zip(*(column.tolist() for column in columns), strict=True):
                values = found.setdefault(places[row], [None] * len(METRICS))
                assert values[metric[name]] is None, f"{places[row]} is there twice"
                values[metric[name]] = value
        return {place: tuple(values) for place, values in found.items()}

    def wait_for(self, sent: Sent, span: TimeSpan, within_s: float = 180.0) -> None:
        """Until everything that was acknowledged is in the store; then nothing there may be wrong."""
        devices = sorted({device for device, _ in sent.values})
        until_s = time.monotonic() + within_s
        with self.service() as service:
            late = devices
            while True:
                of_late = set(late)
                found = self.found(service, late, span)
                missing = {place for place in sent.acknowledged if place[0] in of_late} - found.keys()
                late = sorted({device for device, _ in missing})
                if not late:
                    break
                if time.monotonic() > until_s:
                    raise Unexpected(f"{len(missing):,} acknowledged reports are not in the store after {within_s:g} s")
                time.sleep(1.0)
            if len(of_late) < len(devices):
                found = self.found(service, devices, span)
        if wrong := sent.wrong(found):
            raise Unexpected(f"{len(wrong)} wrong:\n" + "\n".join(wrong[:20]))

    def wait_until_rolled(self, before_us: int, within_s: float = 180.0) -> None:
        """Until nothing is marked in hours that begin before a time, of devices or of the fleet."""
        until_s = time.monotonic() + within_s
        with self.service() as service:
            while True:
                marked = marked_in_store(service.engine)
                left = [unit for level in ("hour", "fleet") for unit in marked[level] if unit.start_us < before_us]
                left += [unit for unit in marked["day"] if unit.start_us + DAY <= before_us]
                if not left:
                    return
                if time.monotonic() > until_s:
                    raise Unexpected(f"{len(left)} windows are not rolled after {within_s:g} s: {left[:5]}")
                time.sleep(1.0)

    def verify(self, sent: Sent, span: TimeSpan) -> int:
        """Every rollup is what a computation from raw reports says, the fleet's too, and there are as many as the reports
        that were sent must have; gives how many were looked at.
        """
        with self.service() as service:
            tenant = service.catalog.tenants.get(TENANT)
            devices = [device.name for device in service.catalog.devices.list(TENANT).devices]
            pyramid = service.pyramid
            days = range(span.start_us - span.start_us % DAY, span.stop_us, DAY)
            parts = [pyramid.verifier.check(tenant, devices, day_us) for day_us in days]
            parts.append(pyramid.fleet_verifier.check(tenant, span))
        wrong = [finding for part in parts for finding in part.findings]
        if wrong:
            raise Unexpected(f"{len(wrong)} rollups are wrong: {wrong[:10]}")
        checked: Counter[str] = Counter()
        for part in parts:
            checked.update(part.checked)
        hours = sent.windows(HOUR)
        least = {
            MINUTES.name: len(sent.windows(MINUTE)) * len(METRICS),
            HOURS.name: len(hours) * len(METRICS),
            FLEET.name: len({hour_us for _, hour_us in hours}) * len(METRICS),
        }
        if any(checked[level] < number for level, number in least.items()):
            raise Unexpected(f"verified were {dict(checked)}, and there must be {least}")
        return checked.total()

    def count(self, sent: Sent, span: TimeSpan) -> int:
        """What is counted of each device and hour is what was sent, each report once however often it came; so is what a
        tenant is told. Gives how many reports that is.
        """
        reports: Counter[Place] = Counter()
        values: Counter[Place] = Counter()
        with self.service() as service:
            tenant = service.catalog.tenants.get(TENANT)
            hours = range(span.start_us, span.stop_us, HOUR)
            for hour_us, shard in ((hour_us, shard) for hour_us in hours for shard in range(SHARDS)):
                for stored in service.pyramid.counts.of_shard(tenant, HOURS, hour_us, shard):
                    for k, device in enumerate(stored.device.to_list()):
                        reports[device, hour_us] += int(stored.reports[k])
                        values[device, hour_us] += int(stored.sizes[k, SIZE_NAMES.index("values")])
        right = sent.windows(HOUR)
        both = reports.keys() | right.keys()
        wrong = [f"{at}: {reports[at]} reports, not {right[at]}" for at in both if reports[at] != right[at]]
        wrong += [f"{at}: {values[at]} values" for at in both if values[at] != right[at] * len(METRICS)]
        asked = f"/v1/usage?tenant={TENANT}&start={span.start_us // 1000}&end={span.stop_us // 1000}"
        told = json.loads(self.gateway.get(asked)[1])
        if told["total"]["stored_reports"] != len(sent.values):
            wrong.append(f"the tenant is told of {told['total']['stored_reports']} reports")
        if wrong:
            raise Unexpected(f"{len(sent.values)} reports were sent, and {len(wrong)} counts are wrong: {wrong[:10]}")
        return reports.total()


def past(hours: int) -> TimeSpan:
    """So many whole hours before this one."""
    now_us = SystemClock().now_us()
    return TimeSpan(now_us - now_us % HOUR - hours * HOUR, now_us - now_us % HOUR)
