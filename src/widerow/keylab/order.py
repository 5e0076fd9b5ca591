"""Rules about the order of a key's parts: where writes pile up, and which questions find no start."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from widerow.keylab.design import grows
from widerow.keylab.facts import Facts, tells_device
from widerow.keylab.finding import ADVICE, ERROR, WARNING, Finding
from widerow.keys.parts import DELIMITER
from widerow.keys.scan import bucket_width_us
from widerow.keys.template import Part
from widerow.model.times import HOUR, about_duration

RANGE_ROWS_PER_S = 5_000
"""What one range should take: half of the 10,000 writes a second that a node is good for."""
MOST_SALTS = 256
FEW_PREFIXES = 100


def order_findings(facts: Facts) -> Iterator[Finding]:
    design = facts.design
    fields = design.fields
    if any(part.kind == "hash" for part in fields):
        yield Finding(
            "hashed-whole-key",
            ERROR,
            "the whole key is a hash, so rows of one device lie all over the table: every question is a full scan",
            tuple(facts.same_device_keys(facts.fleet.classes[0].interval_us)),
        )
        return
    if not any(tells_device(part) for part in fields) and not design.is_aggregate:
        yield Finding(
            "no-entity",
            ERROR,
            "the key names no device: reports of two devices at one time overwrite each other",
            tuple(facts.two_keys(gap_us=0)),
        )
    piled = list(_time_findings(facts))
    yield from piled
    if not piled or _bucket_then_device(facts):
        yield from _after_time(facts)
    yield from _spread_findings(facts)
    if not design.partition:
        yield from _clashes(facts)


def _time_findings(facts: Facts) -> Iterator[Finding]:
    design = facts.design
    if design.partition:
        partition = design.fields[: design.partition]
        if any(part.value == "time" and part.kind == "digits" for part in partition):
            yield Finding(
                "partition-per-report",
                ERROR,
                "the time of a report is in the partition key: each report is a partition, and no span can be asked",
                tuple(facts.same_device_keys(facts.fleet.classes[0].interval_us)),
            )
        elif partition and all(map(grows, partition)):
            yield Finding(
                "time-first",
                ERROR,
                "the partition key is a time alone: all devices write to one partition at a time, so to one node",
                tuple(facts.two_keys()),
            )
        return
    fields, before = design.fields, design.before_time
    grown = fields[len(before)] if len(before) < len(fields) else None
    if grown is None:
        return
    if facts.spread(before) > 1:
        return
    after = fields[len(before) + 1 :]
    load = f"{facts.all_rows_per_s:,.0f} rows a second"
    severity = ERROR if facts.all_rows_per_s > RANGE_ROWS_PER_S else WARNING
    is_literal_first = design.parts[0].kind == "literal" and not before
    if grown.value == "sequence" or before or is_literal_first:
        front = "a running number" if grown.value == "sequence" else "the same start, and then a time"
        one = "".join(f" (the fleet has one {part.value})" for part in before)
        yield Finding(
            "monotonic-prefix",
            severity,
            f"all keys begin with {front}{one}: each new row sorts behind the last, so one tablet takes all writes, {load}",
            tuple(facts.two_keys()),
        )
    elif _is_coarse(facts, grown) and any(map(tells_device, after)):
        width = about_duration(bucket_width_us(grown, design.bucket_us))
        yield Finding(
            "time-first",
            WARNING,
            f"the key begins with a bucket of {width}: each time all writes fall on the last tablet, until it is split",
            tuple(facts.two_keys(gap_us=bucket_width_us(grown, design.bucket_us))),
        )
    else:
        direction = "before" if grown.descending else "behind"
        yield Finding(
            "time-first",
            severity,
            f"the key begins with the time: each new row sorts {direction} the last, so one tablet takes all writes, {load}",
            tuple(facts.two_keys()),
        )


def _is_coarse(facts: Facts, part: Part) -> bool:
    return (part.value == "bucket" or part.kind == "date") and bucket_width_us(part, facts.design.bucket_us) >= HOUR


def _after_time(facts: Facts) -> Iterator[Finding]:
    design = facts.design
    if design.partition:
        partition, clustering = design.fields[: design.partition], design.fields[design.partition :]
        if design.is_aggregate or any(map(tells_device, partition)):
            return
        behind = next((i for i, part in enumerate(clustering) if tells_device(part)), -1)
        if behind < 0 or any(map(grows, clustering[:behind])):
            yield Finding(
                "allow-filtering-needed",
                WARNING,
                "the question for one device names neither the partition nor the first clustering columns:"
                " Cassandra reads whole partitions, and only with ALLOW FILTERING",
                tuple(facts.two_keys()),
            )
        return
    before = design.before_time
    after = design.fields[len(before) + 1 :]
    if before and not any(map(tells_device, before)) and any(map(tells_device, after)):
        yield Finding(
            "entity-after-time",
            WARNING,
            "the device stands behind the time: one device's last day is read together with that of all others",
            tuple(facts.two_keys()),
        )


def _spread_findings(facts: Facts) -> Iterator[Finding]:
    design = facts.design
    before = design.before_time
    salts = [part for part in before if part.kind == "salt" or part.value in ("shard", "random")]
    has_device = any(map(tells_device, before))
    spread = facts.spread(before)
    rows_per_s = facts.all_rows_per_s * facts.largest_share(before)
    has_time = design.time is not None or design.bucket is not None
    if has_time and not has_device and not design.is_aggregate and spread > 1:
        if salts and rows_per_s > RANGE_ROWS_PER_S:
            needed = facts.all_rows_per_s / RANGE_ROWS_PER_S
            yield Finding(
                "too-few-salts",
                WARNING,
                f"{spread:,} salts leave {rows_per_s:,.0f} rows a second to each range: at least {needed:,.0f} are needed"
                f" for {RANGE_ROWS_PER_S:,} a second",
                tuple(facts.two_keys()),
            )
        elif not salts and spread < FEW_PREFIXES and _bucket_then_device(facts):
            names = " and ".join(part.value for part in before)
            yield Finding(
                "low-cardinality-first",
                WARNING,
                f"{names} has {spread:,} values, and a bucket of time follows: at the start of each, all writes fall on"
                f" {spread:,} tablets until they are split",
                tuple(facts.two_keys()),
            )
        elif not salts and spread < FEW_PREFIXES:
            names = " and ".join(part.value for part in before)
            yield Finding(
                "low-cardinality-first",
                ERROR if rows_per_s > 2 * RANGE_ROWS_PER_S else WARNING,
                f"{names} has {spread:,} values, and a time follows: the busiest takes {rows_per_s:,.0f} rows a second"
                " in one place, however many nodes there are",
                tuple(facts.two_keys()),
            )
    if design.partition:
        return
    ways = facts.spread([part for part in salts if part.kind != "salt" or not tells_device(part)])
    if ways > MOST_SALTS:
        yield Finding(
            "too-many-salts",
            WARNING,
            f"a question that names no device has to ask {ways:,} ranges, one for each salt: up to {MOST_SALTS} is plenty",
            tuple(facts.two_keys()),
        )
    yield from _broken_scans(facts, before, ways)


def _bucket_then_device(facts: Facts) -> bool:
    """Within a bucket the device spreads the writes."""
    design = facts.design
    before, fields = design.before_time, design.fields
    if design.partition or len(before) >= len(fields):
        return False
    return _is_coarse(facts, fields[len(before)]) and any(map(tells_device, fields[len(before) + 1 :]))


def _broken_scans(facts: Facts, before: tuple[Part, ...], ways: int) -> Iterator[Finding]:
    if any(part.value == "random" for part in before):
        yield Finding(
            "salt-breaks-scan",
            WARNING,
            f"readers do not know a random salt: a device's last hour takes {ways:,} scans; make it a hash of the device",
            tuple(facts.same_device_keys(facts.fleet.classes[0].interval_us)),
        )
    elif any(part.value == "tenant" and before[0].kind == "salt" for part in before):
        yield Finding(
            "salt-breaks-scan",
            ADVICE,
            f"a salt before the tenant: all its devices take {ways:,} scans, and the device spreads writes without it",
            tuple(facts.two_keys()),
        )


def _clashes(facts: Facts) -> Iterator[Finding]:
    parts = facts.design.parts
    for part, behind in pairwise(parts):
        if part.kind not in ("text", "domain"):
            continue
        mark = behind.value[0] if behind.kind == "literal" else ""
        if mark.encode() == DELIMITER or (mark and not _may_hold(facts, part, mark)):
            continue
        found = f"names of {part.value} may hold {mark!r}, which also ends them" if mark else f"nothing ends {part.value}"
        yield Finding(
            "delimiter-clash",
            ERROR,
            f"{found}: two different rows can have one key. End names with # and escape it in them",
            tuple(_clash(part, behind, mark)),
        )


def _may_hold(facts: Facts, part: Part, mark: str) -> bool:
    if mark.isalnum() or mark in "-_." or part.kind == "domain":
        return True
    names = facts.sample.columns.get(part.value)
    return names is not None and any(mark in str(names[i]) for i in range(0, len(facts.sample), 97))


def _clash(part: Part, behind: Part, mark: str) -> Iterator[str]:
    after = behind.value if behind.kind != "literal" else "the next part"
    yield f"{part.value} 'a{mark}b', {after} 'c': a{mark}b{mark}c"
    yield f"{part.value} 'a', {after} 'b{mark}c': a{mark}b{mark}c"
