"""The logical tables. No partition grows with the number of devices (they are sharded) or for ever (bucketed)."""

from __future__ import annotations

from functools import lru_cache

from widerow.model.tenant import GUARD_US
from widerow.model.times import DAY, HOUR, format_duration
from widerow.schema.table import KeyColumn, Moment, Table, Window

_TENANT = KeyColumn("tenant_id")
_DEVICE = KeyColumn("device_id")
_SHARD = KeyColumn("shard", "int")

_WINDOW_WIDTHS_US = (6 * HOUR, DAY, 7 * DAY, 30 * DAY, 90 * DAY, 365 * DAY)
_MOST_WINDOWS = 32


def window_width_us(keep_us: int) -> int:
    """The narrowest width, a multiple of every bucket's, that cuts the retention into at most 32 windows."""
    return next((w for w in _WINDOW_WIDTHS_US if keep_us <= w * _MOST_WINDOWS), _WINDOW_WIDTHS_US[-1])


def class_name(name: str, keep_us: int) -> str:
    """A table's name for one retention. Stores are named so: whole weeks are `4w` here, though people read `28d`."""
    weeks, rest = divmod(keep_us, 7 * DAY)
    return f"{name}_{'forever' if not keep_us else format_duration(keep_us) if rest else f'{weeks}w'}"


@lru_cache(maxsize=256)
def telemetry(keep_us: int) -> Table:
    """Raw reports of one retention class (0: for ever). A class is part of the table's identity."""
    window = Window("bucket", window_width_us(keep_us), keep_us + GUARD_US) if keep_us else None
    return Table(
        class_name("telemetry", keep_us),
        partition=(_TENANT, _DEVICE, KeyColumn("bucket", "int"), KeyColumn("sub_bucket", "int")),
        clustering=(KeyColumn("event_us", "int", descending=True),),
        window=window,
    )


LAST_SEEN = Table(
    "last_seen",
    partition=(_TENANT, _SHARD),
    clustering=(_DEVICE,),
    columns=("bucket", "width_us", "sub_buckets", "keep_us"),
)
"""The newest bucket of each device: where its latest values are. Its version grows with events: the newest one wins."""

ONLINE = Table("online", partition=(_TENANT, _SHARD), clustering=(_DEVICE,), columns=("online", "at_us"))
"""What devices, or their last wills, told a broker: 1 online, 0 offline; and when. Its version is that time."""

TENANTS = Table("tenants", partition=(_SHARD,), clustering=(_TENANT,), columns=("body", "revision"), conditional=True)
DEVICES = Table(
    "devices", partition=(_TENANT, _SHARD), clustering=(_DEVICE,), columns=("body", "revision"), conditional=True
)
DEVICE_SEATS = Table("device_seats", partition=(_TENANT,), columns=("body",), conditional=True)
"""How many devices a tenant with a limit has, where several processes register them (`catalog.seats`)."""

DEVICE_VERSIONS = Table(
    "device_versions",
    partition=(_TENANT, _DEVICE),
    clustering=(KeyColumn("revision", "int", descending=True),),
    columns=("body", "until_us"),
)
"""What devices were before, a row for each state that was replaced; `until_us` is when. Bounded: older ones are trimmed."""

METRICS = Table(
    "metrics",
    partition=(_TENANT, _SHARD),
    clustering=(KeyColumn("metric_name"),),
    columns=("body", "revision"),
    conditional=True,
)
TOKENS = Table("tokens", partition=(_SHARD,), clustering=(KeyColumn("hash"),), columns=("body",), conditional=True)

PLACEMENTS = Table(
    "placements",
    partition=(_TENANT, _SHARD),
    clustering=(KeyColumn("revision", "int"),),
    columns=("device_id", "from_us", "width_us", "sub_buckets", "reason", "created_us"),
    conditional=True,
)
"""A log, insert-only: from which event time on a device has which bucket width and spread."""

DEVICE_CONTROLS = Table(
    "device_controls",
    partition=(_TENANT, _SHARD),
    clustering=(KeyColumn("revision", "int"),),
    columns=("device_id", "what", "value", "from_us", "reason", "created_us"),
    conditional=True,
)
"""A log, insert-only: what a device may do from when on, and why (`admit.controls`). The last fact of each kind holds."""

LIMIT_SHARES = Table("limit_shares", partition=(_TENANT,), clustering=(KeyColumn("process"),), columns=("offered", "number"))
"""How many reports a second of a tenant each process was offered lately (`admit.shares`). Rows expire."""

ERASED = Table(
    "erased",
    partition=(_TENANT, _SHARD),
    clustering=(KeyColumn("revision", "int"),),
    columns=("device_id", "metric_name", "start_us", "stop_us", "version_us", "done_us", "classes", "rollups"),
    conditional=True,
)
"""A log: what was erased, and up to which version. An empty device or metric means all.

`classes` are the raw retentions the data may be in, `rollups` those of rollups: for taking it off the disk when its tenant
is no longer known.
"""

LETTER_SHARDS = 4
"""Over how many partitions a day's dead letters of a tenant are spread. Stored: never change."""
MOST_LETTER_DAYS = 30
"""The longest that dead letters are kept. Each says itself until when it is; by then its window is dropped whole."""

DEAD_LETTERS = Table(
    "dead_letters",
    partition=(_TENANT, _SHARD, KeyColumn("day", "int")),
    clustering=(KeyColumn("letter_id", descending=True),),
    window=Window("day", DAY, MOST_LETTER_DAYS * DAY),
    moments=(Moment("day", DAY, "day"),),
)
"""What was refused, by the day it was filed, the newest first; an id begins with the time of filing and names its shard.

Cells: `letter` (a text, JSON: why and whence), `bytes` (what it counts for) and `body` (the bytes that were sent).
"""

MOST_AUDIT_DAYS = 730
"""The longest that actions are kept. Each says itself until when it is."""

AUDIT = Table(
    "audit",
    partition=(_TENANT, KeyColumn("day", "int")),
    clustering=(KeyColumn("action_id", descending=True),),
    window=Window("day", window_width_us(MOST_AUDIT_DAYS * DAY), MOST_AUDIT_DAYS * DAY),
    moments=(Moment("day", DAY, "day"),),
)
"""What admins and operators changed (`catalog.audit`), the newest first. An empty tenant: the log of the whole store.

One cell: `action` (a text, JSON). An id is the time, in 16 digits, and eight random hex digits.
"""

ALERT_SETTINGS = Table(
    "alert_settings",
    partition=(_TENANT, KeyColumn("what"), _SHARD),
    clustering=(KeyColumn("name"),),
    columns=("body", "revision"),
    conditional=True,
)
"""Rules, webhooks and silences of a tenant; under an empty tenant those of the operator."""

ALERTS = Table(
    "alerts", partition=(_TENANT, _SHARD), clustering=(KeyColumn("alert_id"),), columns=("body",), conditional=True
)
"""Alerts that are pending or firing, or were resolved within a day (`alerts.store`). Their number is bounded by tenant."""

MOST_ALERT_DAYS = 365
"""The longest that the history of alerts is kept. Each row says itself until when it is."""

ALERT_EVENTS = Table(
    "alert_events",
    partition=(_TENANT, KeyColumn("day", "int")),
    clustering=(KeyColumn("event_id", descending=True),),
    window=Window("day", window_width_us(MOST_ALERT_DAYS * DAY), MOST_ALERT_DAYS * DAY),
    moments=(Moment("day", DAY, "day"),),
)
"""When alerts fired and were resolved, the newest first. One cell: `event` (a text, JSON). An id begins with the time."""

META = Table("meta", partition=(KeyColumn("what"),), columns=("body",), conditional=True)
"""Facts about the store itself: its schema version, its id, who writes to it."""

TABLES = (
    LAST_SEEN,
    ONLINE,
    TENANTS,
    DEVICES,
    DEVICE_SEATS,
    DEVICE_VERSIONS,
    METRICS,
    TOKENS,
    PLACEMENTS,
    DEVICE_CONTROLS,
    LIMIT_SHARES,
    ERASED,
    DEAD_LETTERS,
    AUDIT,
    ALERT_SETTINGS,
    ALERTS,
    ALERT_EVENTS,
    META,
)
"""Every table but the telemetry classes, which are made as tenants need them."""
