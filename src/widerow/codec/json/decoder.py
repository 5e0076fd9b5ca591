"""Bodies of JSON reports into batches.

Rule 1: each bad report is refused alone, with its position (the index in an array, 0 for a single object, the line for
NDJSON, counted from 0) and a reason that names what is wrong; its neighbours are kept.
Rule 2: a body that is not JSON as a whole is rejected whole, with the byte offset. Of NDJSON each line stands alone.
Rule 3: of many documents each is a body that stands alone; what is wrong with one of them as a whole refuses that one.
Rule 4: a cell given twice is kept twice; whoever checks batches decides (`conflict`).
Rule 5: what it costs to find out what is wrong with a body is bounded (`codec.looking`).
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from widerow.codec.decoded import Decoded
from widerow.codec.json.columns import Columns
from widerow.codec.json.cut import element_spans
from widerow.codec.json.documents import BROKEN, TOO_LONG, scan_documents, spread
from widerow.codec.json.scan import ARRAY, FAULT, LENGTH, LINES, NOT_SAID, SINGLE, TOO_MANY, scan
from widerow.codec.json.slow import Fault, NotJson, SlowReport, judge, parse
from widerow.codec.looking import Looking
from widerow.model.arrays import Bytes, Ints, frozen, lengths
from widerow.model.errors import Refusal, Rejected, TooLarge
from widerow.model.names import Coded
from widerow.model.tenant import ANY_NUMBER
from widerow.model.times import PRECISION_US

MAX_REPORTS = 1_000_000
_SPACE = b" \t\r\n"
_MIN_ODD = len(b"1,")

_Array = TypeVar("_Array", Bytes, Ints)


class JsonDecoder:
    """Decodes bodies. Holds no state between them; safe to share between threads."""

    def __init__(self, *, max_reports: int = MAX_REPORTS, seed: int | None = None) -> None:
        """`seed` keeps the tables of names unpredictable to senders; a random one unless given."""
        self._max_reports = max_reports
        self._seed = secrets.randbits(64) if seed is None else seed

    def decode(
        self,
        body: bytes,
        *,
        precision: str = "ms",
        ndjson: bool,
        now_us: int,
        version_us: int,
        max_values: int = ANY_NUMBER,
    ) -> Decoded:
        """The reports of a body. Raises Rejected (`syntax`, `precision`) and TooLarge.

        `max_values`: a report with more values and tags is refused, and no name of it is remembered.
        """
        unit_us = _unit_us(precision)
        mode = LINES if ndjson else ARRAY if body.lstrip(_SPACE)[:1] == b"[" else SINGLE
        size = len(body)
        columns = Columns(size, escapes=b"\\" in body, odds=min(size // _MIN_ODD + 1, self._max_reports))
        columns.buffer[:size] = np.frombuffer(body, np.uint8)
        context = (_is_utf8(body), unit_us, now_us, *columns.received, self._max_reports, max_values)
        scan(columns.buffer, 0, size, mode, NOT_SAID, *context, *columns.room())
        columns.cut()
        if columns.state[TOO_MANY]:
            raise TooLarge(f"the body holds more than {self._max_reports} reports; send several smaller ones")
        refused = _Refused()
        looking = Looking(max_values, refused.add_all)
        slow: list[tuple[SlowReport, int]] = []
        for start, stop, position in looking.at(columns.odds()):
            report = _judge(body[start:stop], start, position, mode, precision, now_us, max_values, refused)
            if report is not None:
                slow.append((report, position))
            else:
                looking.wrong(stop - start)
        if columns.state[FAULT] >= 0:
            raise _not_json(int(columns.state[FAULT]), "the array breaks off, or something stands between its reports")
        if slow:
            columns.append(slow)
        batch = columns.batch(version_us, self._seed)
        if slow:
            batch = batch.take(np.argsort(batch.position, kind="stable"))
        return Decoded(batch, refused.refusals())

    def decode_documents(
        self,
        data: Bytes,
        offsets: Ints,
        devices: Coded,
        *,
        precision: str = "ms",
        now_us: int,
        version_us: int,
        max_values: int = ANY_NUMBER,
    ) -> Decoded:
        """The reports of many documents, `data[offsets[i]:offsets[i + 1]]` each, as bodies of one object or one array.

        A report may leave its device out: it is the document's, `devices[i]`, and may be no other (`wrong-device`). Where
        that is none (code -1), each report names its own. Positions are numbers of documents. A document that is not JSON
        (`syntax`) or holds too many reports (`too-large`) is refused once and whole; of others each bad report is. Nothing
        of a document reaches its neighbours. Raises Rejected (`precision`), for all of them.
        """
        unit_us, n = _unit_us(precision), len(devices)
        data, offsets = _read_only(data), _read_only(offsets)
        size = int(offsets[-1] - offsets[0]) + n
        names = devices.names
        ours = names.data[: names.offsets[-1]].tobytes()
        # Escapes: room that is not used costs less than looking for backslashes.
        columns = Columns(size, ours=ours, escapes=True, odds=size // _MIN_ODD + n, bodies=n)
        starts, sizes = columns.ours_at + names.offsets[:-1], np.minimum(lengths(names.offsets), LENGTH)
        own = np.append(starts << 16 | sizes, NOT_SAID)[devices.codes]
        high_ok = np.ones(n, np.uint8)
        if spread(data, offsets, columns.buffer) and not _is_utf8(columns.buffer[:size].tobytes()):
            high_ok[:] = [_is_utf8(data[start:stop].tobytes()) for start, stop in pairwise(offsets.tolist())]
        fates, places = np.empty(n, np.uint8), np.empty(n + 1, np.int64)
        context = (unit_us, now_us, *columns.received, self._max_reports, max_values)
        scan_documents(columns.buffer, offsets, own, high_ok, fates, places, *context, *columns.room())
        columns.cut()

        refused = _Refused()
        for document in np.flatnonzero(fates == TOO_LONG).tolist():
            refused.add("too-large", f"it holds more than {self._max_reports} reports; send several smaller ones", document)
        for document in np.flatnonzero(fates == BROKEN).tolist():
            refused.add("syntax", _why_broken(data[offsets[document] : offsets[document + 1]].tobytes()), document)
        slow, lost = _judge_odds(columns, places, offsets, devices, precision, now_us, max_values, refused)
        if slow:
            columns.append(slow)
        batch = columns.batch(version_us, self._seed)
        if slow:
            batch = batch.take(np.argsort(batch.position, kind="stable"))
        batch = replace(batch, position=_documents_of(batch.position, places).astype(np.int32))
        if lost:
            batch = batch.take(~np.isin(batch.position, lost))
        return Decoded(batch, refused.refusals())


def warm_up() -> None:
    """Compile the kernels."""
    report = b'{"device":"d","time":1,"values":{"m":1,"t":"x","e":"\\n"}}'
    deep = b'{"device":"d","values":{"m":' + b"[" * 70 + b"]" * 70 + b"}}"
    decoder = JsonDecoder(seed=0)
    decoder.decode(report + b"\n" + deep, ndjson=True, now_us=0, version_us=0)
    data = np.frombuffer(report + "\u00fc".encode(), np.uint8)
    decoder.decode_documents(data, np.array([0, len(report), len(data)]), Coded.of(["d", "d"]), now_us=0, version_us=0)
    element_spans(b"[" + report + b"]", np.zeros(1, np.int64))


def _unit_us(precision: str) -> int:
    """Microseconds of one unit; 0 for nanoseconds."""
    if precision not in PRECISION_US and precision != "ns":
        raise Rejected(f"precision {precision[:20]!r}: give s, ms, us or ns", code="precision")
    return PRECISION_US.get(precision, 0)


def _not_json(at: int, reason: str) -> Rejected:
    return Rejected(f"the body is not JSON: byte {at}: {reason}", code="syntax")


def _judge(
    text: bytes,
    start: int,
    position: int,
    mode: int,
    precision: str,
    now_us: int,
    max_values: int,
    refused: _Refused,
) -> SlowReport | None:
    try:
        value = parse(text)
        if mode == SINGLE and not isinstance(value, list):
            raise Rejected("the body must be an object or an array of objects", code="syntax")
        return judge(value, precision, now_us, max_values=max_values)
    except NotJson as error:
        if mode != LINES:
            raise _not_json(start + error.at, error.reason) from None
        refused.add("syntax", f"byte {error.at}: {error.reason}", position)
    except Fault as fault:
        refused.add(fault.code, fault.reason, position)
    return None


def _why_broken(document: bytes) -> str:
    try:
        parse(document)
    except NotJson as error:
        return f"not JSON: byte {error.at}: {error.reason}"
    return "not JSON: the array breaks off, or something stands between its reports"


def _judge_odds(
    columns: Columns,
    places: Ints,
    offsets: Ints,
    devices: Coded,
    precision: str,
    now_us: int,
    max_values: int,
    refused: _Refused,
) -> tuple[list[tuple[SlowReport, int]], list[int]]:
    """Reports of the slow path with their places, and the documents that one of them shows not to be JSON at all."""
    odds = columns.odds()
    documents = _documents_of(odds[:, 2], places)
    found: list[tuple[SlowReport, int]] = []
    lost: list[int] = []
    found_in, firsts = np.unique(documents, return_index=True)
    for document, (first, last) in zip(found_in.tolist(), pairwise([*firsts.tolist(), len(odds)]), strict=True):
        own = devices[document] if devices.codes[document] >= 0 else None
        of_document = _Refused()
        looking = Looking(max_values, of_document.add_all)
        slow: list[tuple[SlowReport, int]] = []
        try:
            for start, stop, place in looking.at(odds[first:last]):
                value = parse(columns.buffer[start:stop].tobytes())
                try:
                    slow.append((judge(value, precision, now_us, own, max_values=max_values), place))
                except Fault as fault:
                    of_document.add(fault.code, fault.reason, place)
                    looking.wrong(stop - start)
        except NotJson as error:
            begin = int(offsets[document] - offsets[0]) + document
            refused.add("syntax", f"not JSON: byte {start - begin + error.at}: {error.reason}", document)
            lost.append(document)
            continue
        found += slow
        for refusal in of_document.refusals():
            refused.add_all(refusal.code, refusal.reason, [document] * len(refusal))
    return found, lost


def _documents_of(places: npt.NDArray[np.integer], firsts: Ints) -> Ints:
    """The document of each place: the last that begins at it or before. (An empty one begins where the next does.)"""
    found: Ints = np.searchsorted(firsts, places, side="right") - 1
    return found


class _Refused:
    """Refusals, those of one code and reason together."""

    def __init__(self) -> None:
        self._positions: dict[tuple[str, str], list[int]] = {}

    def add(self, code: str, reason: str, position: int) -> None:
        self._positions.setdefault((code, reason), []).append(position)

    def add_all(self, code: str, reason: str, positions: Sequence[int]) -> None:
        self._positions.setdefault((code, reason), []).extend(positions)

    def refusals(self) -> tuple[Refusal, ...]:
        return tuple(Refusal(code, reason, positions) for (code, reason), positions in self._positions.items())


def _read_only(array: _Array) -> _Array:
    """A view that kernels take like any frozen column, whoever's array it is."""
    view = array.view()
    frozen(view)
    return view


def _is_utf8(body: bytes) -> bool:
    if body.isascii():
        return True
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True
