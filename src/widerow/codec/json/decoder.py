"""Bodies of JSON reports into batches.

Rule 1: each bad report is refused alone, with its position (the index in an array, 0 for a single object, the line for
NDJSON, counted from 0) and a reason that names what is wrong; its neighbours are kept.
Rule 2: a body that is not JSON as a whole is rejected whole, with the byte offset. Of NDJSON each line stands alone.
Rule 3: a cell given twice is kept twice; whoever checks batches decides (`conflict`).
"""

from __future__ import annotations

import secrets

import numpy as np

from widerow.codec.decoded import Decoded
from widerow.codec.json.scan import (
    ARRAY,
    CELLS,
    FAULT,
    LINES,
    ODDS,
    REPORTS,
    SCRATCH,
    SINGLE,
    STATE_SIZE,
    TOO_MANY,
    scan,
)
from widerow.codec.json.slow import Fault, NotJson, SlowReport, judge, parse
from widerow.codec.json.spans import code_spans
from widerow.model.arrays import PAD, Bytes, Codes, Floats, Ints
from widerow.model.batch import RECEIVED_TAG, Batch, CellKind, Cells
from widerow.model.errors import Refusal, Rejected, TooLarge
from widerow.model.times import PRECISION_US

MAX_REPORTS = 1_000_000
_RECEIVED = [part.encode() for part in RECEIVED_TAG]
_SPACE = b" \t\r\n"
_MIN_REPORT = len(b'{"device":"d","values":{"m":1}}')
_MIN_CELL = len(b'"m":1')
_MIN_ODD = len(b"1,")


class JsonDecoder:
    """Decodes bodies. Holds no state between them; safe to share between threads."""

    def __init__(self, *, max_reports: int = MAX_REPORTS, seed: int | None = None) -> None:
        """`seed` keeps the tables of names unpredictable to senders; a random one unless given."""
        self._max_reports = max_reports
        self._seed = secrets.randbits(64) if seed is None else seed

    def decode(self, body: bytes, *, precision: str = "ms", ndjson: bool, now_us: int, version_us: int) -> Decoded:
        """The reports of a body. Raises Rejected (`syntax`, `precision`) and TooLarge."""
        if precision not in PRECISION_US and precision != "ns":
            raise Rejected(f"precision {precision[:20]!r}: give s, ms, us or ns", code="precision")
        mode = LINES if ndjson else ARRAY if body.lstrip(_SPACE)[:1] == b"[" else SINGLE
        columns = _Columns(body, mode, PRECISION_US.get(precision, 0), now_us, self._max_reports)
        if columns.state[TOO_MANY]:
            raise TooLarge(f"the body holds more than {self._max_reports} reports; send several smaller ones")
        refused = _Refused()
        slow = [
            (report, position)
            for start, stop, position in columns.odds()
            if (report := _judge(body[start:stop], start, position, mode, precision, now_us, refused)) is not None
        ]
        if columns.state[FAULT] >= 0:
            raise _not_json(int(columns.state[FAULT]), "the array breaks off, or something stands between its reports")
        if slow:
            columns.append(slow)
        batch = columns.batch(version_us, self._seed)
        if slow:
            batch = batch.take(np.argsort(batch.position, kind="stable"))
        return Decoded(batch, refused.refusals())


def warm_up() -> None:
    """Compile the kernels."""
    report = b'{"device":"d","time":1,"values":{"m":1,"t":"x","e":"\\n"}}'
    deep = b'{"device":"d","values":{"m":' + b"[" * 70 + b"]" * 70 + b"}}"
    decoder = JsonDecoder(seed=0)
    decoder.decode(report + b"\n" + deep, ndjson=True, now_us=0, version_us=0)


def _not_json(at: int, reason: str) -> Rejected:
    return Rejected(f"the body is not JSON: byte {at}: {reason}", code="syntax")


def _judge(
    text: bytes, start: int, position: int, mode: int, precision: str, now_us: int, refused: _Refused
) -> SlowReport | None:
    try:
        value = parse(text)
    except NotJson as error:
        if mode != LINES:
            raise _not_json(start + error.at, error.reason) from None
        refused.add("syntax", f"byte {error.at}: {error.reason}", position)
        return None
    if mode == SINGLE and not isinstance(value, list):
        raise Rejected("the body must be an object or an array of objects", code="syntax")
    try:
        return judge(value, precision, now_us)
    except Fault as fault:
        refused.add(fault.code, fault.reason, position)
        return None


class _Refused:
    """Refusals, those of one code and reason together."""

    def __init__(self) -> None:
        self._positions: dict[tuple[str, str], list[int]] = {}

    def add(self, code: str, reason: str, position: int) -> None:
        self._positions.setdefault((code, reason), []).append(position)

    def refusals(self) -> tuple[Refusal, ...]:
        return tuple(Refusal(code, reason, positions) for (code, reason), positions in self._positions.items())


class _Columns:
    """What the kernel found in a body: columns of reports and cells, strings as spans of one buffer."""

    def __init__(self, body: bytes, mode: int, unit_us: int, now_us: int, max_reports: int) -> None:
        size = len(body)
        room = size if b"\\" in body else 0
        tail = b"".join([bytes(PAD), *_RECEIVED])
        scratch = size + len(tail)
        buffer = np.empty(scratch + room + PAD, np.uint8)
        buffer[:size] = np.frombuffer(body, np.uint8)
        buffer[size:scratch] = np.frombuffer(tail, np.uint8)
        buffer[scratch + room :] = 0
        reports = size // _MIN_REPORT + 1
        cells = size // _MIN_CELL + reports + 1
        self.buffer = buffer
        device, time_us, offsets = np.empty(reports, np.int64), np.empty(reports, np.int64), np.empty(reports + 1, np.int64)
        position = np.empty(reports, np.int32)
        name, text = np.empty(cells, np.int64), np.empty(cells, np.int64)
        kind, number = np.empty(cells, np.uint8), np.empty(cells, np.float64)
        ranges = np.empty(3 * min(size // _MIN_ODD + 1, max_reports), np.int64)
        self.state = state = np.zeros(STATE_SIZE, np.int64)
        state[SCRATCH] = scratch
        self.received = (_span(size + PAD, len(_RECEIVED[0])), _span(size + PAD + len(_RECEIVED[0]), len(_RECEIVED[1])))
        scan(
            buffer,
            size,
            mode,
            unit_us,
            _is_utf8(body),
            now_us,
            *self.received,
            max_reports,
            device,
            time_us,
            position,
            offsets,
            name,
            kind,
            number,
            text,
            ranges,
            state,
        )
        n, c = int(state[REPORTS]), int(state[CELLS])
        # Copies: the columns were sized for the worst body of this length, and must not pin that room.
        self.device: Ints = device[:n].copy()
        self.time_us: Ints = time_us[:n].copy()
        self.position: Codes = position[:n].copy()
        self.offsets: Ints = offsets[: n + 1].copy()
        self.name: Ints = name[:c].copy()
        self.kind: Bytes = kind[:c].copy()
        self.number: Floats = number[:c].copy()
        self.text: Ints = text[:c].copy()
        self._ranges = ranges[: 3 * int(state[ODDS])].copy()

    def odds(self) -> list[list[int]]:
        """(start, stop, position) of each report that was left to the slow path."""
        ranges: list[list[int]] = self._ranges.reshape(-1, 3).tolist()
        return ranges

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


def _span(start: int, length: int) -> int:
    return start << 16 | length


def _is_utf8(body: bytes) -> bool:
    if body.isascii():
        return True
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True
