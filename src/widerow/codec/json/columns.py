"""What the kernels find: columns of reports and cells, with strings as spans of one buffer.

Rule 1: the buffer is the text, `PAD` zeros, strings of ours that reports may be given, room for what is unescaped, and `PAD`
zeros again.
Rule 2: columns are made for the worst text of their length, which costs nothing until it is written to, then cut to size.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from widerow.codec.json.scan import CELLS, ODDS, REPORTS, SCRATCH, STATE_SIZE
from widerow.codec.json.slow import SlowReport
from widerow.codec.json.spans import code_spans
from widerow.model.arrays import PAD, Bytes, Codes, Floats, Ints
from widerow.model.batch import RECEIVED_TAG, Batch, CellKind, Cells

_RECEIVED = b"".join(part.encode() for part in RECEIVED_TAG)
_MIN_REPORT = len(b'{"values":{"m":1}}')
_MIN_CELL = len(b'"m":1')


class Columns:
    def __init__(self, size: int, *, ours: bytes = b"", escapes: bool, odds: int, bodies: int = 1) -> None:
        """For a text of `size` bytes, with up to so many odd reports. The caller writes the text into `buffer`."""
        self.ours_at = size + PAD + len(_RECEIVED)
        scratch = self.ours_at + len(ours)
        self.buffer: Bytes = np.empty(scratch + (size if escapes else 0) + PAD, np.uint8)
        self.buffer[size:scratch] = np.frombuffer(bytes(PAD) + _RECEIVED + ours, np.uint8)
        self.buffer[-PAD:] = 0
        name_size = len(RECEIVED_TAG[0])
        self.received = (span(size + PAD, name_size), span(size + PAD + name_size, len(_RECEIVED) - name_size))
        reports = size // _MIN_REPORT + bodies
        cells = size // _MIN_CELL + reports + bodies
        self.device: Ints = np.empty(reports, np.int64)
        self.time_us: Ints = np.empty(reports, np.int64)
        self.position: Codes = np.empty(reports, np.int32)
        self.offsets: Ints = np.empty(reports + 1, np.int64)
        self.name: Ints = np.empty(cells, np.int64)
        self.kind: Bytes = np.empty(cells, np.uint8)
        self.number: Floats = np.empty(cells, np.float64)
        self.text: Ints = np.empty(cells, np.int64)
        self._ranges: Ints = np.empty(3 * odds, np.int64)
        self.offsets[0] = 0
        self.state: Ints = np.zeros(STATE_SIZE, np.int64)
        self.state[SCRATCH] = scratch

    def room(self) -> tuple[Any, ...]:
        """The last arguments of a scan."""
        reports = (self.device, self.time_us, self.position, self.offsets)
        return (*reports, self.name, self.kind, self.number, self.text, self._ranges, self.state)

    def cut(self) -> None:
        """To what was found. Copies: no column may pin the room it was given."""
        n, c = int(self.state[REPORTS]), int(self.state[CELLS])
        self.device = self.device[:n].copy()
        self.time_us = self.time_us[:n].copy()
        self.position = self.position[:n].copy()
        self.offsets = self.offsets[: n + 1].copy()
        self.name = self.name[:c].copy()
        self.kind = self.kind[:c].copy()
        self.number = self.number[:c].copy()
        self.text = self.text[:c].copy()
        self._ranges = self._ranges[: 3 * int(self.state[ODDS])].copy()

    def odds(self) -> Ints:
        """(start, stop, place) of each report that was left to the slow path, as `Looking.at` takes them."""
        return self._ranges.reshape(-1, 3)

    def append(self, slow: list[tuple[SlowReport, int]]) -> None:
        """Reports of the slow path, behind the others."""
        reports = [report for report, _ in slow]
        cells = [cell for report in reports for cell in report.cells]
        devices = self._write([report.device for report in reports])
        names = self._write([cell.name for cell in cells])
        texts = self._write([cell.text for cell in cells])
        kinds = np.array([cell.kind for cell in cells], np.uint8)
        texts[kinds == CellKind.NUMBER] = -1
        counts = np.cumsum([len(report.cells) for report in reports])
        self.device = np.concatenate([self.device, devices])
        self.time_us = np.concatenate([self.time_us, np.array([report.time_us for report in reports], np.int64)])
        self.position = np.concatenate([self.position, np.array([position for _, position in slow], np.int32)])
        self.offsets = np.concatenate([self.offsets, self.offsets[-1] + counts])
        self.name = np.concatenate([self.name, names])
        self.kind = np.concatenate([self.kind, kinds])
        self.number = np.concatenate([self.number, np.array([cell.number for cell in cells])])
        self.text = np.concatenate([self.text, texts])

    def _write(self, strings: list[str]) -> Ints:
        """Strings into the buffer; their spans."""
        parts = [string.encode() for string in strings]
        lengths = np.array([len(part) for part in parts], np.int64)
        starts = len(self.buffer) - PAD + np.cumsum(lengths) - lengths
        added = np.frombuffer(b"".join(parts) + bytes(PAD), np.uint8)
        self.buffer = np.concatenate([self.buffer[:-PAD], added])
        return starts << 16 | lengths

    def batch(self, version_us: int, seed: int) -> Batch:
        names = code_spans(self.buffer, self.name, seed)
        texts = code_spans(self.buffer, self.text, seed)
        return Batch(
            code_spans(self.buffer, self.device, seed),
            self.time_us,
            np.full(len(self.time_us), version_us, np.int64),
            self.position,
            Cells(self.offsets, names.names, names.codes, self.kind, self.number, texts.names, texts.codes),
        )


def span(start: int, length: int) -> int:
    return start << 16 | length
