"""The key space of a design and a fleet, cut into atoms: pieces that some devices write during one slice of time.

Rule 1: atoms are in the order of their keys, which `KeySpec` encodes: the lab has no second notion of order.
Rule 2: there are at most `MOST_ATOMS`. A fleet of any size is counted through them; no key is made for a single report.
On Cassandra a key is preceded by the token of its partition, for which an md5 stands in: it spreads as Murmur3 does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from widerow.keylab.design import Design, grows
from widerow.keylab.facts import columns_for, tells_device
from widerow.keylab.sample import Sample, metric_name, sample_of
from widerow.keys.scan import bucket_width_us
from widerow.keys.spec import Column, KeySpec
from widerow.keys.template import UNVALUED, Part, literal, salt
from widerow.model.arrays import Floats, Ints
from widerow.model.names import Coded, Names
from widerow.model.times import MINUTE
from widerow.plan.fleet import Fleet

MOST_ATOMS = 120_000
MOST_BINS = 4096
SAMPLED = 100_000
_OLD_SLICES = 24
_LIVE_SLICES = 1500
_COPIES = 64
"""A hot device whose keys are scattered by chance is counted as so many devices."""
_TOKEN_DIGITS = 16


@dataclass(frozen=True)
class Atoms:
    keys: np.ndarray
    """The first key of each, in order, as bytes."""
    place: Ints
    """Which atom bin b writes to in slice j."""
    slices: Ints
    """When each slice of time begins; the last entry is where all end."""
    weights: Floats
    """How many devices of each class a bin stands for: [bin, class]."""
    hot: Floats
    """How many devices of each spell of `fleet.hot` are among them: [bin, spell]."""
    has_one_device: np.ndarray
    """The bin is a single device's."""

    def slice_at(self, time_us: int) -> int:
        return max(0, int(np.searchsorted(self.slices, time_us, "right")) - 1)


def order_of(design: Design) -> KeySpec:
    """The keys as the engine orders them."""
    if not design.partition:
        return design.spec
    held = [part.value for part in design.fields[: design.partition] if part.kind not in UNVALUED]
    return KeySpec((salt(_TOKEN_DIGITS), literal("#"), *design.parts), tuple(held))


def atoms_of(design: Design, fleet: Fleet, start_us: int, stop_us: int) -> Atoms:
    """The atoms that the fleet writes from `start_us` to `stop_us`, and those of the history before it."""
    spec = order_of(design)
    sample = _scattered(design, sample_of(fleet, SAMPLED))
    growing = _growing(design)
    if growing is None:  # where a device writes does not depend on the time: its keys' start is what tells it from others
        parts = spec.parts
        spec = KeySpec(parts[: next((i for i, part in enumerate(parts) if grows(part)), len(parts))], spec.entity)
    slices = (
        np.array([start_us, stop_us], np.int64) if growing is None else _slices(design, growing, fleet, start_us, stop_us)
    )
    count = len(slices) - 1
    most_bins = min(MOST_BINS, MOST_ATOMS // count)
    bins, first = _bins(design, spec, sample, int(slices[-2]), growing, most_bins)
    weights = np.zeros((len(first), len(fleet.classes)))
    np.add.at(weights, (bins, sample.kinds), sample.stands_for)
    hot = np.zeros((len(first), len(fleet.hot)))
    is_hot = sample.hot >= 0
    np.add.at(hot, (bins[is_hot], sample.hot[is_hot]), sample.stands_for[is_hot])
    rows = np.tile(first, count)
    times = np.repeat(_lowest(growing, slices), len(first))
    keys = _encoded(spec, sample, rows, times, design.bucket_us)
    ordered = np.argsort(keys, kind="stable")
    place = np.empty(len(keys), np.int64)
    place[ordered] = np.arange(len(keys))
    alone = np.bincount(bins, minlength=len(first)) == 1
    return Atoms(
        keys[ordered], place.reshape(count, len(first)).T, slices, weights, hot, alone & (weights.sum(axis=1) <= 1.0)
    )


def _growing(design: Design) -> Part | None:
    """The part that moves the writes on as time passes; None: a device stands before it and holds them in place."""
    if design.partition:
        return next((part for part in design.fields[: design.partition] if grows(part)), None)
    if any(map(tells_device, design.before_time)) or any(part.kind == "hash" for part in design.fields):
        return None
    return next((part for part in design.fields if grows(part)), None)


def _is_coarse(design: Design, part: Part) -> bool:
    return part.value == "bucket" or part.kind == "date" or bool(design.partition)


def _slices(design: Design, growing: Part, fleet: Fleet, start_us: int, stop_us: int) -> Ints:
    width_us = MINUTE
    if _is_coarse(design, growing):
        width_us = max(width_us, bucket_width_us(growing, design.bucket_us))
    width_us = max(width_us, -(-(stop_us - start_us) // (_LIVE_SLICES * MINUTE)) * MINUTE)
    first = start_us // width_us * width_us
    live = np.arange(first, stop_us + width_us, width_us, dtype=np.int64)
    kept_us = fleet.retention_us or stop_us - start_us
    old = np.linspace(start_us - kept_us, first, _OLD_SLICES + 1).astype(np.int64)[:-1] // MINUTE * MINUTE
    return np.unique(np.concatenate([old[old < first], live]))


def _lowest(growing: Part | None, slices: Ints) -> Ints:
    """A moment of each slice that has the lowest key in it."""
    return slices[1:] - 1 if growing is not None and growing.descending else slices[:-1]


def _bins(design: Design, spec: KeySpec, sample: Sample, time_us: int, growing: Part | None, most: int) -> tuple[Ints, Ints]:
    """Which bin each sampled device is in, and the first device of each bin in the order of keys."""
    n = len(sample)
    if growing is not None and not _is_coarse(design, growing):
        # All that is written in a slice lies side by side, for each value of what stands before the time.
        before = spec.parts[: spec.parts.index(growing)]
        if not [part for part in before if part.kind != "literal"]:
            return np.zeros(n, np.int64), np.zeros(1, np.int64)
        spec = KeySpec(before, spec.entity)
    keys = _encoded(spec, sample, np.arange(n), np.full(n, time_us, np.int64), design.bucket_us)
    if design.partition and not any(map(tells_device, design.fields[: design.partition])):
        keys = np.array([key[:_TOKEN_DIGITS] for key in keys.tolist()])
    distinct, first, of = np.unique(keys, return_index=True, return_inverse=True)
    if len(distinct) <= most:
        return of, first
    is_hot = np.zeros(len(distinct), bool)
    is_hot[of[sample.hot >= 0]] = True
    share = np.zeros(len(distinct))
    np.add.at(share, of, sample.stands_for)
    group = np.minimum((np.cumsum(share) / share.sum() * (most // 2)).astype(np.int64), most // 2 - 1)
    # A hot key is a bin of its own, and so is what follows it.
    starts = np.concatenate([[True], (np.diff(group) > 0) | is_hot[1:] | is_hot[:-1]])
    number = np.cumsum(starts) - 1
    return number[of], first[starts]


def _encoded(spec: KeySpec, sample: Sample, rows: Ints, times: Ints, bucket_us: int) -> np.ndarray:
    out = []
    for at in range(0, len(rows), SAMPLED):
        chosen = rows[at : at + SAMPLED]
        columns = columns_for(spec, sample.rows(chosen), times[at : at + SAMPLED], bucket_us)
        out.append(np.array(spec.encode(columns, len(chosen)).to_bytes_list()))
    return np.concatenate(out)


def _scattered(design: Design, sample: Sample) -> Sample:
    """A row for each place that a device writes to at one moment: its metrics, or the salts of chance."""
    fields = design.before_time if not design.partition else design.fields[: design.partition]
    at = next((i for i, part in enumerate(fields) if tells_device(part)), len(fields))
    metrics = max(kind.metrics for kind in sample.fleet.classes)
    has_metric = any(part.value == "metric" for part in fields[:at]) or (
        bool(design.partition) and any(part.value == "metric" for part in fields)
    )
    copies = min(metrics, 10) if has_metric else 1
    by_chance = any(part.value in ("random", "sub") or part.kind == "hash" for part in fields)
    repeat = np.full(len(sample), copies, np.int64)
    if by_chance:
        repeat[sample.hot >= 0] *= _COPIES
    if copies == 1 and not by_chance:
        return sample
    rows = np.repeat(np.arange(len(sample)), repeat)
    columns: dict[str, Column] = sample.rows(rows)
    codes = (np.arange(len(rows)) % copies).astype(np.int32)
    columns["metric"] = Coded(Names.of(map(metric_name, range(copies))), codes)
    return Sample(sample.fleet, sample.kinds[rows], (sample.stands_for / repeat)[rows], sample.hot[rows], columns)
