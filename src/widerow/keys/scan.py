"""Which ranges of keys a question has to read, and an honest "full scan" where the key gives no start.

Rule 1: every row that answers the question lies in one of the ranges. At a time's edges a range holds whole units and whole
buckets, and so a little more than was asked.
Rule 2: ranges are few. Where a key would need more than `MOST_RANGES`, the scan is that of the longer range around them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from zlib import crc32

from widerow.keys.spec import KeySpec, encode_part
from widerow.keys.template import DATES, TIMES, Part
from widerow.model.times import HOUR

MOST_RANGES = 4096
_BEHIND_ALL = b"\xff"
_SHARDS = ("shard", "random", "sub")


@dataclass(frozen=True, slots=True)
class Question:
    """What is fixed in it, and its span of event time `[start, stop)`."""

    known: Mapping[str, str | int]
    span: tuple[int, int]
    latest: bool = False
    """Only the newest row is wanted: of buckets, the last one of the span is read."""


@dataclass(frozen=True, slots=True)
class Scan:
    """Ranges `[start, stop)` of keys, in order."""

    ranges: tuple[tuple[bytes, bytes], ...]
    is_full: bool
    """Nothing but literals fixes where the ranges begin: all rows are read."""
    fixed: frozenset[str]
    """The values that all rows in the ranges share; `time` and `bucket` if the span bounds them."""
    newest_at_end: bool
    """The newest row is the first or the last of a range: `latest` reads one row, forwards or backwards, not the range."""


def scan_for(spec: KeySpec, question: Question, bucket_us: int = HOUR) -> Scan:
    """What is to be read. `bucket_us`: the width of buckets whose field does not tell it."""
    prefixes = bound = [b""]  # `bound`: the prefixes up to the last part that narrows the question down
    fixed: set[str] = set()
    for part in spec.parts:
        was_bound = prefixes is bound
        if part.kind == "literal":
            prefixes = [prefix + part.value.encode() for prefix in prefixes]
            bound = prefixes if was_bound else bound
            continue
        if part.value == "time" and part.kind != "date":
            if question.latest or (part.kind == "digits" and not part.width):
                return _scan(
                    [(p, p + _BEHIND_ALL) for p in bound],
                    fixed,
                    newest_at_end=was_bound and (part.width > 0 or part.kind != "digits"),
                )
            first, last = _times(part, question.span)
            return _scan([(p + first, p + last + _BEHIND_ALL) for p in prefixes], {*fixed, "time"}, newest_at_end=True)
        choices = list(_choices(spec, part, question, bucket_us, MOST_RANGES // len(prefixes)))
        if not choices:
            break
        prefixes = [prefix + choice for prefix in prefixes for choice in choices]
        if part.value in question.known or part.value in TIMES:
            fixed.add(part.value)
            bound = prefixes
        elif len(choices) == 1:  # a salt or shard that follows from what is known
            fixed.add(part.value or part.kind)
            bound = prefixes
    else:
        if prefixes is bound:
            return _scan([(key, key + b"\0") for key in prefixes], fixed)
    return _scan([(prefix, prefix + _BEHIND_ALL) for prefix in bound], fixed)


def _scan(ranges: list[tuple[bytes, bytes]], fixed: set[str], *, newest_at_end: bool = False) -> Scan:
    return Scan(tuple(sorted(ranges)), not fixed, frozenset(fixed), newest_at_end)


def shard_of(device: str, width: int) -> int:
    """The shard of a device, where a design says `shard-NN` and not how it is found."""
    return int(crc32(device.encode()) % 10**width)


def _choices(spec: KeySpec, part: Part, question: Question, bucket_us: int, most: int) -> Iterator[bytes]:
    """What may stand at the part's place; nothing: too much to be listed."""
    known = question.known
    if part.kind == "salt":
        if all(name in known for name in spec.entity):
            yield spec.salt_of(part, known)
        elif 16**part.width <= most:
            yield from (b"%0*x" % (part.width, n) for n in range(16**part.width))
    elif part.value in known:
        yield encode_part(part, known[part.value])
    elif part.value == "shard" and "device" in known and part.width:
        yield encode_part(part, shard_of(str(known["device"]), part.width))
    elif part.value in _SHARDS and part.width and 10**part.width <= most:
        yield from (encode_part(part, n) for n in range(10**part.width))
    elif part.value in TIMES and (part.kind in ("iso", "date") or part.width):
        start, stop = question.span
        width_us = bucket_width_us(part, bucket_us)
        if question.latest:
            start = stop - 1
        first, last = start // width_us, (stop - 1) // width_us
        if last - first < most:
            starts = (
                (start, *(bucket * width_us for bucket in range(first + 1, last + 1)), stop - 1)
                if part.kind == "date"
                else (bucket * width_us for bucket in range(first, last + 1))
            )
            yield from dict.fromkeys(encode_part(part, moment) for moment in starts)


def bucket_width_us(part: Part, bucket_us: int) -> int:
    """How much time a bucket holds, at least: a month counts 28 days."""
    return (
        next((span for width, span in DATES.values() if width == part.width), bucket_us)
        if part.kind == "date"
        else bucket_us
    )


def _times(part: Part, span: tuple[int, int]) -> tuple[bytes, bytes]:
    first, last = encode_part(part, span[0]), encode_part(part, span[1] - 1)
    return (last, first) if part.descending else (first, last)
