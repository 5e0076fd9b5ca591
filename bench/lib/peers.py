"""Stores that take line protocol, Widerow among them: started on an empty folder, on loopback, and asked in their own words.

Rule 1: a store runs as its maker ships it. Only addresses, folders and what it would send home are set.
Rule 2: `values` counts the values of an answer, so that an answer of nothing is noticed.
"""

from __future__ import annotations

import json
import shutil
import urllib.request
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlencode

from bench.lib.api import counter, latest_many, series_path
from bench.lib.server import Server
from bench.lib.servers import RealServer, free_ports, java, maven_jars

import widerow
from widerow.model.times import MINUTE, format_time
from widerow.simulate.wire import Connection, Target

MEASUREMENT = "sensors"
"""Not `telemetry`: QuestDB has a table of its own by that name."""
MEAN_OF = "temp"
Question = tuple[str, str, bytes]
"""Method, path and body."""


class Widerow(Server):
    """`widerow serve` with its defaults."""

    version = widerow.__version__
    devices: list[str]
    write_path = "/write"

    def __init__(self) -> None:
        super().__init__(settings={"WIDEROW_BACKFILL_AFTER_S": "3600"})

    @property
    def data(self) -> Path:
        return self.path

    def prepare(self) -> None:
        """The tenant is there already."""

    def rows_stored(self) -> int:
        with self.connection(self.operator_token) as connection:
            return int(counter(connection, "widerow_reports_accepted_total"))

    def window(self, device: str, start_us: int, stop_us: int) -> Question:
        return "GET", series_path(device, [], start_us, stop_us), b""

    def latest(self) -> Question:
        return "POST", *latest_many(self.devices)

    def means(self, start_us: int, stop_us: int) -> Question:
        span = {"start": start_us // 1000, "end": stop_us // 1000, "step": "1m", "agg": "avg"}
        return "GET", f"/v1/fleet/series?{urlencode({'metrics': f'{MEASUREMENT}_{MEAN_OF}', **span})}", b""

    def values(self, body: bytes) -> int:
        return sum(len(series["points"]) for series in json.loads(body)["series"])


class Peer(RealServer):
    """A store of others."""

    start_within_s = 60.0
    stop_within_s = 60.0
    write_path: ClassVar[str] = "/write"
    ping: ClassVar[str] = "/ping"
    program: ClassVar[str] = ""
    """Must be installed."""
    write_token = ""
    devices: list[str]

    def __init__(self) -> None:
        super().__init__()
        (self.port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self.port}"
        self.data.mkdir()

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def answers(self) -> bool:
        self.get(self.ping)
        return True

    def connection(self) -> Connection:
        return Connection(Target.of(self.url), {}, timeout_s=120.0)

    def prepare(self) -> None:
        """Before the first line."""

    @abstractmethod
    def rows_stored(self) -> int:
        """How many reports can be asked for."""

    @abstractmethod
    def window(self, device: str, start_us: int, stop_us: int) -> Question:
        """Every value of a device in `[start_us, stop_us)`."""

    @abstractmethod
    def latest(self) -> Question:
        """The newest value of each metric of each device."""

    @abstractmethod
    def means(self, start_us: int, stop_us: int) -> Question:
        """The mean over all devices, minute by minute."""

    @abstractmethod
    def values(self, body: bytes) -> int:
        """How many values an answer holds."""

    def get(self, path: str) -> bytes:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=120) as answer:
            return bytes(answer.read())


class QuestDB(Peer):
    """QuestDB of Maven Central, on Java 17."""

    name = "questdb"
    version = "9.3.4"

    def command(self) -> Sequence[str]:
        jar = maven_jars("org.questdb", "questdb", self.version) / f"questdb-{self.version}.jar"
        return [java(), "-p", str(jar), "-m", "io.questdb/io.questdb.ServerMain", "-d", str(self.data)]

    def environment(self) -> dict[str, str]:
        closed = {f"QDB_{name}_ENABLED": "false" for name in ("PG", "LINE_TCP", "HTTP_MIN", "TELEMETRY")}
        return {"QDB_HTTP_BIND_TO": f"127.0.0.1:{self.port}", **closed}

    def rows_stored(self) -> int:
        return int(json.loads(self.get(_sql(f"select count() from {MEASUREMENT}")[1]))["dataset"][0][0])

    def window(self, device: str, start_us: int, stop_us: int) -> Question:
        return _sql(f"select * from {MEASUREMENT} where device = '{device}' and {_within(start_us, stop_us)}")

    def latest(self) -> Question:
        return _sql(f"select * from {MEASUREMENT} latest on timestamp partition by device")

    def means(self, start_us: int, stop_us: int) -> Question:
        return _sql(f"select timestamp, avg({MEAN_OF}) from {MEASUREMENT} where {_within(start_us, stop_us)} sample by 1m")

    def values(self, body: bytes) -> int:
        answer = json.loads(body)
        numbers = [k for k, column in enumerate(answer["columns"]) if column["type"] == "DOUBLE"]
        return sum(row[k] is not None for row in answer["dataset"] for k in numbers)


class VictoriaMetrics(Peer):
    """The single server of Debian's package `victoria-metrics`."""

    name = "victoria-metrics"
    version = "1.79.5"
    ping = "/health"
    program = "victoria-metrics"

    def command(self) -> Sequence[str]:
        return [_path_of(self.program), f"-storageDataPath={self.data}", f"-httpListenAddr=127.0.0.1:{self.port}"]

    def rows_stored(self) -> int:
        self.get("/internal/force_flush")
        counted = f"sum(count_over_time({MEASUREMENT}_{MEAN_OF}[2h]))"
        found = json.loads(self.get(f"/api/v1/query?{urlencode({'query': counted, 'nocache': 1})}"))["data"]["result"]
        return int(found[0]["value"][1]) if found else 0

    def window(self, device: str, start_us: int, stop_us: int) -> Question:
        span = {"start": start_us / 1e6, "end": (stop_us - 1000) / 1e6}
        chosen = {"match[]": f'{{device="{device}"}}'}
        return "GET", f"/api/v1/export?{urlencode({**chosen, **span})}", b""

    def latest(self) -> Question:
        newest = f'last_over_time({{__name__=~"{MEASUREMENT}_.*"}}[2h])'
        return "GET", f"/api/v1/query?{urlencode({'query': newest, 'nocache': 1})}", b""

    def means(self, start_us: int, stop_us: int) -> Question:
        mean = f"avg(avg_over_time({MEASUREMENT}_{MEAN_OF}[1m]))"
        span = {"start": (start_us + MINUTE) / 1e6, "end": stop_us / 1e6, "step": "1m", "nocache": 1}
        return "GET", f"/api/v1/query_range?{urlencode({'query': mean, **span})}", b""

    def values(self, body: bytes) -> int:
        lines = [json.loads(line) for line in body.splitlines()]
        if "data" not in lines[0]:
            return sum(len(line["values"]) for line in lines)
        return sum(len(series.get("values", [0])) for line in lines for series in line["data"]["result"])


class InfluxDB(Peer):
    """InfluxDB 1 of Debian's package `influxdb`."""

    name = "influxdb"
    version = "1.6.7"
    write_path = "/write?db=bench"
    program = "influxd"

    def command(self) -> Sequence[str]:
        return [_path_of(self.program)]

    def environment(self) -> dict[str, str]:
        (own,) = free_ports(1)
        return {
            "INFLUXDB_META_DIR": str(self.data / "meta"),
            "INFLUXDB_DATA_DIR": str(self.data / "data"),
            "INFLUXDB_DATA_WAL_DIR": str(self.data / "wal"),
            "INFLUXDB_HTTP_BIND_ADDRESS": f"127.0.0.1:{self.port}",
            "INFLUXDB_BIND_ADDRESS": f"127.0.0.1:{own}",
            "INFLUXDB_REPORTING_DISABLED": "true",
        }

    def prepare(self) -> None:
        urllib.request.urlopen(f"{self.url}/query", urlencode({"q": "create database bench"}).encode(), timeout=30).close()

    def rows_stored(self) -> int:
        counted = json.loads(self.get(_influxql(f"select count({MEAN_OF}) from {MEASUREMENT}")[1]))
        return int(counted["results"][0]["series"][0]["values"][0][1])

    def window(self, device: str, start_us: int, stop_us: int) -> Question:
        return _influxql(f"select * from {MEASUREMENT} where device = '{device}' and {_since(start_us, stop_us)}")

    def latest(self) -> Question:
        return _influxql(f"select last(*) from {MEASUREMENT} group by device")

    def means(self, start_us: int, stop_us: int) -> Question:
        span = _since(start_us, stop_us)
        return _influxql(f"select mean({MEAN_OF}) from {MEASUREMENT} where {span} group by time(1m)")

    def values(self, body: bytes) -> int:
        found = json.loads(body)["results"][0].get("series", [])
        return sum(isinstance(value, (int, float)) for series in found for row in series["values"] for value in row[1:])


Contender = Widerow | Peer
PEERS: tuple[type[Peer], ...] = (QuestDB, VictoriaMetrics, InfluxDB)


def _path_of(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise FileNotFoundError(f"{program} is not installed")
    return found


def _sql(query: str) -> Question:
    return "GET", f"/exec?{urlencode({'query': query})}", b""


def _within(start_us: int, stop_us: int) -> str:
    return f"timestamp >= '{format_time(start_us)}' and timestamp < '{format_time(stop_us)}'"


def _influxql(query: str) -> Question:
    return "GET", f"/query?{urlencode({'db': 'bench', 'q': query})}", b""


def _since(start_us: int, stop_us: int) -> str:
    return f"time >= {start_us * 1000} and time < {stop_us * 1000}"
