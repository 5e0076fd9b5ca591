"""Apache Cassandra, started from its jars: one node. For a few together see cluster.py.

Rule 1: the configuration is written here, whole; `settings` adds to it or replaces parts of it, by Cassandra's own names.
Rule 2: it is light (1 GiB of heap) and quick to start (no waiting for gossip), and patient: a machine that stands still for
two seconds would fail requests otherwise. All else is what Cassandra does by default.
Rule 3: `commitlog_sync` is Cassandra's: periodic syncs every 10 s, so an answered write may be lost with the machine, though
not with the process; batch syncs before it answers.
"""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

from .cache import Say, say
from .process import Failed, Server, free_ports
from .toolchain import java, maven_jars

VERSION: Final = "5.0.9"
DATACENTER: Final = "datacenter1"
"""The only one SimpleSnitch knows."""
CommitlogSync = Literal["periodic", "batch"]
QUICK: Final = ("-XX:TieredStopAtLevel=1",)
"""Only the quick compiler, which takes 5 s off the processor time of a start. Where speed is measured, give none."""
FLEETING: Final = (*QUICK, "-Dcassandra.test.flush_local_schema_changes=false", "-Dcassandra.unsafesystem=true")
"""For a node that is never started again: tables are made without being written to disk one by one, which is a quarter of
the time of tests that make their own.
"""

_ROW_OVERHEAD_BYTES: Final = 181
"""Of a row in memory: what Cassandra finds by itself at every start, in 3 s."""
_TOOL_S: Final = 60.0
PATIENCE_S: Final = 60
"""For how long a request may take that is under way: a machine that is taken away for seconds is no failure."""
_TIMEOUTS: Final = (
    "read_request_timeout",
    "range_request_timeout",
    "write_request_timeout",
    "cas_contention_timeout",
    "request_timeout",
)
_OPTIONS_REQUEST: Final = bytes([4, 0, 0, 0, 5, 0, 0, 0, 0])
_SUPPORTED: Final = 6
_EXPORTS: Final = (
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/java.lang.ref",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.sql/java.sql",
    "jdk.unsupported/sun.misc",
)
_OPENS: Final = (
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.module",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.util.jar",
    "java.base/sun.nio.ch",
    "jdk.management/com.sun.management.internal",
)
_LOGBACK: Final = """\
<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%-5level %d{HH:mm:ss.SSS} %logger{0} - %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="out"/></root>
</configuration>
"""
_SILENT: Final = "<configuration/>"


def fetch(tell: Say = say) -> Path:
    """The folder of its jars, fetched if it must be. Raises Missing."""
    java()
    return maven_jars("org.apache.cassandra", "cassandra-all", VERSION, tell=tell)


class Cassandra(Server):
    """One node. `host` and `port` speak CQL."""

    name: ClassVar = "cassandra"
    version: ClassVar = VERSION
    start_within_s: ClassVar = 120.0
    stop_within_s: ClassVar = 30.0

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        ports: tuple[int, int] | None = None,
        seed: str | None = None,
        commitlog_sync: CommitlogSync = "periodic",
        heap_mib: int = 1024,
        java_options: Sequence[str] = QUICK,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """`ports` are those of CQL and of the nodes among themselves; free ones if not given. Raises Missing."""
        self._jars, self._java = fetch(), java()
        super().__init__()
        self.host = host
        self.port, self.storage_port = ports or free_ports(2, [host])
        self._seed = seed or host
        self._java_options = [f"-Xms{heap_mib // 4}M", f"-Xmx{heap_mib}M", *java_options]
        self._settings = self._configuration(commitlog_sync) | dict(settings or {})

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def store_url(self, keyspace: str = "widerow") -> str:
        return f"cassandra://{self.address}/{keyspace}?dc={DATACENTER}"

    def command(self) -> Sequence[str]:
        # JSON is YAML, and needs no library to write.
        (self.folder / "cassandra.yaml").write_text(json.dumps(self._settings, indent=1))
        (self.folder / "logback.xml").write_text(_LOGBACK)
        return [
            *self._program("logback.xml"),
            *self._java_options,
            "-XX:+ExitOnOutOfMemoryError",
            f"-XX:ErrorFile={self.folder}/hs_err.log",
            "-Xss512k",
            "-Djdk.attach.allowAttachSelf=true",
            f"-Djava.io.tmpdir={self.folder}",
            "-Dcassandra-foreground=yes",
            "-Dcassandra.skip_wait_for_gossip_to_settle=0",
            "-Dcassandra.ring_delay_ms=1000",
            "-Dcassandra.shutdown_announce_in_ms=100",
            f"-Dcassandra.memtable.row_overhead_size={_ROW_OVERHEAD_BYTES}",
            "-Djava.net.preferIPv4Stack=true",
            "org.apache.cassandra.service.CassandraDaemon",
        ]

    def tool(self, name: str, *arguments: str) -> str:
        """What one of Cassandra's own tools prints, such as SSTablePartitions. It looks at files, not at the process."""
        (self.folder / "silent.xml").write_text(_SILENT)
        program = [*self._program("silent.xml"), *QUICK, f"org.apache.cassandra.tools.{name}"]
        done = subprocess.run([*program, *arguments], capture_output=True, text=True, check=False, timeout=_TOOL_S)
        if done.returncode:
            raise Failed(f"{name} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def _program(self, logging: str) -> list[str]:
        """What all programs of Cassandra are started with, but for the name of the program."""
        return [
            self._java,
            "-XX:-UsePerfData",  # else a file per process in /tmp
            *(f"--add-exports={name}=ALL-UNNAMED" for name in _EXPORTS),
            *(f"--add-opens={name}=ALL-UNNAMED" for name in _OPENS),
            f"-Dlogback.configurationFile={self.folder}/{logging}",
            f"-Dcassandra.config=file://{self.folder}/cassandra.yaml",
            f"-Dcassandra.storagedir={self.folder}",
            "-cp",
            f"{self._jars}/*",
        ]

    def answers(self) -> bool:
        """It says what it supports, which it does once it takes queries."""
        with socket.create_connection((self.host, self.port), timeout=2) as connection:
            connection.sendall(_OPTIONS_REQUEST)
            head = connection.recv(9)
        return len(head) > 4 and head[4] == _SUPPORTED

    def _configuration(self, commitlog_sync: CommitlogSync) -> dict[str, Any]:
        return {
            "cluster_name": "widerow-tests",
            "num_tokens": 16,
            "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
            "endpoint_snitch": "SimpleSnitch",
            "seed_provider": [
                {
                    "class_name": "org.apache.cassandra.locator.SimpleSeedProvider",
                    "parameters": [{"seeds": f"{self._seed}:{self.storage_port}"}],
                }
            ],
            "auto_bootstrap": False,  # nodes start empty, all of them: there is nothing to stream
            "listen_address": self.host,
            "storage_port": self.storage_port,
            "rpc_address": self.host,
            "native_transport_port": self.port,
            "data_file_directories": [f"{self.folder}/data"],
            "commitlog_directory": f"{self.folder}/commitlog",
            "hints_directory": f"{self.folder}/hints",
            "saved_caches_directory": f"{self.folder}/saved_caches",
            "cdc_raw_directory": f"{self.folder}/cdc_raw",
            "commitlog_sync": commitlog_sync,
            **({"commitlog_sync_period": "10000ms"} if commitlog_sync == "periodic" else {}),
            "auto_snapshot": False,  # else dropping a table keeps its data
            **dict.fromkeys(_TIMEOUTS, f"{PATIENCE_S}s"),
        }
