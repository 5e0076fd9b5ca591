"""Reads a design: a template, classic notation, TOML or `CREATE TABLE`.

Rule: a fault in a text is a `ConfigError` of one line that names the place.
"""

from __future__ import annotations

from dataclasses import replace

from widerow.keylab.cql import read_tables
from widerow.keylab.design import Design, Family, design_of
from widerow.model.errors import ConfigError
from widerow.model.times import HOUR
from widerow.plan.sections import Section, document


def read_design(text: str, source: str) -> Design:
    """The design that a text describes. `source` names it in errors and tables."""
    found = read_designs(text, source)
    if len(found) > 1:
        names = ", ".join(design.text for design in found)
        raise ConfigError(f"{source}: it has {len(found)} tables, {names}: give one at a time")
    return found[0]


def read_designs(text: str, source: str) -> list[Design]:
    """The designs that a text describes: of statements of CQL, one for each table."""
    stripped = text.strip()
    if not stripped:
        raise ConfigError(f"{source}: it is empty: give a template such as {{tenant}}#{{device}}#{{reversed:13}}")
    if stripped.upper().startswith("CREATE") or "CREATE TABLE" in stripped.upper():
        return read_tables(stripped, source)
    if "\n" in stripped or "=" in stripped:
        return [_read_toml(stripped, source)]
    return [design_of(stripped)]


def _read_toml(text: str, source: str) -> Design:
    top = document(text, source)
    if "key" not in top.given:
        raise top.wrong("key", 'it is missing: write key = "{device}#{reversed:13}"')
    key, bucket_us = top.text("key", ""), top.duration("bucket", HOUR)
    listed = top.section("family")
    families = tuple(_family(name, listed.section(name)) for name in list(listed.given))
    home: dict[str, str] = {}
    for family in families:
        for column in family.columns:
            if column in home:
                raise top.wrong(f"family.{family.name}.columns", f"{column!r} is in family {home[column]}, too")
            home[column] = family.name
    reads = []
    for read in top.sections("read"):
        reads.append(read.texts("columns"))
        if unknown := [column for column in reads[-1] if column not in home]:
            raise read.wrong("columns", f"no family has {unknown[0]!r}; there are {', '.join(home) or 'none'}")
        read.end()
    top.end()
    try:
        design = design_of(key)
    except ConfigError as error:
        raise top.wrong("key", str(error)) from None
    return replace(design, bucket_us=bucket_us, families=families, reads=tuple(reads))


def _family(name: str, section: Section) -> Family:
    family = Family(
        name=name,
        columns=section.texts("columns"),
        max_age_us=section.duration("max_age", 0),
        max_versions=section.whole("max_versions", 0, low=0, high=1_000_000_000),
    )
    section.end()
    return family
