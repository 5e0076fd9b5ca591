"""The stages, wired: the only place that knows them all.

A `Service` is everything behind the fronts of one process. What takes more than one stage (deleting a device is a matter
of the catalog and of telemetry) is done here, so that HTTP, sockets and the command line do the same.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Self

from widerow.admit.admission import Admission
from widerow.admit.controls import Controls, What
from widerow.admit.cost import Costs
from widerow.admit.hot import HotDevices
from widerow.admit.pressure import Pressure
from widerow.admit.question_slots import QuestionSlots
from widerow.admit.shares import Shares
from widerow.alerts.alerts import Alerts, Sources
from widerow.backup.running import Backups
from widerow.catalog import lease as leases
from widerow.catalog.audit import Audit
from widerow.catalog.catalog import Catalog, CatalogSettings
from widerow.catalog.clock import ClockGuard
from widerow.catalog.lease import Keeper
from widerow.catalog.store import bring_up
from widerow.codec import json as json_codec
from widerow.codec import line as line_codec
from widerow.config import Config
from widerow.engine.open import open_engine
from widerow.engine.port import Engine
from widerow.engine.rows import Rows
from widerow.gauges import Gauges
from widerow.housekeeping import Housekeeping
from widerow.ingest.bodies import Bodies
from widerow.ingest.replay import Replay
from widerow.memory import tenant_memory
from widerow.model.batch import Batch
from widerow.model.device import Device
from widerow.model.errors import Conflict, NotTheWriter
from widerow.model.store import Embedded, is_shared, parse_store
from widerow.model.store_clock import StoreClock
from widerow.model.tenant import Tenant
from widerow.model.times import DAY, MINUTE, MS, SECOND, Clock, SystemClock, TimeSpan
from widerow.ops.counters import Counters
from widerow.ops.hour import LastHour
from widerow.ops.keyspace import EVERY_S, KeySpace
from widerow.ops.rates import EVERY_S as SAMPLED_EVERY_S
from widerow.ops.rates import Rates
from widerow.ops.recurring import Recurring
from widerow.pipeline.adapting import Adapting, looks_every_s
from widerow.pipeline.dead_letters import DeadLetters
from widerow.pipeline.job import Sink
from widerow.pipeline.pipeline import Pipeline
from widerow.pipeline.store_sink import StoreSink
from widerow.query.fleet import FleetSources
from widerow.query.queries import Queries
from widerow.rollup.pyramid import Pyramid
from widerow.rollup.roll import Rolled
from widerow.settings import (
    alert_settings,
    dead_letter_settings,
    heat_settings,
    hot_settings,
    observed_settings,
    pipeline_settings,
    pressure_settings,
    pyramid_settings,
    query_settings,
    slot_settings,
    storage_settings,
    usage_settings,
)
from widerow.telemetry.erasure import EVER
from widerow.telemetry.placement import Epoch, declared_epoch
from widerow.telemetry.presence import Presence
from widerow.telemetry.presence_loading import EVERY_S as RECALLED_EVERY_S
from widerow.telemetry.presence_loading import PresenceLoading
from widerow.telemetry.store import Telemetry, TelemetrySettings
from widerow.usage.ledger import Ledger, Prices
from widerow.usage.record import Recorder
from widerow.usage.recorded import Recorded
from widerow.usage.storage import StorageUse

log = logging.getLogger(__name__)

_HEARD = 2
"""After so many `time.refresh_s` each process has heard of what another one did, and what it was at is done."""
_RELOAD_DEVICES_US = MINUTE
"""Of a store that other processes may change: how long a device that one of them removed is still taken for registered."""


@dataclass(slots=True)
class Service:
    """An open store with all its stages. Threads are running; `close` stops them and loses nothing."""

    config: Config
    clock: Clock
    engine: Engine
    counters: Counters
    catalog: Catalog
    telemetry: Telemetry
    pyramid: Pyramid
    pipeline: Pipeline
    queries: Queries
    bodies: Bodies
    started_us: int
    dead_letters: DeadLetters
    controls: Controls
    admission: Admission
    audit: Audit
    usage: Recorder
    recorded: Recorded
    storage: StorageUse
    slots: QuestionSlots
    """Which requests are worked on."""
    hot: HotDevices
    key_space: KeySpace
    presence: Presence
    presence_loading: PresenceLoading
    clock_guard: ClockGuard | None = None
    """Of an embedded store."""
    keeper: Keeper | None = None
    """Of the writer's lease, where there is one: on a store that processes share."""
    adapting: Adapting | None = None
    """Of a process that writes to the store: what lets buckets follow what devices send."""
    folding: Recurring = field(init=False)
    """Counts what `key_space` has sampled."""
    rates: Rates = field(init=False)
    hour: LastHour = field(init=False)
    sampling: Recurring = field(init=False)
    """Samples what `counters` count, for `rates` and `hour`."""
    recalling: Recurring = field(init=False)
    """Reads what the store knows of when devices reported."""
    gauges: Gauges = field(init=False)
    alerts: Alerts = field(init=False)
    house: Housekeeping = field(init=False)
    backups: Backups = field(init=False)
    _attends: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        place = parse_store(self.config.store.url)
        self.backups = Backups(self.engine, self.clock, place.path if isinstance(place, Embedded) else None)
        self.telemetry.erasure.recorded = self.backups.erased
        self.folding = Recurring(
            "keyspace",
            lambda: self.key_space.fold(self.clock.now_us()),
            EVERY_S,
            failing="the samples of keys were not counted",
        )
        self.rates = Rates(self.counters)
        self.hour = LastHour(self.rates.latest()[1], self.started_us)
        self.sampling = Recurring("figures", self._sample, SAMPLED_EVERY_S, failing="the counters were not sampled")
        self.recalling = Recurring(
            "presence",
            lambda: self.presence_loading.load(lambda: self.recalling.stopping),
            RECALLED_EVERY_S,
            failing="it was not read when devices reported last",
            at_once=True,
        )
        self.gauges = Gauges(
            self.engine,
            self.pipeline,
            self.pyramid,
            self.slots,
            self.counters,
            memory=self.memory,
            trouble=self.trouble,
        )
        self.alerts = Alerts(
            self.engine,
            self.clock,
            self.counters,
            alert_settings(self.config),
            _watched(self.catalog, self.storage, self.presence, self.presence_loading),
        )
        self.pyramid.written = self.alerts.written
        self.presence_loading.exactly = lambda tenant: {alert.device for alert in self.alerts.current(tenant)}
        self.house = Housekeeping(
            self.engine,
            self.clock,
            self.counters,
            self.catalog,
            self.telemetry,
            self.pyramid,
            self.dead_letters,
            self.usage,
            self.recorded,
            self.storage,
            self.hot,
            self.config.store.expire_every_s,
            self.clock_guard.trusts if self.clock_guard else lambda: True,
        )

    @classmethod
    def open(
        cls,
        config: Config,
        clock: Clock | None = None,
        *,
        writes: bool = True,
        rolls: bool = False,
        crew: str = "",
        sink: Callable[[Catalog, Counters], Sink] | None = None,
        told: Callable[[Counters], Callable[[Tenant, Rows], None]] | None = None,
        say: Callable[[str], None] = log.warning,
    ) -> Service:
        """`writes`: whether it writes reports. On a shared store that takes the writer's lease, for which it may wait, and
        then says so; `ConfigError`: another process has it. An embedded store has one process anyway.
        `rolls`: whether it rolls them up as well: for processes that stay.
        `crew`: on a shared store, the name of a group of processes that write to it together.
        `sink`: makes what takes reports instead of the store, for processes that do not write there themselves.
        `told`: makes what is told of every hour that was rolled.
        """
        clock = clock or SystemClock()
        max_future_us, refresh_us = config.time.max_future_s * SECOND, config.time.refresh_s * SECOND
        shared = is_shared(config.store.url)
        keeper: Keeper | None = None
        # Starting takes a while, and may fail or be interrupted at any point of it: then no thread may be left that runs on.
        with ExitStack() as undo:
            engine = open_engine(config, clock)
            undo.callback(engine.close)
            clock = engine.clock
            if shared and writes:  # first: who is refused has changed nothing
                keeper = leases.keep(engine, clock, length_us=config.store.lease_s * SECOND, say=say, crew=crew)
                undo.callback(keeper.stop)
            bring_up(engine)
            level = logging.WARNING if rolls else logging.INFO  # commands that are over soon leave that to `doctor`
            guard = ClockGuard(engine, clock, level=level) if isinstance(clock, StoreClock) else None
            counters = Counters()
            key_space = KeySpace(clock.now_us(), seed=secrets.randbits(32))
            presence = Presence(clock, config.devices.online_s * SECOND)
            pressure = Pressure(pressure_settings(config), counters)
            catalog = Catalog(
                engine,
                clock,
                CatalogSettings(
                    max_future_us=max_future_us,
                    refresh_us=refresh_us,
                    reload_devices_us=_RELOAD_DEVICES_US if shared else None,
                ),
            )
            telemetry = Telemetry(
                engine,
                clock,
                TelemetrySettings(max_future_us=max_future_us, refresh_us=refresh_us, observed=observed_settings(config)),
            )
            may_write = keeper.lease.check if keeper else _refuse_reports if shared and sink is None else lambda: None
            slots = QuestionSlots(slot_settings(config), counters)
            pyramid = Pyramid(
                engine,
                telemetry,
                catalog,
                clock,
                pyramid_settings(
                    config,
                    rolls=rolls and writes and bool(config.rollup.enabled),
                    crew=bool(crew) and shared,
                    shared=shared,
                ),
                may_roll=may_write,
                place=slots.roll,
                rolled=lambda level, rolled: _count_rolled(counters, level, rolled),
                **({"told": told(counters)} if told else {}),
                trusts=guard.trusts if guard else lambda: True,
            )
            to_store = StoreSink(
                engine,
                telemetry,
                catalog,
                clock,
                counters,
                pyramid=pyramid,
                may_write=may_write,
                heard=_all_of(key_space.wrote, presence.heard, guard.heard if guard else None),
            )
            dead_letters = DeadLetters(engine, clock, counters, dead_letter_settings(config))
            undo.callback(dead_letters.close)
            controls = Controls(engine, clock, refresh_us=refresh_us)
            # Of a store's writers there is one; of the fronts of a log there may be many, and they have limits together.
            shares = Shares(engine, clock) if shared and sink is not None else None
            usage, recorded = Recorder(engine, clock, _process_name(clock), usage_settings(config)), Recorded(engine, clock)
            storage = StorageUse(engine, clock, pyramid.counts, usage, recorded, storage_settings(config))
            hot = HotDevices(
                controls,
                telemetry.places,
                catalog,
                clock,
                counters,
                hot_settings(config),
                heat_settings(config),
                alone=shares is None,
            )
            judges = bool(config.hot.enabled) and (writes or sink is not None) and not crew
            heat = hot.heat if judges else None
            admission = Admission(controls, clock, counters, shares, storage.bytes, heat, usage.weigh)
            pipeline = Pipeline(
                sink(catalog, counters) if sink else to_store,
                clock,
                counters,
                pipeline_settings(config, crew=bool(crew)),
                may_write,
                dead_letters,
                pressure,
                None if crew else admission,
                usage,
            )
            undo.callback(pipeline.close)
            naming = line_codec.LineNaming(
                device_tags=config.line.device_tags, metric=config.line.metric, attribute_tags=config.line.attribute_tags
            )
            service = cls(
                config,
                clock,
                engine,
                counters,
                catalog,
                telemetry,
                pyramid,
                pipeline,
                Queries(
                    telemetry,
                    catalog,
                    pyramid.rollups,
                    pyramid.dirt,
                    clock,
                    query_settings(config),
                    Costs(counters),
                    key_space.read,
                ),
                Bodies(line_codec.LineDecoders(naming), json_codec.JsonDecoder(), clock),
                clock.now_us(),
                dead_letters,
                controls,
                admission,
                Audit(engine, clock, counters, keep_us=config.audit.keep_days * DAY, most_a_day=config.audit.max_per_day),
                usage,
                recorded,
                storage,
                slots,
                hot,
                key_space,
                presence,
                PresenceLoading(
                    engine,
                    presence,
                    clock,
                    lambda: [tenant.name for tenant in catalog.tenants.list()],
                    catalog.devices.registered,
                    again=shared and (not writes or sink is not None or bool(crew)),
                    shared=shared,
                ),
                guard,
                keeper,
            )
            undo.pop_all()
            undo.callback(service.close)
            if keeper:
                keeper.lease.on_return = service.forget
            if writes and sink is None and config.placement.adaptive:
                every_s = looks_every_s(telemetry.places.observed.interval_us)
                service.adapting = Adapting(telemetry.places, catalog.devices, clock, counters, every_s=every_s)
                service.adapting.start()
            service.house.start()
            service.gauges.start()
            service.folding.start()
            service.sampling.start()
            pyramid.start()
            admission.start()
            usage.start()
            storage.start()
            if judges:
                hot.start()
            if config.alerts.enabled and (rolls or sink is not None):  # a process that stays
                service.alerts.start()
            undo.pop_all()
        return service

    def close(self) -> None:
        """Finish what was taken in, sync, and let go of the store."""
        with ExitStack() as last_first:  # each step is taken, whatever becomes of those before it
            last_first.callback(self.engine.close)
            if self.keeper:
                last_first.callback(self.keeper.stop)
            last_first.callback(self.pyramid.stop)
            last_first.callback(self.usage.close)
            last_first.callback(self.storage.stop)
            last_first.callback(self.dead_letters.close)
            last_first.callback(self.admission.stop)
            last_first.callback(self.hot.stop)
            last_first.callback(self.pipeline.close)
            if self.adapting:
                last_first.callback(self.adapting.stop)
            last_first.callback(self.recalling.stop)
            last_first.callback(self.catalog.directories.close)
            last_first.callback(self.sampling.stop)
            last_first.callback(self.alerts.stop)
            last_first.callback(self.folding.stop)
            last_first.callback(self.gauges.stop)
            last_first.callback(self.house.stop)
            last_first.callback(self.backups.stop)
            last_first.callback(self.slots.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def fleet(self) -> FleetSources:
        """What a tenant's fleet is asked of."""
        return FleetSources(self.queries.sources, self.pyramid.fleet.store, self.catalog.devices, self.pyramid.stale)

    @property
    def ledger(self) -> Ledger:
        """What tenants used, and what that costs."""
        prices = Prices(**asdict(self.config.prices))
        return Ledger(self.usage, self.recorded, self.storage, self.clock, prices)

    @property
    def replay(self) -> Replay:
        """What sends dead letters again."""
        return Replay(self.dead_letters, self.pipeline, self.bodies, max_bytes=self.config.http.max_body_mib << 20)

    # -- what takes more than one stage

    def save_device(self, tenant: Tenant, device: Device) -> None:
        """A device was created or changed: give it the buckets and the limit its profile calls for. May be repeated."""
        places = self.telemetry.places

        def choose(epochs: Sequence[Epoch]) -> Epoch | None:
            # A second later than may be, because it may not be any more when the store has answered.
            return declared_epoch(epochs, device.profile, places.earliest_epoch_us() + SECOND)

        if choose(places.epochs(tenant.name, device.name)) is not None:
            places.decide(tenant.name, device.name, choose)
        self.controls.set(
            tenant.name, device.name, What.PROFILE_RATE, device.profile.max_reports_per_s, "the limit of its profile"
        )

    def delete_device(self, tenant: Tenant, name: str, *, expected: int | None = None) -> None:
        """Forget a device and erase its data: unreadable on return, off the disk soon after.

        Should anything fail the device is still there, and deleting it again finishes the job. With an `expected` revision
        nothing is erased unless it is at that one.
        """

        def first() -> None:
            self.telemetry.erase(tenant, device=name)
            self.hot.forget(tenant.name, name)
            self.presence.forget(tenant.name, name)

        self.catalog.devices.delete(tenant.name, name, expected=expected, first=first)
        self._begin_purge()

    def create_tenant(self, tenant: Tenant) -> Tenant:
        """A new tenant. One of that name that is being deleted must be gone first."""
        if any(
            name == tenant.name and mark.whole and not mark.device for name, mark, _ in self.telemetry.erasure.unfinished()
        ):
            raise Conflict(f"tenant {tenant.name!r} is still being deleted, which may take minutes: try again later")
        return self.catalog.tenants.create(tenant)

    def delete_tenant(self, name: str) -> None:
        """Forget a tenant and its tokens, and erase its data; its devices and metrics go with the last of it.

        Other processes may take its reports until they hear of that. Those are erased, too, and a tenant of the same name
        can be made only after that: it must not find them.
        """
        tenant = self.catalog.tenants.get(name)
        self.catalog.tokens.revoke_all(name)
        heard_us = _HEARD * self.config.time.refresh_s * SECOND if is_shared(self.config.store.url) else 0
        self.telemetry.erase(tenant, ahead_us=heard_us)
        self.catalog.tenants.delete(name)
        self.presence.forget_all(name)
        self.hour.forget(name)
        self.alerts.forget(name)
        self.catalog.directories.forget(name)
        self._begin_purge()

    def erase(self, tenant: Tenant, *, metric: str, device: str = "", span: TimeSpan = EVER) -> None:
        """Erase a metric over a span, of one device or of all."""
        self.telemetry.erase(tenant, device=device, metric=metric, span=span)
        self._begin_purge()

    def _begin_purge(self) -> None:
        self._wait_for_next_ms()
        self.house.wake()

    def _wait_for_next_ms(self) -> None:
        """So that what is sent after the answer is newer than the mark."""
        marked_us = self.clock.version_us()
        for _ in range(10):
            if self.clock.version_us() > marked_us:
                return
            threading.Event().wait(0.0005)

    def attend(self) -> None:
        """The process stays to answer questions: find out when devices reported before it began. May be repeated."""
        if not self._attends:
            self._attends = True
            self.recalling.start()

    def _sample(self) -> None:
        now_us = self.clock.now_us()
        online = {tenant: self.presence.online(tenant, now_us) for tenant in self.presence.tenants()}
        self.hour.fold(self.rates.sample(), now_us, {**online, "": sum(online.values())})

    def trouble(self) -> str:
        """Why a process that takes reports takes none now; empty if it does."""
        return self.keeper.lease.trouble() if self.keeper else ""

    def forget(self) -> None:
        """Another process wrote to the store meanwhile: what this one knew of it by heart may no longer be so."""
        self.catalog.forget()
        self.telemetry.places.forget()
        self.pyramid.forget()

    def memory(self) -> dict[str, dict[str, int]]:
        """What is held in memory for each tenant, by what it is for."""
        return tenant_memory(self.pipeline, self.pyramid.windows, self.catalog, self.telemetry.places, self.slots)


def _process_name(clock: Clock) -> str:
    """Of this process, or of this time that it runs: none before or after it has it."""
    return f"{clock.now_us() // MS:012x}-{secrets.token_hex(3)}"


def _watched(catalog: Catalog, storage: StorageUse, presence: Presence, loading: PresenceLoading) -> Sources:
    """What rules of alerts look at."""

    def used(tenant: Tenant, limit: str) -> float | None:
        if limit == "storage_bytes":
            return storage.bytes(tenant)
        return catalog.devices.count(tenant.name) if limit == "devices" else catalog.series.count(tenant)

    return Sources(
        tenant=catalog.tenants.get,
        matches=lambda tenant, match, names: {d.name for d in catalog.devices.some(tenant, names) if match.holds(d)},
        devices=lambda tenant, names: {device.name for device in catalog.devices.some(tenant, names)},
        used=used,
        presence=presence,
        presence_us=lambda: loading.complete_us,
    )


def _all_of(*heard: Callable[[str, Batch], None] | None) -> Callable[[str, Batch], None]:
    """Those there are, one after the other."""
    there = [one for one in heard if one is not None]

    def tell(tenant: str, batch: Batch) -> None:
        for one in there:
            one(tenant, batch)

    return tell


def _count_rolled(counters: Counters, level: str, rolled: Rolled) -> None:
    counters.rollup_unreadable.labels(level).inc(len(rolled.unreadable))
    finer = "minutes" if level == "hour" else "hours"
    counters.rolled.labels(level, finer).inc(rolled.from_minutes if level == "hour" else rolled.devices)
    if level == "hour":
        counters.rolled.labels(level, "raw").inc(rolled.devices - rolled.from_minutes)


def _refuse_reports() -> None:
    raise NotTheWriter("this process is not the store's writer: send reports to the one that serves it")
