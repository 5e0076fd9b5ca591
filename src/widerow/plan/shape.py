"""What a table of somebody else holds: which columns name a tenant, a device, a metric, a bucket and a time.

Rule 1: the answer comes from names and types alone. Nothing is asked of the cluster.
Rule 2: every column has one part. What fits no part is a value, or names the device if it is part of the key.
Rule 3: a table without a time among its columns is no time series; its bytes are counted, and nothing else is said of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

PARTITION, CLUSTERING, REGULAR, STATIC = "partition", "clustering", "regular", "static"
"""Where a column stands in its table."""


@dataclass(frozen=True, slots=True)
class Column:
    """`type` is CQL's. `role` is one of the four above; key columns come first, in the order of the key."""

    name: str
    type: str
    role: str
    descending: bool = False

    @property
    def is_collection(self) -> bool:
        """Not frozen: its parts are cells of their own, and have no one write time."""
        return self.type.startswith(("map<", "list<", "set<"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignTable:
    """A table as its schema says."""

    keyspace: str
    name: str
    columns: tuple[Column, ...]
    ttl_s: int = 0
    compaction: str = ""
    copies: int = 1

    def of(self, *roles: str) -> tuple[Column, ...]:
        return tuple(column for column in self.columns if column.role in roles)

    @property
    def key(self) -> tuple[Column, ...]:
        """The partition key."""
        return self.of(PARTITION)


class Unit(StrEnum):
    """What a time counts. `AUTO`: whole numbers, whose size tells."""

    TIMESTAMP = "timestamp"
    TIMEUUID = "timeuuid"
    DATE = "date"
    AUTO = "number"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A time series in a table. All are names of columns."""

    known_as: str = ""
    """Whose table it is, if its name and columns are known."""
    tenant: str = ""
    entity: tuple[str, ...] = ()
    metric: str = ""
    bucket: tuple[str, ...] = ()
    time: str = ""
    unit: Unit = Unit.TIMESTAMP
    numbers: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    rest: tuple[str, ...] = ()
    """Values that no metric of ours can hold, such as blobs."""

    @property
    def values(self) -> tuple[str, ...]:
        return self.numbers + self.texts


_THINGSBOARD = {"entity_type", "entity_id", "key", "partition", "ts", "bool_v", "str_v", "long_v", "dbl_v", "json_v"}
_NUMBERS = frozenset(["int", "bigint", "smallint", "tinyint", "varint", "float", "double", "decimal", "boolean", "counter"])
_TEXTS = frozenset(["text", "varchar", "ascii"])
_WHOLE = frozenset(["int", "bigint", "varint"])
_IDENTIFIERS = _TEXTS | {"uuid", "inet"}
"""Types of columns that tell apart devices which share a partition. Whole numbers often count rows of one time."""
_NAMES_TIME = re.compile(
    r"(.*_)?(ts|time|timestamp|datetime|epoch|instant|moment)(_(ms|us|ns|s|utc|millis|micros))?|.*_at|when|at"
)
_NAMES_BUCKET = re.compile(
    r"partition|(.*_)?(bucket|day|date|hour|week|month|year|yyyymm|yyyymmdd|period|window|shard|slot|sub_bucket|time_partition)"
    r"(_(id|key|num|no|nr|ts|start|of_year|bucket))?"
)
_NAMES_METRIC = re.compile(
    r"key|name|(.*_)?(metric|measurement|measure|field|channel|signal|variable|datapoint|data_point|point|attribute"
    r"|parameter|property|tag|series|quantity)(_(name|id|key))?"
)
_NAMES_TENANT = re.compile(
    r"(.*_)?(tenant|customer|account|org|organisation|organization|client|company|project)(_(id|name|key))?"
)


def shape_of(table: ForeignTable) -> Shape | None:
    """The time series in a table; None: there is none."""
    time = _time(table)
    if time is None:
        return None
    keys = [column for column in table.of(PARTITION, CLUSTERING) if column is not time]
    bucket = [c for c in keys if c.role == PARTITION and _is_bucket(c)]
    free = [c for c in keys if c not in bucket]
    tenant = next((c for c in free if _NAMES_TENANT.fullmatch(c.name)), None) if len(free) > 1 else None
    free = [c for c in free if c is not tenant]
    metric = next((c for c in reversed(free) if c.type in _TEXTS and _NAMES_METRIC.fullmatch(c.name)), None)
    if len(free) == 1 and metric is not None and metric.role == PARTITION:
        metric = None  # it is all that tells one series from another
    free = [c for c in free if c is not metric]
    entity = [c for c in free if c.role == PARTITION or c.type in _IDENTIFIERS]
    if not entity:
        entity = [c for c in free if c.type in _WHOLE]
    values = table.of(REGULAR, STATIC)
    return Shape(
        known_as="ThingsBoard" if table.name == "ts_kv_cf" and {c.name for c in table.columns} >= _THINGSBOARD else "",
        tenant=tenant.name if tenant else "",
        entity=tuple(c.name for c in entity),
        metric=metric.name if metric else "",
        bucket=tuple(c.name for c in bucket),
        time=time.name,
        unit=_unit(time),
        numbers=tuple(c.name for c in values if c.role == REGULAR and c.type in _NUMBERS),
        texts=tuple(c.name for c in values if c.role == REGULAR and c.type in _TEXTS),
        rest=tuple(c.name for c in values if c.role == STATIC or c.type not in _NUMBERS | _TEXTS),
    )


def shape_in_words(shape: Shape) -> str:
    """`tenant tenant_id; device entity_id; metric key; bucket partition; time ts; values dbl_v, long_v`."""
    parts = [
        ("tenant", (shape.tenant,)),
        ("device", shape.entity),
        ("metric", (shape.metric,)),
        ("bucket", shape.bucket),
        ("time", (shape.time,)),
        ("values", shape.values),
        ("not packed", shape.rest),
    ]
    return "; ".join(f"{what} {', '.join(names)}" for what, names in parts if any(names))


def _time(table: ForeignTable) -> Column | None:
    """A time that orders rows; else one of the key that no bucket is."""
    ordered: Sequence[Column] = table.of(CLUSTERING)
    for column in ordered:
        if column.type in ("timestamp", "timeuuid"):
            return column
    for column in ordered:
        if column.type in _WHOLE and _NAMES_TIME.fullmatch(column.name):
            return column
    return next((column for column in ordered if column.type == "date"), None)


def _unit(time: Column) -> Unit:
    return {"timestamp": Unit.TIMESTAMP, "timeuuid": Unit.TIMEUUID, "date": Unit.DATE}.get(time.type, Unit.AUTO)


def _is_bucket(column: Column) -> bool:
    """A day, an hour, a number of one; not a text that merely says where something stands."""
    if column.type in ("date", "timestamp", "time"):
        return True
    return bool(_NAMES_BUCKET.fullmatch(column.name))
