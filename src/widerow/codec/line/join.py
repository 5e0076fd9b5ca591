"""Parts of a body become one batch: for the rare body that was read in several parts, or has lines read by plain Python."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from widerow.codec.line.slow import Line
from widerow.model.arrays import Codes
from widerow.model.batch import Batch, CellKind, Cells
from widerow.model.names import Coded, Names


class _Merged:
    """A dictionary made of several."""

    def __init__(self) -> None:
        self._codes: dict[bytes, int] = {}

    def code(self, string: str) -> int:
        return self._codes.setdefault(string.encode(), len(self._codes))

    def codes(self, names: Names, codes: Codes) -> Codes:
        """Codes into one of the dictionaries as codes into this; -1 stays -1."""
        new = [self._codes.setdefault(s, len(self._codes)) for s in names.to_bytes_list()]
        return np.array([*new, -1], np.int32)[codes]

    def names(self) -> Names:
        return Names.of_bytes(list(self._codes))


def lines_batch(lines: Sequence[tuple[int, Line]], version_us: int) -> Batch:
    """The batch of lines read one by one, each with its number."""
    devices, names, texts = _Merged(), _Merged(), _Merged()
    cells = [cell for _, line in lines for cell in line.cells]
    offsets = np.zeros(len(lines) + 1, np.int64)
    np.cumsum([len(line.cells) for _, line in lines], out=offsets[1:])
    device = np.array([devices.code(line.device) for _, line in lines], np.int32)
    name = np.array([names.code(metric) for metric, _, _ in cells], np.int32)
    text = np.array([texts.code(value) if isinstance(value, str) else -1 for _, _, value in cells], np.int32)
    return Batch(
        Coded(devices.names(), device),
        np.array([line.time_us for _, line in lines], np.int64),
        np.full(len(lines), version_us, np.int64),
        np.array([number for number, _ in lines], np.int32),
        Cells(
            offsets,
            names.names(),
            name,
            np.array([kind for _, kind, _ in cells], np.uint8),
            np.array([value if kind == CellKind.NUMBER else np.nan for _, kind, value in cells], np.float64),
            texts.names(),
            text,
        ),
    )


def joined(parts: Sequence[Batch]) -> Batch:
    """One batch of them all, in the order of their lines, with one entry for each string."""
    if len(parts) == 1:
        return parts[0]
    devices, names, texts = _Merged(), _Merged(), _Merged()
    device = np.concatenate([devices.codes(p.device.names, p.device.codes) for p in parts])
    name = np.concatenate([names.codes(p.cells.names, p.cells.name) for p in parts])
    text = np.concatenate([texts.codes(p.cells.texts, p.cells.text) for p in parts])
    offsets = np.zeros(len(device) + 1, np.int64)
    np.cumsum(np.concatenate([np.diff(p.cells.offsets) for p in parts]), out=offsets[1:])
    batch = Batch(
        Coded(devices.names(), device),
        np.concatenate([p.time_us for p in parts]),
        np.concatenate([p.version_us for p in parts]),
        np.concatenate([p.position for p in parts]),
        Cells(
            offsets,
            names.names(),
            name,
            np.concatenate([p.cells.kind for p in parts]),
            np.concatenate([p.cells.number for p in parts]),
            texts.names(),
            text,
        ),
    )
    if (np.diff(batch.position) < 0).any():
        return batch.take(np.argsort(batch.position, kind="stable"))
    return batch
