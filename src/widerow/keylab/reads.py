"""Which atoms a fleet's questions read. The ranges are those of `scan_for`, as a reader of the real table would ask."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import Protocol

import numpy as np

from widerow.keylab.atoms import Atoms, order_of
from widerow.keylab.facts import Facts, bucket_starts, columns_for, tells_device
from widerow.keylab.sample import Sample, metric_name
from widerow.keys.scan import MOST_RANGES, Question, Scan, bucket_width_us, scan_for, shard_of
from widerow.keys.spec import KeySpec
from widerow.model.arrays import Flags, Floats, Ints
from widerow.model.names import Coded
from widerow.model.times import DAY, HOUR, SECOND
from widerow.plan.fleet import QUESTIONS

_ASKED = 24
"""Of each kind, as many questions stand for all."""
_SPANS = {"device_hour": HOUR, "device_day": DAY, "metric_fleet": HOUR}


@dataclass(frozen=True, slots=True)
class Answer:
    """What one question of a kind costs."""

    tablets: float
    ranges: float
    rows: float
    """Rows that lie in its ranges; of rows that hold a bucket of reports, those reports."""
    wanted: float
    """Rows that it is about, likewise."""
    is_full_scan: bool


class Ranges(Protocol):
    def touched(self, first: Ints, last: Ints) -> int: ...


class Reads:
    """The questions of a fleet."""

    def __init__(self, facts: Facts, atoms: Atoms) -> None:
        self._facts, self._atoms, self._spec = facts, atoms, order_of(facts.design)
        self._moves = atoms.place.shape[1] > 1
        self._known: dict[int, tuple[Ints, Floats]] = {}

    def at(self, time_us: int) -> tuple[Ints, Floats]:
        """The atoms that are read at a moment, and how often a second."""
        key = time_us // HOUR if self._moves else 0
        if key not in self._known:
            self._known = {key: self._read(time_us)}
        return self._known[key]

    def _read(self, time_us: int) -> tuple[Ints, Floats]:
        marks = np.zeros(len(self._atoms.keys) + 1)
        for name, per_s in self._facts.fleet.questions.items():
            questions = list(self.questions(name, time_us))
            for question, _ in questions:
                first, last = self.atoms_in(self.scan(question))
                np.add.at(marks, first, per_s / len(questions))
                np.add.at(marks, last + 1, -per_s / len(questions))
        per_atom = np.cumsum(marks)[:-1]
        where = np.flatnonzero(per_atom > 1e-9)
        return where, per_atom[where]

    def scan(self, question: Question) -> Scan:
        design = self._facts.design
        if not design.partition:
            return self._sorted_scan(question)
        scans = [scan_for(self._spec, known, design.bucket_us) for known in self._partitions(question)]
        if not scans or any(scan.is_full for scan in scans):
            return Scan(((b"", b"\xff"),), True, frozenset(), False)
        fixed = scans[0].fixed & question.known.keys() | (scans[0].fixed & {"time", "bucket"})
        ranges = sorted(piece for scan in scans for piece in scan.ranges)
        return Scan(tuple(ranges), False, fixed, scans[0].newest_at_end)

    def _sorted_scan(self, question: Question) -> Scan:
        """One scan, or one for each metric of a device where the key has the metric before what is asked for."""
        bucket_us, facts = self._facts.design.bucket_us, self._facts
        plain = scan_for(self._spec, question, bucket_us)
        if "metric" not in facts.design.values or "metric" in question.known or "device" not in question.known:
            return plain
        names = [metric_name(i) for i in range(max(kind.metrics for kind in facts.fleet.classes))]
        scans = [
            scan_for(self._spec, replace(question, known={**question.known, "metric": name}), bucket_us) for name in names
        ]
        fixed = scans[0].fixed - {"metric"}
        if not fixed > plain.fixed or sum(len(scan.ranges) for scan in scans) > MOST_RANGES:
            return plain
        ranges = sorted(piece for scan in scans for piece in scan.ranges)
        return Scan(tuple(ranges), False, fixed, scans[0].newest_at_end)

    def _partitions(self, question: Question) -> Iterator[Question]:
        """The question for each partition that may hold an answer; nothing: they cannot be listed."""
        design, facts = self._facts.design, self._facts
        choices: list[list[tuple[str, str | int]]] = []
        for part in design.fields[: design.partition]:
            if part.value in question.known:
                continue
            listed: Sequence[str | int] = []
            if part.value == "bucket":
                width_us = bucket_width_us(part, design.bucket_us)
                start_us = question.span[1] - 1 if question.latest else question.span[0]
                moments = np.append(np.arange(start_us, question.span[1], width_us), question.span[1] - 1)
                listed = sorted(set(bucket_starts(part, moments, design.bucket_us).tolist()))
            elif part.value == "shard":
                device = question.known.get("device")
                listed = [shard_of(str(device), part.width)] if device else list(range(10**part.width))
            elif part.value == "metric":
                listed = [metric_name(i) for i in range(min(10, max(kind.metrics for kind in facts.fleet.classes)))]
            elif part.value not in ("tenant", "device", "type", "location"):
                listed = [0] if part.kind == "digits" else ["x"]
            if not listed:
                return
            choices.append([(part.value, value) for value in listed])
        for combined in islice(product(*choices), MOST_RANGES):
            yield Question({**question.known, **dict(combined)}, question.span, question.latest)

    def atoms_in(self, scan: Scan) -> tuple[Ints, Ints]:
        """The first and the last atom of each range."""
        keys = self._atoms.keys
        starts, stops = np.array([start for start, _ in scan.ranges]), np.array([stop for _, stop in scan.ranges])
        first, last = np.searchsorted(keys, starts), np.searchsorted(keys, stops) - 1
        # A range without an atom's first key lies inside the atom before it.
        first = np.where(first <= last, first, np.maximum(first - 1, 0))
        return first, np.maximum(last, first)

    def questions(self, name: str, now_us: int) -> Iterator[tuple[Question, int]]:
        """Some questions of a kind, each with the sampled device it is about."""
        sample = self._facts.sample
        span = (now_us - _SPANS.get(name, HOUR), now_us)
        for row in np.linspace(0, len(sample) - 1, _ASKED).astype(np.int64).tolist():
            values = sample.values(row)
            if name == "tenant_latest":
                known = {"tenant": values["tenant"]}
            elif name == "metric_fleet":
                known = {"metric": values["metric"]}
            else:
                known = {part: value for part, value in values.items() if part != "metric"}
            yield Question(known, span, latest=name.endswith("latest")), row

    def answers(self, tablets: Ranges, now_us: int) -> Mapping[str, Answer]:
        return {name: self._answer(name, tablets, now_us) for name in QUESTIONS}

    def _answer(self, name: str, tablets: Ranges, now_us: int) -> Answer:
        found = []
        for question, row in self.questions(name, now_us):
            scan = self.scan(question)
            rows = self.rows_in(scan, question, row)
            found.append(
                (tablets.touched(*self.atoms_in(scan)), len(scan.ranges), rows, self._wanted(question, row), scan.is_full)
            )
        touched, ranges, rows, wanted = np.array([one[:4] for one in found], float).mean(axis=0).tolist()
        return Answer(touched, ranges, rows, wanted, any(one[4] for one in found))

    def rows_in(self, scan: Scan, question: Question, row: int) -> float:
        """How many rows lie in the ranges of a scan: those of all devices and times that it does not leave out."""
        facts, sample = self._facts, self._facts.sample
        alike = np.ones(len(sample), bool)
        for value in scan.fixed & sample.columns.keys():
            if value != "metric":
                alike &= _same(sample, value, row)
        if scan.fixed & {"shard", "salt"} and "device" not in scan.fixed:
            alike &= self._same_salt(row)
        is_one = "device" in scan.fixed or ("salt" in scan.fixed and any(map(tells_device, facts.design.fields)))
        if question.latest and scan.newest_at_end and is_one:
            return float(max(1, sum(kind.metrics for kind in facts.fleet.classes[:1]))) if facts.is_by_metric else 1.0
        seconds = self._seconds(scan, question)
        per_s = np.array([facts.rows_per_s(kind) for kind in facts.fleet.classes])
        if "metric" in scan.fixed:
            per_s /= np.array([kind.metrics for kind in facts.fleet.classes])
        stands_for = np.ones(len(sample)) if is_one else sample.stands_for
        devices = np.bincount(sample.kinds[alike], stands_for[alike], len(facts.fleet.classes)).astype(np.float64)
        return float(devices @ per_s * seconds)

    def _same_salt(self, row: int) -> Flags:
        """The devices that have the salt or shard of this one."""
        sample, spec = self._facts.sample, self._facts.design.spec
        leading = KeySpec(tuple(part for part in spec.parts if part.kind == "salt" or part.value == "shard"), spec.entity)
        times = np.zeros(len(sample), np.int64)
        columns = columns_for(leading, sample.columns, times, self._facts.design.bucket_us)
        keys = np.array(leading.encode(columns, len(sample)).to_bytes_list())
        return np.asarray(keys == keys[row])

    def _seconds(self, scan: Scan, question: Question) -> float:
        """How much time the ranges span: whole buckets, where there are buckets."""
        facts = self._facts
        bucket = facts.design.bucket
        if "time" in scan.fixed:
            return (question.span[1] - question.span[0]) / SECOND
        if "bucket" in scan.fixed and bucket is not None:
            width_us = bucket_width_us(bucket, facts.design.bucket_us)
            start_us = question.span[1] - 1 if question.latest else question.span[0]
            return ((question.span[1] - 1) // width_us - start_us // width_us + 1) * width_us / SECOND
        return (facts.fleet.retention_us or 365 * DAY) / SECOND

    def _wanted(self, question: Question, row: int) -> float:
        facts = self._facts
        seconds = (question.span[1] - question.span[0]) / SECOND
        kind = facts.fleet.classes[int(facts.sample.kinds[row])]
        if "device" in question.known:
            return 1.0 if question.latest else facts.rows_per_s(kind) * seconds
        if "tenant" in question.known:
            return facts.fleet.devices / facts.fleet.tenants
        return sum(one.devices * SECOND / facts.interval_us(one) * seconds for one in facts.fleet.classes)


def _same(sample: Sample, value: str, row: int) -> Flags:
    """The devices that share a value with this one."""
    column = sample.columns[value]
    assert isinstance(column, Coded)
    return np.asarray(column.codes == column.codes[row])
