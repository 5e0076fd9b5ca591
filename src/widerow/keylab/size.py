"""Rules about numbers and sizes: digits, the length of keys, rows and partitions that grow too large."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from widerow.keylab.design import grows
from widerow.keylab.facts import NUMBER_BYTES, Facts, tells_device
from widerow.keylab.finding import ADVICE, ERROR, WARNING, Finding, date_of
from widerow.keys.scan import bucket_width_us
from widerow.keys.template import TIMES
from widerow.model.tenant import FOREVER
from widerow.model.times import DAY, SECOND, about_duration
from widerow.plan.fleet import DeviceClass

MB = 1_000_000
LARGE_ROW_BYTES = 100 * MB
LARGE_PARTITION_ROWS = 100_000
LONGEST_KEY_BYTES = 4096
"""Bigtable takes no longer ones."""
LONG_KEY_BYTES = 256
SOON_US = 5 * 365 * DAY
MOST_CELLS = 10_000
_NEVER_US = 100 * 365 * DAY


def size_findings(facts: Facts) -> Iterator[Finding]:
    if not facts.design.partition:
        yield from _digit_findings(facts)
        yield from _key_length(facts)
    if any(part.kind == "hash" for part in facts.design.fields):
        return
    yield from _collisions(facts)
    yield from _growth(facts)
    yield from _tall_or_wide(facts)


def _digit_findings(facts: Facts) -> Iterator[Finding]:
    for part in facts.design.fields:
        if part.kind != "digits":
            continue
        if not part.width:
            shown = facts.now_us // part.unit_us if part.value in TIMES else 100
            yield Finding(
                "unpadded",
                ERROR,
                f"{part.value} has no fixed number of digits: 10 sorts before 9, so ranges return wrong rows",
                (f"...#{shown}", f"...#{9}   (sorts behind it)"),
            )
        elif part.value in TIMES:
            overflow_us = 10**part.width * part.unit_us
            if overflow_us < facts.now_us + SOON_US:
                passed = overflow_us < facts.now_us
                yield Finding(
                    "too-few-digits",
                    ERROR if passed else WARNING,
                    f"{part.width} digits of {part.value} {'overflowed' if passed else 'overflow'} on {date_of(overflow_us)}"
                    " and no longer sort by time",
                    tuple(facts.two_keys()),
                )


def _key_length(facts: Facts) -> Iterator[Finding]:
    length = facts.key_bytes
    if length > LONG_KEY_BYTES:
        too_long = length > LONGEST_KEY_BYTES
        limit = f"{LONGEST_KEY_BYTES:,} is the most Bigtable takes" if too_long else "it stands before every cell"
        yield Finding(
            "key-too-long",
            ERROR if too_long else WARNING,
            f"a key has {length:,.0f} bytes; {limit}: shorten names and literals",
        )


def _collisions(facts: Facts) -> Iterator[Finding]:
    design = facts.design
    time = design.time
    if time is None or design.is_aggregate or time.kind == "iso" or (time.kind == "date" and design.partition):
        return
    behind = design.fields[design.fields.index(time) + 1 :]
    if any(part.value not in ("device", "metric", "tenant", "type", "location") for part in behind):
        return  # something else tells reports of one moment apart
    fastest = min(facts.fleet.classes, key=lambda kind: kind.interval_us)
    if fastest.interval_us < time.unit_us:
        per_unit = time.unit_us / fastest.interval_us
        yield Finding(
            "sub-second-collision",
            ERROR,
            f"{fastest.name} sends a report every {about_duration(fastest.interval_us)}, and the key's time counts"
            f" {about_duration(time.unit_us)}: of {per_unit:,.0f} reports one stays",
            tuple(facts.same_device_keys(fastest.interval_us)),
        )


@dataclass(frozen=True, slots=True)
class Growth:
    """A row of Bigtable, or a partition of Cassandra, that becomes too large."""

    holder: str
    kind: str
    """The class of the devices in it."""
    limit: str
    full_us: int
    """So long after its first report it passes the limit."""
    period_us: float
    """For how long it grows."""


def growth(facts: Facts) -> Growth | None:
    """The row or partition that is too large first."""
    design = facts.design
    if any(part.kind == "hash" for part in design.fields) or (design.is_aggregate and not design.partition):
        return None
    if design.partition:
        if not any(map(grows, design.fields[design.partition :])):
            return None  # a row for each key, overwritten: it does not grow
    elif (
        design.time is not None
        or "sequence" in design.values
        or any(0 < family.max_versions < 10 for family in design.families)
    ):
        return None  # a row for each report, or the last versions only
    worst = max(facts.fleet.classes, key=lambda kind: bytes_of_device(facts, kind))
    entities = _entities(facts)
    full_us = SECOND * LARGE_ROW_BYTES / (bytes_of_device(facts, worst) * entities)
    rows_full_us = SECOND * LARGE_PARTITION_ROWS / (facts.rows_per_s(worst) * entities)
    limit = "100 MB"
    if design.partition and rows_full_us < full_us:
        full_us, limit = rows_full_us, f"{LARGE_PARTITION_ROWS:,} rows"
    period_us = _period_us(facts)
    if full_us >= min(period_us, _NEVER_US):
        return None
    return Growth("partition" if design.partition else "row", worst.name, limit, int(full_us), period_us)


def _growth(facts: Facts) -> Iterator[Finding]:
    found = growth(facts)
    if found is not None:
        ends = "without end"
        if found.period_us < 1000 * 365 * DAY:
            ends = f"until {about_duration(int(found.period_us))} are over"
        when = f"on {date_of(facts.now_us + found.full_us)}, after {about_duration(found.full_us)}"
        yield Finding(
            "unbounded-row",
            ERROR if found.full_us < SOON_US else ADVICE,
            f"a {found.holder} of {found.kind} grows {ends}, and passes {found.limit} {when}:"
            " put a bucket of time into its key",
            tuple(facts.same_device_keys(DAY)),
        )


def _entities(facts: Facts) -> float:
    """How many devices share the largest row or partition; a part of one, if its metrics lie apart."""
    design = facts.design
    apart = design.before_time if design.partition else design.fields
    metrics = max(kind.metrics for kind in facts.fleet.classes) if any(part.value == "metric" for part in apart) else 1
    if design.is_aggregate or any(map(tells_device, apart)):
        return 1.0 / metrics
    return max(1.0, facts.fleet.devices * facts.largest_share(design.before_time))


def bytes_of_device(facts: Facts, kind: DeviceClass) -> float:
    """What one device adds to its row or partition. A cell of Bigtable has its name and time beside the number."""
    cells = kind.metrics * SECOND / facts.interval_us(kind)
    return cells * 2 * NUMBER_BYTES + kind.text_bytes * SECOND / facts.interval_us(kind)


def _period_us(facts: Facts) -> float:
    """For how long one row or partition is written, or keeps what was written."""
    design = facts.design
    held = design.fields[: design.partition] if design.partition else design.fields
    bucket = next((part for part in held if part.value == "bucket"), None)
    if bucket is not None:
        return bucket_width_us(bucket, design.bucket_us)
    kept = [family.max_age_us for family in design.families if family.max_age_us]
    if design.table is not None and design.table.ttl_s:
        kept.append(design.table.ttl_s * SECOND)
    return float(max(kept)) if kept else float("inf")


def _tall_or_wide(facts: Facts) -> Iterator[Finding]:
    design = facts.design
    if design.is_aggregate:
        return
    kind = max(facts.fleet.classes, key=lambda one: one.devices)
    if facts.is_by_metric and design.time is not None and design.time.kind != "date" and kind.metrics > 1:
        tall = kind.metrics * (facts.key_bytes + NUMBER_BYTES)
        wide = facts.key_bytes + kind.metrics * NUMBER_BYTES
        yield Finding(
            "tall-or-wide",
            ADVICE,
            f"a row for each metric repeats its key {kind.metrics} times: {tall:,.0f} bytes a report;"
            f" {wide:,.0f} with the metrics as columns of one row",
        )
    bucket = design.bucket
    if design.time is None and bucket is not None and not design.partition:
        cells = bucket_width_us(bucket, design.bucket_us) / kind.interval_us * (1 if facts.is_by_metric else kind.metrics)
        if cells > MOST_CELLS:
            yield Finding(
                "tall-or-wide",
                ADVICE,
                f"a row holds {cells:,.0f} cells: a shorter bucket, or a row for each report, is cheaper to read",
            )


def retention_text(retention_us: int) -> str:
    return "forever" if retention_us == FOREVER else about_duration(retention_us)
