"""What a store holds, as a few numbers: for each tenant and day how many values, and a checksum of them.

Rule 1: a checksum is the sum of the hashes of all values, so the order in which an engine gives them does not matter.
Rule 2: device, time, name, kind, content and version of a value are in its hash; how an engine stores it is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from widerow.engine.port import Engine
from widerow.engine.rows import Rows
from widerow.model.arrays import Bytes, Codes, Floats, Hashes, Ints
from widerow.model.batch import CellKind
from widerow.model.hashing import SEED, hash_names, mix
from widerow.model.kernel import kernel
from widerow.model.names import Coded
from widerow.model.times import DAY
from widerow.schema.table import Table

_NUMBER = int(CellKind.NUMBER)
_WORD = 1 << 64

Part = tuple[str, str, int]
"""Table, tenant ("" where a table has none) and day (0 where it has no time)."""


@dataclass(slots=True)
class Contents:
    """Counts and checksums by part. Equal contents compare equal."""

    counts: Counter[Part] = field(default_factory=Counter)
    sums: Counter[Part] = field(default_factory=Counter)

    def add(self, table: Table, rows: Rows) -> None:
        if not len(rows):
            return
        hashes = cell_hashes(table, rows)
        row = rows.cells.rows()
        day = _days(table, rows)[row]
        tenants = rows.keys.get("tenant_id")
        names = tenants.names.to_list() if isinstance(tenants, Coded) else [""]
        tenant = tenants.codes[row] if isinstance(tenants, Coded) else np.zeros(len(row), np.int32)
        for code in np.unique(tenant).tolist():
            for number in np.unique(day[tenant == code]).tolist():
                here = (tenant == code) & (day == number)
                part = (table.name, names[code], int(number))
                self.counts[part] += int(here.sum())
                self.sums[part] = (self.sums[part] + int(hashes[here].sum(dtype=np.uint64))) % _WORD

    def differences(self, other: Contents) -> Iterator[tuple[Part, int, int]]:
        """Parts that are not the same, with the number of values on either side."""
        for part in sorted(self.counts.keys() | other.counts.keys()):
            if (self.counts[part], self.sums[part]) != (other.counts[part], other.sums[part]):
                yield part, self.counts[part], other.counts[part]


def contents_of(engine: Engine, tables: Sequence[Table], progress: Callable[[int], None] = lambda _: None) -> Contents:
    """Everything in the tables. Reads all of it."""
    found = Contents()
    for table in tables:
        for rows in engine.scan(table, None):
            found.add(table, rows)
            progress(len(rows.cells))
    return found


def _days(table: Table, rows: Rows) -> Ints:
    times = rows.keys.get("event_us")
    return np.asarray(times) // DAY if times is not None and table.sparse else np.zeros(len(rows), np.int64)


def cell_hashes(table: Table, rows: Rows) -> Hashes:
    """One for each cell. Conditional rows have no version worth the name."""
    key = np.full(len(rows), SEED)
    for column in table.key:
        values = rows.keys[column.name]
        parts = hash_names(values.names)[values.codes] if isinstance(values, Coded) else values.astype(np.uint64)
        _stir(key, np.ascontiguousarray(parts))
    if not table.conditional:
        _stir(key, rows.version_us.astype(np.uint64))
    cells = rows.cells
    out = np.empty(len(cells), np.uint64)
    _hash_cells(
        key,
        cells.offsets,
        hash_names(cells.names),
        cells.name,
        cells.kind,
        cells.number,
        hash_names(cells.texts),
        cells.text,
        out,
    )
    return out


@kernel
def _stir(into: Hashes, words: Hashes) -> None:
    for i in range(len(into)):
        into[i] = mix(into[i], words[i])


@kernel
def _hash_cells(
    key: Hashes,
    offsets: Ints,
    names: Hashes,
    name: Codes,
    kind: Bytes,
    number: Floats,
    texts: Hashes,
    text: Codes,
    out: Hashes,
) -> None:
    bits = number.view(np.uint64)
    for i in range(len(key)):
        for c in range(offsets[i], offsets[i + 1]):
            h = mix(mix(key[i], names[name[c]]), np.uint64(kind[c]))
            out[c] = mix(h, bits[c] if kind[c] == _NUMBER else texts[text[c]])
