"""What a store must hold in the end, whatever was delivered and in which order: the oracle of `chaos`.

Rule: for one device, time and metric the greatest version wins. Nothing else matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from widerow.model.arrays import Bytes, Codes, Floats, Ints
from widerow.model.batch import Batch, CellKind, Value, batch_of
from widerow.model.combine import united
from widerow.model.merge import merge
from widerow.model.names import Coded, Names


@dataclass(frozen=True, slots=True, eq=False)
class Settled:
    """Cells by device, time and name, each once; devices and names in the order of their bytes."""

    device: Coded
    time_us: Ints
    name: Coded
    kind: Bytes
    number: Floats
    text: Coded
    version_us: Ints

    def __len__(self) -> int:
        return len(self.time_us)

    def values(self) -> dict[tuple[str, int, str], Value]:
        """(device, time, metric) -> value; without tags. For comparisons: it makes an object of everything."""
        texts = self.text.names.to_list()
        columns = (self.device.to_list(), self.time_us, self.name.to_list(), self.kind, self.number, self.text.codes)
        return {
            (device, int(time_us), name): float(number) if kind == CellKind.NUMBER else texts[code]
            for device, time_us, name, kind, number, code in zip(*columns, strict=True)
            if kind != CellKind.TAG
        }


def settled(batches: Sequence[Batch]) -> Settled:
    """What of all that was delivered stays."""
    whole = merge(list(batches) or [batch_of([])])
    cells = whole.cells
    row = cells.rows()
    device, name = _by_name(united([whole.device])), _by_name(Coded(cells.names, cells.name))
    tag = cells.kind == CellKind.TAG  # a tag and a metric of one name are two things
    order = np.lexsort((whole.version_us[row], tag, name.codes, whole.time_us[row], device.codes[row]))
    row, tag = row[order], tag[order]
    device, name, time_us = device.take(row), name.take(order), whole.time_us[row]
    last = np.ones(len(order), np.bool_)
    differs = (np.diff(device.codes) != 0) | (np.diff(time_us) != 0) | (np.diff(name.codes) != 0)
    last[:-1] = differs | (tag[1:] != tag[:-1])
    kept = order[last]
    return Settled(
        device.take(last),
        time_us[last],
        name.take(last),
        cells.kind[kept],
        cells.number[kept],
        Coded(cells.texts, cells.text[kept]),
        whole.version_us[row[last]],
    )


def _by_name(column: Coded) -> Coded:
    names = column.names.to_bytes_list()
    order = sorted(range(len(names)), key=names.__getitem__)
    rank: Codes = np.empty(len(names), np.int32)
    rank[order] = np.arange(len(names), dtype=np.int32)
    return Coded(Names.of_bytes([names[i] for i in order]), rank[column.codes])
