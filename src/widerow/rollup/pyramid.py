"""Rollups as one process has them: what the writing path tells them, the thread that rolls, and what readers ask.

A process that writes reports marks them. The one that rolls, which is the one that takes reports all day long, keeps open
minutes as well and knows by heart what is not rolled; others look into the store.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from widerow.catalog.catalog import Catalog
from widerow.engine.port import Engine
from widerow.engine.rows import Rows
from widerow.model.batch import Batch
from widerow.model.errors import NotTheWriter
from widerow.model.names import Names
from widerow.model.tenant import Tenant
from widerow.model.times import Clock
from widerow.ops.recurring import tried
from widerow.rollup.crew import Crew, CrewSettings
from widerow.rollup.dirt import Dirt, dirt_in_store, unlooked_us
from widerow.rollup.erase import Eraser
from widerow.rollup.fleet import Fleet, Stale, type_tags
from widerow.rollup.guard import Guard, Pending, marked_in_store
from widerow.rollup.marks import MarkPlan, Marks
from widerow.rollup.others import Others
from widerow.rollup.repair import Repairer
from widerow.rollup.roll import Rolled, Roller
from widerow.rollup.rolling import Rolling, RollingSettings
from widerow.rollup.store import Rollups
from widerow.rollup.verify import Verifier
from widerow.rollup.verify_fleet import FleetVerifier
from widerow.rollup.windows import Windows, WindowSettings
from widerow.telemetry.erasure import Mark
from widerow.telemetry.store import Plan, Telemetry

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PyramidSettings:
    max_future_us: int
    """How far ahead of the clock an event time may lie; must be what admission allows."""
    rolls: bool = False
    """Whether this process rolls. One of those that write to a store does."""
    rolling: RollingSettings = field(default_factory=RollingSettings)
    windows: WindowSettings = field(default_factory=WindowSettings)
    crew: CrewSettings | None = None
    """Several processes write to the store, and roll."""
    shared: bool = False
    """Whether other processes may have the store open: these may erase."""


class Pyramid:
    """Safe to share between threads."""

    def __init__(
        self,
        engine: Engine,
        telemetry: Telemetry,
        catalog: Catalog,
        clock: Clock,
        settings: PyramidSettings,
        *,
        may_roll: Callable[[], object] = lambda: None,
        place: Callable[[], AbstractContextManager[None]] = nullcontext,
        rolled: Callable[[str, Rolled], None] = lambda _level, _rolled: None,
        told: Callable[[Tenant, Rows], None] = lambda _tenant, _hours: None,
        trusts: Callable[[], bool] = lambda: True,
    ) -> None:
        """`told`, `trusts`: see `Roller`. `place`: see `Rolling`."""
        self._engine, self._clock, self._settings, self._may_roll = engine, clock, settings, may_roll
        self.rollups = Rollups(engine, clock, telemetry.erasure)
        self.crew: Crew | None = None
        tenants = lambda: [tenant.name for tenant in catalog.tenants.list()]  # noqa: E731
        if settings.crew is not None:
            self.crew = Crew(engine, settings.crew, tenants)
        self.marks = Marks(engine, clock, settings.crew)
        self._knows = settings.rolls and settings.crew is None
        """Whether this process knows by heart what is not rolled."""
        self.windows = Windows(clock, settings.windows, alone_from_us=self._alone_from_us()) if self._knows else None
        tagged = type_tags(catalog.attributes)
        self.roller = Roller(
            engine, telemetry, self.rollups, self.marks, clock, self.windows, tagged, crew=settings.crew, told=told
        )
        self.counts = self.roller.counts
        self.written: Callable[[str, Sequence[Rows]], None] = lambda _tenant, _reports: None
        """Called with reports of a tenant that are durable now. It never raises."""
        self.roller.trusts = trusts
        self._others = Others(
            engine,
            telemetry.erasure,
            self.marks,
            self.roller,
            tenants,
            clock,
            looks=self._knows and settings.shared,
        )
        self.fleet = Fleet(
            engine,
            self.rollups,
            self.roller.fleet,
            catalog,
            clock,
            crew=settings.crew,
            counts=self.counts,
            doubts=self._others.doubts,
        )
        self.fleet.trusts = trusts
        self._eraser = Eraser(engine, self.rollups, self.marks, self.roller, clock)
        self.verifier = Verifier(engine, telemetry, self.rollups, clock)
        self.fleet_verifier = FleetVerifier(self.fleet, self.verifier, telemetry.erasure, clock)
        self.repairer = Repairer(engine, self.rollups, self.roller.fleet, tagged)
        self.guard = Guard(
            self._pending,
            catalog.tenants.find,
            clock,
            wait_us=settings.rolling.lateness_us + settings.rolling.settle_us,
            reads_store=not settings.rolls,
        )
        self._rolling: Rolling | None = None
        if settings.rolls:
            self._recover()
            self._rolling = Rolling(
                self.marks,
                self.roller,
                lambda name: catalog.tenants.current(name, clock.now_us()),
                clock,
                settings.rolling,
                windows=self.windows,
                fleet=self.fleet,
                may_roll=may_roll,
                place=place,
                rolled=rolled,
                crew=self.crew,
                look=self._others.look,
            )

    def start(self) -> None:
        if self._rolling:
            self._rolling.start()

    def stop(self) -> None:
        """What is not rolled stays marked."""
        if self._rolling:
            self._rolling.stop()

    # -- for the writing path

    def plan(self, tenant: str, batch: Batch) -> MarkPlan:
        """The marks that must be written before a batch. `settle` them, whatever becomes of the write."""
        return self.marks.plan(tenant, batch)

    def settle(self, marks: MarkPlan, plan: Plan, *, fresh: Names | None, written: bool) -> None:
        """A batch is durable, or its write failed. `fresh` devices were registered by this process for it."""
        try:
            if self.windows is not None:
                self.windows.add(plan.tenant, plan.reports, fresh=fresh, written=written)
            if written:
                tried(lambda: self.written(plan.tenant, plan.reports), "reports were not watched for alerts", log)
        finally:  # rolling waits for it
            self.marks.settle(marks, written=written)

    def forget(self) -> None:
        """Another process wrote meanwhile: what this one knew by heart may no longer be so."""
        self.marks.distrust()
        if self.windows is not None:
            self.windows.forget(self._alone_from_us())
        self._recover()

    def _recover(self) -> None:
        if self._knows:
            began_us = self._clock.now_us()
            self.roller.recover()
            self._others.recovered(began_us)

    def _alone_from_us(self) -> int:
        """Whoever wrote before this process could write as far ahead as is allowed, of a clock that may have been ahead."""
        return max(self._clock.now_us(), self._clock.version_us()) + self._settings.max_future_us + 1

    # -- for readers

    def dirt(self, tenant: Tenant, devices: Sequence[str]) -> Dirt:
        """What of these devices is not rolled yet."""
        self._others.follow(tenant.name)
        doubted = self._others.doubts.dirt(tenant.name, devices)
        if self._knows_now():
            return self.roller.dirt(tenant, devices).with_raw(doubted)
        return dirt_in_store(self._engine, tenant, devices, self._clock.now_us()).with_raw(doubted)

    def stale(self, tenant: Tenant) -> Stale:
        """What cannot be asked of the fleet's hours yet."""
        self._others.follow(tenant.name)
        if self._knows_now():
            return self.fleet.stale(tenant, lambda: self.marks.of(tenant.name))
        return self.fleet.stale_in_store(tenant, unlooked_us(self._clock.now_us()))

    def _knows_now(self) -> bool:
        """Not while another process may be writing: that one's marks and late reports only the store knows."""
        try:
            self._may_roll()
        except NotTheWriter:
            return False
        return self._knows

    # -- for whoever watches over it

    def _pending(self) -> Pending:
        """What is not rolled yet, of all tenants; of a crew each knows of its own shards, as it last found them."""
        if not self._settings.rolls:
            return marked_in_store(self._engine)
        return {"hour": self.marks.pending(), "day": self.roller.days.pending(), "fleet": self.roller.fleet.pending()}

    # -- for erasing

    def purge(self, tenant: Tenant | None, mark: Mark, devices: Sequence[str], name: str) -> None:
        """Take what follows from what a mark erased off the disk, and have the rest rolled again. May be repeated."""
        self._eraser.purge(tenant, mark, devices, name)
        if mark.whole and not mark.device:
            self.fleet.purge(name, mark)
            self.counts.forget_tenant(name, mark)
        if not self._others.looks:  # else another process may be at it as well: its marks have to be looked up first
            self._others.doubts.settle([(name, mark)])
