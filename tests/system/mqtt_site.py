"""A service on an embedded store with an MQTT gateway in front, and devices that speak to it through a real broker."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from paho.mqtt.client import Client as Paho
from paho.mqtt.client import MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from servers.mosquitto import PASSWORD, USER, Mosquitto
from system.conftest import config_at
from widerow.catalog.online import Status
from widerow.config import Backfill, Mqtt
from widerow.ingest.mqtt.gateway import Gateway
from widerow.model.errors import NotFound
from widerow.model.tenant import Tenant
from widerow.model.times import MINUTE, TimeSpan
from widerow.service import Service


@dataclass
class MqttSite:
    """`prefix` begins the topics of this site alone, so that sites share a broker."""

    broker: Mosquitto
    service: Service
    config: Mqtt
    prefix: str
    without_backlog: bool = False
    """It is not waited for, since the broker does not let it in."""
    statuses: list[tuple[str, str, bool]] = field(default_factory=list)
    gateway: Gateway = field(init=False)

    def start(self) -> None:
        self.gateway = Gateway(
            self.config,
            pipeline=self.service.pipeline,
            tenants=self.service.catalog.tenants,
            clock=self.service.clock,
            counters=self.service.counters,
            dead_letter=self.service.dead_letters.file,
            online=self._told,
        )
        self.gateway.start()
        assert self.gateway.client.wait_connected(20), self.gateway.trouble()
        if (backlog := self.gateway.backlog) and not self.without_backlog:
            assert backlog.client.wait_connected(20), backlog.client.trouble

    def _told(self, statuses: Sequence[Status]) -> None:
        self.service.catalog.online.tell(statuses)
        self.statuses += [(said.tenant, said.device, said.online) for said in statuses]

    def topic(self, device: str, kind: str = "telemetry", tenant: str = "acme") -> str:
        return f"{self.prefix}/{tenant}/{device}/{kind}"

    def stored(self, device: str, tenant: str = "acme", *, back_us: int = 10 * MINUTE) -> list[float]:
        """The values of a device in the last ten minutes, by time."""
        now_us = self.service.clock.now_us()
        span = TimeSpan(now_us - back_us, now_us + MINUTE)
        try:
            found = self.service.queries.series(self.service.catalog.tenants.get(tenant), device, span=span, limit=100_000)
        except NotFound:
            return []
        return [float(number) for number in found.points.number]

    def received(self, kind: str) -> float:
        return float(self.service.counters.registry.get_sample_value("widerow_mqtt_messages_total", {"kind": kind}) or 0)

    def refused(self, code: str) -> float:
        return float(self.service.counters.registry.get_sample_value("widerow_mqtt_refused_total", {"code": code}) or 0)


@contextmanager
def mqtt_site(
    broker: Mosquitto, folder: Path, *, without_backlog: bool = False, backfill_mib: int = 64, **settings: Any
) -> Iterator[MqttSite]:
    prefix = f"t{uuid4().hex[:8]}"
    kinds = ("telemetry", "backfill", "status", "errors")
    topics: Any = {f"{kind}_topic": f"{prefix}/{{tenant}}/{{device}}/{kind}" for kind in kinds}
    given: Any = {"group": prefix, "session_expiry_s": 600, **topics, **settings}
    config = replace(Mqtt(), url=broker.url(), client_id=prefix, **given)
    service_config = replace(config_at(folder), backfill=replace(Backfill(), max_in_flight_mib=backfill_mib))
    with Service.open(service_config) as service:
        service.catalog.tenants.create(Tenant(name="acme"))
        site = MqttSite(broker, service, config, prefix, without_backlog)
        site.start()
        try:
            yield site
        finally:
            site.gateway.stop(5)


class Device:
    """A device as people write them: paho, MQTT 5, quality of service 1."""

    def __init__(self, broker: Mosquitto, *, listens: str = "", user: str = USER, password: str = PASSWORD) -> None:
        self.messages: list[tuple[str, dict[str, Any]]] = []
        self.answers: list[int] = []
        """The reason code of each PUBACK."""
        self._ready = threading.Event()
        self._client = Paho(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
        self._client.username_pw_set(user, password)
        self._client.on_message = self._heard
        self._client.on_publish = lambda _client, _data, _mid, code, _properties: self.answers.append(code.value)
        self._client.on_subscribe = lambda *_: self._ready.set()
        self._client.connect(broker.host, broker.port)
        self._client.loop_start()
        eventually(self._client.is_connected)  # a user that was just added is perhaps not known yet
        if listens:
            self._client.subscribe(listens, qos=1)
            assert self._ready.wait(10)

    def _heard(self, _client: Any, _data: Any, message: MQTTMessage) -> None:
        self.messages.append((message.topic, json.loads(message.payload)))

    def publish(self, topic: str, payload: Any, *, retain: bool = False) -> None:
        """Returns when the broker has it."""
        self.send(topic, payload, retain=retain).wait_for_publish(20)

    def send(self, topic: str, payload: Any, *, retain: bool = False) -> Any:
        body = payload if isinstance(payload, (bytes, str)) else json.dumps(payload)
        return self._client.publish(topic, body, qos=1, retain=retain)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def eventually(holds: Callable[[], Any], within_s: float = 20.0) -> None:
    """Wait until it holds; the last look is what a failure shows."""
    until_s = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < until_s, f"still not so after {within_s:g} s"
        time.sleep(0.02)
