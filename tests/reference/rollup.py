"""Statistics, sketches and records of rollups as one would write them for a hundred values: plain Python, no speed.

The oracle of the kernels, to the last bit: sums and squares are added up in the order of time, as they do it. Only which bin
a value is in, and what a bin stands for, are taken from the real sketch, which has tests of its own.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from widerow.codec.sketch import bins_of, values_of
from widerow.codec.states import States


@dataclass(frozen=True)
class Plain:
    """The statistics of a window, in the order of the fields of `Stats`; the sketch by bins."""

    count: int
    first_us: int
    last_us: int
    first: float
    last: float
    min: float
    max: float
    sum: float
    mean: float
    m2: float
    increase: float
    p50: float
    p95: float
    p99: float
    sketch: dict[int, int]

    def bits(self) -> list[object]:
        """To compare: 0 and -0 differ, and so do numbers that look the same."""
        return [struct.pack("<d", v) if isinstance(v, float) else v for v in self.__dict__.values()]


def plain(fields: list[Any]) -> Plain:
    return Plain(*fields)


def gain(before: float, after: float) -> float:
    return after - before if after >= before else after


def of_values(first_us: int, last_us: int, values: Sequence[float]) -> Plain:
    ordered, n = sorted(values), len(values)

    def rank(q: float) -> float:
        at = q * (n - 1)
        low = int(at)
        if low + 1 >= n:
            return ordered[-1]
        step = ordered[low + 1] - ordered[low]
        if step == math.inf:
            return ordered[low] * (1 - (at - low)) + ordered[low + 1] * (at - low)
        return ordered[low] + step * (at - low)

    total, increase, m2 = 0.0, 0.0, 0.0
    for i, value in enumerate(values):
        total += value
        increase += gain(values[i - 1], value) if i else 0.0
    mean = total / n
    if not math.isfinite(total):
        scaled = 0.0
        for value in values:
            scaled += value * 2.0**-64
        total, mean = scaled * 2.0**64, min(max(scaled / n * 2.0**64, ordered[0]), ordered[-1])
    for value in values:
        m2 += (value - mean) * (value - mean)
    return Plain(
        n,
        first_us,
        last_us,
        values[0],
        values[-1],
        ordered[0],
        ordered[-1],
        total,
        mean,
        m2,
        increase,
        rank(0.5),
        rank(0.95),
        rank(0.99),
        dict(sorted(Counter(bins_of(np.array(values)).tolist()).items())),
    )


def merged(parts: Sequence[Plain]) -> Plain:
    """Of windows in order of time."""
    if len(parts) == 1:
        return parts[0]
    out = parts[0]
    sketch = Counter(out.sketch)
    for later in parts[1:]:
        sketch.update(later.sketch)
        apart, both = later.mean - out.mean, out.count + later.count
        low, high = min(out.min, later.min), max(out.max, later.max)
        mean, total = out.mean + apart * (later.count / both), out.sum + later.sum
        if not math.isfinite(apart):
            mean = min(max(out.mean * (out.count / both) + later.mean * (later.count / both), low), high)
        total = total if math.isfinite(total) else mean * both
        out = replace(
            out,
            count=both,
            last_us=later.last_us,
            last=later.last,
            min=low,
            max=high,
            sum=total,
            mean=mean,
            m2=out.m2 + (later.m2 + apart * apart * (out.count / both) * later.count),
            increase=out.increase + (gain(out.last, later.first) + later.increase),
        )
    bins = dict(sorted(sketch.items()))

    def quantile(q: float) -> float:
        seen, rank = 0, q * (sum(bins.values()) - 1)
        found = next(b for b, c in bins.items() if (seen := seen + c) > rank)
        return min(max(values_of(np.array([found], np.int32)).item(), out.min), out.max) + 0.0

    return replace(out, sketch=bins, p50=quantile(0.5), p95=quantile(0.95), p99=quantile(0.99))


def decoded(record: bytes, window_us: int) -> Plain:
    """What a record says, read as docs/format/rollup.md describes it."""
    form, decimals, unit, at = record[0], record[1] & 0x7F, 1000 if record[1] & 0x80 else 1, 2

    def varint() -> int:
        nonlocal at
        number = shift = 0
        while True:
            number |= (record[at] & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if record[at - 1] < 0x80:
                return number

    def signed() -> int:
        number = varint()
        return -(number + 1 >> 1) if number & 1 else number >> 1

    count, first_us = varint(), window_us + varint() * unit
    last_us = first_us + varint() * unit
    if form == 1 and decimals == 15:
        return of_values(first_us, last_us, struct.unpack_from(f"<{count}d", record, at))
    if form == 1:
        whole, values = 0, []
        for _ in range(count):
            whole += signed()
            values.append(whole / 10**decimals)
        assert at == len(record)
        return of_values(first_us, last_us, values)
    numbers = struct.unpack_from("<11d", record, at)
    at += 8 * 11
    assert (form, record[at]) == (2, 1)
    at += 1
    sketch: dict[int, int] = {}
    number = 0
    for i in range(varint()):
        number = number + varint() if i else signed()
        sketch[number] = varint()
    assert at == len(record)
    return plain([count, first_us, last_us, *numbers, sketch])


@dataclass(frozen=True)
class PlainStates:
    """What the texts of a window say; each text with its count and how long it lasted."""

    count: int
    first_us: int
    last_us: int
    first: str
    last: str
    values: dict[str, tuple[int, int]]
    others: tuple[int, int] = (0, 0)

    def bounded(self) -> PlainStates:
        """At most 64 texts, and 4096 bytes of them besides the first and the last, the most frequent ones."""
        always = {self.first, self.last}
        loose = [(-count, text.encode()) for text, (count, _) in self.values.items() if text not in always]
        kept, spent = always, 0
        for _, text in sorted(loose):
            spent += len(text)
            if len(kept) == 64 or spent > 4096:
                break
            kept = kept | {text.decode()}
        left = [tally for text, tally in self.values.items() if text not in kept]
        count, lasted_us = (self.others[i] + sum(tally[i] for tally in left) for i in (0, 1))
        values = {text: self.values[text] for text in sorted(kept, key=str.encode)}
        return replace(self, values=values, others=(count, lasted_us))


def states_of(reports: Sequence[tuple[int, str]]) -> PlainStates:
    """Of texts with their times, in order."""
    values: dict[str, tuple[int, int]] = {}
    for i, (at, text) in enumerate(reports):
        count, lasted_us = values.get(text, (0, 0))
        lasting = reports[i + 1][0] - at if i + 1 < len(reports) else 0
        values[text] = count + 1, lasted_us + lasting
    (first_us, first), (last_us, last) = reports[0], reports[-1]
    return PlainStates(len(reports), first_us, last_us, first, last, values).bounded()


def merged_states(parts: Sequence[PlainStates]) -> PlainStates:
    """Of windows in order of time."""
    out = parts[0]
    values, others = dict(out.values), out.others
    for later in parts[1:]:
        count, lasted_us = values.get(out.last, (0, 0))
        values[out.last] = count, lasted_us + later.first_us - out.last_us
        for text, (more, longer) in later.values.items():
            count, lasted_us = values.get(text, (0, 0))
            values[text] = count + more, lasted_us + longer
        others = others[0] + later.others[0], others[1] + later.others[1]
        out = replace(out, count=out.count + later.count, last_us=later.last_us, last=later.last)
    return replace(out, values=values, others=others).bounded()


def said_by_states(s: States) -> list[PlainStates]:
    """The real ones as plain ones."""
    names, out = s.names.to_list(), []
    for g in range(len(s)):
        which = range(int(s.offsets[g]), int(s.offsets[g + 1]))
        out.append(
            PlainStates(
                int(s.count[g]),
                int(s.first_us[g]),
                int(s.last_us[g]),
                names[s.first[g]],
                names[s.last[g]],
                {names[s.value[i]]: (int(s.counts[i]), int(s.lasted_us[i])) for i in which},
                (int(s.other_count[g]), int(s.other_us[g])),
            )
        )
        assert list(out[-1].values) == sorted(out[-1].values, key=str.encode)
    return out
