"""Rules about the table around a key: families and garbage collection of Bigtable, TTL and compaction of Cassandra."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from widerow.keylab.design import CqlTable, Design
from widerow.keylab.facts import Facts
from widerow.keylab.finding import ERROR, WARNING, Finding
from widerow.keys.scan import bucket_width_us
from widerow.model.tenant import FOREVER
from widerow.model.times import SECOND, about_duration

MOST_FAMILIES = 100
MOST_WINDOWS = 50
GOOD_WINDOWS = 30


def around_findings(facts: Facts) -> Iterator[Finding]:
    yield from _families(facts)
    if facts.design.table is not None:
        yield from _table(facts, facts.design.table)


def _families(facts: Facts) -> Iterator[Finding]:
    design = facts.design
    families = design.families
    if len(families) > MOST_FAMILIES:
        yield Finding(
            "families-too-many",
            WARNING,
            f"{len(families)} families: Bigtable slows down above {MOST_FAMILIES}; make them columns of a few families",
            tuple(family.name for family in families[:2]),
        )
    if mixed := _mixed(design):
        yield Finding(
            "families-mixed",
            WARNING,
            f"{mixed[0]}: keep together what is read together, and apart what is not, since a family is read as a whole",
            mixed[1:],
        )
    for family in families:
        if not family.max_age_us and not family.max_versions and facts.fleet.retention_us != FOREVER:
            yield Finding(
                "no-gc",
                WARNING,
                f"family {family.name} deletes nothing; data is wanted for {about_duration(facts.fleet.retention_us)}:"
                " give it max_age",
                (f"[family.{family.name}]", "max_age is missing"),
            )
        if lost := _lost(facts, family.max_versions):
            yield Finding(
                "gc-versions-for-history",
                ERROR,
                f"family {family.name} keeps {family.max_versions} of the {lost:,.0f} reports that a row of a bucket gets:"
                " each cell holds a history, and all but its newest are deleted",
                (f"max_versions = {family.max_versions}", f'max_age = "{about_duration(facts.fleet.retention_us or 1)}"'),
            )
        elif family.max_versions > 1 and not family.max_age_us and _is_history(design):
            yield Finding(
                "gc-versions-for-history",
                WARNING,
                f"family {family.name} keeps {family.max_versions:,} versions where an age is meant: a busy device loses its"
                " history early, a quiet one keeps it for ever",
                (f"max_versions = {family.max_versions}", f'max_age = "{about_duration(facts.fleet.retention_us or 1)}"'),
            )


def _lost(facts: Facts, versions: int) -> float:
    """The reports of a bucket's row, if the versions that are kept are fewer than half of them."""
    design = facts.design
    if design.time is not None or design.bucket is None or design.is_aggregate or not versions:
        return 0.0
    width_us = bucket_width_us(design.bucket, design.bucket_us)
    reports = max(width_us / kind.interval_us for kind in facts.fleet.classes)
    return reports if versions < reports / 2 else 0.0


def _is_history(design: Design) -> bool:
    """Cells hold a history: the key has no time of its own that tells reports apart, or many versions are kept."""
    return design.time is None or any(family.max_versions > 10 for family in design.families)


def _mixed(design: Design) -> tuple[str, ...]:
    home = {column: family.name for family in design.families for column in family.columns}
    asked = [frozenset(read) & home.keys() for read in design.reads]
    for family in design.families:
        for one, other in combinations(sorted(set(family.columns) & frozenset().union(*asked)), 2):
            if not any({one, other} <= read for read in asked):
                return f"{one} and {other} are never read together, and share family {family.name}", one, other
    for read in asked:
        for one, other in combinations(sorted(read), 2):
            if home[one] != home[other]:
                return f"{one} and {other} are read together from families {home[one]} and {home[other]}", one, other
    return ()


def _table(facts: Facts, table: CqlTable) -> Iterator[Finding]:
    is_history = facts.design.time is not None and facts.design.time.kind != "date"
    counters = [name for name, kind in table.columns.items() if kind == "counter"]
    if counters:
        yield Finding(
            "counter-column",
            WARNING,
            f"{counters[0]} is a counter: a retried increment counts twice; store values and add them up when read",
            (f"{counters[0]} counter", f"{counters[0]} bigint"),
        )
    has_twcs = table.compaction == "TimeWindowCompactionStrategy"
    if not table.ttl_s:
        if is_history and not facts.design.is_aggregate and facts.fleet.retention_us != FOREVER and not counters:
            yield Finding(
                "no-gc",
                WARNING,
                f"the table deletes nothing, though data is wanted for {about_duration(facts.fleet.retention_us)}:"
                " give it default_time_to_live",
                ("default_time_to_live = 0", f"default_time_to_live = {facts.fleet.retention_us // SECOND}"),
            )
    elif is_history and not has_twcs:
        yield Finding(
            "ttl-without-twcs",
            WARNING,
            "rows expire by TTL, but compaction mixes old with new: expired rows stay on disk until chance merges them away",
            (f"compaction: {table.compaction or 'the default'}", "compaction: TimeWindowCompactionStrategy"),
        )
    if has_twcs and table.window_us:
        windows = table.ttl_s * SECOND / table.window_us
        if windows > MOST_WINDOWS:
            yield Finding(
                "twcs-too-many-windows",
                WARNING,
                f"{windows:,.0f} windows are kept at once, each with files that reads may open: {GOOD_WINDOWS} is good",
                (
                    f"window {about_duration(table.window_us)}",
                    f"window {about_duration(table.ttl_s * SECOND // GOOD_WINDOWS)}",
                ),
            )
