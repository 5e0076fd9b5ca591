"""Buckets that follow what devices send: what was observed while writing (`telemetry.observed`) becomes epochs.

In a thread of its own, since it writes to the store: committing waits for nothing of it. Every process that writes judges
what it saw itself. Where several do, each has all reports of a device, but for moments in which Kafka's partitions change
hands; and what two decide at once is one epoch (`Places.decide`).
Rule 1: devices that are too fast for their buckets come first; a pass has a bounded number of epochs, the rest waits.
Rule 2: buckets are made wider only while a tenant has not too many epochs: every process knows all of them by heart.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import chain, islice

from widerow.catalog.devices import Devices
from widerow.model.device import Profile
from widerow.model.errors import WiderowError
from widerow.model.times import MINUTE, SECOND, Clock, format_duration
from widerow.ops.counters import Counters
from widerow.ops.recurring import Recurring
from widerow.telemetry.observed import Rate, is_held, observed_epoch
from widerow.telemetry.placement import Epoch
from widerow.telemetry.places import DeviceStates, Places

log = logging.getLogger(__name__)

MOST_AT_ONCE = 200
"""Epochs of a tenant in one pass: each is a compare-and-set."""
MOST_EPOCHS = 100_000
"""Of a tenant, beyond which no bucket is made wider."""
_MARGIN_US = MINUTE
"""How much later than it may an epoch starts: nothing is urgent here, and a store may be slow to answer."""


class Adapting:
    """The thread, and what it does. `every_s`: how often it looks."""

    def __init__(self, places: Places, devices: Devices, clock: Clock, counters: Counters, *, every_s: float) -> None:
        self._places, self._devices, self._clock, self._counters = places, devices, clock, counters
        self._looking = Recurring("adapt-buckets", self.look, every_s, failing="buckets were not looked at")

    def start(self) -> None:
        self._looking.start()

    def stop(self) -> None:
        self._looking.stop()

    def look(self) -> int:
        """One pass over all tenants; gives the number of epochs added. What fails is tried again by the next one."""
        added = 0
        for tenant, state in self._places.states():
            try:
                added += self._of_tenant(tenant, state)
            except WiderowError as error:
                log.warning("buckets of %s: %s", tenant, error)
            except Exception:
                log.exception("adapting the buckets of %s failed", tenant)
        return added

    def _of_tenant(self, tenant: str, state: DeviceStates) -> int:
        fast, slow = state.observed.candidates()
        if not fast and (not slow or state.count > MOST_EPOCHS):
            return 0
        earliest_us, hold_us = self._earliest_us(), state.observed.settings.hold_us
        candidates = chain(fast, slow if state.count <= MOST_EPOCHS else ())
        free = (d for d in candidates if not is_held(state.epochs.get(d, ()), earliest_us, hold_us))
        ids = list(islice(free, MOST_AT_ONCE))
        if not ids:
            return 0
        names = state.table.names()
        profiles = {device.name: device.profile for device in self._devices.some(tenant, [names[d] for d in ids])}
        added = 0
        for d in ids:
            if self._looking.stopping:
                break
            if names[d] in profiles:  # else it is gone
                try:
                    added += self._decide(tenant, names[d], profiles[names[d]], state.observed.peak(d))
                except WiderowError as error:  # tried again by the next pass; the others are looked at all the same
                    log.warning("buckets of %s/%s: %s", tenant, names[d], error)
                    continue
            state.observed.begin_anew(d)
        return added

    def _decide(self, tenant: str, device: str, profile: Profile, seen: Rate) -> bool:
        hold_us = self._places.observed.hold_us

        def choose(epochs: Sequence[Epoch]) -> Epoch | None:
            return observed_epoch(epochs, profile, seen, self._earliest_us(), hold_us)

        epoch = self._places.decide(tenant, device, choose)
        if epoch is None:
            return False
        self._counters.adapted.labels(tenant).inc()
        log.info(
            "%s/%s: buckets of %s x %d, %s", tenant, device, format_duration(epoch.width_us), epoch.sub_buckets, epoch.reason
        )
        return True

    def _earliest_us(self) -> int:
        return self._places.earliest_epoch_us() + _MARGIN_US


def looks_every_s(interval_us: int) -> float:
    """How often to look for devices whose intervals ended."""
    return min(max(interval_us / SECOND / 5, 1.0), 60.0)
