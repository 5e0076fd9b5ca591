"""Reads a design: a template, classic notation, TOML or `CREATE TABLE`.

Rule: a fault in a text is a `ConfigError` of one line that names the place.
"""

from __future__ import annotations

from dataclasses import replace

from widerow.keylab.cql import read_table
from widerow.keylab.design import Design, Family, design_of
from widerow.model.errors import ConfigError
from widerow.model.times import HOUR
from widerow.plan.sections import Section, document


def read_design(text: str, source: str) -> Design:
    """The design that a text describes. `source` names it in errors and tables."""
    stripped = text.strip()
    if not stripped:
        raise ConfigError(f"{source}: it is empty: give a template such as {{tenant}}#{{device}}#{{reversed:13}}")
    if "CREATE TABLE" in stripped.upper():
        return read_table(stripped, source)
    if "\n" in stripped or "=" in stripped:
        return _read_toml(stripped, source)
    return design_of(stripped)


def _read_toml(text: str, source: str) -> Design:
    top = document(text, source)
    key, bucket_us = top.text("key", ""), top.duration("bucket", HOUR)
    listed = top.section("family")
    families = tuple(_family(name, listed.section(name)) for name in list(listed.given))
    reads = []
    for read in top.sections("read"):
        reads.append(read.texts("columns"))
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
