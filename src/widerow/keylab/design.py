"""A design: a key, and the table around it. Read from a template, from classic notation, from TOML or from `CREATE TABLE`.

Rule: a fault in a text is a `ConfigError` of one line that names the place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from widerow.keylab.words import as_template, is_aggregate
from widerow.keys.spec import KeySpec
from widerow.keys.template import TIMES, UNVALUED, Part, parts_of, template_of
from widerow.model.errors import ConfigError
from widerow.model.times import HOUR
from widerow.plan.sections import Section, document


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A column family of Bigtable."""

    name: str
    columns: tuple[str, ...] = ()
    max_age_us: int = 0
    """0: cells of any age stay."""
    max_versions: int = 0
    """0: all versions of a cell stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CqlTable:
    """What a `CREATE TABLE` says besides its key."""

    name: str
    columns: Mapping[str, str]
    """Names and types, in order."""
    partition: tuple[str, ...]
    clustering: tuple[str, ...]
    descending: frozenset[str] = frozenset()
    ttl_s: int = 0
    compaction: str = ""
    window_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """A key and what is around it."""

    text: str
    """As it was given, for tables of several designs."""
    parts: tuple[Part, ...]
    partition: int = 0
    """Cassandra: this many fields, from the left, are the partition key. 0: the table is sorted by the whole key."""
    bucket_us: int = HOUR
    """The width of a bucket whose field does not tell it."""
    families: tuple[Family, ...] = ()
    reads: tuple[tuple[str, ...], ...] = ()
    """Columns that are read together."""
    table: CqlTable | None = None

    @property
    def template(self) -> str:
        return template_of(self.parts)

    @property
    def spec(self) -> KeySpec:
        return KeySpec.of(self.parts)

    @property
    def fields(self) -> tuple[Part, ...]:
        return tuple(part for part in self.parts if part.kind != "literal")

    @property
    def values(self) -> tuple[str, ...]:
        return tuple(part.value for part in self.fields if part.kind not in UNVALUED)

    @property
    def is_aggregate(self) -> bool:
        """Its rows are summaries."""
        if self.table is not None:
            return is_aggregate(self.table.name)
        return any(part.kind == "literal" and is_aggregate(part.value) for part in self.parts)

    @property
    def time(self) -> Part | None:
        """The part that tells reports apart by their time."""
        return next((part for part in self.fields if part.value == "time"), None)

    @property
    def bucket(self) -> Part | None:
        return next((part for part in self.fields if part.value == "bucket"), None)

    @property
    def before_time(self) -> tuple[Part, ...]:
        """The fields before the first that grows with time; of Cassandra: the partition key without its times."""
        if self.partition:
            return tuple(part for part in self.fields[: self.partition] if not grows(part))
        fields = self.fields
        return fields[: next((i for i, part in enumerate(fields) if grows(part)), len(fields))]


def grows(part: Part) -> bool:
    """The part shows something that grows with time."""
    return part.kind not in UNVALUED and part.value in (*TIMES, "sequence")


def read_design(text: str, source: str) -> Design:
    """The design that a text describes. `source` names it in errors and tables."""
    from widerow.keylab.cql import read_table  # noqa: PLC0415 - it makes designs, too

    stripped = text.strip()
    if not stripped:
        raise ConfigError(f"{source}: it is empty: give a template such as {{tenant}}#{{device}}#{{reversed:13}}")
    if "CREATE TABLE" in stripped.upper():
        return read_table(stripped, source)
    if "\n" in stripped or "=" in stripped:
        return _read_toml(stripped, source)
    return design_of(stripped)


def design_of(template: str) -> Design:
    """The design of a template, or of a key in classic notation."""
    read = template if "{" in template else as_template(template)
    try:
        return Design(text=template, parts=parts_of(read))
    except ValueError as error:
        raise ConfigError(f"key {template!r}: {error}") from None


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
