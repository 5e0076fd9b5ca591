"""Configuration: one TOML file plus the environment, into frozen, validated dataclasses.

A setting `[http] port` is overridden by the environment's `WIDEROW_HTTP_PORT`, that by a command-line option. Unknown
sections, unknown settings and values out of range stop the start with a message that names them (`ConfigError`). Every
setting is explained in docs/reference/configuration.md (a test checks that).
"""

from __future__ import annotations

import math
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from widerow.model.errors import ConfigError
from widerow.model.system import explained

SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_ORIGIN = re.compile(r"https?://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:\d{1,5})?")
COMPRESSIONS = ("none", "lz4", "zstd", "snappy", "gzip")


_GONE = {
    "line": {
        "fold_tags": "each tag is a label of the metric now, as in cpu_usage{cpu=cpu0}; list tags that shall be none in "
        "line.attribute_tags"
    }
}
"""Settings that there were, and what to use instead."""


def _setting(default: Any, doc: str, *, low: float | None = None, high: float | None = None) -> Any:
    return field(default=default, metadata={"doc": doc, "low": low, "high": high})


@dataclass(frozen=True, slots=True, kw_only=True)
class Http:
    host: str = _setting(
        "127.0.0.1", "Address to listen on. `0.0.0.0` for all; set `http.tls_cert` then, or put TLS in front of it."
    )
    port: int = _setting(8080, "Port to listen on; 0 picks a free one.", low=0, high=65535)
    max_body_mib: int = _setting(32, "Largest request body, before and after decompression.", low=1, high=1024)
    body_timeout_s: int = _setting(30, "Longest pause within a request body; then the server gives it up.", low=1, high=3600)
    max_connections: int = _setting(
        10_000,
        "Open connections over TCP; never more than half of the open files that the process may have.",
        low=1,
        high=1_000_000,
    )
    max_connections_per_address: int = _setting(
        0,
        "Open connections of one address; 0: any number. Leave 0 behind a proxy: all its connections have one address.",
        low=0,
        high=1_000_000,
    )
    max_streams: int = _setting(200, "Open streams of `GET /v1/live`; more are refused with 503.", low=0, high=100_000)
    max_streams_per_tenant: int = _setting(
        50, "The same with tokens of one tenant, and with those of operators together.", low=0, high=100_000
    )
    max_points: int = _setting(
        100_000, "Most points in one answer; ask for the rest with its cursor.", low=1, high=10_000_000
    )
    tls_cert: str = _setting("", "File with the TLS certificate, in PEM, and those that signed it; none: plain HTTP.")
    tls_key: str = _setting("", "File with its key, if it is not in the same file.")
    cors_origins: tuple[str, ...] = _setting(
        (),
        "Origins, such as `https://app.example.com`, whose pages may send requests from a browser (CORS). `*` is not taken.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    url: str = _setting("rocksdb:widerow-data", "The place of the data: see [store URLs](stores.md).")
    cache_mib: int = _setting(256, "Memory for blocks that were read (RocksDB).", low=8, high=1 << 20)
    write_buffer_mib: int = _setting(
        256, "Memory for reports that are not yet in table files (RocksDB).", low=16, high=1 << 20
    )
    reserve_mib: int = _setting(64, "Free disk below which writes are refused with `storage-full`.", low=0, high=1 << 20)
    expire_every_s: int = _setting(
        300, "Time between two looks for expired windows, which are then dropped.", low=1, high=86_400
    )
    lease_s: int = _setting(30, "Cassandra, Bigtable: how long the next writer waits after one was killed.", low=2, high=600)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cassandra:
    username: str = _setting("", "User name, if the cluster asks for one.")
    password: str = _setting("", "Password. Give it by the environment rather than in a file.")
    timeout_s: int = _setting(10, "How long a request may take before it counts as failed.", low=1, high=600)
    in_flight: int = _setting(128, "Requests under way at once.", low=1, high=10_000)
    tls: int = _setting(0, "1: speak TLS.", low=0, high=1)
    tls_ca: str = _setting("", "File with the authority that signed the nodes' certificates; the system's otherwise.")
    tls_cert: str = _setting("", "File with this client's certificate, if the cluster asks for one.")
    tls_key: str = _setting("", "File with its key, if it is not in the same file.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bigtable:
    app_profile: str = _setting(
        "", "Application profile, if the URL names none; empty: the instance's default. It must route to one cluster."
    )
    read_app_profile: str = _setting(
        "",
        "Application profile for questions about reports: it may route to several clusters, and lag by seconds.",
    )
    timeout_s: int = _setting(
        30, "How long a call may take, repetitions included, before it counts as failed.", low=1, high=600
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Time:
    max_future_s: int = _setting(300, "How far ahead of the server's clock a report's time may lie.", low=0, high=86_400)
    refresh_s: int = _setting(10, "How often a process reads changes of tenants, placements and erasures.", low=1, high=300)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    adaptive: int = _setting(1, "1: the buckets of devices follow what they send; 0: their profiles alone.", low=0, high=1)
    interval_s: int = _setting(
        300, "A device's rate is measured over intervals of this length, in event time.", low=10, high=3600
    )
    fast_intervals: int = _setting(
        2,
        "Buckets become narrower, or are spread wider, after this many intervals in a row that call for it.",
        low=1,
        high=1000,
    )
    slow_after_s: int = _setting(
        86_400, "Buckets become wider again after a device has sent little for this long.", low=60, high=31_536_000
    )
    hold_s: int = _setting(
        10_800,
        "Shortest time between two such changes of a device. Each change is stored for ever.",
        low=60,
        high=31_536_000,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    max_in_flight_mib: int = _setting(256, "Request bodies taken in and not yet answered, in all.", low=1, high=1 << 16)
    max_tenant_in_flight_mib: int = _setting(
        128, "Request bodies of one tenant taken in and not yet answered.", low=1, high=1 << 16
    )
    decoders: int = _setting(2, "Threads that decode large bodies.", low=1, high=64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kafka:
    brokers: str = _setting("", "Brokers to ask first, as `HOST:PORT,...`. Empty: no Kafka.")
    topic: str = _setting("widerow.reports", "Topic of the reports.")
    backfill_topic: str = _setting("widerow.backfill", "Topic of reports older than `backfill.after_s`.")
    rollups_topic: str = _setting(
        "", "Topic to which workers send every hour that they roll, such as `widerow.rollups`. Empty: none."
    )
    group: str = _setting("widerow", "Consumer group of the workers.")
    create_topics: int = _setting(
        0, "1: workers, gateways and `widerow api` make topics that are missing, as `--create-topics` does.", low=0, high=1
    )
    partitions: int = _setting(
        32, "Partitions of topics that Widerow makes. More workers than that have no work.", low=1, high=10_000
    )
    replication: int = _setting(
        0,
        "Replicas of topics that Widerow makes; all but one must confirm a message. 0: as the brokers have it.",
        low=0,
        high=9,
    )
    tls: int = _setting(0, "1: speak TLS.", low=0, high=1)
    tls_ca: str = _setting("", "File with the authority that signed the brokers' certificates; the system's otherwise.")
    tls_cert: str = _setting("", "File with this client's certificate, if the brokers ask for one.")
    tls_key: str = _setting("", "File with the key of `kafka.tls_cert`.")
    sasl_mechanism: str = _setting("", "One of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512. Empty: no user name is given.")
    username: str = _setting("", "User name, with `kafka.sasl_mechanism`.")
    password: str = _setting("", "Password. Give it by the environment rather than in a file.")
    compression: str = _setting("lz4", "Compression of messages: none, lz4, zstd, snappy or gzip.")
    linger_ms: int = _setting(
        0, "How long a message waits for others of its batch. 0 is right: reports come in batches already.", low=0, high=1000
    )
    max_message_kib: int = _setting(
        512,
        "Largest message that is sent, uncompressed; the brokers' `message.max.bytes` must allow it.",
        low=16,
        high=16_384,
    )
    send_timeout_s: int = _setting(
        30, "How long a message may take to be confirmed, repetitions included, before it counts as failed.", low=1, high=600
    )
    send_queue_mib: int = _setting(64, "Memory for messages that are being sent.", low=1, high=2047)
    max_in_flight_mib: int = _setting(64, "Worker: live messages taken from Kafka and not yet stored.", low=1, high=1 << 16)
    session_timeout_s: int = _setting(
        15, "Worker: after this long without a sign of life Kafka gives its partitions to others.", low=1, high=1800
    )
    revoke_timeout_s: int = _setting(
        10, "Worker: how long it may finish work in progress before it hands partitions over.", low=0, high=300
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressure:
    high_percent: int = _setting(
        80,
        "The process is degraded when live requests take this part of the room in flight (bytes or `pressure.max_items`).",
        low=1,
        high=100,
    )
    low_percent: int = _setting(50, "The process is healthy again below this part.", low=1, high=100)
    max_items: int = _setting(100_000, "Most requests and messages in flight in each lane.", low=1, high=10_000_000)
    stall_s: int = _setting(5, "The process is degraded when a live request has waited for longer.", low=1, high=3600)
    recover_s: int = _setting(5, "The process is healthy again after all was well for this long.", low=1, high=3600)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hot:
    enabled: int = _setting(1, "0: no device is found hot.", low=0, high=1)
    interval_s: int = _setting(10, "Devices are judged at the end of intervals of this length.", low=1, high=3600)
    reports_per_s: int = _setting(
        100, "A device that declares no rate is hot when it sends more.", low=1, high=1_000_000_000
    )
    declared_times: int = _setting(
        10, "A device that declares a rate is hot when it sends this many times that rate.", low=1, high=1000
    )
    share_percent: int = _setting(
        25, "A device is hot when it sends this part of all reports, and more than it declared.", low=1, high=100
    )
    share_from_per_s: int = _setting(
        1000, "Below this many reports a second in all, shares do not count.", low=1, high=1_000_000_000
    )
    least_per_s: int = _setting(10, "A device that sends fewer reports a second is never hot.", low=1, high=1_000_000)
    cool_intervals: int = _setting(
        6,
        "Each step is taken back after this many calm intervals in a row. The number doubles each time the step is taken "
        "again within a day, up to an hour.",
        low=1,
        high=1000,
    )
    sample_percent: int = _setting(10, "Part of the reports that is kept of a sampled device.", low=1, high=99)
    tracked: int = _setting(
        4096,
        "Counters for devices. A device that sends one in this many reports is always counted. 600 bytes each.",
        low=16,
        high=1 << 20,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    online_s: int = _setting(
        300,
        "A device is online when it reported within this time, by its own clock; else it is stale. Set it longer where "
        "devices report seldom.",
        low=1,
        high=31_536_000,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    after_s: int = _setting(
        3600, "Reports older than this take the lane of backlog; 0: no report does.", low=0, high=31_536_000
    )
    max_in_flight_mib: int = _setting(
        64, "Backlog taken in and not yet answered, in all; half of it for one tenant, or from Kafka.", low=1, high=1 << 16
    )
    share_percent: int = _setting(6, "Part of the committer's time for backlog while live reports come.", low=1, high=100)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollup:
    enabled: int = _setting(
        1, "0: nothing is rolled up. Windows stay marked, and are rolled when this is 1 again.", low=0, high=1
    )
    lateness_s: int = _setting(
        20,
        "How long a minute waits for its reports after its end. Later reports are not lost, but cost more.",
        low=0,
        high=900,
    )
    settle_s: int = _setting(
        10, "An hour with late reports is rolled again after it got none for this long.", low=0, high=3600
    )
    share_s: int = _setting(
        60,
        "Several workers: how long a writer relies on a mark. An hour is rolled when its newest mark is twice as old. "
        "Clocks of hosts may differ by half of this.",
        low=1,
        high=3600,
    )
    cache_mib: int = _setting(
        512, "Memory for reports of open minutes; further ones are read from the store.", low=0, high=1 << 20
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    max_rows: int = _setting(
        10_000_000, "Most rows (reports, rollups) that one question may read.", low=1000, high=1_000_000_000
    )
    max_answer_mib: int = _setting(
        64,
        "Largest answer to one question. It may take eight times that in memory meanwhile, at least 256 MiB.",
        low=1,
        high=4096,
    )
    timeout_s: int = _setting(30, "Longest time that one question may take.", low=1, high=3600)
    at_once: int = _setting(
        4, "Requests that are worked on at once. One tenant has all but one of these places at most.", low=1, high=256
    )
    long_at_once: int = _setting(
        2,
        "Long requests, such as questions about a fleet, that are worked on at once. One tenant has at most half.",
        low=1,
        high=256,
    )
    max_waiting: int = _setting(
        64, "Requests of one tenant that may wait; more are refused with `query-busy`.", low=1, high=1024
    )
    max_wait_s: int = _setting(
        30,
        "Longest time that a request waits for its turn; then it is refused with `query-busy`.",
        low=1,
        high=3600,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    device_tags: tuple[str, ...] = _setting(
        ("device", "device_id", "host"), "Line protocol: the first of these tags that is present names the device."
    )
    metric: str = _setting("{measurement}_{field}", "Line protocol: the form of a metric's name.")
    attribute_tags: tuple[str, ...] = _setting(
        (), "Line protocol: tags that are attributes of the report. All others are labels of its metrics."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetters:
    enabled: int = _setting(1, "0: refused reports are not kept.", low=0, high=1)
    max_per_s: int = _setting(
        10,
        "Dead letters of a tenant per second, sustained; bursts of ten seconds' worth. More are dropped.",
        low=1,
        high=1000,
    )
    max_mib_per_day: int = _setting(
        16, "Dead letters of a tenant in a day (UTC), for each process. More are dropped.", low=1, high=256
    )
    max_body_kib: int = _setting(64, "Most bytes in one dead letter. A larger body is cut.", low=1, high=256)
    keep_days: int = _setting(7, "How long dead letters are kept.", low=1, high=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    keep_days: int = _setting(
        365, "How long changes by admins and operators are kept; 0: nothing is recorded.", low=0, high=730
    )
    max_per_day: int = _setting(
        10_000,
        "Actions of a tenant, and of all together, in a day (UTC), for each process. More are not recorded.",
        low=10,
        high=100_000,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Alerts:
    enabled: int = _setting(1, "0: nothing is watched. Alerts and rules stay as they are.", low=0, high=1)
    rules: str = _setting("", "TOML file with rules and webhooks of the operator; none: those set over HTTP alone.")
    every_s: int = _setting(10, "How often the process looks at its own figures.", low=1, high=60)
    window_s: int = _setting(300, "The built-in alerts judge figures over this time.", low=1, high=3600)
    for_s: int = _setting(60, "A built-in alert fires when its figure has been bad for this long.", low=0, high=86_400)
    baseline_s: int = _setting(
        3600, "`ingestion_rate` is compared with the mean rate over this time before its window.", low=2, high=86_400
    )
    rate_percent: int = _setting(50, "`ingestion_rate` is bad below this part of its baseline.", low=1, high=99)
    rate_from_per_s: int = _setting(
        1, "`ingestion_rate` is not judged while its baseline is lower, in reports a second.", low=0, high=1_000_000_000
    )
    latency_ms: int = _setting(50, "`ingestion_latency_p99` is bad above this.", low=1, high=600_000)
    batch_size: int = _setting(20, "`batch_size_avg` is bad below this many reports a commit.", low=1, high=1_000_000)
    batch_from_per_s: int = _setting(
        1000, "`batch_size_avg` is not judged at fewer reports a second.", low=0, high=1_000_000_000
    )
    quota_percent: float = _setting(1.0, "`quota_rejections` is bad above this part of all reports.", low=0, high=100)
    compactions: int = _setting(4, "`pending_compactions` is bad above this number, if it grows.", low=0, high=1_000_000)
    cache_mib: int = _setting(
        64, "Memory for the devices that rules watch; further devices are not watched.", low=1, high=1 << 16
    )
    process: str = _setting(
        "{host}",
        "Name of this process in its built-in alerts, on a store that processes share. `{host}` in it stands for the host's "
        "name. Each process needs its own.",
    )
    keep_days: int = _setting(90, "How long the history of alerts is kept.", low=1, high=365)
    webhooks: tuple[str, ...] = _setting((), "Webhooks of the operator that are told of the built-in alerts, by name.")
    webhook_networks: tuple[str, ...] = _setting(
        (),
        "Networks such as `10.1.0.0/16` or `127.0.0.1/32` where webhooks may be, though they are not public addresses.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Mqtt:
    url: str = _setting("", "The broker: `mqtt://[USER@]HOST[:1883]`, or `mqtts://` for TLS. Empty: none.")
    username: str = _setting("", "User name, if the broker asks for one and the URL has none.")
    password: str = _setting("", "Password. Give it by the environment rather than in a file.")
    client_id: str = _setting(
        "",
        "Name of the session at the broker. It must stay the same, and each process needs its own. `{host}` in it stands "
        "for the host's name. Empty: `widerow-{host}`. The session for backlog has `-backfill` behind it.",
    )
    group: str = _setting(
        "widerow",
        "Processes of one group share the messages; each message goes to one of them. Empty: one process has all messages.",
    )
    session_expiry_s: int = _setting(
        604_800,
        "How long the broker keeps the session, and the messages waiting in it, while Widerow is away.",
        low=60,
        high=4_294_967_295,
    )
    receive_maximum: int = _setting(
        10_000, "Messages that the broker sends to a session before it waits for acknowledgements.", low=1, high=65_535
    )
    max_packet_mib: int = _setting(
        32, "Largest packet that the broker may send. It drops larger ones without a word.", low=1, high=255
    )
    max_payload_kib: int = _setting(
        1024, "Largest payload; a larger one is refused with `too-large`, and the device is told.", low=1, high=262_144
    )
    max_unacked_mib: int = _setting(
        64,
        "Messages of a session received and not acknowledged. With more, Widerow stops reading from it.",
        low=1,
        high=1 << 16,
    )
    keep_alive_s: int = _setting(30, "A connection that is silent for twice as long has failed.", low=2, high=3600)
    telemetry_topic: str = _setting(
        "widerow/v1/{tenant}/{device}/telemetry", "Topic to which devices publish their reports."
    )
    backfill_topic: str = _setting(
        "widerow/v1/{tenant}/{device}/backfill",
        "Topic to which devices publish reports collected while they were away. It has a session of its own. Empty: none.",
    )
    status_topic: str = _setting(
        "widerow/v1/{tenant}/{device}/status", "Topic to which devices, or their last wills, publish `online` and `offline`."
    )
    errors_topic: str = _setting(
        "widerow/v1/{tenant}/{device}/errors", "Topic on which Widerow tells a device its refused reports and the reasons."
    )
    tls_ca: str = _setting("", "File with the authority that signed the broker's certificate; the system's otherwise.")
    tls_cert: str = _setting("", "File with this client's certificate, if the broker asks for one.")
    tls_key: str = _setting("", "File with its key, if it is not in the same file.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    refresh_s: int = _setting(
        5, "How often the stored bytes and series of tenants with such limits are read again.", low=1, high=600
    )
    disk_percent: int = _setting(
        100,
        "Cassandra, Bigtable: bytes on disk in percent of the accounted bytes, which are uncompressed and counted once. "
        "RocksDB measures it.",
        low=1,
        high=2000,
    )
    flush_s: int = _setting(10, "How often recorded use is written. A crash loses this much at most.", low=1, high=3600)
    keep_days: int = _setting(400, "How long the use of an hour is kept.", low=1, high=800)
    detail_days: int = _setting(
        35, "How long the number of offered reports in each second is kept, for `tenant whatif`.", low=1, high=800
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    gib_month: float = _setting(0.0, "Price of a GiB that is stored for a month.", low=0, high=1e9)
    gib_written: float = _setting(0.0, "Price of a GiB of accepted reports, before compression.", low=0, high=1e9)
    gib_read: float = _setting(0.0, "Price of a GiB of answers.", low=0, high=1e9)
    million_reports: float = _setting(0.0, "Price of a million accepted reports.", low=0, high=1e9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    level: str = _setting("info", "One of debug, info, warning, error.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    http: Http = field(default_factory=Http)
    store: Store = field(default_factory=Store)
    cassandra: Cassandra = field(default_factory=Cassandra)
    bigtable: Bigtable = field(default_factory=Bigtable)
    time: Time = field(default_factory=Time)
    placement: Placement = field(default_factory=Placement)
    pipeline: Pipeline = field(default_factory=Pipeline)
    kafka: Kafka = field(default_factory=Kafka)
    pressure: Pressure = field(default_factory=Pressure)
    hot: Hot = field(default_factory=Hot)
    devices: Devices = field(default_factory=Devices)
    backfill: Backfill = field(default_factory=Backfill)
    rollup: Rollup = field(default_factory=Rollup)
    query: Query = field(default_factory=Query)
    line: Line = field(default_factory=Line)
    dead_letters: DeadLetters = field(default_factory=DeadLetters)
    audit: Audit = field(default_factory=Audit)
    alerts: Alerts = field(default_factory=Alerts)
    mqtt: Mqtt = field(default_factory=Mqtt)
    usage: Usage = field(default_factory=Usage)
    prices: Prices = field(default_factory=Prices)
    log: Log = field(default_factory=Log)


def load(path: Path | None, environment: Mapping[str, str] | None = None) -> Config:
    """The configuration of a file (None: all defaults) and an environment (None: this process's)."""
    tree: dict[str, Any] = {}
    if path is not None:
        try:
            tree = tomllib.loads(path.read_text())
        except OSError as error:
            raise ConfigError(f"cannot read {explained(error, path)}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ConfigError(f"{path} is not TOML: {error}") from error
    return build(tree, os.environ if environment is None else environment)


def build(tree: Mapping[str, Any], environment: Mapping[str, str]) -> Config:
    """A configuration of plain data, checked."""
    sections = {f.name: f.default_factory for f in fields(Config)}
    _check_known(tree, sections, "section")
    values = {}
    for name, kind in sections.items():
        given = tree.get(name, {})
        if not isinstance(given, Mapping):
            raise ConfigError(f"{name} must be a section: [{name}]")
        values[name] = _section(name, kind, given, environment)
    config = Config(**values)
    if config.log.level not in ("debug", "info", "warning", "error"):
        raise ConfigError(f"log.level is {config.log.level!r}: give debug, info, warning or error")
    for origin in config.http.cors_origins:
        if not _ORIGIN.fullmatch(origin):
            raise ConfigError(
                f"http.cors_origins has {origin!r}: give origins as browsers send them, http://HOST[:PORT] or https://HOST[:PORT]"
            )
    if config.kafka.sasl_mechanism not in ("", *SASL_MECHANISMS):
        raise ConfigError(f"kafka.sasl_mechanism is {config.kafka.sasl_mechanism!r}: give {', '.join(SASL_MECHANISMS)}")
    if config.kafka.compression not in COMPRESSIONS:
        raise ConfigError(f"kafka.compression is {config.kafka.compression!r}: give {', '.join(COMPRESSIONS)}")
    if config.pressure.low_percent > config.pressure.high_percent:
        raise ConfigError(
            f"pressure.low_percent is {config.pressure.low_percent}: give at most pressure.high_percent, "
            f"{config.pressure.high_percent}"
        )
    return config


def _section(section: str, kind: Any, given: Mapping[str, Any], environment: Mapping[str, str]) -> Any:
    settings = {f.name: f for f in fields(kind)}
    for name, instead in _GONE.get(section, {}).items():
        if name in given or f"WIDEROW_{section}_{name}".upper() in environment:
            raise ConfigError(f"{section}.{name} is gone: {instead}")
    _check_known(given, settings, f"setting in [{section}]")
    out = {}
    for name, setting in settings.items():
        variable = f"WIDEROW_{section}_{name}".upper()
        if variable in environment:
            out[name] = _checked(f"{variable}", setting, _from_text(variable, setting.default, environment[variable]))
        elif name in given:
            out[name] = _checked(f"{section}.{name}", setting, given[name])
    return kind(**out)


def _check_known(given: Mapping[str, Any], known: Mapping[str, Any], what: str) -> None:
    for name in given:
        if name not in known:
            raise ConfigError(f"unknown {what}: {name}; known are {', '.join(known)}")


def _from_text(variable: str, default: Any, text: str) -> Any:
    if isinstance(default, tuple):
        return [part.strip() for part in text.split(",") if part.strip()]
    if isinstance(default, int):
        try:
            return int(text)
        except ValueError:
            raise ConfigError(f"{variable} is {text!r}: give a whole number") from None
    if isinstance(default, float):
        try:
            return float(text)
        except ValueError:
            raise ConfigError(f"{variable} is {text!r}: give a number") from None
    return text


def _checked(name: str, setting: Any, value: Any) -> Any:
    default, low, high = setting.default, setting.metadata["low"], setting.metadata["high"]
    if isinstance(default, tuple):
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise ConfigError(f"{name}: give a list of texts")
        return tuple(value)
    if isinstance(default, float) and type(value) is int:
        value = float(value)
    if type(value) is not type(default):
        kind = {int: "whole number", float: "number"}.get(type(default), "text")
        raise ConfigError(f"{name} is {value!r}: give a {kind}")
    if (
        (isinstance(value, float) and not math.isfinite(value))
        or (low is not None and value < low)
        or (high is not None and value > high)
    ):
        raise ConfigError(f"{name} is {value}: give {low} to {high}")
    return value
