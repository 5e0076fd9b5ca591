"""Whether the fleet's hours say what the hours of its devices say: computed again, and compared bit for bit.

Rule 1: what a shard should say follows from the stored hours of its devices, what the fleet should say from its shards *as
they should be*. So one bad cell is found as one, and not again in what stands above it.
Rule 2: an hour of a device that is wrong itself, or cannot be read, is for `Verifier` to name. What its shard says of that
hour is not judged, and taken as it is.
Rule 3: hours of devices are kept as long as those of the fleet. Where they have expired nothing is said of either.
Rule 4: as with devices, what differs is wrong only if nobody is going to roll it, and if it is found once more after the
marks were read.
Rule 5: as with devices, nobody can tell of a cell that says more than what is beneath it, and what cannot be read is named.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from widerow.codec.fleet import decode_fleet
from widerow.engine.rows import Rows
from widerow.model.batch import CellKind
from widerow.model.errors import Corrupt
from widerow.model.names import Coded, Names
from widerow.model.tenant import Tenant
from widerow.model.times import DAY, HOUR, Clock, TimeSpan
from widerow.rollup.fleet import Fleet
from widerow.rollup.fleet_summary import (
    ALL_TYPES,
    FleetSummary,
    first_types,
    fleet_rows,
    hours_of_devices,
    nothing,
    partial_rows,
    summary_of_fleets,
)
from widerow.rollup.inputs import EXPIRING_US
from widerow.rollup.store import kept_at
from widerow.rollup.verify import (
    ERASED_UNTIL_US,
    MORE_THAN_BENEATH,
    NOTHING_LEFT_BENEATH,
    UNREAD,
    UNREADABLE,
    Checked,
    Finding,
    Kind,
    Verifier,
)
from widerow.schema.rollups import FLEET, HOURS
from widerow.schema.shards import SHARDS, shard_of
from widerow.telemetry.erasure import Erasure, Mark

log = logging.getLogger(__name__)

_MOST_ASKED = 64
"""Devices that are held against their reports before their fleet is called wrong: those that were written last."""

_TYPE = "it names a type, and how many devices that has"


@dataclass(frozen=True, slots=True)
class _Place:
    """Of a cell."""

    hour_us: int
    shard: int | None
    """None: the fleet's."""
    type: str
    is_tag: bool
    name: str


_Stored = dict[_Place, tuple[bytes, int]]
"""The bytes and the version of each cell."""


class FleetVerifier:
    """Safe to share between threads."""

    def __init__(self, fleet: Fleet, devices: Verifier, erasure: Erasure, clock: Clock) -> None:
        self._fleet, self._devices, self._erasure, self._clock = fleet, devices, erasure, clock

    def check(self, tenant: Tenant, span: TimeSpan) -> Checked:
        """The hours that begin within a span: those of all shards, and the fleet's."""
        count, found, unread = self._look(tenant, span)
        done = Checked({FLEET.name: count}, {}, findings=unread)
        if found:
            suspects = self._unmarked(tenant, span, found)
            if suspects:
                suspects &= set(self._look(tenant, span)[1])
            done.behind = len({(f.start_us, f.shard) for f in found if f not in suspects})
            blamed = self._blamed(tenant, suspects)
            done.findings += [
                f for f in found if f in suspects and not any(h == f.start_us and f.shard in (None, s) for h, s in blamed)
            ]
        return done

    def _look(self, tenant: Tenant, span: TimeSpan) -> tuple[int, list[Finding], list[Finding]]:
        """Compute and compare once, whatever is marked: the number of cells, what differs, and what cannot be read."""
        unread: list[Finding] = []
        try:
            return *self._compared(tenant, span, unread), unread
        except Corrupt as error:
            return 0, [], [*unread, _unread(span, None, error)]

    def _compared(self, tenant: Tenant, span: TimeSpan, unread: list[Finding]) -> tuple[int, list[Finding]]:
        now_us, count = self._clock.now_us(), 0
        found: list[Finding] = []
        partials = self._fleet.store.partials(tenant, range(SHARDS), span)
        stored = _cells(partials)
        by_shard = _by_window(stored)
        should = self._shards_should(tenant, span, unread)
        hours = {place.hour_us for place in stored} | {hour_us for hour_us, _ in should}
        whole = self._whole(tenant, span, stored, should)
        by_hour = _by_window(whole)
        hours |= {hour_us for hour_us, _ in by_hour}
        for hour_us in sorted(hour for hour in hours if _is_there(tenant, hour, now_us)):
            here = [part.take(np.asarray(part.keys["hour_us"]) == hour_us) for part in partials]
            right, known = [], True
            for shard in range(SHARDS):
                mine = by_shard.get((hour_us, shard), {})
                summary = should.get((hour_us, shard), nothing())
                if summary is None:
                    right += [part.take(np.asarray(part.keys["shard"]) == shard) for part in here]
                    known &= bool(mine)
                    continue
                rows = partial_rows(tenant.name, shard, hour_us, summary, version_us=0)
                right.append(rows)
                computed = _cells([rows])
                found += _differences(computed, mine)
                count += len(computed | mine)
            try:
                fleet = first_types(summary_of_fleets(right))
            except Corrupt:
                known = False
            if known:
                mine = by_hour.get((hour_us, None), {})
                computed = _cells([fleet_rows(tenant.name, hour_us, fleet, version_us=0)])
                found += _differences(computed, mine)
                count += len(computed | mine)
        erased = self._erasure.marks(tenant.name).partial
        return count, [f if any(_touches(mark, f) for mark in erased) else _unless_lost(f) for f in found]

    def _shards_should(
        self, tenant: Tenant, span: TimeSpan, unread: list[Finding]
    ) -> dict[tuple[int, int], FleetSummary | None]:
        """What shards should say, by hour and shard; None where an hour of a device cannot be read."""
        should: dict[tuple[int, int], FleetSummary | None] = {}
        for shard in range(SHARDS):
            try:
                for chunks in self._fleet.hours(tenant, shard, span):
                    self._shard_should(should, shard, chunks)
            except Corrupt as error:
                unread.append(_unread(span, shard, error))
                should |= {(hour_us, shard): None for hour_us in range(span.start_us, span.stop_us, HOUR)}
        return should

    @staticmethod
    def _shard_should(should: dict[tuple[int, int], FleetSummary | None], shard: int, chunks: Sequence[Rows]) -> None:
        """The same of some devices more."""
        starts = [np.asarray(rows.keys["start_us"]) for rows in chunks]
        for hour_us in np.unique(np.concatenate(starts)).tolist() if starts else ():
            before = should.get((hour_us, shard), nothing())
            parts = [rows.take(at == hour_us) for rows, at in zip(chunks, starts, strict=True) if hour_us in at]
            try:
                summary = None if before is None else hours_of_devices(before, parts)
            except Corrupt:
                summary = None
            should[hour_us, shard] = summary

    def _whole(
        self, tenant: Tenant, span: TimeSpan, stored: Iterable[_Place], should: dict[tuple[int, int], FleetSummary | None]
    ) -> _Stored:
        """The fleet's own rows: of all devices, and of each type that anything names."""
        every = self._fleet.store.hours(tenant, [ALL_TYPES], span)
        cells = _cells(every)
        types = {place.name for place in cells if place.is_tag} | {place.type for place in stored}
        for summary in should.values():
            types |= set(summary.type.names.to_list()) if summary is not None else set()
        return cells | _cells(self._fleet.store.hours(tenant, sorted(types - {ALL_TYPES}), span))

    def _unmarked(self, tenant: Tenant, span: TimeSpan, findings: Sequence[Finding]) -> set[Finding]:
        """Those that nobody is going to roll again. An hour of the fleet waits for all its shards."""
        erased = [mark for name, mark, _ in self._erasure.unfinished() if name == tenant.name]
        stale = self._fleet.stale_in_store(tenant).within(span)
        waiting = {(hour_us, shard) for hour_us, some in stale.items() for shard in some}
        for mark in erased:
            shards = [shard_of(mark.device)] if mark.device else range(SHARDS)
            touched = {
                f.start_us for f in findings if mark.span.start_us < f.start_us + HOUR and mark.span.stop_us > f.start_us
            }
            waiting |= {(hour_us, shard) for hour_us in touched for shard in shards}
        hours = {hour_us for hour_us, _ in waiting}
        return {
            f for f in findings if (f.start_us not in hours if f.shard is None else (f.start_us, f.shard) not in waiting)
        }

    def _blamed(self, tenant: Tenant, suspects: Iterable[Finding]) -> set[tuple[int, int]]:
        """Hours and shards of which an hour of a device is wrong itself. The devices written last are asked."""
        asked: dict[tuple[int, str], int] = {}
        for hour_us, shard in sorted({(f.start_us, f.shard) for f in suspects if f.shard is not None}):
            for chunks in self._fleet.hours(tenant, shard, TimeSpan(hour_us, hour_us + 1)):
                for rows in chunks:
                    device = rows.keys["device_id"]
                    assert isinstance(device, Coded)
                    for name, version_us in zip(device.to_list(), rows.version_us.tolist(), strict=True):
                        asked[hour_us, name] = max(version_us, asked.get((hour_us, name), 0))
        by_day: dict[int, set[str]] = {}
        for hour_us, name in sorted(asked, key=lambda one: -asked[one])[:_MOST_ASKED]:
            by_day.setdefault(hour_us - hour_us % DAY, set()).add(name)
        return {
            (f.start_us, shard_of(f.device))
            for day_us, names in by_day.items()
            for f in self._devices.check(tenant, sorted(names), day_us).findings
            if f.level is HOURS
        }


def _is_there(tenant: Tenant, hour_us: int, now_us: int) -> bool:
    keep_us = kept_at(tenant, HOURS, hour_us)
    return keep_us == 0 or hour_us > now_us - keep_us + EXPIRING_US


def _cells(chunks: Iterable[Rows]) -> _Stored:
    """Of rows of shards, or of the fleet."""
    found: _Stored = {}
    for rows in chunks:
        cells, row, type_ = rows.cells, rows.cells.rows(), rows.keys["device_type"]
        assert isinstance(type_, Coded)
        shard: list[int | None] = np.asarray(rows.keys["shard"]).tolist() if "shard" in rows.keys else [None] * len(rows)
        hour_us, types = np.asarray(rows.keys["hour_us"]).tolist(), type_.to_list()
        is_tag, names = (cells.kind == CellKind.TAG).tolist(), Coded(cells.names, cells.name).to_list()
        for c, r in enumerate(row.tolist()):
            place = _Place(hour_us[r], shard[r], types[r], is_tag[c], names[c])
            found[place] = cells.texts.bytes_at(int(cells.text[c])), int(rows.version_us[r])
    return found


def _by_window(stored: _Stored) -> dict[tuple[int, int | None], _Stored]:
    found: dict[tuple[int, int | None], _Stored] = {}
    for place, cell in stored.items():
        found.setdefault((place.hour_us, place.shard), {})[place] = cell
    return found


def _differences(right: _Stored, stored: _Stored) -> Iterator[Finding]:
    for place in right | stored:
        should, (says, version_us) = right.get(place, (b"", 0))[0], stored.get(place, (b"", 0))
        kind = Kind.MISSING if place not in stored else Kind.EXTRA if place not in right else Kind.WRONG
        if kind is Kind.WRONG and should == says:
            continue
        finding = Finding(
            kind, "", FLEET, place.hour_us, place.name, right=should, stored=says, version_us=version_us, shard=place.shard
        )
        if place.is_tag:
            yield replace(finding, metric="", type=place.name, note=_TYPE)
        else:
            bad = kind is Kind.WRONG and not _count(says, finding)
            yield replace(finding, type=place.type, note=UNREADABLE if bad else "")


def _unread(span: TimeSpan, shard: int | None, error: Corrupt) -> Finding:
    log.warning("hours of a fleet are not verified: %s", error)
    return Finding(Kind.UNREADABLE, "", FLEET, span.start_us, "", mendable=False, note=UNREAD, shard=shard)


def _touches(mark: Mark, f: Finding) -> bool:
    soon = f.version_us <= mark.version_us + ERASED_UNTIL_US
    return soon and mark.span.start_us < f.start_us + HOUR and mark.span.stop_us > f.start_us


def _unless_lost(f: Finding) -> Finding:
    """The same, but as one that nobody can tell of where what is stored says more than what is beneath it."""
    if f.kind is Kind.EXTRA:
        return replace(f, kind=Kind.UNKNOWN, mendable=False, note=NOTHING_LEFT_BENEATH)
    if f.kind is Kind.WRONG and _count(f.stored, f) > _count(f.right, f):
        return replace(f, kind=Kind.UNKNOWN, mendable=False, note=MORE_THAN_BENEATH)
    return f


def _count(cell: bytes, f: Finding) -> int:
    """Of the values that a record is of; 0 where it cannot be read, or is none."""
    try:
        return int(decode_fleet(Names.of_bytes([cell]), np.array([f.start_us])).stats.count[0])
    except Corrupt:
        return 0
