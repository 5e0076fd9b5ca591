"""Rows and scans as plain Python: what tests write down and compare.

Rule 1: a cell is named by a `str`, a tag by a `Tag`; a number is a float, a text or tag a str, a record bytes.
Rule 2: `gather` is strict. It refuses a scan that gives a cell twice, splits a row or a partition, or says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from widerow.engine.port import ALL, Columns, Engine, Span
from widerow.engine.rows import NEVER, Cursor, Key, Row, Rows, key_columns
from widerow.model.batch import CellKind, Cells
from widerow.model.names import Coded, Names
from widerow.schema.table import Table

Plain: TypeAlias = float | str | bytes


@dataclass(frozen=True, slots=True)
class Tag:
    """The name of a tag. A value may have the same name: it is another cell."""

    name: str


CellName: TypeAlias = str | Tag

Shape: TypeAlias = dict[CellName, Plain]
"""The cells of a row."""

_AnyShape: TypeAlias = Mapping[Any, Plain]
"""Mappings are invariant in their keys, but a `dict[str, float]` is a shape, too."""


class Live(NamedTuple):
    """A cell as a scan shows it. Equal to the plain tuple."""

    value: Plain
    version_us: int
    expire_us: int


class Fragment(NamedTuple):
    """Cells to write under one key, with one version."""

    key: Key
    cells: _AnyShape
    version_us: int
    expire_us: int = NEVER


LogicalRow: TypeAlias = tuple[Key, dict[CellName, Live]]
"""A clustering key and the live cells there."""

Logical: TypeAlias = dict[Key, list[LogicalRow]]
"""A scan: partitions in the order they came, the rows of each in theirs.

Where longer keys were asked for, those stand for partitions, and what is left of a row's key for its clustering key.
"""


def rows_from(table: Table, fragments: Sequence[Fragment]) -> Rows:
    """Fragments as columns, in order."""
    return Rows(
        key_columns(table.key, [f.key for f in fragments]),
        np.array([f.version_us for f in fragments], np.int64),
        np.array([f.expire_us for f in fragments], np.int64),
        _cells_from([f.cells for f in fragments]),
    )


def sparse_rows(table: Table, rows: Sequence[tuple[Key, _AnyShape]], *, version_us: int, expire_us: int = NEVER) -> Rows:
    """Rows of one version: (whole key, cells) each."""
    return rows_from(table, [Fragment(key, cells, version_us, expire_us) for key, cells in rows])


def _cells_from(rows: Sequence[_AnyShape]) -> Cells:
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(cells) for cells in rows], out=offsets[1:])
    kind, number, text = [], [], []
    names: list[str] = []
    texts: list[bytes] = []
    for name, value in (cell for cells in rows for cell in cells.items()):
        names.append(name.name if isinstance(name, Tag) else name)
        if isinstance(value, str | bytes):
            kind.append(CellKind.RECORD if isinstance(value, bytes) else _kind_of_text(name))
            number.append(np.nan)
            text.append(len(texts))
            texts.append(value if isinstance(value, bytes) else value.encode())
        else:
            kind.append(CellKind.NUMBER)
            number.append(float(value))
            text.append(-1)
    coded = Coded.of(names)
    return Cells(
        offsets,
        coded.names,
        coded.codes,
        np.array(kind, np.uint8),
        np.array(number, np.float64),
        Names.of_bytes(texts),
        np.array(text, np.int32),
    )


def _kind_of_text(name: CellName) -> CellKind:
    return CellKind.TAG if isinstance(name, Tag) else CellKind.TEXT


def logical(
    engine: Engine,
    table: Table,
    partitions: Sequence[Key] | None,
    span: Span = ALL,
    *,
    limit: int | None = None,
    columns: Columns | None = None,
    after: Cursor | None = None,
    first: bool = False,
) -> Logical:
    """One scan, as plain rows. All keys asked for have one length."""
    chunks = engine.scan(table, partitions, span, limit=limit, columns=columns, after=after, first=first)
    return gather(table, chunks, len(partitions[0]) if partitions else None)


def gather(table: Table, chunks: Iterable[Rows], asked: int | None = None) -> Logical:
    """The chunks of a scan as plain rows. `asked` is the length of the keys asked for, if they go beyond partitions."""
    cut = asked or len(table.partition)
    found: Logical = {}
    seen: set[Key] = set()
    last: Key | None = None
    for chunk in chunks:
        for i, cells in enumerate(_plain_cells(chunk.cells)):
            key = chunk.key(table, i)
            at, clustering = key[:cut], key[cut:]
            version_us, expire_us = int(chunk.version_us[i]), int(chunk.expire_us[i])
            assert cells, f"a fragment of {key} without cells"
            if key != last:
                assert key not in seen, f"fragments of {key} are not adjacent"
                assert at not in found or at == next(reversed(found)), f"rows of {at} are not contiguous"
                found.setdefault(at, []).append((clustering, {}))
                seen.add(key)
                last = key
            row = found[at][-1][1]
            for name, value in cells:
                assert name not in row, f"cell {name} of {key} came twice"
                row[name] = Live(value, version_us, expire_us)
    return found


def _plain_cells(cells: Cells) -> Iterable[list[tuple[CellName, Plain]]]:
    names, texts = cells.names.to_list(), cells.texts.to_bytes_list()
    cuts, name, kind = cells.offsets.tolist(), cells.name.tolist(), cells.kind.tolist()
    number, text = cells.number.tolist(), cells.text.tolist()

    def plain(c: int) -> tuple[CellName, Plain]:
        if kind[c] == CellKind.NUMBER:
            return names[name[c]], number[c]
        if kind[c] == CellKind.RECORD:
            return names[name[c]], texts[text[c]]
        return Tag(names[name[c]]) if kind[c] == CellKind.TAG else names[name[c]], texts[text[c]].decode()

    return ([plain(c) for c in range(cuts[i], cuts[i + 1])] for i in range(len(cuts) - 1))


def merged(pages: Iterable[Logical]) -> Logical:
    """Pages of one scan put together, in order."""
    whole: Logical = {}
    for page in pages:
        for at, rows in page.items():
            whole.setdefault(at, []).extend(rows)
    return whole


def values(rows: Sequence[LogicalRow]) -> list[tuple[Key, Shape]]:
    """Rows of one partition without versions and expiry."""
    return [(clustering, {name: cell.value for name, cell in cells.items()}) for clustering, cells in rows]


def keys(rows: Sequence[LogicalRow]) -> list[Key]:
    return [clustering for clustering, _ in rows]


def fixed_rows(engine: Engine, table: Table, partitions: Sequence[Key] | None) -> dict[Key, Row]:
    """The rows of a fixed table by whole key."""
    return {
        at + clustering: {str(name): _text_or_number(cell.value) for name, cell in cells.items()}
        for at, rows in logical(engine, table, partitions).items()
        for clustering, cells in rows
    }


def _text_or_number(value: Plain) -> float | str:
    assert not isinstance(value, bytes)
    return value


def refusal(call: Callable[[], object]) -> str:
    """The message of the ValueError that the call must raise."""
    try:
        call()
    except ValueError as error:
        return str(error)
    raise AssertionError("a ValueError was due")
