"""A table in RocksDB's own words: its column families and the template of its keys. For people; nothing is read from it."""

from __future__ import annotations

from widerow.engine.rocksdb.families import Families
from widerow.model.times import format_duration
from widerow.schema.table import KeyColumn, Table


def definition(table: Table) -> str:
    """A line for the column family, then its key, its values and how it expires."""
    window = table.window
    family = f"{Families(table).name}@N" if window else Families(table).name
    lines = [f"column family {family}", f"  key    {_parts(table.partition)} | {_parts(table.clustering) or '-'}"]
    if table.conditional:
        lines.append(f"  value  one row of {', '.join(table.columns)}; written by compare-and-set")
    elif table.columns:
        lines.append(f"  value  one row of {', '.join(table.columns)}")
    else:
        lines.append("  value  named cells: numbers, texts, tags, records")
    if window:
        lines.append(
            f"  N      {window.column} / {window.width_us} us ({format_duration(window.width_us)}), rounded down; "
            f"dropped whole {format_duration(window.keep_us)} after its end"
        )
    return "\n".join(lines)


def _parts(columns: tuple[KeyColumn, ...]) -> str:
    return " ".join(
        f"{{{c.name}{':int' if c.type == 'int' else ''}{':descending' if c.descending else ''}}}" for c in columns
    )
