"""The same design without the faults that the rules find.

Rule: what is suggested has no finding above advice, for the fleet it was made for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from widerow.keylab.design import CqlTable, Design, Family
from widerow.keylab.facts import Facts
from widerow.keylab.size import LARGE_PARTITION_ROWS
from widerow.keylab.words import is_aggregate
from widerow.keys.scan import bucket_width_us
from widerow.keys.template import Part, field_of, text
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
    return "#".join([*start, *map(field_of, salts), *map(field_of, names), *_times(facts, fields)])


def _times(facts: Facts, fields: dict[str, Part]) -> Iterator[str]:
    bucket, time = fields.get("bucket"), fields.get("time")
    has_versions = any(0 < family.max_versions < 10 for family in facts.design.families)
    if bucket is not None and time is None:
        is_good = bucket.width and _is_small(facts, bucket_width_us(bucket, facts.design.bucket_us))
        fitting = "{bucket:day}" if _is_small(facts, DAY) else "{bucket:hour}"
        yield field_of(bucket) if is_good or bucket.kind == "iso" else fitting
    elif bucket is None and time is None and has_versions and "sequence" not in fields:
        return  # the newest value only
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
        age_us = family.max_age_us or (0 if retention_us == FOREVER or family.max_versions == 1 else retention_us)
        versions = 0 if family.max_versions > 1 else family.max_versions
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
        yield from design.families[:10]
        return
    groups: list[set[str]] = []
    for read in map(set, design.reads):
        joined = [group for group in groups if group & read]
        groups = [group for group in groups if not group & read] + [read.union(*joined)]
    home = {column: family for family in design.families for column in family.columns}
    left = {column for column in home if not any(column in group for group in groups)}
    for number, group in enumerate([*groups, *([left] if left else [])], 1):
        columns = tuple(sorted(group & home.keys()))
        if columns:
            yield replace(home[columns[0]], name=f"f{number}", columns=columns)


def _table(facts: Facts, table: CqlTable) -> str:
    design = facts.design
    roles = dict(zip((*table.partition, *table.clustering), (part.value for part in design.fields), strict=True))
    named = {role: column for column, role in roles.items()}
    columns = {name: ("bigint" if kind == "counter" else kind) for name, kind in table.columns.items()}
    device = named.get("device") or next((name for name in columns if name.startswith(("device", "sensor"))), "device_id")
    columns.setdefault(device, "text")
    summary = is_aggregate(table.name)
    partition = [named[role] for role in ("tenant", "location", "type") if role in named]
    if not summary or "device" in named or device in roles:
        partition.append(device)
    if summary and "metric" in named and named["metric"] in table.partition:
        partition.append(named["metric"])
    kept = [column for column in table.clustering if column not in partition and roles[column] != "time"]
    time = next((column for column in table.clustering if roles[column] == "time"), "")
    if time:
        if not summary:
            partition.append(_bucket(facts, table, columns))
        if time in columns and _too_coarse(facts):
            columns[time] = "timestamp"
    elif "bucket" in named and named["bucket"] in table.partition:
        partition.append(named["bucket"])
    partition += [column for column in table.partition if column not in partition and roles[column] in ("sub", "shard")]
    clustering = [column for column in (time, *kept) if column and column not in partition]
    key = f"({', '.join(partition)})"
    lines = [*(f"  {name} {kind}" for name, kind in columns.items()), f"  PRIMARY KEY ({', '.join((key, *clustering))})"]
    clauses = _options(facts, table, [time, *kept] if time else [], summary)
    return f"CREATE TABLE {table.name} (\n" + ",\n".join(lines) + f"\n){clauses};"


def _too_coarse(facts: Facts) -> bool:
    part = next(part for part in facts.design.fields if part.value == "time")
    return min(kind.interval_us for kind in facts.fleet.classes) < part.unit_us and part.kind == "digits"


def _bucket(facts: Facts, table: CqlTable, columns: dict[str, str]) -> str:
    """A column for the bucket: a day, or an hour where a day is too much for one partition."""
    design = facts.design
    a_day = max(facts.rows_per_s(kind) for kind in facts.fleet.classes) * 86_400
    column, kind = ("day", "date") if a_day <= LARGE_PARTITION_ROWS else ("hour", "timestamp")
    bucket = design.bucket
    if bucket is not None:
        given = table.partition[
            next(i for i, part in enumerate(design.fields[: design.partition]) if part.value == "bucket")
        ]
        return given if bucket.width >= (8 if column == "day" else 10) else _added(columns, column, kind)
    return _added(columns, column, kind)


def _added(columns: dict[str, str], column: str, kind: str) -> str:
    columns.setdefault(column, kind)
    return column


def _options(facts: Facts, table: CqlTable, clustering: list[str], summary: bool) -> str:
    retention_us = facts.fleet.retention_us
    ttl_s = table.ttl_s or (0 if retention_us == FOREVER or summary or not clustering else retention_us // SECOND)
    options = []
    if clustering:
        others = "".join(f", {column} {'DESC' if column in table.descending else 'ASC'}" for column in clustering[1:])
        options.append(f"CLUSTERING ORDER BY ({clustering[0]} DESC{others})")
    if ttl_s:
        hours = -(-ttl_s // (3600 * _WINDOWS))
        options.append(f"default_time_to_live = {ttl_s}")
        options.append(
            "compaction = {'class': 'TimeWindowCompactionStrategy', 'compaction_window_unit': 'HOURS',"
            f" 'compaction_window_size': {hours}}}"
        )
    return " WITH " + "\n  AND ".join(options) if options else ""
