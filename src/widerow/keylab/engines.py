"""A design as an engine would hold it: a template made a table of Cassandra, or a table made a template."""

from __future__ import annotations

from dataclasses import replace

from widerow.keylab.design import Design, grows
from widerow.model.errors import ConfigError


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
