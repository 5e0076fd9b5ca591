"""The tables and times of the contract: every shape a table may have, once."""

from __future__ import annotations

from dataclasses import replace
from unittest import SkipTest

from widerow.engine.port import Engine
from widerow.model.times import DAY, HOUR, MS, SECOND
from widerow.schema.table import KeyColumn, Table, Window

START_US = 1_800_000_000 * SECOND
"""What the `clock` fixture shows at first. A whole hour."""

V1, V2, V3 = START_US + MS, START_US + 2 * MS, START_US + 3 * MS
"""Versions, oldest first."""

SPARSE = Table(
    "contract_sparse",
    partition=(KeyColumn("owner"), KeyColumn("part", "int")),
    clustering=(KeyColumn("at_us", "int", descending=True),),
)
TWIN = replace(SPARSE, name="contract_sparse_twin")
"""The same in all but its name: retention classes are such tables."""
NAMED = Table(
    "contract_named",
    partition=(KeyColumn("owner"),),
    clustering=(KeyColumn("name"), KeyColumn("n", "int")),
)
BACKWARDS = Table(
    "contract_backwards",
    partition=(KeyColumn("part", "int"), KeyColumn("owner")),
    clustering=(KeyColumn("name", descending=True), KeyColumn("n", "int", descending=True)),
)
SINGLE = Table("contract_single", partition=(KeyColumn("owner"), KeyColumn("other")))
"""One row a partition."""
FIXED = Table(
    "contract_fixed", partition=(KeyColumn("owner"),), clustering=(KeyColumn("name"),), columns=("size", "body", "more")
)
WINDOWED = Table(
    "contract_windowed",
    partition=(KeyColumn("owner"), KeyColumn("bucket", "int")),
    clustering=(KeyColumn("at_us", "int", descending=True),),
    window=Window("bucket", HOUR, DAY),
)
CONDITIONAL = Table(
    "contract_conditional",
    partition=(KeyColumn("owner"),),
    clustering=(KeyColumn("name"),),
    columns=("body", "revision"),
    conditional=True,
)
FACTS = Table("contract_facts", partition=(KeyColumn("what"),), columns=("body",), conditional=True)
"""Conditional, one row a partition."""

BY_COLUMN = replace(WINDOWED, name="contract_by_column", by_column=True)
BY_COLUMN_BACKWARDS = replace(BACKWARDS, name="contract_by_column_backwards", by_column=True)
"""Where an engine may store the cells of one name together, and must not let it be seen."""

TABLES = (
    SPARSE, TWIN, NAMED, BACKWARDS, SINGLE, FIXED, WINDOWED, CONDITIONAL, FACTS, BY_COLUMN, BY_COLUMN_BACKWARDS,
)  # fmt: skip

A = ("a", 0)
"""A partition of SPARSE."""


def needs(engine: Engine, feature: str) -> None:
    """Skip, visibly, where an engine lacks a feature. Every runner knows unittest's way of saying so."""
    if not getattr(engine.features, feature):
        raise SkipTest(f"{type(engine).__name__} lacks the feature {feature}")
