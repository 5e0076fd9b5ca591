"""Judges the minutes of devices when they close, and devices that are silent.

Rule 1: `written` is called with every batch that was made durable, and only puts it aside; where a tenant has no rules it
costs a look into a dictionary. Everything else is done by one thread (`tick`), each second.
Rule 2: a minute closes once, `lateness_us` after its end. Reports that come later raise no alert and take none back, be they
late, a backlog or sent again. Rolling a window again is no concern of this module.
Rule 3: a minute is what this process wrote. Reports that are sent twice within it count twice in sums and counts.
Rule 4: `MOST_CELLS` wait to be sorted. Reports that do not fit are not judged, but counted; so are those at which it failed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from widerow.alerts.alert import FIRING, PENDING, Alert
from widerow.alerts.book import Book
from widerow.alerts.rule import RATE, THRESHOLD, Rule
from widerow.alerts.state import State
from widerow.alerts.track import Change, Track, minutes_in
from widerow.catalog.match import Match
from widerow.engine.rows import Rows
from widerow.model.arrays import Codes, Flags, Ints
from widerow.model.batch import CellKind
from widerow.model.labels import Selector
from widerow.model.names import Coded, Names
from widerow.model.times import MINUTE, Clock
from widerow.ops.counters import Counters
from widerow.ops.recurring import tried

log = logging.getLogger(__name__)

MOST_CELLS = 8_000_000
MOST_VARIANTS = 64
"""Of the metric of a rule: variants with other labels are not watched."""
LASTING = {PENDING: State.PENDING, FIRING: State.FIRING}

Matches = Callable[[str, Match, Sequence[str]], set[str]]
"""Which of some devices of a tenant match."""


@dataclass(frozen=True, slots=True)
class Seen:
    tenant: str
    rule: Rule
    metric: str
    change: Change

    def alert(self, source: str) -> Alert:
        return Alert(
            tenant=self.tenant,
            rule=self.rule.name,
            state=PENDING,
            since_us=self.change.at_us,
            device=self.change.device,
            metric=self.metric,
            value=self.change.value,
            threshold=self.rule.threshold,
            unit=self.rule.unit,
            severity=self.rule.severity,
            summary=self.rule.says(),
            source=source,
            webhooks=self.rule.webhooks,
        )


@dataclass(frozen=True, slots=True)
class _Heard:
    tenant: str
    rows: Rows
    at_us: int


class Watch:
    """`written`, `learn` and `forget` may be called by any thread, `tick` and `silent` by one."""

    def __init__(
        self,
        book: Book,
        known: Callable[[str], Sequence[Alert]],
        matches: Matches,
        clock: Clock,
        counters: Counters,
        *,
        lateness_us: int,
        most_bytes: int,
    ) -> None:
        """`known`: the alerts of a tenant, as they are stored."""
        self._book, self._known, self._matches, self._clock, self._counters = book, known, matches, clock, counters
        self._lateness_us, self._most_bytes = lateness_us, most_bytes
        self._lock = threading.Lock()
        """For what is put aside; never held for long."""
        self._aside: list[_Heard] = []
        self._cells = 0
        self._judging = threading.Lock()
        self._rules: dict[str, list[tuple[Rule, Selector]]] = {}
        """By tenant: those that are judged as minutes close."""
        self._tracks: dict[tuple[str, str, str], Track] = {}

    def learn(self) -> None:
        """The rules are others now. A rule that changed begins anew, with the states that are stored."""
        rules = {tenant: self._book.rules(tenant) for tenant in self._book.tenants()}
        by_minute = {
            tenant: [(rule, Selector.of(rule.metric)) for rule in some.values() if rule.kind in (THRESHOLD, RATE)]
            for tenant, some in rules.items()
        }
        with self._judging:
            self._rules = {tenant: some for tenant, some in by_minute.items() if some}
            for key in [k for k, track in self._tracks.items() if rules.get(k[0], {}).get(k[1]) != track.rule]:
                del self._tracks[key]

    def forget(self, alert: Alert) -> None:
        """It was withdrawn, or could not be stored: its state is what is stored of it."""
        with self._judging:
            track = self._tracks.get((alert.tenant, alert.rule, alert.metric))
            if track:
                track.forget(alert.device)
                for known in self._known(alert.tenant):
                    if known.id == alert.id and known.state in LASTING:
                        track.recall(alert.device, LASTING[known.state], known.since_us)

    # -- minutes

    def written(self, tenant: str, reports: Sequence[Rows]) -> None:
        """Reports that are durable now."""
        if tenant not in self._rules:
            return
        now_us = self._clock.now_us()
        for rows in reports:
            size = len(rows.cells)
            with self._lock:
                fits = self._cells + size <= MOST_CELLS
                if fits:
                    self._cells += size
                    self._aside.append(_Heard(tenant, rows, now_us))
            if not fits:
                self._counters.alerts_unjudged.inc(len(rows))

    def tick(self) -> list[Seen]:
        """Sort what was put aside, and judge the minutes that close now."""
        until_us = self._clock.now_us() - self._lateness_us
        with self._lock:
            aside, self._aside, self._cells = self._aside, [], 0
        for heard in aside:
            taken = tried(partial(self._take_in, heard), f"reports of {heard.tenant} were not judged for alerts", log)
            if not taken:
                self._counters.alerts_unjudged.inc(len(heard.rows))
        found = []
        with self._judging:
            for (tenant, _, metric), track in self._tracks.items():
                found += [Seen(tenant, track.rule, metric, change) for change in track.close(until_us)]
        return found

    def _take_in(self, heard: _Heard) -> None:
        rows = heard.rows
        time_us: Ints = np.asarray(rows.keys["event_us"])
        on_time: Flags = time_us - time_us % MINUTE + MINUTE > heard.at_us - self._lateness_us
        if not on_time.any():
            return
        for rule, metric, row, values in self._wanted(heard.tenant, rows, on_time):
            track = self._track(heard.tenant, rule, metric)
            if track is None:
                continue
            device = rows.keys["device_id"]
            assert isinstance(device, Coded)
            with self._judging:
                of_names = track.ids(device.names)
            self._look_up(heard.tenant, track, of_names)
            with self._judging:
                ids = of_names[device.codes[row]]
                kept = np.flatnonzero(track.watched(ids))
                for minute in minutes_in(ids[kept], time_us[row[kept]], values[kept]):
                    track.add(minute)

    def _wanted(self, tenant: str, rows: Rows, on_time: Flags) -> Iterator[tuple[Rule, str, Ints, np.ndarray]]:
        """For each rule and metric: the rows of its numbers, and these."""
        cells, names = rows.cells, rows.cells.names.to_list()
        for rule, selector in self._rules.get(tenant, ()):
            for metric in dict.fromkeys(name for name in names if selector.means(name)):
                codes = [code for code, name in enumerate(names) if name == metric]
                where = np.flatnonzero(cells.name == codes[0] if len(codes) == 1 else np.isin(cells.name, codes))
                row = np.searchsorted(cells.offsets, where, side="right") - 1
                kept = (cells.kind[where] == CellKind.NUMBER) & on_time[row]
                yield rule, metric, row[kept], cells.number[where[kept]]

    # -- silence

    def silent(self, tenant: str, rule: Rule, devices: Names, last_us: Ints, now_us: int) -> list[Seen]:
        """Which devices report no longer, or again."""
        track = self._track(tenant, rule, "")
        if track is None:
            return []
        with self._judging:
            ids = track.ids(devices)
        self._look_up(tenant, track, ids)
        with self._judging:
            return [Seen(tenant, rule, "", change) for change in track.silent(ids, last_us, now_us)]

    # -- what is known

    def _track(self, tenant: str, rule: Rule, metric: str) -> Track | None:
        key = tenant, rule.name, metric
        with self._judging:
            track = self._tracks.get(key)
            if track is not None and track.rule == rule:
                return track
            if sum(k[:2] == key[:2] for k in self._tracks) >= MOST_VARIANTS:
                return None
            used = sum(track.bytes for track in self._tracks.values())
            track = self._tracks[key] = Track(rule, most_bytes=max(self._most_bytes - used, 1 << 16))
            for alert in self._known(tenant):
                if alert.rule == rule.name and alert.metric == metric and alert.state in LASTING:
                    track.recall(alert.device, LASTING[alert.state], alert.since_us)
        return track

    def _look_up(self, tenant: str, track: Track, ids: Codes) -> None:
        """Learn which devices match, where that is not known or may have changed."""
        if track.rule.match is None:
            return
        now_us = self._clock.now_us()
        with self._judging:
            unknown = track.unchecked(ids, now_us)
            names = track.names(unknown)
        if names:
            there = self._matches(tenant, track.rule.match.match(), names)
            with self._judging:
                track.checked(unknown, there, now_us)
