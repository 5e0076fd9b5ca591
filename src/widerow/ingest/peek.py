"""A glance at a body that is not decoded yet: the time of its first report, for the lane it should take.

Devices that come back send what they kept from the oldest on, so the first report tells backlog from the rest. It is a
hint: None where it cannot be seen cheaply (Arrow, a report without a time); the pipeline looks at all of them once they are
decoded.
"""

from __future__ import annotations

import re
import zlib

import zstandard

from widerow.model.errors import WiderowError
from widerow.model.times import parse_rfc3339

_GLANCE_BYTES = 4096
_TIME = re.compile(rb'"time"\s*:\s*(?:"([^"\\]{10,40})"|(\d{1,19})[\s,}.])')
_LINE = re.compile(rb"\A[^#\s][^\n]*? (\d{1,19})\r?\n")
_UNITS_US = {"n": 1e-3, "ns": 1e-3, "u": 1, "us": 1, "µ": 1, "ms": 1e3, "s": 1e6, "m": 60e6, "h": 3600e6}


def first_time_us(body: bytes, *, lines: bool, encoding: str, precision: str) -> int | None:
    """The time of the first report of JSON, or of line protocol; about: digits below a microsecond are of no matter here."""
    start = _start(body, encoding)
    found = _LINE.match(start) if lines else _TIME.search(start)
    if not found:
        return None
    if found.lastindex == 1 and not lines:
        try:
            return parse_rfc3339(found[1].decode("latin-1"))
        except WiderowError:
            return None
    return int(int(found[found.lastindex or 0]) * _UNITS_US[precision])


def _start(body: bytes, encoding: str) -> bytes:
    """The first bytes, unpacked. A line that is all there is ends as others do."""
    name = encoding.strip().lower()
    try:
        if name in {"gzip", "x-gzip"}:
            return zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(body[:_GLANCE_BYTES], _GLANCE_BYTES)
        if name == "zstd":
            with zstandard.ZstdDecompressor(max_window_size=8 << 20).stream_reader(body) as reader:
                return reader.read(_GLANCE_BYTES)
    except (zlib.error, zstandard.ZstdError):
        return b""  # who decodes it will say so
    return body[:_GLANCE_BYTES] if len(body) > _GLANCE_BYTES else body + b"\n"
