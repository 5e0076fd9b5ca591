"""What a table looks like in Cassandra, and the CQL for it. Pure: texts in, texts out.

Rule 1: a sparse cell is a CQL row of its own: its name is the last clustering column, `metric_name`. A number, a text and a
record have a column each; of several that are set, the one written with the greatest timestamp counts.
Rule 2: a fixed row is one frozen map, so that rows are never mixed from two writes and `IF` compares the whole of one.
Rule 3: a cell's version is its CQL timestamp. When it expires stands beside it in `expires`, because a TTL cannot be read
back exactly; the TTL is what gives the space back.
Rule 4: a partition of sparse rows names the cells in it, in a static column: whoever wants each cell's newest value knows
when all of them have been seen, and need not read the partition to its end.
Rule 5: a clustering column of microseconds is preceded by the same time as a CQL timestamp, which people can read but which
lacks the microseconds. A key column whose values are whole days or milliseconds is a date or a timestamp itself.
Rule 6: where records are rollups, what they say stands in columns beside them, for people: written with the record, with its
timestamp and TTL, and never read here.
The shapes are stored: see docs/format/cassandra.md before changing one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from widerow.engine.port import Span
from widerow.model.arrays import Ints
from widerow.model.times import DAY, HOUR, MINUTE, MS
from widerow.schema.table import KeyColumn, Table

TAG = "#tag:"
"""What the name of a tag begins with in `metric_name`, ..."""
ODD = "#odd:"
"""... and that of a value whose own name begins with #, so that none can be taken for a tag."""

CELL = "cell"
"""The type of a fixed row's values: a number or a text. Its bytes are those of a `tuple<double, text>`, as which older
stores have it; `cqlsh` cannot show a tuple in which one is null.
"""

_SPARSE_COLUMNS = {
    "metric_value": "double",
    "metric_text": "text",
    "metric_record": "blob",
    "tags": "frozen<map<text, text>>",
    "expires": "timestamp",
}
_FIXED_COLUMNS = {"body": f"frozen<map<text, frozen<{CELL}>>>", "expires": "timestamp"}
_STATISTICS = {"count": "bigint", "devices": "bigint", "first_time": "timestamp", "last_time": "timestamp"}
"""Types of the statistics that are not doubles."""
_GRACE_S = DAY // 1_000_000
"""Tables that expire keep tombstones for a day only: what comes back from a replica after that is hidden by erase marks."""


def cell_name(name: str, *, tag: bool) -> str:
    """The name of a cell as `metric_name` holds it."""
    return TAG + name if tag else ODD + name if name.startswith("#") else name


def plain_name(stored: str) -> tuple[str, bool]:
    """The name of a cell, and whether it is a tag."""
    if stored.startswith(TAG):
        return stored[len(TAG) :], True
    return stored.removeprefix(ODD), False


def create_keyspace(keyspace: str, dc: str, replication: int) -> str:
    return (
        f"CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = "
        f"{{'class': 'NetworkTopologyStrategy', '{dc}': {replication}}}"
    )


def create_cell(keyspace: str) -> str:
    return f"CREATE TYPE IF NOT EXISTS {keyspace}.{CELL} (number double, text text)"


@dataclass(frozen=True, slots=True)
class Unit:
    """The CQL type of a key column that is a moment: how many microseconds one is, and what stands for 1970."""

    cql: str
    us: int
    origin: int
    packed_as: str

    def value(self, time_us: int) -> int:
        """As CQL has it; of a time between two, the later one."""
        return -(-time_us // self.us) + self.origin

    def packed(self, time_us: Ints) -> list[bytes]:
        """The bytes of many. `ValueError`: one is between two."""
        if (time_us % self.us).any():
            raise ValueError(f"a time that is no multiple of {self.us} microseconds cannot be a {self.cql}")
        values = (time_us // self.us + self.origin).astype(self.packed_as)
        packed: list[bytes] = values.view(f"V{values.itemsize}").tolist()
        return packed


_UNITS = (Unit("date", DAY, 1 << 31, ">u4"), Unit("timestamp", MS, 0, ">i8"))


def readable_time(table: Table, column: KeyColumn) -> str | None:
    """The name of the timestamp column that goes before a column of microseconds."""
    if column.type != "int" or not column.name.endswith("_us") or unit_of(table, column):
        return None
    return f"{column.name.removesuffix('_us')}_time"


def unit_of(table: Table, column: KeyColumn) -> Unit | None:
    """Of a column that is a moment."""
    multiple_us = next((m.multiple_us for m in table.moments if m.column == column.name), 1)
    return next((unit for unit in _UNITS if multiple_us % unit.us == 0), None)


@dataclass(frozen=True)
class Physical:
    """One table's CQL."""

    keyspace: str
    table: Table

    @cached_property
    def name(self) -> str:
        return f"{self.keyspace}.{self.table.name}"

    @cached_property
    def partition(self) -> list[str]:
        return [self.known_as[c.name] for c in self.table.partition]

    @cached_property
    def known_as(self) -> dict[str, str]:
        """The names of the key columns here, by their logical ones."""
        return {c.name: c.name for c in self.table.key} | {m.column: m.known_as for m in self.table.moments}

    @cached_property
    def units(self) -> dict[str, Unit]:
        """Of the key columns that are moments, by their logical names."""
        return {c.name: unit for c in self.table.key if (unit := unit_of(self.table, c))}

    @cached_property
    def shown(self) -> tuple[tuple[str, str], ...]:
        """The columns that show what a record says, and which statistic each shows."""
        return self.table.summaries.columns if self.table.summaries else ()

    @cached_property
    def clustering(self) -> list[str]:
        """The clustering columns of logical rows: without `metric_name`."""
        out: list[str] = []
        for column in self.table.clustering:
            out += filter(None, [readable_time(self.table, column), self.known_as[column.name]])
        return out

    @cached_property
    def key(self) -> list[str]:
        """Every key column, in order."""
        return [*self.partition, *self.clustering, *(["metric_name"] if self.table.sparse else [])]

    @property
    def descending(self) -> bool:
        return any(c.descending for c in self.table.clustering)

    # -- definition

    def create(self) -> str:
        types = {self.known_as[c.name]: self._type(c) for c in self.table.key}
        types |= {name: "timestamp" for c in self.table.clustering if (name := readable_time(self.table, c))}
        types["metric_name"] = "text"
        columns = [f"{name} {types[name]}" for name in self.key]
        columns += ["cell_names set<text> STATIC"] if self.table.sparse else []
        columns += [f"{n} {t}" for n, t in (_SPARSE_COLUMNS if self.table.sparse else _FIXED_COLUMNS).items()]
        columns += [f"{n} {_STATISTICS.get(statistic, 'double')}" for n, statistic in self.shown]
        behind = ", ".join([f"({', '.join(self.partition)})", *self.key[len(self.partition) :]])
        return f"CREATE TABLE IF NOT EXISTS {self.name} ({', '.join(columns)}, PRIMARY KEY ({behind})){self._options()}"

    def _type(self, column: KeyColumn) -> str:
        unit = self.units.get(column.name)
        return unit.cql if unit else "text" if column.type == "text" else "bigint"

    def _options(self) -> str:
        options = []
        if self.clustering:
            order = "DESC" if self.descending else "ASC"
            parts = [f"{name} {order}" for name in self.clustering] + (["metric_name ASC"] if self.table.sparse else [])
            options.append(f"CLUSTERING ORDER BY ({', '.join(parts)})")
        if self.table.summaries:
            # Written again when reports come late: copies in files of other windows would stay until they expire.
            options.append("compaction = {'class': 'LeveledCompactionStrategy'}")
        elif self.table.window:
            size, unit = _window(self.table.window.width_us)
            options.append(
                "compaction = {'class': 'TimeWindowCompactionStrategy', "
                f"'compaction_window_size': '{size}', 'compaction_window_unit': '{unit}'}}"
            )
        if self.table.window:
            options.append(f"gc_grace_seconds = {_GRACE_S}")
        return " WITH " + " AND ".join(options) if options else ""

    # -- statements; every value is bound

    def write(self) -> str:
        """Key columns come last."""
        columns = _SPARSE_COLUMNS if self.table.sparse else _FIXED_COLUMNS
        values = ", ".join(f"{name} = ?" for name in columns)
        return f"UPDATE {self.name} USING TIMESTAMP ? AND TTL ? SET {values} WHERE {_all_equal(self.key)}"

    def write_summary(self) -> str:
        """A record with what it says; then the key, the version and the TTL.

        An INSERT has these two once for all columns of a row; an UPDATE has them with each, 12 bytes a column.
        """
        columns = ["metric_record", "tags", "expires", *(name for name, _ in self.shown), *self.key]
        marks = ", ".join("?" * len(columns))
        return f"INSERT INTO {self.name} ({', '.join(columns)}) VALUES ({marks}) USING TIMESTAMP ? AND TTL ?"

    def name_cells(self) -> str:
        where = _all_equal(self.partition)
        return f"UPDATE {self.name} USING TIMESTAMP ? AND TTL ? SET cell_names = cell_names + ? WHERE {where}"

    def select_names(self) -> str:
        """The names of a partition's cells: one read of a static column, however many rows there are."""
        columns = ", ".join([*self.partition, "cell_names"])
        return f"SELECT DISTINCT {columns} FROM {self.name} WHERE {_all_equal(self.partition)}"

    def select_first(self, *, low: str = "", high: str = "") -> str:
        """As `select`, with the names of the partition's cells as the last column."""
        where = " AND ".join(filter(None, [_all_equal(self.partition), low, high]))
        return f"SELECT {', '.join([*self.selected, 'cell_names'])} FROM {self.name} WHERE {where}"

    def select(self, *, keys: int, low: str = "", high: str = "", named: bool = False) -> str:
        """Rows of one partition: the first `keys` clustering columns equal, the rest within bounds (see `bound`).

        With `named`, a last value lists the cells wanted. They are picked by the server, from one partition.
        """
        names = "metric_name IN ?" if named else ""
        where = " AND ".join(filter(None, [_all_equal([*self.partition, *self.clustering[:keys]]), low, high, names]))
        return f"SELECT {', '.join(self.selected)} FROM {self.name} WHERE {where}{' ALLOW FILTERING' if named else ''}"

    def select_all(self, *, behind: bool) -> str:
        where = f" WHERE token({', '.join(self.partition)}) > token({', '.join('?' * len(self.partition))})"
        return f"SELECT {', '.join(self.selected)} FROM {self.name}{where if behind else ''}"

    @cached_property
    def selected(self) -> list[str]:
        """The logical key columns, the cell's name, then each value and its version. Moments are read as milliseconds."""
        sparse, known = self.table.sparse, self.known_as
        cells = ["metric_value", "metric_text", "metric_record"] if sparse else ["body"]
        names = [f"toUnixTimestamp({known[c.name]})" if c.name in self.units else known[c.name] for c in self.table.key]
        names += ["metric_name"] if sparse else []
        names += [part for cell in cells for part in (cell, f"WRITETIME({cell})")]
        return [*names, "toUnixTimestamp(expires)", "WRITETIME(expires)"]

    def bound(self, operator: str, columns: int) -> str:
        """A bound on the first clustering columns together."""
        return f"({', '.join(self.clustering[:columns])}) {operator} ({', '.join('?' * columns)})"

    def delete(self, *, low: str = "", high: str = "") -> str:
        """Rows of one partition within bounds."""
        where = " AND ".join(filter(None, [_all_equal(self.partition), low, high]))
        return f"DELETE FROM {self.name} USING TIMESTAMP ? WHERE {where}"

    def delete_row(self) -> str:
        return f"DELETE FROM {self.name} USING TIMESTAMP ? WHERE {_all_equal(self.key)}"

    # -- conditional tables

    def insert_new(self) -> str:
        marks = ", ".join("?" * (len(self.key) + 1))
        return f"INSERT INTO {self.name} ({', '.join([*self.key, 'body'])}) VALUES ({marks}) IF NOT EXISTS"

    def replace(self) -> str:
        return f"UPDATE {self.name} SET body = ? WHERE {_all_equal(self.key)} IF body = ?"

    def remove(self) -> str:
        return f"DELETE FROM {self.name} WHERE {_all_equal(self.key)} IF body = ?"

    def remove_any(self) -> str:
        return f"DELETE FROM {self.name} WHERE {_all_equal(self.key)} IF EXISTS"

    # -- spans

    def span_bounds(self, span: Span) -> tuple[str, list[int | str], str, list[int | str]]:
        """CQL and values of a span's start and of its stop. A column of microseconds has two columns here."""
        if not self.table.clustering:
            return "", [], "", []
        first = self.table.clustering[0]
        width = 1 if readable_time(self.table, first) is None else 2
        low = ("", []) if span.start is None else (self.bound(">=", width), self.values(first, span.start))
        high = ("", []) if span.stop is None else (self.bound("<", width), self.values(first, span.stop))
        return *low, *high

    def delete_bounds(self, span: Span) -> tuple[str, list[int | str], str, list[int | str]]:
        """As `span_bounds`, but never without a bound on a sparse table: deleting a whole partition would take the names of
        its cells along, which newer rows still need.
        """
        low, low_values, high, high_values = self.span_bounds(span)
        if self.table.sparse and not low and not high:
            column = self.table.clustering[0] if self.table.clustering else KeyColumn("metric_name")
            least: int | str = "" if column.type == "text" else self.values(column, -(1 << 63))[0]
            low, low_values = f"{self.key[len(self.partition)]} >= ?", [least]
        return low, low_values, high, high_values

    def values(self, column: KeyColumn, value: int | str) -> list[int | str]:
        """A clustering column's value as its physical columns have it."""
        unit = self.units.get(column.name)
        if unit:
            return [unit.value(int(value))]
        return [int(value) // MS, value] if readable_time(self.table, column) else [value]

    def _partition_value(self, column: KeyColumn, value: int | str) -> int | str:
        unit = self.units.get(column.name)
        return unit.value(int(value)) if unit else value

    def can_hold(self, key: tuple[int | str, ...]) -> bool:
        """Whether there may be rows with this key, or this start of one: moments have only multiples of their units."""
        units, named = self.units, zip(self.table.key, key, strict=False)
        return not units or all(int(value) % units[c.name].us == 0 for c, value in named if c.name in units)

    def clustering_values(self, key: tuple[int | str, ...]) -> list[int | str]:
        """Of clustering columns, or of the first of them."""
        return [v for column, value in zip(self.table.clustering, key, strict=False) for v in self.values(column, value)]

    def partition_values(self, key: tuple[int | str, ...]) -> list[int | str]:
        """Of partition columns. Cassandra refuses a key that is a single empty text."""
        if len(self.partition) == 1 and self.table.partition[0].type == "text":
            return [escaped(str(key[0]))]
        return [self._partition_value(c, value) for c, value in zip(self.table.partition, key, strict=False)]


def escaped(text: str) -> str:
    """Never empty; what begins with NUL gets another one."""
    return "\0" + text if not text or text[0] == "\0" else text


def unescaped(text: str) -> str:
    return text.removeprefix("\0")


def _all_equal(columns: list[str]) -> str:
    return " AND ".join(f"{name} = ?" for name in columns)


def _window(width_us: int) -> tuple[int, str]:
    for unit_us, unit in ((DAY, "DAYS"), (HOUR, "HOURS"), (MINUTE, "MINUTES")):
        if width_us % unit_us == 0:
            return width_us // unit_us, unit
    return max(1, width_us // MINUTE), "MINUTES"
