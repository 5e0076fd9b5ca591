"""Whether rollups say what is beneath them: everything is computed again, and compared with what is stored, bit for bit.

Rule 1: what a record should be follows from what is beneath it *as it should be*: minutes from raw reports, hours from these
minutes, the day from these hours. So one bad record is found as one, and not again in all that stands above it.
Rule 2: where raw reports are gone the windows are frozen: minutes are taken as they are, an hour is held against its stored
minutes, a day against its stored hours. That something beneath is not there proves nothing then: it may have expired, or
never have been; so nothing frozen is ever too much, and what counts more than is left beneath it cannot be mended.
Rule 3: less beneath a record than it says proves nothing either: reports may be lost. Nobody can tell then, and it stays,
unless an erasure explains the difference. What cannot be read is named, and neither judged nor mended.
Rule 4: others may write and roll meanwhile. What differs is wrong only if no mark says that it will be rolled, and if it
is found the same way once more after the marks were read: by then, whoever removed a mark has stored what it asked for.
Everything is done by whole days (UTC) of a few devices.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from widerow.engine.port import Engine
from widerow.engine.rows import Key
from widerow.model.arrays import Flags, Ints
from widerow.model.errors import Corrupt
from widerow.model.names import Coded, Names
from widerow.model.tenant import GUARD_US, Tenant
from widerow.model.times import DAY, HOUR, Clock, TimeSpan
from widerow.rollup.aggregate import coarser_of, minutes_of
from widerow.rollup.compare import (
    NO_RECORDS,
    Records,
    count_in,
    differences,
    joined,
    keys_of,
    records_of,
    rows_of_records,
    unreadable,
)
from widerow.rollup.inputs import raw_is_there, windows_are_there
from widerow.rollup.store import Rollups
from widerow.schema.rollups import DAYS, DIRTY, DIRTY_DAYS, HOURS, LEVELS, MINUTES, Level
from widerow.schema.shards import shards_of
from widerow.schema.table import Table
from widerow.telemetry.erasure import EVER, Mark, TenantMarks
from widerow.telemetry.store import Telemetry

log = logging.getLogger(__name__)

UNREADABLE = "its bytes cannot be decoded"
UNREAD = "bytes of it, or of what it is made of, cannot be read: the server's log names the file"
_NOTHING_BENEATH = f"{UNREADABLE}, and nothing is left that it could be computed from"
MORE_THAN_BENEATH = "it counts more values than what is left beneath it"
NOTHING_LEFT_BENEATH = "nothing beneath it says so, and nothing was erased there"
ERASED_UNTIL_US = DAY
"""What was rolled so much later than something was erased does not hold it, whatever the clocks of processes differ by."""


class Kind(StrEnum):
    WRONG = "wrong"
    """It says something else than it should."""
    MISSING = "missing"
    EXTRA = "extra"
    """It is there, and was erased."""
    UNKNOWN = "cannot tell"
    """It says more than what is beneath it, and nothing was erased: what it was made of is lost, or it was never right."""
    UNREADABLE = "unreadable"
    """It was not looked at: its bytes, or those beneath it, cannot be read."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One record that is not as it should be."""

    kind: Kind
    device: str
    level: Level
    start_us: int
    metric: str
    frozen: bool = False
    """The raw reports of its window are gone."""
    mendable: bool = True
    note: str = ""
    right: bytes = field(default=b"", repr=False)
    """What should be stored; empty: nothing, or nobody knows."""
    stored: bytes = field(default=b"", repr=False)
    version_us: int = 0
    """Of what is stored."""
    type: str = ""
    """Of the fleet, where a finding has no device: the type that it is about; empty: all devices."""
    shard: int | None = None
    """Of the fleet: whose devices it is about; None: of all shards together."""

    @property
    def hour_us(self) -> int:
        return self.start_us - self.start_us % HOUR


@dataclass(slots=True)
class Checked:
    """What came of a check. Numbers of records are by level."""

    checked: dict[str, int] = field(default_factory=lambda: dict.fromkeys((level.name for level in LEVELS), 0))
    frozen: dict[str, int] = field(default_factory=lambda: dict.fromkeys((level.name for level in LEVELS), 0))
    """How many of those checked are of windows whose raw reports are gone."""
    behind: int = 0
    """Windows of devices that differ, and are marked: they wait to be rolled."""
    findings: list[Finding] = field(default_factory=list)

    def add(self, part: Checked) -> None:
        """What came of checking others."""
        for mine, more in ((self.checked, part.checked), (self.frozen, part.frozen)):
            for level, count in more.items():
                mine[level] = mine.get(level, 0) + count
        self.behind += part.behind
        self.findings += part.findings


class Verifier:
    """Safe to share between threads."""

    def __init__(self, engine: Engine, telemetry: Telemetry, rollups: Rollups, clock: Clock) -> None:
        self._engine, self._telemetry, self._rollups, self._clock = engine, telemetry, rollups, clock

    def check(self, tenant: Tenant, devices: Sequence[str], day_us: int) -> Checked:
        """All levels of a day of some devices, each given once."""
        seen = self._look(tenant, devices, day_us)
        found = [f for f in seen.findings if f.kind is not Kind.UNREADABLE]
        if not found:
            return seen
        suspects = self._unmarked(tenant, day_us, self._untouched(tenant, found))
        if suspects:
            again = self._look(tenant, sorted({f.device for f in suspects}), day_us)
            suspects &= set(again.findings)
        seen.behind = len({(f.device, f.level.name, f.start_us) for f in found if f not in suspects})
        seen.findings = [f for f in seen.findings if f in suspects or f.kind is Kind.UNREADABLE]
        return seen

    def _look(self, tenant: Tenant, devices: Sequence[str], day_us: int) -> Checked:
        """Compute and compare once, whatever is marked. Devices that cannot be read are found by halving."""
        try:
            return self._compared(tenant, devices, day_us)
        except Corrupt as error:
            if len(devices) == 1:
                log.warning("rollups of %s of %s are not verified: %s", devices[0], tenant.name, error)
                lost = Finding(Kind.UNREADABLE, devices[0], DAYS, day_us, "", mendable=False, note=UNREAD)
                return Checked(findings=[lost])
        done, middle = Checked(), len(devices) // 2
        for some in (devices[:middle], devices[middle:]):
            done.add(self._look(tenant, some, day_us))
        return done

    def _compared(self, tenant: Tenant, devices: Sequence[str], day_us: int) -> Checked:
        span, done = TimeSpan(day_us, day_us + DAY), Checked()
        stored = {
            level: records_of(self._rollups.read(tenant, devices, level, span, beyond_us=GUARD_US), devices)
            for level in LEVELS
        }
        day = _Day(tenant, devices, day_us, self._clock.now_us(), self._telemetry.erasure.marks(tenant.name), done)
        minutes = self._from_raw(day)
        new_minutes, old_minutes, _ = day.parted(stored[MINUTES])
        new_hours, old_hours, unread = day.parted(stored[HOURS])
        minutes = day.compare(MINUTES, minutes, new_minutes)
        hours = joined([day.compare(HOURS, day.above(HOURS, minutes), new_hours), unread])
        good, lost = day.compare_frozen(MINUTES, NO_RECORDS, old_minutes)
        good = good.take(np.isin(_hour(good.start_us), day.minutes_kept))
        good, lost = day.compare_frozen(HOURS, day.above(HOURS, good, without=lost), old_hours)
        if not day.frozen:
            day.compare(DAYS, day.above(DAYS, hours), stored[DAYS])
        elif day.hours_kept:
            day.compare_frozen(DAYS, day.above(DAYS, joined([hours, good]), without=lost), stored[DAYS])
        else:
            day.compare_frozen(DAYS, NO_RECORDS, stored[DAYS])
        return done

    def _from_raw(self, day: _Day) -> Records:
        """Minutes as they should be, where there are raw reports. An hour of these is in memory at a time."""
        minutes = []
        for hour_us in [*day.raw_hours]:
            span = TimeSpan(hour_us, hour_us + HOUR)
            try:
                raw = self._telemetry.read_many(day.tenant, day.devices, span, beyond_us=GUARD_US)
            except Corrupt as error:
                if len(day.devices) > 1:
                    raise
                log.warning("an hour of %s of %s is not verified: %s", day.devices[0], day.tenant.name, error)
                day.leave(hour_us)
                continue
            if raw:
                minutes.append(records_of([minutes_of(day.tenant.name, raw, version_us=0)], day.devices))
        return joined(minutes)

    def _untouched(self, tenant: Tenant, findings: Sequence[Finding]) -> list[Finding]:
        """Those that no erasure which is still under way explains: it has records removed, and marks what follows."""
        if not self._telemetry.erasure.marks(tenant.name).partial:
            return list(findings)
        open_ = [mark for name, mark, _ in self._telemetry.erasure.unfinished() if name == tenant.name]
        return [f for f in findings if not _is_erased(open_, f)]

    def _unmarked(self, tenant: Tenant, day_us: int, findings: Sequence[Finding]) -> set[Finding]:
        """Those of windows that nobody is going to roll again. A day waits for all its hours, too."""
        wanted: set[tuple[str, int]] = set()
        for f in findings:
            wanted |= {(f.device, hour) for hour in _hours(day_us)} if f.level is DAYS else {(f.device, f.hour_us)}
        of_days = sorted({f.device for f in findings if f.level is DAYS})
        # Hours first: when one is rolled, its day is marked before its own mark goes.
        hours = self._marked(tenant.name, DIRTY, sorted(wanted))
        days = self._marked(tenant.name, DIRTY_DAYS, [(device, day_us) for device in of_days])
        waiting = {device for device, _ in hours | days}
        return {f for f in findings if (f.device not in waiting if f.level is DAYS else (f.device, f.hour_us) not in hours)}

    def _marked(self, tenant: str, table: Table, windows: Sequence[tuple[str, int]]) -> set[tuple[str, int]]:
        """Which of the windows of devices are marked."""
        shards = shards_of(Names.of([device for device, _ in windows])).tolist()
        keys: list[Key] = [(tenant, shard, start, device) for shard, (device, start) in zip(shards, windows, strict=True)]
        found: set[tuple[str, int]] = set()
        for rows in self._engine.scan(table, keys) if keys else ():
            device = rows.keys["device_id"]
            assert isinstance(device, Coded)
            found |= set(zip(device.to_list(), np.asarray(rows.keys[table.clustering[0].name]).tolist(), strict=True))
        return found


class _Day:
    """A day of some devices: what of it is still there, and how its records compare. What is found goes into `done`."""

    def __init__(
        self, tenant: Tenant, devices: Sequence[str], day_us: int, now_us: int, marks: TenantMarks, done: Checked
    ) -> None:
        self.tenant, self.devices, self._done = tenant, devices, done
        self._erased = marks.partial
        gone_us = zip(devices, marks.erased_us(Names.of(devices)).tolist(), strict=True)
        self._marks = [*marks.partial, *(Mark(device, "", EVER, at_us) for device, at_us in gone_us if at_us >= 0)]
        hours = _hours(day_us)
        self.raw_hours = [hour for hour in hours if raw_is_there(tenant, hour, now_us)]
        self.unread_hours: list[int] = []
        self.minutes_kept = [hour for hour in hours if windows_are_there(tenant, MINUTES, hour, now_us)]
        self.hours_kept = all(hour in self.raw_hours or windows_are_there(tenant, HOURS, hour, now_us) for hour in hours)

    @property
    def frozen(self) -> bool:
        """Whether raw reports of some of its hours are gone, or cannot be read."""
        return len(self.raw_hours) < DAY // HOUR

    def leave(self, hour_us: int) -> None:
        """Of a single device: the raw reports of an hour cannot be read. What is stored of it is taken as it is."""
        self.raw_hours.remove(hour_us)
        self.unread_hours.append(hour_us)
        lost = Finding(Kind.UNREADABLE, self.devices[0], HOURS, hour_us, "", mendable=False, note=UNREAD)
        self._done.findings.append(lost)

    def parted(self, records: Records) -> tuple[Records, Records, Records]:
        """Those of hours that have their raw reports, those of hours that are frozen, and those whose reports are unread."""
        fresh = np.isin(_hour(records.start_us), self.raw_hours)
        unread = np.isin(_hour(records.start_us), self.unread_hours)
        return records.take(fresh), records.take(~fresh & ~unread), records.take(unread)

    def above(self, level: Level, finer: Records, *, without: Records = NO_RECORDS) -> Records:
        """The windows of a level from records beneath it; but for those that others, which are lost, are part of."""
        if not len(finer):
            return NO_RECORDS
        rows = rows_of_records(self.tenant.name, self.devices, level, finer)
        made = records_of([coarser_of(self.tenant.name, [rows], level, version_us=0)], self.devices)
        start_us = without.start_us - without.start_us % level.width_us
        return _others(made, Records(without.device, start_us, without.metric, without.record, without.version_us))

    def compare(self, level: Level, right: Records, stored: Records) -> Records:
        """Where all that is beneath should be there. Gives the best that is known of the windows."""
        found = differences(right, stored)
        self._done.checked[level.name] += len(right) + len(found.extra)
        less = self._wrong(level, right.take(found.right), stored.take(found.stored), frozen=False)
        self._add(Kind.MISSING, level, right.take(found.missing))
        extra = stored.take(found.extra)
        kept = np.zeros(len(extra), np.bool_)
        for i, f in enumerate(self._findings(Kind.EXTRA, level, extra)):
            kept[i] = not self._explained(f, whole=True)
            unknown = replace(f, kind=Kind.UNKNOWN, mendable=False, note=NOTHING_LEFT_BENEATH)
            self._done.findings.append(unknown if kept[i] else f)
        kept &= ~unreadable(self.tenant.name, self.devices, level, extra)
        better = np.ones(len(right), np.bool_)
        better[found.right[less]] = False
        return joined([right.take(better), stored.take(found.stored[less]), extra.take(kept)])

    def _explained(self, f: Finding, *, whole: bool) -> bool:
        """Whether an erasure of all of its window (`whole`), or of a part, may be why less is beneath it than it says."""
        stop_us = f.start_us + f.level.width_us
        return any(
            _is_erased([mark], f)
            and f.version_us <= mark.version_us + ERASED_UNTIL_US
            and not (whole and (mark.span.start_us > f.start_us or mark.span.stop_us < stop_us))
            for mark in self._marks
        )

    def compare_frozen(self, level: Level, computed: Records, stored: Records) -> tuple[Records, Records]:
        """Where something beneath may be gone. Gives the best that is known of the windows, and what is lost for good."""
        found = differences(computed, stored)
        less = self._wrong(level, computed.take(found.right), stored.take(found.stored), frozen=True)
        better = np.ones(len(computed), np.bool_)
        better[found.right[less]] = False
        if level is HOURS and self._erased:  # of a frozen hour that was erased in part nothing is kept
            absent = self._findings(Kind.MISSING, level, computed.take(found.missing))
            better[found.missing] = [not _is_erased(self._erased, f) for f in absent]
        missing = found.missing[better[found.missing]]
        for counts in (self._done.checked, self._done.frozen):
            counts[level.name] += len(stored) + len(missing)
        self._add(Kind.MISSING, level, computed.take(missing), frozen=True)
        lost = unreadable(self.tenant.name, self.devices, level, stored)
        lost[found.stored] = False
        self._add(Kind.WRONG, level, stored.take(lost), frozen=True, mendable=False, note=_NOTHING_BENEATH)
        computed = computed.take(better)
        return joined([computed, _others(stored.take(~lost), computed)]), stored.take(lost)

    def _wrong(self, level: Level, right: Records, stored: Records, *, frozen: bool) -> Flags:
        """Pairs that differ. Gives those of which what is stored is better: it counts more than what is left beneath it."""
        bad = unreadable(self.tenant.name, self.devices, level, stored)
        less = np.zeros(len(stored), np.bool_)
        for i, finding in enumerate(self._findings(Kind.WRONG, level, stored)):
            record = right.record.bytes_at(i)
            more = not bad[i] and count_in(finding.stored) > count_in(record)
            less[i] = more and (frozen or not self._explained(finding, whole=False))
            kind, note = (Kind.UNKNOWN, MORE_THAN_BENEATH) if less[i] else (Kind.WRONG, UNREADABLE if bad[i] else "")
            found = replace(finding, kind=kind, frozen=frozen, mendable=not less[i], note=note, right=record)
            self._done.findings.append(found)
        return less

    def _add(
        self, kind: Kind, level: Level, records: Records, *, frozen: bool = False, mendable: bool = True, note: str = ""
    ) -> None:
        self._done.findings += [
            replace(f, frozen=frozen, mendable=mendable, note=note) for f in self._findings(kind, level, records)
        ]

    def _findings(self, kind: Kind, level: Level, records: Records) -> Iterator[Finding]:
        for i in range(len(records)):
            device, start_us, metric = self.devices[int(records.device[i])], int(records.start_us[i]), records.metric[i]
            if kind is Kind.MISSING:
                yield Finding(kind, device, level, start_us, metric, right=records.record.bytes_at(i))
            else:
                stored, version_us = records.record.bytes_at(i), int(records.version_us[i])
                yield Finding(kind, device, level, start_us, metric, stored=stored, version_us=version_us)


def _others(records: Records, known: Records) -> Records:
    """Those that are not among the known ones, by device, window and metric."""
    keys, known_keys = keys_of(records, known)
    return records.take(~np.isin(keys, known_keys))


def _is_erased(marks: Sequence[Mark], f: Finding) -> bool:
    """Whether one of the marks touches its window."""
    stop_us = f.start_us + f.level.width_us
    return any(
        mark.device in ("", f.device)
        and mark.metric in ("", f.metric)
        and mark.span.start_us < stop_us
        and mark.span.stop_us > f.start_us
        for mark in marks
    )


def _hours(day_us: int) -> range:
    return range(day_us, day_us + DAY, HOUR)


def _hour(time_us: Ints) -> Ints:
    return time_us - time_us % HOUR
