"""The CQL of tables is what the page says; what records say is packed as CQL has it."""

from __future__ import annotations

import re
from pathlib import Path
from struct import pack

import numpy as np
import pytest

from widerow.codec.record import encode_stats
from widerow.codec.stats import Stats
from widerow.engine.cassandra.physical import Physical
from widerow.engine.cassandra.summary import packed_columns
from widerow.engine.port import Span
from widerow.model.names import Names
from widerow.model.times import DAY, HOUR, MS, SECOND
from widerow.schema.rollups import LEVELS, MINUTES, Level, rollups
from widerow.schema.table import KeyColumn, Moment, Summaries, Table
from widerow.schema.tables import DEVICES, telemetry

PAGE = Path(__file__).parents[2] / "docs" / "format" / "cassandra.md"


def plain(cql: str) -> str:
    """Without what a reader does not see: line ends, and blanks within brackets."""
    return " ".join(cql.split()).replace("( ", "(").replace(" )", ")")


@pytest.mark.parametrize(
    "table",
    [telemetry(30 * DAY), rollups(MINUTES, 90 * DAY), DEVICES],
    ids=lambda table: table.name,
)
def test_tables_are_made_as_the_page_says(table: Table) -> None:
    blocks = re.findall(r"```sql\n(CREATE TABLE .*?)```", PAGE.read_text(), re.DOTALL)
    made = Physical("k", table).create().replace("CREATE TABLE IF NOT EXISTS k.", "CREATE TABLE ")
    assert plain(made) in [plain(block) for block in blocks]


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
def test_rollups_have_the_keys_that_the_page_says(level: Level) -> None:
    made = Physical("k", rollups(level, 0)).create()
    key = re.search(r"PRIMARY KEY (\(\(.*?\).*?\))", made)
    assert key is not None
    assert f"| `{level.table}_CLASS` | `{key[1]}` | " in PAGE.read_text()


def test_records_are_read_together_and_broken_ones_are_left_out() -> None:
    start_us = np.array([HOUR, 2 * HOUR])
    time_us = np.array([HOUR + SECOND, HOUR + 2 * SECOND + 7, 2 * HOUR])
    good = encode_stats(start_us, Stats.of(time_us, np.array([3.0, 1.0, -0.5]), np.array([0, 2, 3]))).to_bytes_list()
    records = [b"", good[0], b"\x01", b"\x63newer", good[1], good[0][:-9]]
    windows = np.array([0, HOUR, 0, 0, 2 * HOUR, HOUR])
    columns = ("count", "avg", "stddev", "max", "first_time", "last_time", "increase")
    first = pack(">qdddqqd", 2, 2.0, 1.0, 3.0, (HOUR + SECOND) // MS, (HOUR + 2 * SECOND) // MS, 1.0)
    second = pack(">qdddqqd", 1, -0.5, 0.0, -0.5, 2 * HOUR // MS, 2 * HOUR // MS, 0.0)
    want = [None, first, None, None, second, None]

    def check(some: list[int]) -> None:
        found = packed_columns(Names.of_bytes([records[i] for i in some]), windows[some], columns)
        assert [values and b"".join(values) for values in found] == [want[i] for i in some]

    check([0, 1, 2, 3, 4, 5])
    check([1, 4])
    check([2])
    check([])


def test_a_moment_is_the_coarsest_type_that_holds_it() -> None:
    def check(multiple_us: int, cql: str, exact: int, between: int) -> None:
        table = Table(
            "t",
            partition=(KeyColumn("owner"),),
            clustering=(KeyColumn("at_us", "int"),),
            moments=(Moment("at_us", multiple_us, "at"),),
        )
        physical = Physical("k", table)
        assert f"at {cql}," in physical.create()
        assert physical.clustering_values((DAY,)) == [exact]
        assert physical.span_bounds(Span(DAY - 1))[1] == [exact]
        assert physical.span_bounds(Span(DAY + 1))[1] == [between]

    check(30 * DAY, "date", 2**31 + 1, 2**31 + 2)
    check(DAY, "date", 2**31 + 1, 2**31 + 2)
    check(HOUR, "timestamp", DAY // MS, DAY // MS + 1)
    check(MS, "timestamp", DAY // MS, DAY // MS + 1)


def test_what_makes_no_sense_is_refused() -> None:
    key = {"partition": (KeyColumn("owner"),), "clustering": (KeyColumn("at_us", "int"),)}
    with pytest.raises(ValueError, match="moments are ints of the key"):
        Table("t", **key, moments=(Moment("owner", DAY, "day"),))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="rollups are in sparse tables"):
        Table("t", **key, summaries=Summaries("owner", ()))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="rollups are in sparse tables"):
        Table("t", **key, columns=("a",), summaries=Summaries("at_us", ()))  # type: ignore[arg-type]
