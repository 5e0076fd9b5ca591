"""What the API can be asked: points of a device, the latest values, and statistics over steps of time.

Raw points come oldest first. An answer of these is cut between reports, never within one, and names where to go on. Answers
about steps are never cut: they are whole, or refused by a limit.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from widerow.admit.cost import Costs
from widerow.admit.question_slots import Slot
from widerow.catalog.catalog import Catalog
from widerow.catalog.match import Match
from widerow.model.device import Device
from widerow.model.errors import QueryLimit, Rejected
from widerow.model.labels import Selectors
from widerow.model.points import Points
from widerow.model.series import Reply
from widerow.model.tenant import Tenant
from widerow.model.times import Clock, TimeSpan
from widerow.query import run
from widerow.query.budget import Budget, QuerySettings
from widerow.query.latest import latest
from widerow.query.points import joined, points_of
from widerow.query.question import Question, Top
from widerow.query.stepped import Sources
from widerow.rollup.dirt import DirtOf
from widerow.rollup.store import Rollups
from widerow.telemetry.store import Telemetry


@dataclass(frozen=True, slots=True)
class Answer:
    points: Points
    next: str | None
    """Ask again `after` this for what follows; None: that was all."""


class Queries:
    """Reading for the API. Every method takes the tenant first and sees nothing of others.

    Reports are read as the store has them nearest; where that lags (`bigtable.read_app_profile`), so do the answers.
    """

    def __init__(
        self,
        telemetry: Telemetry,
        catalog: Catalog,
        rollups: Rollups,
        dirt_of: DirtOf,
        clock: Clock,
        settings: QuerySettings | None = None,
        costs: Costs | None = None,
        asked_about: Callable[[str, Sequence[str]], None] = lambda _tenant, _devices: None,
    ) -> None:
        """`asked_about` is told the devices of each question."""
        self._telemetry, self._catalog = telemetry, catalog
        self.sources = Sources(telemetry, rollups, dirt_of, clock)
        self.settings, self._costs, self._asked_about = settings or QuerySettings(), costs, asked_about

    def budget(self, tenant: Tenant, slot: Slot | None = None) -> Budget:
        """For one question of a tenant, which begins now. With a `slot` it counts for what all of its questions may cost:
        raises `QuotaExceeded`.
        """
        meter = None
        if slot is not None and self._costs is not None:
            meter = self._costs.admit(tenant)
            slot.at_end(meter.end)
        return Budget(self.settings, tenant, slot=slot, meter=meter)

    def turn_away(self, tenant: Tenant) -> None:
        """Raises `QuotaExceeded` for a question of a tenant that has nothing left of what it may read."""
        if self._costs is not None:
            self._costs.turn_away(tenant)

    # -- raw reports

    def series(
        self,
        tenant: Tenant,
        device: str,
        *,
        span: TimeSpan,
        limit: int,
        metrics: Sequence[str] | None = None,
        after: str | None = None,
        tags: bool = False,
        budget: Budget | None = None,
    ) -> Answer:
        """Points of a device, oldest first, about `limit` of them. `NotFound` if there is no such device."""
        self._asked_about(tenant.name, (device,))
        wanted = Selectors.of(metrics)
        if after is not None:
            span = TimeSpan(min(max(span.start_us, _read_cursor(after)), span.stop_us), span.stop_us)
        found: list[Points] = []
        count = 0
        # Tags are cells, too: to show them, all cells of the rows are read.
        cells = None if tags else wanted
        for part, chunks in self._telemetry.read(tenant, device, span, metrics=cells, may_lag=True):
            if budget is not None:
                budget.count(sum(len(rows) for rows in chunks))
            oldest_first = [rows.take(np.argsort(np.asarray(rows.keys["event_us"]), kind="stable")) for rows in chunks]
            points = _in_order(_only(points_of(oldest_first, tags=tags), wanted if tags else None))
            if count + len(points) > limit:
                points, rest_us = _cut(points, limit - count)
                return Answer(joined([*found, points]), _cursor(rest_us))
            found.append(points)
            count += len(points)
            if count >= limit and part.stop_us < span.stop_us:
                return Answer(joined(found), _cursor(part.stop_us))
        if not count:
            self._catalog.devices.get(tenant.name, device)  # silent, or not there?
        return Answer(joined(found), None)

    def raw(
        self,
        tenant: Tenant,
        devices: Sequence[str],
        *,
        span: TimeSpan,
        most: int,
        metrics: Sequence[str] | None,
        budget: Budget,
    ) -> Points:
        """All points of some devices, oldest first by device; `QueryLimit` if there are more than `most`."""
        self._asked_about(tenant.name, devices)
        found: list[Points] = []
        count, wanted = 0, Selectors.of(metrics)
        for device in devices:
            for _, chunks in self._telemetry.read(tenant, device, span, metrics=wanted, may_lag=True):
                budget.spend(sum(len(rows) for rows in chunks))
                oldest_first = [rows.take(np.argsort(np.asarray(rows.keys["event_us"]), kind="stable")) for rows in chunks]
                points = _in_order(points_of(oldest_first))
                count += len(points)
                if count > most:
                    raise QueryLimit(
                        f"there are more than {most:,} points",
                        "limit",
                        most,
                        count,
                        "ask for a step, a shorter span or fewer devices, or for the pages of each device",
                    )
                found.append(points)
        return joined(found)

    def latest(
        self,
        tenant: Tenant,
        devices: Sequence[str],
        *,
        metrics: Sequence[str] | None = None,
        budget: Budget | None = None,
    ) -> Points:
        """Each metric's newest value within the raw retention. Devices never seen are left out."""
        self._asked_about(tenant.name, devices)
        return latest(self.sources, tenant, devices, Selectors.of(metrics), budget)

    # -- steps

    def steps(
        self,
        tenant: Tenant,
        device: str,
        question: Question,
        budget: Budget,
        *,
        group_by: Sequence[str] | None = None,
    ) -> Reply:
        """Statistics of a device. `NotFound` if there is no such device."""
        self._asked_about(tenant.name, (device,))
        if group_by is not None:
            described = self._catalog.devices.get(tenant.name, device)
            by = list(dict.fromkeys(("device", *group_by)))
            return run.of_groups(self.sources, tenant, [described], by, question, budget)
        reply = run.of_device(self.sources, tenant, device, question, budget)
        if not len(reply.series):
            self._catalog.devices.get(tenant.name, device)  # silent, or not there?
        return reply

    def ask(
        self,
        tenant: Tenant,
        devices: Sequence[Device],
        question: Question,
        budget: Budget,
        *,
        group_by: Sequence[str] | None = None,
        top: Top | None = None,
    ) -> Reply:
        """Statistics of many devices: of each, of groups (that have in common what is in `group_by`), or of the top."""
        names = [device.name for device in devices]
        self._asked_about(tenant.name, names)
        if group_by is not None:
            return run.of_groups(self.sources, tenant, devices, group_by, question, budget)
        if top is not None:
            return run.of_top(self.sources, tenant, names, top, question, budget)
        return run.of_devices(self.sources, tenant, names, question, budget)

    def chosen(
        self, tenant: Tenant, names: Sequence[str] | None, match: Match | None, *, described: bool = True
    ) -> list[Device]:
        """The devices that are named (as far as they are there), or that match. Not `described`: their names will do."""
        devices = self._catalog.devices
        if names is not None:
            return list(devices.some(tenant.name, names))
        if not described and (match is None or match.everything()):
            return [Device(name=name) for name in devices.names(tenant.name, match.prefix if match else "")]
        return list(devices.list(tenant.name, match).devices)


def _in_order(points: Points) -> Points:
    """Oldest first; values of one report in the order they were sent."""
    time_us = points.time_us
    return points.take(np.argsort(time_us, kind="stable")) if np.any(time_us[1:] < time_us[:-1]) else points


def _only(points: Points, metrics: Selectors | None) -> Points:
    if metrics is None:
        return points
    wanted = np.array([name in metrics for name in points.metric.names], np.bool_)
    return points.take(wanted[points.metric.codes])


def _cut(points: Points, room: int) -> tuple[Points, int]:
    """As many whole reports as fit, at least one, and the time of the first that does not."""
    time_us = points.time_us
    stop = int(np.searchsorted(time_us, time_us[max(room, 0)], side="left"))
    if stop == 0 and room > 0:
        stop = int(np.searchsorted(time_us, time_us[0], side="right"))
    rest = int(time_us[stop]) if stop < len(time_us) else int(time_us[-1]) + 1
    return points.take(np.arange(stop)), rest


def _cursor(time_us: int) -> str:
    return urlsafe_b64encode(time_us.to_bytes(8, "big")).decode().rstrip("=")


def _read_cursor(text: str) -> int:
    try:
        raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        raw = b""
    if len(raw) != 8 or raw[0] & 0x80:
        raise Rejected(f"after: {text[:40]!r} is not a cursor of this answer", code="cursor")
    return int.from_bytes(raw, "big")
