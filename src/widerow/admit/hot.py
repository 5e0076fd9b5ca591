"""Devices gone mad: found by what they send, and dealt with step by step (`admit.escalation`).

Each process that takes reports judges what it saw itself, in a thread of its own, at the end of each interval. What it
decides are facts (`Controls`), so that all processes obey, and so that the story can be told.
Rule 1: who said that a device is hot takes the steps back, and says so again now and then while it is. Another process does
so when nothing was heard for long, and only of a device that it finds calm itself. What is left of a device that is not hot
any process takes back: it is the same for all.
Rule 2: the last fact holds. Two processes that see the same device may each take a step: it is the same step.
Rule 3: what somebody pinned or forbade is left alone.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from widerow.admit.controls import Control, Controls, What
from widerow.admit.escalation import TAKEN_BACK, Held, HotSettings, Turn, Verdict, calm_needed, judged, next_turn, spread_for
from widerow.admit.heat import Heat, HeatSettings, Interval
from widerow.catalog.catalog import Catalog
from widerow.model.device import MAX_SUB_BUCKETS, Profile
from widerow.model.errors import NotFound, Rejected, WiderowError
from widerow.model.figures import figure
from widerow.model.hot import DEFAULT_MODES, Step, StepMode
from widerow.model.tenant import Tenant
from widerow.model.times import MINUTE, SECOND, Clock
from widerow.ops.counters import Counters
from widerow.ops.recurring import Recurring
from widerow.telemetry.placement import FIRST_EPOCH, HOT, Epoch, cooled_epoch, following
from widerow.telemetry.places import Places

log = logging.getLogger(__name__)

_SAY_AGAIN_US = 5 * MINUTE
_PROFILES_US = MINUTE
"""How long what a device declared is remembered."""
_ROOM = 2.0
"""While a device is sampled it may send so many times what is kept: what decides is the sample, not who comes first."""
MODE_OF = {Step.LIMIT: What.LIMIT_MODE, Step.SPREAD: What.SPREAD_MODE, Step.SAMPLE: What.SAMPLE_MODE}
HELD_BY = {Step.LIMIT: What.HOT_RATE, Step.SPREAD: What.SPREAD, Step.SAMPLE: What.SAMPLE}
_UNDOES = {turn: step for step, turn in TAKEN_BACK.items()}
_MODE_VALUES = {StepMode.AUTO: 0.0, StepMode.PIN: 1.0, StepMode.FORBID: -1.0}


@dataclass(slots=True)
class _Seen:
    """What this process knows of a device that is hot."""

    calm: int = 0
    """Intervals in a row."""
    said_us: int = 0
    """When it said last that the device is hot; 0: another process did."""
    rate: float = 0.0
    share: float = 0.0


@dataclass(slots=True)
class _Profiles:
    """What devices of a tenant declared, when it was read."""

    read_us: int
    found: dict[str, Profile] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HotDevice:
    """A device that is hot, or that something is done about."""

    tenant: str
    device: str
    since_us: int
    """0: it is not hot, but something is pinned."""
    rate: float
    """Reports a second: in this process's last interval, or as it was last said."""
    share: float
    """Of all that this process takes; 0: it sees nothing of the device."""
    reason: str
    steps: Mapping[Step, float]
    modes: Mapping[Step, StepMode]


class HotDevices:
    """What is known and done about them. `alone`: no other process writes to this store."""

    def __init__(
        self,
        controls: Controls,
        places: Places,
        catalog: Catalog,
        clock: Clock,
        counters: Counters,
        settings: HotSettings,
        heat: HeatSettings,
        *,
        alone: bool,
    ) -> None:
        self._controls, self._places, self._catalog = controls, places, catalog
        self._clock, self._counters, self._settings, self._alone = clock, counters, settings, alone
        self._interval_us = heat.interval_us
        self.heat = Heat(heat, clock.now_us())
        self._seen: dict[tuple[str, str], _Seen] = {}
        self._left: set[tuple[str, str]] = set()
        """Those of this interval of which something may be taken back."""
        self._profiles: dict[str, _Profiles] = {}
        self._gauged: dict[str, int] = {}
        self._judging = Recurring(
            "hot-devices", self.look, heat.interval_us / SECOND, failing="hot devices were not looked for"
        )

    def start(self) -> None:
        self._judging.start()

    def stop(self) -> None:
        self._judging.stop()

    # -- judging

    def look(self) -> None:
        """An interval is over. What fails is tried again after the next one."""
        now_us = self._clock.now_us()
        interval = self.heat.turn(now_us)
        self._left.clear()
        for tenant in sorted({*interval.heavy, *self._controls.tenants()}):
            try:
                self._of_tenant(tenant, interval)
            except NotFound:  # it was deleted
                continue
            except WiderowError as error:
                log.warning("hot devices of %s: %s", tenant, error)
            except Exception:
                log.exception("judging the devices of %s failed", tenant)
        hot_or_left = (key for key in self._seen if self._controls.hot_since(*key) or key in self._left)
        self._seen = {key: self._seen[key] for key in hot_or_left}
        self._profiles = {tenant: known for tenant, known in self._profiles.items() if tenant in interval.by_tenant}

    def _of_tenant(self, name: str, interval: Interval) -> None:
        rates = interval.heavy.get(name, {})
        if not rates and not self._held(name):
            self._gauge(name)
            return
        now_us = self._clock.now_us()
        self._controls.follow(name)
        held = self._held(name)
        tenant = self._catalog.tenants.current(name, now_us) if held else None
        watched = {device for device in held if tenant and self._may_change(tenant, device)}
        self._left.update((name, device) for device in watched)
        profiles = self._profiles_of(name, [*rates, *watched], now_us)
        for device in dict.fromkeys([*rates, *sorted(watched)]):
            rate = rates.get(device, 0.0)
            verdict = judged(rate, profiles[device], interval.reports / interval.seconds, self._settings)
            if device in watched or verdict.is_hot:
                tenant = tenant or self._catalog.tenants.current(name, now_us)
                share = rate * interval.seconds / max(interval.reports, 1)
                try:
                    self._of_device(tenant, device, rate, share, profiles[device], verdict, now_us)
                except WiderowError as error:  # the others are looked at all the same
                    log.warning("hot device %s/%s: %s", name, device, error)
        self._gauge(name)

    def _held(self, tenant: str) -> list[str]:
        """The devices that are hot, or that something is done about."""
        kinds = (What.HOT, *HELD_BY.values())
        return list(dict.fromkeys(device for what in kinds for device in self._controls.in_force(tenant, what)))

    def _may_change(self, tenant: Tenant, device: str) -> bool:
        """Whether a device that sends little is looked at: not one of which all that holds is pinned."""
        if self._controls.hot_since(tenant.name, device):
            return True
        modes = self.modes(tenant, device)
        return any(modes[step] is not StepMode.PIN for step in self.steps(tenant.name, device))

    def _of_device(
        self, tenant: Tenant, device: str, rate: float, share: float, profile: Profile, verdict: Verdict, now_us: int
    ) -> None:
        said = self._controls.last(tenant.name, device, What.HOT)
        seen = self._seen.setdefault((tenant.name, device), _Seen())
        seen.calm = seen.calm + 1 if verdict.is_calm else 0
        seen.rate, seen.share = rate, share
        modes = self.modes(tenant, device)
        held = Held(bool(said and said.value), frozenset(self.steps(tenant.name, device)))
        needed = calm_needed(self._controls.relapses(tenant.name, device), self._interval_us, self._settings)
        turn = next_turn(held, modes, verdict, seen.calm, needed)
        if said and said.value and not verdict.is_hot and not self._mine(seen, said, now_us):
            return
        is_old = now_us - (said.created_us if said else 0) > _SAY_AGAIN_US
        if verdict.is_hot and held.hot and turn is None and is_old and not self._alone:
            self._controls.add(tenant.name, device, What.HOT, rate, f"still {verdict.why}")
        if verdict.is_hot:
            seen.said_us = now_us
        if turn is None:
            return
        if turn in _UNDOES and modes[_UNDOES[turn]] is StepMode.FORBID:
            said_so = self._controls.value(tenant.name, device, MODE_OF[_UNDOES[turn]])
            why = "forbidden by hand" if said_so else "its tenant forbids it"
        else:
            why = f"it sent {figure(rate)} reports/s, and was calm for {needed} intervals"
        self._take(turn, tenant.name, device, rate, verdict, modes, profile, why)
        seen.calm = 0
        self._counters.hot_turns.labels(tenant.name, turn.value).inc()

    def _mine(self, seen: _Seen, said: Control, now_us: int) -> bool:
        """Whether it is this process that takes steps back. A device that it sees nothing of may be another's by now."""
        return self._alone or bool(seen.said_us and seen.rate) or now_us - said.created_us > 2 * _SAY_AGAIN_US

    def _take(
        self,
        turn: Turn,
        tenant: str,
        device: str,
        rate: float,
        verdict: Verdict,
        modes: Mapping[Step, StepMode],
        profile: Profile,
        why_back: str,
    ) -> None:
        controls, settings = self._controls, self._settings
        is_limited = bool(controls.value(tenant, device, What.HOT_RATE)) and modes[Step.LIMIT] is StepMode.AUTO
        reason = verdict.why
        if turn is Turn.DETECTED:
            controls.set(tenant, device, What.HOT, rate, reason)
        elif turn is Turn.LIMITED:
            controls.set(tenant, device, What.HOT_RATE, verdict.allowed_per_s, reason)
        elif turn is Turn.SPREAD:
            self._spread(tenant, device, rate, reason)
        elif turn is Turn.SAMPLED:
            controls.set(tenant, device, What.SAMPLE, settings.sample, reason)
            if is_limited:
                room = _ROOM * settings.sample * rate
                eased = max(controls.value(tenant, device, What.HOT_RATE), room)
                controls.set(tenant, device, What.HOT_RATE, eased, "room for what is kept of it by sampling")
        else:
            reason = why_back
            if turn is Turn.WHOLE:
                controls.set(tenant, device, What.SAMPLE, 0.0, reason)
                if is_limited:
                    allowed = judged(rate, profile, 0.0, settings).allowed_per_s
                    controls.set(tenant, device, What.HOT_RATE, allowed, "it is no longer sampled")
            elif turn is Turn.UNLIMITED:
                controls.set(tenant, device, What.HOT_RATE, 0.0, reason)
            elif turn is Turn.GATHERED:
                self._gather(tenant, device, reason)
            else:
                controls.set(tenant, device, What.HOT, 0.0, reason)
        log.warning("hot device %s/%s: %s: %s", tenant, device, turn.value, reason)

    def _spread(self, tenant: str, device: str, rate: float, reason: str, sub_buckets: int = 0) -> None:
        places, settings = self._places, self._settings

        def choose(epochs: Sequence[Epoch]) -> Epoch | None:
            newest = epochs[-1] if epochs else FIRST_EPOCH
            wanted = sub_buckets or spread_for(rate, newest.sub_buckets, settings)
            if wanted == newest.sub_buckets and (not sub_buckets or newest.reason.startswith(HOT)):
                return None  # a pin is recorded even if it is what holds: so that it stays
            # A second later than may be, because it may not be any more when the store has answered.
            earliest_us = places.earliest_epoch_us() + SECOND
            return following(newest, earliest_us, newest.width_us, wanted, f"{HOT}{reason}")

        places.decide(tenant, device, choose)
        epochs = places.epochs(tenant, device)
        newest = epochs[-1] if epochs else FIRST_EPOCH
        self._controls.add(tenant, device, What.SPREAD, newest.sub_buckets, reason, newest.from_us)

    def _gather(self, tenant: str, device: str, reason: str) -> None:
        """Spread it as it would be otherwise, as soon as may be. The epoch first: whoever fails in between tries again."""
        places = self._places
        if not self._controls.value(tenant, device, What.SPREAD):
            return
        profile = next((one.profile for one in self._catalog.devices.some(tenant, [device])), Profile())

        def choose(epochs: Sequence[Epoch]) -> Epoch | None:
            return cooled_epoch(epochs, profile, places.earliest_epoch_us() + SECOND, reason)

        places.decide(tenant, device, choose)
        epochs = places.epochs(tenant, device)
        self._controls.set(tenant, device, What.SPREAD, 0.0, reason, epochs[-1].from_us if epochs else None)

    def _profiles_of(self, tenant: str, devices: Sequence[str], now_us: int) -> dict[str, Profile]:
        known = self._profiles.get(tenant)
        if known is None or now_us - known.read_us > _PROFILES_US:
            known = self._profiles[tenant] = _Profiles(now_us)
        missing = [device for device in devices if device not in known.found]
        if missing:
            declared = {device.name: device.profile for device in self._catalog.devices.some(tenant, missing)}
            known.found |= dict.fromkeys(missing, Profile()) | declared
        return known.found

    def _gauge(self, tenant: str) -> None:
        hot = self._controls.in_force(tenant, What.HOT)
        if not hot and tenant not in self._gauged:
            return
        self._gauged[tenant] = len(hot)
        self._counters.hot_partitions.set(sum(self._gauged.values()))
        self._counters.hot_devices.labels(tenant, "hot").set(len(hot))
        for step, what in HELD_BY.items():
            self._counters.hot_devices.labels(tenant, step.value).set(len(self._controls.in_force(tenant, what)))

    # -- what holds

    def modes(self, tenant: Tenant, device: str) -> dict[Step, StepMode]:
        """Whether each step is taken: as was said of the device, otherwise of its tenant."""
        modes = DEFAULT_MODES | dict(tenant.hot_steps)
        for step, what in MODE_OF.items():
            said = self._controls.value(tenant.name, device, what)
            modes[step] = next((mode for mode, value in _MODE_VALUES.items() if value == said and value), modes[step])
        return modes

    def steps(self, tenant: str, device: str) -> dict[Step, float]:
        """The steps that are taken, with their values."""
        held = {step: self._controls.value(tenant, device, what) for step, what in HELD_BY.items()}
        return {step: value for step, value in held.items() if value}

    def hot(self, tenant: Tenant, device: str = "") -> list[HotDevice]:
        """The devices that are hot, or that something is done about, the hottest first."""
        self._controls.follow(tenant.name)
        kinds = (What.HOT, *HELD_BY.values(), *MODE_OF.values())
        names = dict.fromkeys(name for what in kinds for name in self._controls.in_force(tenant.name, what))
        found = [self._described(tenant, name) for name in names if device in ("", name)]
        return sorted(found, key=lambda one: (not one.since_us, -one.rate, one.device))

    def _described(self, tenant: Tenant, device: str) -> HotDevice:
        said, since = self._controls.last(tenant.name, device, What.HOT), self._controls.hot_since(tenant.name, device)
        seen = self._seen.get((tenant.name, device))
        is_hot = said is not None and since is not None
        return HotDevice(
            tenant.name,
            device,
            since.created_us if since else 0,
            seen.rate if seen else said.value if said else 0.0,
            seen.share if seen else 0.0,
            said.reason if said and is_hot else "",
            self.steps(tenant.name, device),
            self.modes(tenant, device),
        )

    def story(self, tenant: str, device: str = "", since_us: int = 0) -> list[Control]:
        """What happened to hot devices, oldest first."""
        return [
            fact for fact in self._controls.story(tenant, device, since_us=since_us) if fact.what is not What.PROFILE_RATE
        ]

    # -- what somebody says

    def control(self, tenant: Tenant, device: str, changes: Mapping[Step, tuple[StepMode, float]]) -> None:
        """Pin a step at a value, forbid it, or leave it to what is seen again. Known here, and durable, on return."""
        self._controls.follow(tenant.name)
        for step, (mode, value) in changes.items():
            if mode is StepMode.PIN:
                _check(step, value)
        for step, (mode, value) in changes.items():
            self._say(tenant.name, device, step, mode, value)

    def forget(self, tenant: str, device: str) -> None:
        """The device is deleted: nothing that was said of it holds for another one of its name."""
        self._controls.follow(tenant)
        reason = "the device was deleted"
        self._gather(tenant, device, reason)
        for what in What:
            self._controls.set(tenant, device, what, 0.0, reason)

    def forget_all(self, tenant: str) -> None:
        """The tenant is deleted: nothing holds for devices of another one of its name. May be repeated."""
        self._controls.follow(tenant)
        for device in self._controls.devices(tenant):
            self.forget(tenant, device)

    def _say(self, tenant: str, device: str, step: Step, mode: StepMode, value: float) -> None:
        controls = self._controls
        was_pinned = controls.value(tenant, device, MODE_OF[step]) == _MODE_VALUES[StepMode.PIN]
        reason = {StepMode.PIN: "pinned by hand", StepMode.FORBID: "forbidden by hand"}.get(mode, "left to what is seen")
        controls.set(tenant, device, MODE_OF[step], _MODE_VALUES[mode], reason)
        if mode is StepMode.PIN and step is Step.SPREAD:
            self._spread(tenant, device, 0.0, reason, int(value))
        elif mode is StepMode.PIN:
            controls.set(tenant, device, HELD_BY[step], value, reason)
        elif mode is StepMode.FORBID or was_pinned or not controls.hot_since(tenant, device):
            # Should the device be hot, the step is taken again as the others are.
            if step is Step.SPREAD:
                self._gather(tenant, device, reason)
            else:
                controls.set(tenant, device, HELD_BY[step], 0.0, reason)


def _check(step: Step, value: float) -> None:
    if step is Step.LIMIT and not 0.001 <= value <= 1_000_000:
        raise Rejected(f"limit is {figure(value)}: give 0.001 to 1,000,000 reports a second", code="field")
    if step is Step.SAMPLE and not 0.001 <= value < 1:
        raise Rejected(f"sample is {figure(value)}: give the part to keep, 0.001 to below 1", code="field")
    if step is Step.SPREAD and not (value == int(value) and 1 <= value <= MAX_SUB_BUCKETS):
        raise Rejected(f"spread is {figure(value)}: give 1 to {MAX_SUB_BUCKETS} sub-buckets", code="field")
