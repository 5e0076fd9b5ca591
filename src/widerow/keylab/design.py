"""A design: a key, and the table around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from widerow.keylab.words import as_template, is_aggregate, read_as_fixed
from widerow.keys.spec import KeySpec
from widerow.keys.template import TIMES, UNVALUED, Part, parts_of, template_of
from widerow.model.errors import ConfigError
from widerow.model.times import HOUR

_SHOWN = 100
"""Characters of a key in a message."""


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
    static: frozenset[str] = frozenset()
    others: tuple[str, ...] = ()
    """Clauses that the lab does not judge."""


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
    notes: tuple[str, ...] = ()
    """How it was read, where that may not be what is meant."""

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


def design_of(template: str) -> Design:
    """The design of a template, or of a key in classic notation."""
    read = template if "{" in template else as_template(template)
    try:
        parts = parts_of(read)
        fixed = [word for part in parts if part.kind == "literal" for word in read_as_fixed(part.value)]
        notes = [f"{word!r} is read as fixed text: write {{device}}, {{type}}, ... for a value" for word in fixed]
        return Design(text=template, parts=parts, notes=tuple(notes))
    except ValueError as error:
        shown = template if len(template) <= _SHOWN else f"{template[:_SHOWN]}..."
        raise ConfigError(f"key {shown!r}: {error}") from None


def for_engine(design: Design, engine: str) -> Design:
    """The design on `bigtable` or `cassandra`; empty: as it is written.

    Of a template the parts before the time are the partition key on Cassandra, together with a bucket.
    """
    if engine == "bigtable":
        return replace(design, partition=0)
    if engine != "cassandra" or design.partition:
        return design
    fields = design.fields
    if any(part.kind in ("salt", "hash") for part in fields):
        raise ConfigError(
            f"key {design.text!r}: Cassandra hashes partition keys itself; leave out the salt, or use --engine bigtable"
        )
    held = next((i for i, part in enumerate(fields) if part.value in ("time", "sequence")), len(fields))
    first = next((i for i, part in enumerate(fields) if grows(part)), len(fields))
    return replace(design, partition=max(1, held, first))
