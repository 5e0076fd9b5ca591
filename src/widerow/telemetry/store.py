"""Telemetry in the `rows` layout: every report is a row, readable with any client of its store.

Writing is in two steps so that the pipeline can commit many tenants at once: `plan` turns a batch into changes, the
engine writes them, and `written` is told. Nothing relies on a plan that was not written, so one that fails leaves no trace,
and others may be planned and written meanwhile. Reading clamps to the tenant's retention: the engine
keeps data a while longer than it may be read (`GUARD_US`), for rolls that come late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from widerow.engine.port import Columns, Engine, Span
from widerow.engine.rows import NEVER, Column, Key, Rows
from widerow.model.arrays import Codes, Ints
from widerow.model.batch import Batch
from widerow.model.errors import Refusal
from widerow.model.names import Coded, Names
from widerow.model.tenant import GUARD_US, Tenant
from widerow.model.times import HOUR, Clock, TimeSpan
from widerow.schema.shards import shard_of, shards_of
from widerow.schema.table import Table
from widerow.schema.tables import LAST_SEEN, telemetry
from widerow.telemetry.erasure import EVER, Erasure, Mark, drop_erased_reports, drop_erased_rows
from widerow.telemetry.observed import ObservedSettings
from widerow.telemetry.placement import Epoch, Place, partitions, segments
from widerow.telemetry.places import DeviceStates, Places, Seen, newly_seen, note_seen, place_batch

_FEWEST_BUCKETS, _MOST_BUCKETS = 2, 8
"""How many buckets one scan reads: an hour that does not begin on the hour lies in two. Whoever reads on, reads more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySettings:
    max_future_us: int
    """How far ahead of the clock an event time may lie."""
    refresh_us: int
    """How old a process's knowledge of epochs and erasures may be."""
    observed: ObservedSettings = field(default_factory=ObservedSettings)
    """How what devices send is measured and judged."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to write for a batch, and what of it was refused."""

    tenant: str
    changes: list[tuple[Table, Rows]]
    refusals: list[Refusal]
    kept: int
    reports: list[Rows]
    """Those of the changes that are reports."""
    state: DeviceStates
    """What was known of the devices, by id, ..."""
    seen: Seen
    """... and the `last_seen` rows among the changes."""
    device: Codes
    """The id of each report's device, ..."""
    batch: Batch
    """... and the reports: what is observed when they are written."""


class LastSeen(NamedTuple):
    """The newest bucket of a device."""

    device: str
    bucket: int
    sub_buckets: int
    keep_us: int


class Telemetry:
    """Raw reports of all tenants. Safe to share between threads."""

    def __init__(self, engine: Engine, clock: Clock, settings: TelemetrySettings) -> None:
        self._engine, self._clock = engine, clock
        self.places = Places(
            engine,
            clock,
            refresh_us=settings.refresh_us,
            max_future_us=settings.max_future_us,
            observed=settings.observed,
        )
        self.erasure = Erasure(engine, clock, refresh_us=settings.refresh_us)
        self._applied: set[int] = set()

    def table(self, keep_us: int) -> Table:
        """The table of a retention class, made if it is new."""
        table = telemetry(keep_us)
        if keep_us not in self._applied:
            self._engine.apply([table])
            self._applied.add(keep_us)
        return table

    # -- writing

    def plan(self, tenant: Tenant, batch: Batch) -> Plan:
        batch, refusals = drop_erased_reports(self.erasure.marks(tenant.name), batch)
        state = self.places.state(tenant.name)
        device = state.ids(batch.device.names)[batch.device.codes]
        placed = place_batch(state, device, batch.time_us)
        keep_us = kept_us(tenant, batch.time_us)
        expire_us = np.where(keep_us == 0, NEVER, batch.time_us + keep_us + GUARD_US)
        keys: dict[str, Column] = {
            "tenant_id": Coded.constant(tenant.name, len(batch)),
            "device_id": batch.device,
            "bucket": placed.bucket,
            "sub_bucket": placed.sub_bucket,
            "event_us": batch.time_us,
        }
        rows = Rows(keys, batch.version_us, expire_us, batch.cells)
        since_us = kept_since_us(tenant, batch.time_us)
        rows_seen, seen = newly_seen(state, tenant.name, batch, device, placed, keep_us, since_us)
        changes = [(self.table(k), part) for k, part in _by_class(rows, keep_us)]
        reports = [part for _, part in changes]
        if len(rows_seen):
            changes.append((LAST_SEEN, rows_seen))
        return Plan(tenant.name, changes, refusals, len(batch), reports, state, seen, device, batch)

    def written(self, plan: Plan) -> None:
        """The plan is durable: where devices were last seen is known, and what they send is measured by what was kept."""
        state = plan.state
        note_seen(state, plan.seen)
        with state.lock:
            state.observed.observe(plan.device, plan.batch, state.newest, state.width_us, state.subs)

    def write(self, tenant: Tenant, batch: Batch) -> Plan:
        """Plan and write in one step; durable on return."""
        plan = self.plan(tenant, batch)
        self._engine.write(plan.changes)
        self.written(plan)
        return plan

    # -- reading

    def readable(self, tenant: Tenant, span: TimeSpan) -> TimeSpan:
        """The part of a span that the tenant's retention still shows, whatever class its data is in."""
        now_us = self._clock.now_us()
        shown = {held.shown_us for held in tenant.raw_held()}
        oldest = 0 if 0 in shown else now_us - max(shown)
        return TimeSpan(min(max(span.start_us, oldest), span.stop_us), span.stop_us)

    def read(
        self,
        tenant: Tenant,
        device: str,
        span: TimeSpan,
        *,
        metrics: Columns | None = None,
        may_lag: bool = False,
    ) -> Iterator[tuple[TimeSpan, list[Rows]]]:
        """Live rows of a device, a few buckets at a time, oldest first; the rows of a bucket are newest first.

        Each item is the time its buckets cover within the span, and the rows found there. What was erased is hidden, and
        every bucket looked into, also where reports may lag.
        """
        span = self.readable(tenant, span)
        marks = self.erasure.marks(tenant.name)
        epochs = self.places.epochs(tenant.name, device)
        for table, part, places in self._stretches(tenant, epochs, span, shown=True):
            keys: list[Key] = [(tenant.name, device, p.bucket, p.sub_bucket) for p in places]
            within = Span(part.start_us, part.stop_us)
            chunks = self._engine.scan(table, keys, within, columns=metrics, may_lag=may_lag)
            yield part, [rows for chunk in chunks if len(rows := drop_erased_rows(marks, chunk))]

    def read_many(
        self,
        tenant: Tenant,
        devices: Sequence[str],
        span: TimeSpan,
        *,
        metrics: Columns | None = None,
        beyond_us: int = 0,
        between: Callable[[Rows], None] = lambda _: None,
        first: bool = False,
    ) -> list[Rows]:
        """Live rows of many devices, all at once: for spans of an hour or so. `beyond_us`: so much beyond the retention.
        `first`: see `Engine.scan`.

        That is the one they are on disk for: what a tenant may still be shown of them is for who asks. `between` is told
        of each piece how many rows it has, as it is read, and may raise, or wait for whoever has precedence.
        """
        marks = self.erasure.marks(tenant.name)
        wanted: dict[tuple[Table, TimeSpan], list[Key]] = {}
        for epochs, some in self.places.by_epochs(tenant.name, devices).items():
            for table, part, places in self._stretches(tenant, epochs, span, beyond_us):
                keys = wanted.setdefault((table, part), [])
                keys += [(tenant.name, device, p.bucket, p.sub_bucket) for device in some for p in places]
        found = []
        for (table, part), keys in wanted.items():
            within = Span(part.start_us, part.stop_us)
            for chunk in self._engine.scan(table, list(dict.fromkeys(keys)), within, columns=metrics, first=first):
                rows = drop_erased_rows(marks, chunk)
                if len(rows):
                    found.append(rows)
                between(rows)
        return found

    def _stretches(
        self, tenant: Tenant, epochs: Sequence[Epoch], span: TimeSpan, beyond_us: int = 0, *, shown: bool = False
    ) -> Iterator[tuple[Table, TimeSpan, list[Place]]]:
        """Table, time and partitions, a few buckets at a time, oldest first. `shown`: what the tenant may still be."""
        now_us = self._clock.now_us() - beyond_us
        many = _FEWEST_BUCKETS
        for held in tenant.raw_held():
            keep_us = held.shown_us if shown else held.keep_us
            oldest = 0 if keep_us == 0 else now_us - keep_us
            start, stop = max(span.start_us, held.start_us, oldest), min(span.stop_us, held.stop_us)
            for epoch, part in segments(epochs, TimeSpan(start, stop)) if start < stop else ():
                start = part.start_us
                while start < part.stop_us:
                    stop = min(start - start % epoch.width_us + many * epoch.width_us, part.stop_us)
                    stretch = TimeSpan(start, stop)
                    yield self.table(held.keep_us), stretch, list(partitions(epochs, stretch))
                    start, many = stop, min(2 * many, _MOST_BUCKETS)

    def latest(
        self,
        tenant: Tenant,
        devices: Sequence[str],
        *,
        metrics: Columns | None = None,
        may_lag: bool = False,
        seen: Sequence[LastSeen] | None = None,
    ) -> list[Rows]:
        """Rows that hold each metric's newest value in the last bucket of each device, newest first by device. Where the
        raw retention changes, a bucket ends. `seen`: what `last_seen` said, if it was asked before.
        """
        by_class: dict[int, list[Key]] = {}
        for device, bucket, subs, keep_us in self.last_seen(tenant.name, devices, may_lag=may_lag) if seen is None else seen:
            keys = by_class.setdefault(keep_us, [])
            keys += [(tenant.name, device, bucket, sub) for sub in range(subs)]
        return self._newest(
            tenant, {self.table(keep_us): keys for keep_us, keys in by_class.items()}, metrics, may_lag=may_lag
        )

    def latest_in(
        self,
        tenant: Tenant,
        hours: Mapping[int, Sequence[str]],
        *,
        metrics: Columns | None = None,
        may_lag: bool = False,
    ) -> list[Rows]:
        """The same of other hours, each with some devices. Rows of other hours that share their buckets may come as well."""
        keys: dict[Table, list[Key]] = {}
        for hour_us, devices in hours.items():
            span = TimeSpan(hour_us, hour_us + HOUR)
            for epochs, some in self.places.by_epochs(tenant.name, devices).items():
                for table, _, places in self._stretches(tenant, epochs, span, shown=True):
                    of_table = keys.setdefault(table, [])
                    of_table += [(tenant.name, device, p.bucket, p.sub_bucket) for device in some for p in places]
        distinct = {table: list(dict.fromkeys(some)) for table, some in keys.items()}
        return self._newest(tenant, distinct, metrics, may_lag=may_lag)

    def _newest(
        self, tenant: Tenant, keys: Mapping[Table, Sequence[Key]], metrics: Columns | None, *, may_lag: bool
    ) -> list[Rows]:
        """Rows that hold each metric's newest value in each of the partitions."""
        marks, now_us = self.erasure.marks(tenant.name), self._clock.now_us()
        out = []
        for table, some in keys.items():
            # Erased cells may hide older ones that are not: then all of the bucket is read.
            for chunk in self._engine.scan(table, some, columns=metrics, first=not marks.any(), may_lag=may_lag):
                rows = drop_erased_rows(marks, chunk)
                shown = np.asarray(rows.keys["event_us"]) >= oldest_shown_us(tenant, rows.keys["event_us"], now_us)
                if not shown.all():
                    rows = rows.take(shown)
                if len(rows):
                    out.append(rows)
        return out

    def last_seen(self, tenant: str, devices: Sequence[str], *, may_lag: bool = False) -> list[LastSeen]:
        """The last bucket of those that were ever seen."""
        if len(devices) == 1:
            row = self._engine.get(LAST_SEEN, (tenant, shard_of(devices[0]), devices[0]), may_lag=may_lag)
            if row is None:
                return []
            bucket, _, subs, keep_us = (int(row[column]) for column in LAST_SEEN.columns)
            return [LastSeen(devices[0], bucket, subs, keep_us)]
        shards = shards_of(Names.of(devices)).tolist()
        keys: list[Key] = [(tenant, shard, device) for shard, device in zip(shards, devices, strict=True)]
        seen = []
        for rows in self._engine.scan(LAST_SEEN, keys, may_lag=may_lag):
            found = rows.keys["device_id"]
            assert isinstance(found, Coded)
            facts = rows.cells.number.reshape(len(rows), len(LAST_SEEN.columns)).astype(np.int64).tolist()
            for device, (bucket, _, subs, keep_us) in zip(found.to_list(), facts, strict=True):
                seen.append(LastSeen(device, bucket, subs, keep_us))
        return seen

    # -- erasing

    def erase(self, tenant: Tenant, *, device: str = "", metric: str = "", span: TimeSpan = EVER, ahead_us: int = 0) -> Mark:
        """Unreadable on return, and for ever; and so is what is received for so long from now on."""
        mark = self.erasure.erase(tenant, device=device, metric=metric, span=span, ahead_us=ahead_us)
        if mark.whole and device:  # what it sends from now on may be older
            self._forget_last_seen(tenant.name, device)
        return mark

    def purge(self, tenant: str, mark: Mark, devices: Iterable[str]) -> None:
        """Take what a mark covers of these devices off the disk. May be repeated, and interrupted, at will."""
        now_us = self._clock.now_us()
        for device in devices:
            epochs = self.places.epochs(tenant, device)
            for keep_us in mark.classes:
                oldest = 0 if keep_us == 0 else max(0, now_us - keep_us - GUARD_US)
                stop_us = min(mark.span.stop_us, max(now_us, mark.version_us) + GUARD_US)
                part = TimeSpan(min(max(mark.span.start_us, oldest), stop_us), stop_us)
                self._engine.delete(
                    self.table(keep_us),
                    [(tenant, device, p.bucket, p.sub_bucket) for p in partitions(epochs, part)],
                    Span(mark.span.start_us, mark.span.stop_us),
                    version_us=mark.version_us,
                    columns=[mark.metric] if mark.metric else None,
                )
            if mark.whole:
                self._forget_last_seen(tenant, device)

    def _forget_last_seen(self, tenant: str, device: str) -> None:
        """Unless the device has reported again since."""
        marks = self.erasure.marks(tenant)
        found = self.last_seen(tenant, [device])
        for last in found:
            keys: list[Key] = [(tenant, device, last.bucket, sub) for sub in range(last.sub_buckets)]
            if any(len(drop_erased_rows(marks, chunk)) for chunk in self._engine.scan(self.table(last.keep_us), keys)):
                return
        # Without a row there is nothing to delete but one that the device writes meanwhile. And where deletes are not
        # forgotten the row stays: a delete would hide the device when it returns.
        if found and self._engine.features.forgets_deletes:
            self._engine.delete(LAST_SEEN, [(tenant, shard_of(device))], Span(device, device + "\0"), version_us=1 << 53)
        state = self.places.state(tenant)
        d = state.id_of(device)
        with state.lock:  # a device that reports again is seen again
            state.forget_seen(d)


def kept_us(tenant: Tenant, time_us: Ints) -> Ints:
    """How long each report is kept, by its event time."""
    epochs = tenant.raw_epochs
    if len(epochs) <= 1:
        return np.full(len(time_us), epochs[0].raw_us if epochs else tenant.retention.raw_us)
    starts = np.array([e.from_us for e in epochs])
    keeps = np.array([e.raw_us for e in epochs])
    return keeps[np.maximum(np.searchsorted(starts, time_us, side="right") - 1, 0)]


def kept_since_us(tenant: Tenant, time_us: Ints) -> Ints:
    """From which event time on the retention of each report holds; 0: that is the first."""
    epochs = tenant.raw_epochs
    if len(epochs) <= 1:
        return np.zeros(len(time_us), np.int64)
    starts = np.array([0, *(e.from_us for e in epochs[1:])])
    return starts[np.searchsorted(starts[1:], time_us, side="right")]


def oldest_shown_us(tenant: Tenant, time_us: Column, now_us: int) -> Ints:
    """From which event time on reports can be read, by the retention that is shown for each of their own times."""
    held = tenant.raw_held()
    oldest = np.array([now_us - h.shown_us if h.shown_us else 0 for h in held], np.int64)
    if len(held) == 1:
        return np.full(len(time_us), oldest[0])
    starts = np.array([h.start_us for h in held], np.int64)
    return oldest[np.maximum(np.searchsorted(starts, np.asarray(time_us), side="right") - 1, 0)]


def _by_class(rows: Rows, keep_us: Ints) -> Iterator[tuple[int, Rows]]:
    if not len(rows):
        return
    if keep_us[0] == keep_us[-1] and (keep_us == keep_us[0]).all():
        yield int(keep_us[0]), rows
        return
    for keep in np.unique(keep_us).tolist():
        yield keep, rows.take(keep_us == keep)
