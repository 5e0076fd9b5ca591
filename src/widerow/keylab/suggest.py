"""The same design without the faults that the rules find.

Rule: what is suggested has no finding above advice, for the fleet it was made for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from widerow.keylab.design import CqlTable, Design, Family, grows
from widerow.keylab.facts import Facts
from widerow.keylab.size import LARGE_PARTITION_ROWS, LARGE_ROW_BYTES, bytes_of_device
from widerow.keylab.words import role_of
from widerow.keys.scan import bucket_width_us
from widerow.keys.template import Part, digits, field_of, text
from widerow.model.tenant import FOREVER
from widerow.model.times import DAY, HOUR, MINUTE, SECOND, about_duration

_GOOD_SALT = 2
_WINDOWS = 30


def suggestion_for(facts: Facts) -> str:
    """A template, a design in TOML or a `CREATE TABLE`, as it was given."""
    design = facts.design
    if design.table is not None:
        return _table(facts, design.table)
    template = key_for(facts)
    if not design.families:
        return template
    return "\n".join((f'key = "{template}"', *_families(facts)))


def key_for(facts: Facts) -> str:
    """Literals, tenant, places, device, metric, and then the time, newest first."""
    design = facts.design
    fields = {part.value: part for part in design.fields}
    start: list[str] = []
    for part in design.parts:
        if part.kind != "literal" or "shard-" in part.value:
            break
        start += [word for word in part.value.split("#") if word]
    if any(len(word) > 64 for word in start):
        start = []
    if not start and design.is_aggregate:
        start = ["agg"]
    names = [fields[name] for name in ("tenant", "location", "type", "device", "metric") if name in fields]
    if "device" not in fields and not (design.is_aggregate and names):
        at = next((i for i, part in enumerate(names) if part.value == "metric"), len(names))
        names.insert(at, text("device"))
    salts = [part for part in design.fields[:1] if part.kind == "salt" and part.width <= _GOOD_SALT and "device" in fields]
    left = [part for part in design.fields if part.value in ("sequence", "sub")]
    ends = [field_of(digits(part.value, part.width or 12)) for part in left]
    return "#".join([*start, *map(field_of, salts), *map(field_of, names), *_times(facts, fields), *ends])


def _times(facts: Facts, fields: dict[str, Part]) -> Iterator[str]:
    bucket, time = fields.get("bucket"), fields.get("time")
    has_versions = any(0 < family.max_versions < 10 for family in facts.design.families)
    if bucket is not None and time is None:
        is_good = bucket.width and _is_small(facts, bucket_width_us(bucket, facts.design.bucket_us))
        fitting = "{bucket:day}" if _is_small(facts, DAY) else "{bucket:hour}"
        yield field_of(bucket) if is_good or bucket.kind == "iso" else fitting
    elif bucket is None and time is None and has_versions and "sequence" not in fields:
        return  # the newest value only
    elif time is None and "sequence" in fields:
        return  # which follows, and tells rows apart
    elif time is not None and time.kind == "iso":
        yield "{time:iso}"
    else:
        yield "{reversed:16}" if _needs_us(facts, time) else "{reversed:13}"


def _is_small(facts: Facts, bucket_us: int) -> bool:
    """A row for each bucket of this width stays far below 100 MB."""
    cells = max(kind.metrics / facts.interval_us(kind) for kind in facts.fleet.classes) * bucket_us
    return cells < LARGE_PARTITION_ROWS


def _needs_us(facts: Facts, time: Part | None) -> bool:
    fastest = min(kind.interval_us for kind in facts.fleet.classes)
    return fastest < 1000 or (time is not None and time.width >= 16 and time.unit_us == 1)


def _families(facts: Facts) -> Iterator[str]:
    retention_us = facts.fleet.retention_us
    for family in _regrouped(facts.design):
        is_latest = family.max_versions == 1 and facts.design.bucket is None
        age_us = family.max_age_us or (0 if retention_us == FOREVER or is_latest else retention_us)
        versions = 0 if family.max_versions > 1 or facts.design.bucket is not None else family.max_versions
        yield f"[family.{family.name}]"
        if family.columns:
            yield f"columns = [{', '.join(map(repr_of, family.columns))}]"
        if age_us:
            yield f'max_age = "{whole_duration(age_us)}"'
        if versions:
            yield f"max_versions = {versions}"
    for read in facts.design.reads:
        yield "[[read]]"
        yield f"columns = [{', '.join(map(repr_of, read))}]"


def repr_of(name: str) -> str:
    return '"' + name.replace('"', '\\"') + '"'


def whole_duration(us: int) -> str:
    """A duration as settings take it: `30d`, `36h`, `90s`."""
    for unit, width in (("d", DAY), ("h", HOUR), ("m", MINUTE), ("s", SECOND)):
        if us % width == 0:
            return f"{us // width}{unit}"
    return about_duration(us)


def _regrouped(design: Design) -> Iterator[Family]:
    """Columns that the same reads ask for share a family, together with those that any of these reads asks for, too."""
    if not design.reads:
        yield from design.families
        return
    groups: list[set[str]] = []
    for read in map(set, design.reads):
        joined = [group for group in groups if group & read]
        groups = [group for group in groups if not group & read] + [read.union(*joined)]
    home = {column: family for family in design.families for column in family.columns}
    left = {column for column in home if not any(column in group for group in groups)}
    names: set[str] = set()
    for number, group in enumerate([*groups, *([left] if left else [])], 1):
        columns = tuple(sorted(group & home.keys()))
        if columns:
            family = home[columns[0]]
            name = family.name if family.name not in names else f"{family.name}_{number}"
            names.add(name)
            yield replace(family, name=name, columns=columns)


def _table(facts: Facts, table: CqlTable) -> str:
    """The same table, with the device and a bucket of time in its partition key. No column of the old key gets lost."""
    design = facts.design
    parts = dict(zip((*table.partition, *table.clustering), design.fields, strict=True))
    named = {part.value: column for column, part in parts.items()}
    columns = {name: ("bigint" if kind == "counter" else kind) for name, kind in table.columns.items()}
    partition = [column for column in table.partition if not grows(parts[column])]
    clustering = [column for column in table.clustering if column not in partition]
    if not design.is_aggregate:
        device = named.get("device") or next((name for name in columns if role_of(name) == "device"), "device_id")
        columns.setdefault(device, "text")
        if device not in partition:
            partition.append(device)
            clustering = [column for column in clustering if column != device]
    times = [column for column in table.partition if parts[column].value == "time"]
    clustering = times + clustering
    bucket = named.get("bucket", "") if named.get("bucket") in table.partition else ""
    fitting = _bucket(facts, table, [parts[column] for column in partition if column in parts], bool(bucket))
    if bucket and fitting and parts[bucket].unit_us > _SPANS[fitting]:
        columns.pop(bucket)
        bucket = ""
    if not bucket and fitting and any(parts[column].value == "time" for column in clustering if column in parts):
        bucket = fitting
        columns.setdefault(bucket, "date" if bucket == "day" else "timestamp" if bucket == "hour" else "int")
    partition += [bucket] * bool(bucket)
    if _too_coarse(facts) and "time" in named:
        columns[named["time"]] = "timestamp"
    key = ", ".join((f"({', '.join(partition)})", *clustering))
    lines = [f"  {name} {kind}{' static' * (name in table.static)}" for name, kind in columns.items()]
    clauses = _options(facts, table, clustering, {column for column in clustering if _is_time(parts, column)})
    return f"CREATE TABLE {table.name} (\n" + ",\n".join([*lines, f"  PRIMARY KEY ({key})"]) + f"\n){clauses};"


_SPANS = {"year": 365 * DAY, "month": 28 * DAY, "day": DAY, "hour": HOUR}


def _is_time(parts: dict[str, Part], column: str) -> bool:
    return parts[column].value == "time" and parts[column].kind == "digits"


def _too_coarse(facts: Facts) -> bool:
    time = facts.design.time
    return time is not None and time.kind == "digits" and min(k.interval_us for k in facts.fleet.classes) < time.unit_us


def _bucket(facts: Facts, table: CqlTable, apart: list[Part], has_bucket: bool) -> str:
    """The widest bucket that keeps a partition of one device small; empty: its TTL keeps it so."""
    by_metric = facts.is_by_metric and any(part.value == "metric" for part in apart)
    rows_per_s = max(facts.rows_per_s(kind) / (kind.metrics if by_metric else 1) for kind in facts.fleet.classes)
    bytes_per_s = max(bytes_of_device(facts, kind) / (kind.metrics if by_metric else 1) for kind in facts.fleet.classes)
    most_s = min(LARGE_PARTITION_ROWS / rows_per_s, LARGE_ROW_BYTES / bytes_per_s)
    ttl_s = _ttl_s(facts, table)
    if (ttl_s and ttl_s < most_s and not has_bucket) or (facts.design.is_aggregate and most_s > 5 * 365 * 86_400):
        return ""
    return next((name for name, width in _SPANS.items() if width / SECOND <= most_s), "hour")


def _ttl_s(facts: Facts, table: CqlTable) -> int:
    retention_us = facts.fleet.retention_us
    is_history = facts.design.time is not None and not facts.design.is_aggregate
    return table.ttl_s or (retention_us // SECOND if is_history and retention_us != FOREVER else 0)


def _options(facts: Facts, table: CqlTable, clustering: list[str], times: set[str]) -> str:
    ttl_s = _ttl_s(facts, table)
    options = []
    if clustering:
        down = table.descending | times
        options.append(f"CLUSTERING ORDER BY ({', '.join(f'{c} {_direction(c in down)}' for c in clustering)})")
    if ttl_s:
        options.append(f"default_time_to_live = {ttl_s}")
    if ttl_s and facts.design.time is not None:
        hours = -(-ttl_s // (3600 * _WINDOWS))
        options.append(
            "compaction = {'class': 'TimeWindowCompactionStrategy', 'compaction_window_unit': 'HOURS',"
            f" 'compaction_window_size': {hours}}}"
        )
    options += table.others
    return " WITH " + "\n  AND ".join(options) if options else ""


def _direction(down: bool) -> str:
    return "DESC" if down else "ASC"
