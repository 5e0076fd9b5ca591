"""Questions about a fleet over time: asked of its own hours where these know, of its devices where they do not.

Rule 1: the fleet's hours know all devices together, those of a type, and all types apart, in steps of whole hours. Other
questions are asked of the devices that match; so are pieces of hours at the ends of a span.
Rule 2: of an hour that is stale, what the shards say that it is not stale of, and the devices of the others are asked. So an
answer is right before its rollups are.
Rule 3: an answer is of the whole fleet, or there is none. A step of which a part can no longer be answered is missing.
In the fleet's hours a device counts for the type it had when its hour was rolled; otherwise for the one it has now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from widerow.catalog.devices import Devices
from widerow.catalog.match import Match
from widerow.codec.fleet import FleetStats
from widerow.engine.port import Columns
from widerow.engine.rows import Rows
from widerow.model.arrays import Codes, Floats, Ints, lengths
from widerow.model.batch import CellKind
from widerow.model.device import Device
from widerow.model.errors import Rejected
from widerow.model.names import Coded, Names
from widerow.model.series import Reply
from widerow.model.tenant import GUARD_US, Tenant
from widerow.model.times import HOUR, TimeSpan
from widerow.query.across import across
from widerow.query.budget import Budget, held_bytes
from widerow.query.kept import Kept
from widerow.query.labels import LABEL, apart, by_owner, called, kept_labels, labels_in, refuse_unknown
from widerow.query.question import DEFAULT_AGGREGATE, Question, question_of
from widerow.query.run import series_of
from widerow.query.stepped import Sources
from widerow.query.steps import Steps, steps_of
from widerow.rollup.fleet import Stale
from widerow.rollup.fleet_store import FleetStore
from widerow.rollup.fleet_summary import ALL_TYPES, FleetSummary, begins, folded, nothing, summary_of_fleets, types_in
from widerow.schema.rollups import HOURS, LEVELS, MOST_TYPES
from widerow.schema.shards import SHARDS, shards_of

FLEET_AGGREGATES = ("min", "max", "avg", "sum", "count", "stddev", "p50", "p95", "p99", "devices")
"""What can be asked of a fleet's step. `devices`: how many had values."""

_USED = "fleet"
_ALL_SHARDS = frozenset(range(SHARDS))
_RECORD_BYTES = 1024
"""What a record of the fleet takes in memory until it is part of the answer, with its sketch: 1.4 KiB were measured."""
_KEPT_HOURS = 1 + LEVELS.index(HOURS)


@dataclass(frozen=True, slots=True)
class FleetSources:
    """Where answers come from."""

    sources: Sources
    hours: FleetStore
    devices: Devices
    stale_of: Callable[[Tenant], Stale]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetQuestion:
    """What of which devices: all that match, together; or apart `by` type, location or `tag:NAME`, or by a label.

    Devices (and variants of metrics) that lack what they are told apart by are in none of the groups.
    """

    match: Match
    question: Question
    by: str = ""
    label: str = ""
    """Or apart by this label of the metrics; `by` is empty then, ..."""
    label_as: str = ""
    """... and the question calls it so."""

    def hours_know(self) -> bool:
        """Whether the fleet's hours know the answer."""
        match = self.match
        others = match.location is not None or match.tags or match.prefix or match.text
        return not others and match.type != "" and self.by in ("", "type") and self.question.steps.whole(HOUR)


def fleet_question(
    match: Match,
    span: TimeSpan,
    *,
    step: str | None,
    aggregates: Sequence[str] | None = None,
    fill: str | None = None,
    tz: str | None = None,
    metrics: Sequence[str] | None = None,
    by: str | None = None,
) -> FleetQuestion:
    """Without a step the whole span is one. `Rejected` says what cannot be asked."""
    chosen = tuple(dict.fromkeys(aggregates or (DEFAULT_AGGREGATE,)))
    for name in chosen:
        if name not in FLEET_AGGREGATES:
            raise Rejected(f"agg {name[:40]!r}: of a fleet give some of {', '.join(FLEET_AGGREGATES)}", code="agg")
    if by in ("device", "metric", "tag:", LABEL):
        raise Rejected(f"group_by {by[:80]!r}: give type, location, tag:NAME or label:NAME", code="group")
    label = labels_in([by]).get(by, "") if by else ""
    if label and "devices" in chosen:
        raise Rejected("agg devices: with group_by a label, devices would be counted for each variant", code="agg")
    question = question_of(span, step=step, aggregates=None, fill=fill, tz=tz, metrics=metrics)
    asked = FleetQuestion(match=match, question=replace(question, aggregates=chosen), by=by or "")
    return replace(asked, by="", label=label, label_as=called(asked.by)) if label else asked


def ask(sources: FleetSources, tenant: Tenant, question: FleetQuestion, budget: Budget) -> Reply:
    """By group, where there are any, then metric and aggregate."""
    q = question.question
    found, used, missing = _Asking(sources, tenant, question, budget).answer()
    owners = {question.by: found.type} if question.by else {}
    owner: Ints | Codes = found.type.codes
    if question.label:
        found, owners, owner = _by_label(found, question)
    budget.points(len(found) * len(q.aggregates))
    values = {name: _values(found.fleet, name) for name in q.aggregates}
    series = series_of(owners, found.metric, owner, found.start_us, values, q, missing, budget, grouped=bool(owners))
    return Reply(series, q.steps.name, q.steps.tz, used, missing)


def _by_label(found: FleetSummary, question: FleetQuestion) -> tuple[FleetSummary, dict[str, Coded], Ints]:
    """Variants merged by a label: in order of its values, which are their owners, and the number of each entry's owner."""
    labels = {question.label_as: question.label}
    metric, has = kept_labels(found.metric, [question.label])
    if len(has) and not has.any():
        refuse_unknown(labels)
    merged = folded([replace(found, metric=metric).take(np.flatnonzero(has))])
    metric, owners = apart(merged.metric, labels)
    order, owner = by_owner(owners, metric, merged.start_us)
    owners = {name: column.take(order) for name, column in owners.items()}
    return replace(merged, metric=metric).take(order), owners, owner


def _values(fleet: FleetStats, aggregate: str) -> Floats:
    if aggregate == "devices":
        return fleet.devices.astype(np.float64)
    stats = fleet.stats
    if aggregate in ("avg", "stddev"):
        return stats.mean if aggregate == "avg" else stats.stddev()
    column: Floats | Ints = getattr(stats, aggregate)
    return column.astype(np.float64)


class _Asking:
    """One question, while it is answered. Summaries here are by group (where there are none, by all), metric and time."""

    def __init__(self, sources: FleetSources, tenant: Tenant, question: FleetQuestion, budget: Budget) -> None:
        self._from, self._tenant, self._asked, self._budget = sources, tenant, question, budget
        self._span, self._steps, self._metrics = question.question.span, question.question.steps, question.question.metrics
        self._type = question.match.type
        self._selection: _Selection | None = None
        self._used: dict[str, int] = {}
        self._missing: list[TimeSpan] = []
        self._held_bytes = 0

    def answer(self) -> tuple[FleetSummary, dict[str, int], list[TimeSpan]]:
        """What was found, where, and what of the span is missing."""
        span = self._span
        edge_us = self._hours_begin() if self._asked.hours_know() else span.stop_us
        found = folded([self._before(TimeSpan(span.start_us, edge_us)), self._hours(TimeSpan(edge_us, span.stop_us))])
        missing = _widened(self._missing, self._steps, span)
        return _without(found, missing, span), self._used, missing

    def _hours_begin(self) -> int:
        """From which step on all hours are kept."""
        kept = Kept.of(self._tenant, self._budget.asked_us(self._from.sources.clock)).levels[_KEPT_HOURS]
        oldest_us = next((s.start_us for s in reversed(kept) if s.stop_us >= self._span.stop_us), self._span.stop_us)
        if self._span.start_us >= oldest_us:
            return self._span.start_us
        edges = self._steps.edges[self._steps.edges >= oldest_us]
        return min(int(edges[0]), self._span.stop_us) if len(edges) else self._span.stop_us

    def _before(self, span: TimeSpan) -> FleetSummary:
        """Of the devices that match, by the steps that were asked for."""
        return self._of_devices(span, self._steps) if span.start_us < span.stop_us else nothing()

    def _hours(self, span: TimeSpan) -> FleetSummary:
        """From the fleet's hours; whole ones inside of the span, and what is left of others at its ends."""
        first, last = -(-span.start_us // HOUR) * HOUR, span.stop_us // HOUR * HOUR
        if first >= last:
            return self._before(span)
        ends = (TimeSpan(span.start_us, first), TimeSpan(last, span.stop_us))
        parts = [self._whole_hours(TimeSpan(first, last)), *(self._hourly(end) for end in ends)]
        return _in_steps(folded(parts), self._steps, self._span)

    def _whole_hours(self, span: TimeSpan) -> FleetSummary:
        self._used.setdefault(_USED, 0)
        # First: what grows stale after that is newer than the question.
        stale = self._from.stale_of(self._tenant).within(span)
        types = [self._type or ALL_TYPES]
        if self._asked.by:
            named = self._types(span)
            types = sorted({name for names in named.values() for name in names if self._type in (None, name)})
            stale = _too_many(named, stale)
        rows = self._rows_of(types, span, self._metrics) if types else []
        self._expect(rows)
        if types == [self._type] and not self._asked.by:
            stale = _too_many(self._types_where_it_is_not(span, rows), stale)
        parts = [summary_of_fleets([_except(chunk, stale) for chunk in rows])]
        for run, shards in _runs(stale):
            others = sorted(_ALL_SHARDS - shards)
            if others:
                partials = self._from.hours.partials(
                    self._tenant, others, run, metrics=self._metrics, beyond_us=GUARD_US, between=self._spend
                )
                parts.append(self._shown(summary_of_fleets(partials)))
            parts.append(self._hourly(run, shards))
        return folded(parts)

    def _types(self, span: TimeSpan) -> dict[int, set[str]]:
        """The types that the fleet's hours name, by hour."""
        named: dict[int, set[str]] = {}
        for chunk in self._rows_of([ALL_TYPES], span):
            for hour_us, name in types_in(chunk):
                named.setdefault(hour_us, set()).add(name)
        return named

    def _types_where_it_is_not(self, span: TimeSpan, rows: Iterable[Rows]) -> dict[int, set[str]]:
        """An hour that says nothing of a type may have left it out, because there were too many."""
        there = {hour_us for chunk in rows for hour_us in np.asarray(chunk.keys["hour_us"]).tolist()}
        lacking = [hour_us for hour_us in range(span.start_us, span.stop_us, HOUR) if hour_us not in there]
        return self._types(TimeSpan(lacking[0], lacking[-1] + HOUR)) if lacking else {}

    def _shown(self, summary: FleetSummary) -> FleetSummary:
        """Of what shards say, the types that were asked for."""
        wanted = [
            name == (self._type or ALL_TYPES) if not self._asked.by else name != ALL_TYPES and self._type in (None, name)
            for name in summary.type.names
        ]
        return summary.take(np.flatnonzero(np.array(wanted, np.bool_)[summary.type.codes]))

    def _rows_of(self, types: Sequence[str], span: TimeSpan, metrics: Columns | None = None) -> list[Rows]:
        # Which hours are kept was settled before; the clock goes on meanwhile.
        return self._from.hours.hours(self._tenant, types, span, metrics=metrics, beyond_us=GUARD_US, between=self._spend)

    def _spend(self, rows: Rows) -> None:
        self._used[_USED] += len(rows)
        self._held_bytes += held_bytes([rows])
        self._budget.spend(len(rows), held_bytes=self._held_bytes)

    def _expect(self, chunks: Iterable[Rows]) -> None:
        """Refuse what these hours will be too large for, before anything is made of them: an answer has at least the metrics
        of one hour of each step.
        """
        most: dict[tuple[str, int], int] = {}
        records = 0
        for rows in chunks:
            before = np.append(0, np.cumsum(rows.cells.kind == CellKind.RECORD))
            counts = lengths(before[rows.cells.offsets])
            records += int(counts.sum())
            at = self._steps(np.maximum(np.asarray(rows.keys["hour_us"]), self._span.start_us))
            type_ = rows.keys["device_type"]
            assert isinstance(type_, Coded)
            for name, start_us, count in zip(type_.to_list(), at.tolist(), counts.tolist(), strict=True):
                most[name, start_us] = max(most.get((name, start_us), 0), count)
        self._budget.points(sum(most.values()) * len(self._asked.question.aggregates))
        self._budget.hold(_RECORD_BYTES * records)

    # -- of devices

    def _hourly(self, span: TimeSpan, shards: frozenset[int] = _ALL_SHARDS) -> FleetSummary:
        if span.start_us == span.stop_us:
            return nothing()
        return self._of_devices(span, steps_of("1h", span), shards)

    def _of_devices(self, span: TimeSpan, steps: Steps, shards: frozenset[int] = _ALL_SHARDS) -> FleetSummary:
        chosen = self._chosen().of(shards)
        if not chosen.names:
            return nothing()
        found = across(
            self._from.sources,
            self._tenant,
            chosen.names,
            span=span,
            steps=steps,
            budget=self._budget,
            metrics=self._metrics,
            groups=chosen.group.codes.astype(np.int64),
            quantiles=self._asked.question.quantiles,
            answers=len(self._asked.question.aggregates) if steps is self._steps else 0,
        )
        for level, rows in found.used.items():
            self._used[level] = self._used.get(level, 0) + rows
        self._missing += found.missing
        unknown = np.zeros(len(found))
        stats = replace(found.stats, first=unknown, last=unknown, increase=found.gained)
        group = Coded(chosen.group.names, found.group.astype(np.int32))
        return FleetSummary(group, found.metric, found.start_us, FleetStats(found.devices, stats))

    def _chosen(self) -> _Selection:
        if self._selection is None:
            self._selection = self._select()
        return self._selection

    def _select(self) -> _Selection:
        """The devices that match, with their groups, from the registry."""
        devices = self._from.devices
        if not self._asked.by and self._asked.match == Match():
            names = list(devices.names(self._tenant.name))
            return _Selection(names, Coded.constant(ALL_TYPES, len(names)))
        found = devices.list(self._tenant.name, self._asked.match).devices
        if not self._asked.by:
            return _Selection([d.name for d in found], Coded.constant(self._type or ALL_TYPES, len(found)))
        grouped = [(device.name, value) for device in found if (value := _value(device, self._asked.by))]
        return _Selection([name for name, _ in grouped], Coded.of([value for _, value in grouped]))


def _value(device: Device, by: str) -> str:
    if by == "type":
        return device.type
    return device.location if by == "location" else device.tags.get(by.removeprefix("tag:"), "")


@dataclass(slots=True)
class _Selection:
    """Devices, each in a group."""

    names: list[str]
    group: Coded
    _shards: Ints | None = field(default=None)

    def of(self, shards: frozenset[int]) -> _Selection:
        if len(shards) == SHARDS:
            return self
        if self._shards is None:
            self._shards = shards_of(Names.of(self.names))
        which = np.flatnonzero(np.isin(self._shards, list(shards)))
        return _Selection([self.names[i] for i in which.tolist()], self.group.take(which))


# -- hours


def _too_many(named: Mapping[int, set[str]], stale: Mapping[int, frozenset[int]]) -> dict[int, frozenset[int]]:
    """Hours that have so many types that some may have been left out can only be asked of devices."""
    full = {hour_us: _ALL_SHARDS for hour_us, names in named.items() if len(names) >= MOST_TYPES}
    return dict(sorted({**stale, **full}.items()))


def _runs(stale: Mapping[int, frozenset[int]]) -> Iterator[tuple[TimeSpan, frozenset[int]]]:
    """Hours that follow one another and are stale of the same shards, together."""
    start = stop = 0
    shards: frozenset[int] = frozenset()
    for hour_us, some in stale.items():
        if hour_us == stop and some == shards:
            stop += HOUR
            continue
        if shards:
            yield TimeSpan(start, stop), shards
        start, stop, shards = hour_us, hour_us + HOUR, some
    if shards:
        yield TimeSpan(start, stop), shards


def _except(rows: Rows, stale: Mapping[int, object]) -> Rows:
    if not stale:
        return rows
    return rows.take(~np.isin(np.asarray(rows.keys["hour_us"]), np.fromiter(stale, np.int64, len(stale))))


def _in_steps(hours: FleetSummary, steps: Steps, span: TimeSpan) -> FleetSummary:
    """Hours, or what is left of them, as the steps that they are in."""
    if not len(hours):
        return hours
    start_us = steps(np.maximum(hours.start_us, span.start_us))
    heads = np.flatnonzero(begins(hours.type.codes, hours.metric.codes, start_us))
    fleet = hours.fleet.later(np.append(heads, len(hours)))
    return FleetSummary(hours.type.take(heads), hours.metric.take(heads), start_us[heads], fleet)


def _widened(missing: Sequence[TimeSpan], steps: Steps, span: TimeSpan) -> list[TimeSpan]:
    """What is missing, as all of the steps it is in, within the span."""
    out: list[TimeSpan] = []
    for part in sorted(missing, key=lambda part: part.start_us):
        at = steps(np.array([max(part.start_us, span.start_us), part.stop_us - 1]))
        start, stop = max(int(at[0]), span.start_us), min(int(steps.ends(at[1:])[0]), span.stop_us)
        if out and out[-1].stop_us >= start:
            start, stop = out[-1].start_us, max(stop, out.pop().stop_us)
        out.append(TimeSpan(start, stop))
    return out


def _without(found: FleetSummary, missing: Sequence[TimeSpan], span: TimeSpan) -> FleetSummary:
    """Without the steps of which something is missing."""
    gone = np.zeros(len(found), np.bool_)
    for part in missing:
        at = np.maximum(found.start_us, span.start_us)
        gone |= (at >= part.start_us) & (at < part.stop_us)
    return found.take(np.flatnonzero(~gone)) if gone.any() else found
