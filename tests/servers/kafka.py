"""Apache Kafka, started from its jars: one node that is broker and controller (KRaft).

Rule 1: the configuration is written here, whole; `settings` adds to it or replaces parts of it, by Kafka's own names.
Rule 2: it is light (512 MiB of heap) and quick: one replica of everything, groups that begin at once, topics made only by
who says so (`create_topic`). Otherwise it is what Kafka does by default.
Rule 3: it answers once the page cache has a message (`acks=all` of one replica): killing the process loses nothing that was
answered, losing the machine may. It starts again on the same ports with the same topics and offsets.
"""

from __future__ import annotations

import socket
import struct
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from .cache import Say, say
from .process import Failed, Server, free_ports
from .toolchain import java, maven_jars

VERSION: Final = "4.1.2"
LOGGING: Final = "org.slf4j:slf4j-simple:1.7.36"
"""Kafka's jars speak to slf4j 1.7 and bring nobody who listens. This one prints to standard error, and starts quickly."""
QUICK: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Only the quick compiler, one collector thread: a second less to start. Where speed is measured, give none."""

_CLUSTER: Final = "d2lkZXJvdy10ZXN0cw"
"""Which cluster its folder belongs to: Kafka wants 16 bytes in base64, and does not care which."""
_API_VERSIONS: Final = struct.pack(">hhih", 18, 0, 7, -1)
"""Request 18, version 0, number 7, of a client without a name: what versions of which requests do you know?"""
_FORMAT_S: Final = 60.0
_ASK_S: Final = 30.0


def fetch(tell: Say = say) -> Path:
    """The folder of its jars, fetched if it must be. Raises Missing."""
    java()
    return maven_jars("org.apache.kafka", "kafka_2.13", VERSION, LOGGING, tell=tell)


class Kafka(Server):
    """One node. `address` is what clients call `bootstrap.servers`."""

    name: ClassVar = "kafka"
    version: ClassVar = VERSION
    start_within_s: ClassVar = 60.0
    stop_within_s: ClassVar = 30.0

    def __init__(
        self,
        *,
        heap_mib: int = 512,
        java_options: Sequence[str] = QUICK,
        settings: Mapping[str, str | int] | None = None,
    ) -> None:
        """On free ports. Raises Missing."""
        self._jars, self._java = fetch(), java()
        super().__init__()
        self.host = "127.0.0.1"
        self.port, self._controller_port = free_ports(2)
        self._java_options = [f"-Xms{heap_mib // 2}M", f"-Xmx{heap_mib}M", *java_options]
        self._settings = self._configuration() | dict(settings or {})

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    # -- topics

    def create_topic(self, name: str, partitions: int = 1, **settings: str | int) -> None:
        """`settings` are the topic's own, with underscores for dots: `retention_ms=1000`. Returns when it can be used."""
        named = {key.replace("_", "."): str(value) for key, value in settings.items()}
        admin = self._admin()
        admin.create_topics([NewTopic(name, partitions, 1, config=named)])[name].result(_ASK_S)
        self._settled(admin, name, partitions)

    def add_partitions(self, name: str, partitions: int) -> None:
        """So that it has that many."""
        admin = self._admin()
        admin.create_partitions([NewPartitions(name, partitions)])[name].result(_ASK_S)
        self._settled(admin, name, partitions)

    def delete_topic(self, name: str) -> None:
        admin = self._admin()
        admin.delete_topics([name])[name].result(_ASK_S)
        self._settled(admin, name, 0)

    def topics(self) -> dict[str, int]:
        """How many partitions each has; Kafka's own topics are left out."""
        found = self._admin().list_topics(timeout=_ASK_S).topics
        return {name: len(topic.partitions) for name, topic in found.items() if not name.startswith("__")}

    def _settled(self, admin: AdminClient, name: str, partitions: int) -> None:
        """The controller has answered; wait until the broker, which clients ask, knows that many with a leader."""
        deadline_s = time.monotonic() + _ASK_S
        while True:
            topic = admin.list_topics(timeout=_ASK_S).topics.get(name)
            led = [part for part in topic.partitions.values() if part.leader >= 0] if topic is not None else []
            if len(led) == partitions:
                return
            if time.monotonic() >= deadline_s:
                raise Failed(f"kafka knows {len(led)} of {partitions} partitions of {name} after {_ASK_S:g} s")
            time.sleep(0.01)

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.address})

    # -- the process

    def command(self) -> Sequence[str]:
        properties = self.folder / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in self._settings.items()))
        if not (self.folder / "data/meta.properties").exists():
            self._format(properties)
        return [
            *self._program(),
            *self._java_options,
            "-XX:+ExitOnOutOfMemoryError",
            f"-XX:ErrorFile={self.folder}/hs_err.log",
            f"-Djava.io.tmpdir={self.folder}",
            "-Djava.awt.headless=true",
            "kafka.Kafka",
            str(properties),
        ]

    def _format(self, properties: Path) -> None:
        """Kafka starts on no folder that was not made for it."""
        tool = [*self._program(), *QUICK, "kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(properties)]
        done = subprocess.run(tool, capture_output=True, text=True, check=False, timeout=_FORMAT_S)
        if done.returncode:
            raise Failed(f"kafka's folder could not be made:\n{done.stdout}{done.stderr}")

    def _program(self) -> list[str]:
        return [
            self._java,
            "-XX:-UsePerfData",  # else a file per process in /tmp
            "-Djava.net.preferIPv4Stack=true",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
            "-cp",
            f"{self._jars}/*",
        ]

    def answers(self) -> bool:
        """It says what it supports, which it does once it takes messages."""
        with socket.create_connection((self.host, self.port), timeout=2) as connection:
            connection.sendall(struct.pack(">i", len(_API_VERSIONS)) + _API_VERSIONS)
            head = connection.recv(10)
        return len(head) == 10 and struct.unpack(">iih", head)[1:] == (7, 0)

    def _configuration(self) -> dict[str, str | int]:
        controller = f"{self.host}:{self._controller_port}"
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://{controller}",
            "log.dirs": f"{self.folder}/data",
            "auto.create.topics.enable": "false",
            "broker.session.timeout.ms": 5000,  # how long one that was killed keeps its next life waiting; of 9 s
            "broker.heartbeat.interval.ms": 500,
            "group.initial.rebalance.delay.ms": 0,
            "group.min.session.timeout.ms": 1000,
            "offsets.topic.num.partitions": 1,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "share.coordinator.state.topic.num.partitions": 1,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "num.network.threads": 2,
            "num.io.threads": 4,
            "log.cleaner.dedupe.buffer.size": 16 << 20,  # of 128 MiB, which is a quarter of the heap
        }
