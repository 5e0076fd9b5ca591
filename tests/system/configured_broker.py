"""A broker with the files that `widerow mqtt config` wrote, and clients of it that wait for their answers."""

from __future__ import annotations

import csv
import os
import signal
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions
from typer.testing import CliRunner

from servers.mosquitto import Mosquitto
from widerow.cli.commands import app
from widerow.config import Mqtt
from widerow.ingest.mqtt.topics import Template

WITHIN_S = 10.0
TELEMETRY, STATUS, ERRORS = Mqtt().telemetry_topic, Mqtt().status_topic, Mqtt().errors_topic
BACKFILL = Mqtt().backfill_topic
EVERY_REPORT, EVERY_BACKLOG = Template("t", TELEMETRY).filter(), Template("t", BACKFILL).filter()


def widerow(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stderr


class Configured:
    """A broker with the files that the command wrote, and their credentials."""

    def __init__(self, store: str, folder: Path, *options: str, tls: ssl.SSLContext | None = None) -> None:
        self.folder, self.store, self._options = folder, store, options
        self.change: Callable[[str], str] = lambda text: text
        self.tls = tls
        self.broker = Mosquitto(configuration=self._configuration, tls=tls)

    def write(self, *more: str) -> str:
        where = ["--store", self.store, "--out", str(self.folder), "--data", str(self.broker.folder)]
        return widerow("mqtt", "config", *where, "--port", str(self.broker.port), *self._options, *more)

    def _configuration(self, _broker: Mosquitto) -> str:
        if not (self.folder / "mosquitto.conf").exists():
            self.write()
        text = (self.folder / "mosquitto.conf").read_text()
        # It is root who runs the tests in some places; mosquitto would become a user who may not read their folders.
        return self.change(text) + ("user root\n" if os.geteuid() == 0 else "")

    def reload(self) -> None:
        self.broker._signal(signal.SIGHUP)

    def password(self, user: str) -> str:
        with (self.folder / "credentials.csv").open() as file:
            return {row["user"]: row["password"] for row in csv.DictReader(file)}[user]

    def gateway(self) -> dict[str, str]:
        lines = (self.folder / "gateway.env").read_text().splitlines()
        return dict(line.removeprefix("WIDEROW_MQTT_").split("=", 1) for line in lines if not line.startswith("#"))

    @contextmanager
    def client(
        self, user: str | None, password: str | None = None, *, name: str = "", keeps: bool = False
    ) -> Iterator[Client]:
        client = Client(self, user, password or (self.password(user) if user else None), name, keeps=keeps)
        try:
            yield client
        finally:
            client.close()

    @contextmanager
    def reader(self, *, keeps: bool = True) -> Iterator[Client]:
        """The gateway, as its environment tells it to be. It subscribes each time: the broker forgets when it restarts."""
        its = self.gateway()
        with self.client(its["USERNAME"], its["PASSWORD"], name=its["CLIENT_ID"], keeps=keeps) as client:
            client.subscribe(f"$share/{its['GROUP']}/{EVERY_REPORT}")
            yield client

    @contextmanager
    def backlog_reader(self) -> Iterator[Client]:
        """Its second session."""
        its = self.gateway()
        with self.client(its["USERNAME"], its["PASSWORD"], name=f"{its['CLIENT_ID']}-backfill") as client:
            client.subscribe(f"$share/{its['GROUP']}/{EVERY_BACKLOG}")
            yield client


class Client:
    """A plain MQTT 5 client that waits for its answers."""

    def __init__(self, at: Configured, user: str | None, password: str | None, name: str, *, keeps: bool) -> None:
        self.got: list[tuple[str, bytes]] = []
        self._acks: dict[int, str] = {}
        self._heard = threading.Condition()
        self.refused: str | None = None
        self._up = False
        self.resumed = False
        self._client = paho.Client(CallbackAPIVersion.VERSION2, name, protocol=paho.MQTTv5, reconnect_on_failure=False)
        if user is not None:
            self._client.username_pw_set(user, password)
        if at.tls is not None:
            self._client.tls_set_context(at.tls)
        self._client.on_connect = self._connected
        self._client.on_message = self._message
        self._client.on_publish = self._acknowledged
        self._client.on_subscribe = self._acknowledged
        lasting = Properties(PacketTypes.CONNECT)
        lasting.SessionExpiryInterval = 600 if keeps else 0
        host = "localhost" if at.tls else at.broker.host
        self._client.connect(host, at.broker.port, clean_start=not keeps, properties=lasting)
        self._client.loop_start()
        self.wait(lambda: self._up or self.refused is not None)

    def wait(self, until: Callable[[], bool], within_s: float = WITHIN_S) -> None:
        with self._heard:
            assert self._heard.wait_for(until, within_s), f"nothing for {within_s:g} s"

    def _tell(self, change: Callable[[], Any]) -> None:
        with self._heard:
            change()
            self._heard.notify_all()

    def _connected(self, _client: Any, _data: Any, flags: Any, reason: Any, _properties: Any) -> None:
        def change() -> None:
            self._up, self.resumed = not reason.is_failure, flags.session_present
            self.refused = str(reason) if reason.is_failure else None

        self._tell(change)

    def _message(self, _client: Any, _data: Any, message: Any) -> None:
        self._tell(lambda: self.got.append((message.topic, message.payload)))

    def _acknowledged(self, _client: Any, _data: Any, number: int, reason: Any, _properties: Any) -> None:
        said = str(reason[0] if isinstance(reason, list) else reason)
        self._tell(lambda: self._acks.__setitem__(number, said))

    def publish(self, topic: str, *payloads: bytes) -> list[str]:
        """What the broker says about each."""
        numbers = [self._client.publish(topic, payload, qos=1).mid for payload in payloads]
        self.wait(lambda: all(number in self._acks for number in numbers))
        return [self._acks[number] for number in numbers]

    def subscribe(self, topic_filter: str) -> str:
        _, number = self._client.subscribe(topic_filter, options=SubscribeOptions(qos=1))
        assert number is not None
        self.wait(lambda: number in self._acks)
        return self._acks[number]

    def payloads(self, count: int) -> list[bytes]:
        """The first so many that come."""
        self.wait(lambda: len(self.got) >= count)
        return [payload for _, payload in self.got]

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()
        self._client._sock_close()  # it leaves one open when it was refused
