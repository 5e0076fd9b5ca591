"""The whole pipeline as processes: broker, gateway, Kafka, workers, store; and devices with a ledger of what they sent.

Rule 1: what a device was told is the broker's word. A report is *acknowledged* when the broker took its message (PUBACK).
Rule 2: only processes that were started here are signalled, by their ids.
Rule 3: each works has topics, a consumer group and a tenant of its own; servers may be shared.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.error import HTTPError

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from servers.kafka import Kafka
from servers.mosquitto import PASSWORD, USER, Mosquitto
from widerow.config import Config, Store
from widerow.model.batch import CellKind
from widerow.model.names import Coded
from widerow.model.tenant import Tenant
from widerow.model.times import DAY, HOUR, SystemClock, TimeSpan
from widerow.model.token import Role
from widerow.rollup.guard import marked_in_store
from widerow.service import Service

TENANT = "acme"
METRICS = ("temp", "flow")
_START_S = 120.0
_NOBODY = 16
"""What a broker says of a message that it has no subscriber for (MQTT 5, "no matching subscribers")."""
_READY = re.compile(r"^widerow \S+ .* at (http://\S+)$", re.MULTILINE)


class Unexpected(AssertionError):
    """Something did what it should not."""


class Process:
    """One of ours: `widerow gateway`, `worker`, ...; started again and again."""

    def __init__(self, name: str, arguments: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
        self.name, self._arguments, self._environment = name, list(arguments), dict(environment)
        self._log = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._from = 0
        self.url = self.token = ""

    def start(self, *, wait: bool = True) -> None:
        assert self._process is None, "it runs already"
        self._from = self._log.stat().st_size if self._log.exists() else 0
        own = {name: value for name, value in os.environ.items() if not name.startswith("WIDEROW_")}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "widerow.cli.main", *self._arguments, "--port", "0"],
                stdout=log,
                stderr=log,
                env=own | self._environment,
            )
        if wait:
            self.wait()

    def wait(self) -> None:
        """Until it says that it is there."""
        until_s = time.monotonic() + _START_S
        while time.monotonic() < until_s:
            if found := _READY.search(self.log()):
                self.url = found[1]
                return
            if self._process is None or self._process.poll() is not None:
                break
            time.sleep(0.05)
        raise Unexpected(f"{self.name} did not start:\n{self.log()[-3000:]}")

    def log(self) -> str:
        """What it said since it was started last."""
        with self._log.open("rb") as log:
            log.seek(self._from)
            return log.read().decode(errors="replace")

    def whole_log(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Without a chance to do anything."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self, within_s: float = 40.0) -> None:
        """In order."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise Unexpected(
                f"{self.name} still runs {within_s:g} s after it was told to stop:\n{self.log()[-3000:]}"
            ) from None
        self._process = None
        if code:
            raise Unexpected(f"{self.name} ended with {code}:\n{self.log()[-3000:]}")

    def get(self, path: str) -> tuple[int, str]:
        request = urllib.request.Request(self.url + path, headers={"Authorization": f"Bearer {self.token}"})
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            return error.code, error.read().decode()

    def post(self, path: str, form: Mapping[str, Any]) -> Any:
        request = urllib.request.Request(
            self.url + path,
            json.dumps(form).encode(),
            {"Content-Type": "application/json", "Authorization": f"Bearer {self.token}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except HTTPError as error:
            raise Unexpected(f"{path}: {error.code} {error.read().decode()}") from None

    def metric(self, name: str) -> float:
        """The sum over its labels."""
        status, text = self.get("/metrics")
        if status != 200 or f"# TYPE {name.removesuffix('_total')}" not in text:
            raise Unexpected(f"{self.name} has no metric {name}: {status} {text[:200]}")
        found = re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", text, re.MULTILINE)
        return sum(map(float, found))

    def resident_mib(self) -> float:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise Unexpected("no VmRSS")


@dataclass
class Sent:
    """What devices sent: (device, time) -> value of the first metric; and what of it the broker acknowledged."""

    values: dict[tuple[str, int], float] = field(default_factory=dict)
    acknowledged: set[tuple[str, int]] = field(default_factory=set)

    def wrong(self, found: Mapping[tuple[str, int], float]) -> list[str]:
        lost = [f"lost: {place}" for place in self.acknowledged if place not in found]
        invented = [f"invented: {place}" for place in found if place not in self.values]
        changed = [f"changed: {place}" for place, value in found.items() if self.values.get(place, value) != value]
        return lost + invented + changed


class Devices:
    """Devices behind one connection to the broker, by a plain client. It connects again by itself."""

    def __init__(self, broker: Mosquitto, sent: Sent, *, topic: str = "widerow/v1/{tenant}/{device}/telemetry") -> None:
        self._sent, self._topic = sent, topic
        self._lock = threading.Lock()
        self._under_way: dict[int, list[tuple[str, int]]] = {}
        self._early: dict[int, bool] = {}
        self._messages: dict[int, tuple[str, str | bytes]] = {}
        self._again: list[tuple[str, str | bytes, list[tuple[str, int]]]] = []
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
            self._sent.values[place] = report["values"][METRICS[0]]
        topic = self._topic.format(tenant=tenant, device=device)
        self._publish(topic, json.dumps(reports), places)

    def publish(self, topic: str, payload: bytes) -> None:
        """Anything, to anywhere."""
        self._room.acquire()
        self._publish(topic, payload, [])

    def _publish(self, topic: str, payload: str | bytes, places: list[tuple[str, int]]) -> None:
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
        worker.start()
        return worker

    def service(self) -> Service:
        """The store, for reading."""
        return Service.open(Config(store=Store(url=self.store_url)), writes=False)

    def lag(self) -> float:
        """Messages that the workers which run have not committed."""
        return sum(worker.metric("widerow_kafka_lag") for worker in self.workers if worker.runs())

    def found(self, service: Service, devices: Iterable[str], span: TimeSpan) -> dict[tuple[str, int], float]:
        """What the store has: (device, time) -> value of the first metric."""
        tenant = service.catalog.tenants.get(TENANT)
        found: dict[tuple[str, int], float] = {}
        for rows in service.telemetry.read_many(tenant, list(devices), span, metrics=METRICS[:1]):
            device, time_us, cells = rows.keys["device_id"], rows.keys["event_us"], rows.cells
            assert isinstance(device, Coded)
            row = cells.rows()
            for c in range(len(cells)):
                if cells.kind[c] == CellKind.NUMBER:
                    place = (device[int(row[c])], int(time_us[int(row[c])]))
                    assert place not in found, f"{place} is there twice"
                    found[place] = float(cells.number[c])
        return found

    def wait_for(self, sent: Sent, span: TimeSpan, within_s: float = 180.0) -> None:
        """Until everything that was acknowledged is in the store; then nothing there may be wrong."""
        devices = sorted({device for device, _ in sent.values})
        until_s = time.monotonic() + within_s
        with self.service() as service:
            while True:
                found = self.found(service, devices, span)
                missing = len(sent.acknowledged - found.keys())
                if not missing:
                    break
                if time.monotonic() > until_s:
                    raise Unexpected(f"{missing:,} acknowledged reports are not in the store after {within_s:g} s")
                time.sleep(1.0)
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

    def verify(self, span: TimeSpan) -> int:
        """Every rollup is what a computation from raw reports says, the fleet's too; gives how many were looked at."""
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
        return sum(sum(part.checked.values()) for part in parts)


def past(hours: int) -> TimeSpan:
    """So many whole hours before this one."""
    now_us = SystemClock().now_us()
    return TimeSpan(now_us - now_us % HOUR - hours * HOUR, now_us - now_us % HOUR)
