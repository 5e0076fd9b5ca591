"""Devices in the store: what they are, and what they were.

Rule 1: what a change replaces goes to the device's history; registration by reports (`catalog.registration`) writes none.
Rule 2: removing a device removes its row and its history, and frees its place: erasing its data is the work of others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Literal

from widerow.catalog.forms import check
from widerow.catalog.history import History, State
from widerow.catalog.match import Match, Page, cursor_of, read_cursor
from widerow.catalog.records import Records, Stored, pack
from widerow.catalog.registration import DEVICE_LIMIT, SEATS_TAKEN, Registered, Registration, seats_taken
from widerow.engine.port import Engine, Span
from widerow.engine.rows import Row
from widerow.model.arrays import Flags
from widerow.model.check import name_fault
from widerow.model.device import Device
from widerow.model.errors import Conflict, NotFound, Rejected
from widerow.model.names import Names
from widerow.model.tenant import Tenant
from widerow.model.times import MS, SECOND, Clock, whole_ms
from widerow.schema.shards import SHARDS, shard_of
from widerow.schema.tables import DEVICES

_REPLACED_AT_ONCE = 1000
"""Devices of a bulk upsert whose former states are written together: a sync for all of them, not one for each."""


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of one device of a bulk upsert."""

    name: str
    outcome: Literal["created", "updated", "refused"]
    code: str = ""
    reason: str = ""
    device: Device | None = None
    """As it is now stored; None where it was refused."""


class Devices:
    """Safe to share between threads. Raises `NotFound`, `Conflict`, and `Rejected` for what may not be stored.

    `reload_us`: how old a roster may become before it is read again, for processes that share a store with others that
    change devices; None where this process is the only one.
    """

    def __init__(self, engine: Engine, clock: Clock, *, refresh_us: int = 10 * SECOND, reload_us: int | None = None) -> None:
        self._clock = clock
        self._records = Records(engine, DEVICES, Device, "device")
        self._history = History(engine, clock, self._records)
        self._registration = Registration(engine, clock, refresh_us=refresh_us, reload_us=reload_us)

    def held(self) -> dict[str, int]:
        """What is held in memory for each tenant, in bytes."""
        return self._registration.held()

    def get(self, tenant: str, name: str) -> Device:
        return self._records.get((tenant,), name).value

    def some(self, tenant: str, names: Sequence[str]) -> Sequence[Device]:
        """Those of the names that there are."""
        wanted = [name for name in dict.fromkeys(names) if not name_fault(name)]
        return [stored.value for stored in self._records.find_all((tenant,), wanted)]

    def names(self, tenant: str, prefix: str = "") -> Sequence[str]:
        """Of all devices, or of those whose names begin so, in the order of `list`; a tenth of its time."""
        found: list[str] = []
        for chunk in self._registration.names(tenant):
            found += [name for name in chunk if name.startswith(prefix)]
        return found

    def create(self, tenant: Tenant, device: Device) -> Device:
        """Register one device as described, also for a tenant whose devices do not register themselves."""
        result = self._registration.enter(tenant, [device])[0]
        if isinstance(result, Device):
            return result
        if result == DEVICE_LIMIT:
            raise Rejected(_limit_reason(tenant), code="device-limit")
        if result == SEATS_TAKEN:
            raise seats_taken(tenant.name)
        raise Conflict(f"device {device.name!r} exists already")

    def update(self, tenant: str, name: str, change: Callable[[Device], Device], *, expected: int | None = None) -> Device:
        """Store what `change` makes of it; with an `expected` revision (the ETag), only if it is still at that one.

        `change` may be called again when another process was faster, so it must be a function of its argument.
        """
        return self._changed(tenant, name, change, expected, {})

    def history(self, tenant: str, name: str) -> Sequence[State]:
        """What the device is and what it was before, newest first."""
        return self._history.of(tenant, self.get(tenant, name))

    def delete(
        self, tenant: str, name: str, *, expected: int | None = None, first: Callable[[], object] = lambda: None
    ) -> Device:
        """Remove the row and the history; the device is unknown again, and its place is free.

        `first` is called once before that, when the device was found, at the `expected` revision. Should it fail, nothing is
        removed. Reports of the device that come meanwhile wait, and are then those of a new one.
        """
        roster = self._registration.roster(tenant)
        begun = False

        def before(_: object) -> None:
            nonlocal begun
            if not begun:
                begun = True
                roster.remove(name)
                first()
            self._history.forget(tenant, [name], self._clock.version_us())

        with roster.lock:
            try:
                removed = self._records.remove((tenant,), name, expected, before)
                self._registration.left(tenant)
            except NotFound:
                roster.remove(name)
                raise
            except BaseException:
                if begun:
                    roster.unload()  # it may have gone: only the store knows
                raise
            return removed

    def delete_all(self, tenant: str) -> None:
        """Remove every row of a tenant. Repeating is harmless."""
        roster = self._registration.roster(tenant)
        with roster.lock:
            version_us = self._clock.version_us()
            try:
                names = [name for chunk in self._registration.names(tenant) for name in chunk.to_list()]
                self._history.forget(tenant, names, version_us)
                self._records.remove_all((tenant,), version_us)
                self._registration.all_left(tenant)
            finally:
                roster.unload()

    def forget_predecessors(self, tenant: str, name: str) -> None:
        """Take the history of devices that had this name before off the disk: somebody may have written it meanwhile."""
        version_us = self._clock.version_us()  # before looking: what is written from here on is of a later device
        found = self._records.find((tenant,), name)
        if found is not None:
            version_us = max(0, whole_ms(found.value.created_us) - MS)
        self._history.forget(tenant, [name], version_us)

    def forget(self) -> None:
        """Read which devices there are again before that is next asked."""
        self._registration.forget()

    def count(self, tenant: str) -> int:
        return self._registration.count(tenant)

    def described(self, tenant: str) -> Iterator[tuple[list[str], list[str]]]:
        """Names and bodies of all devices, as they are stored, some at a time."""
        return self._records.bodies((tenant,))

    def version(self, tenant: str) -> int:
        """Grows with each change of the tenant's devices by this process."""
        return self._registration.version(tenant)

    def counts_at_hand(self) -> dict[str, int]:
        """By tenant, as far as this process knows without asking the store."""
        return self._registration.counts_at_hand()

    def registered(self, tenant: str, names: Names) -> Flags:
        """Which of the names are devices of the tenant."""
        return self._registration.registered(tenant, names)

    def register(self, tenant: Tenant, names: Names, used: Flags | None = None, *, in_haste: bool = False) -> Registered:
        """Make the devices of a batch known, or say why not: see `Registration`."""
        return self._registration.register(tenant, names, used, in_haste=in_haste)

    def list(self, tenant: str, match: Match | None = None, *, limit: int | None = None, after: str | None = None) -> Page:
        """The devices that match, from behind the cursor `after` on, at most `limit` of them."""
        found = self._matching(tenant, match or Match(), limit, after)
        devices = tuple(islice(found, limit))
        more = limit is not None and next(found, None) is not None
        return Page(devices, cursor_of(shard_of(devices[-1].name), devices[-1].name) if more and devices else None)

    def names_of_shard(self, tenant: str, shard: int) -> Iterator[Names]:
        """The names of the devices of a shard, in their order, some at a time. Nothing else of them is read."""
        return self._registration.names(tenant, [shard])

    def apply(self, tenant: Tenant, devices: Sequence[Device]) -> Sequence[Applied]:
        """Create each device, or replace its description; one result per device, in order.

        An `Unavailable` leaves some applied and some not; repeating the call is harmless.
        """
        results: dict[int, Applied] = {}
        accepted: dict[str, int] = {}
        for i, device in enumerate(devices):
            try:
                check(device)
            except Rejected as error:
                results[i] = Applied(device.name, "refused", error.code, str(error))
                continue
            if accepted.setdefault(device.name, i) != i:
                results[i] = Applied(device.name, "refused", "conflict", f"device {device.name!r} is given twice")
        entered = self._registration.enter(tenant, [devices[i] for i in accepted.values()])
        there = []
        for i, result in zip(accepted.values(), entered, strict=True):
            name = devices[i].name
            if isinstance(result, Device):
                results[i] = Applied(name, "created", device=result)
            elif result == DEVICE_LIMIT:
                results[i] = Applied(name, "refused", "device-limit", _limit_reason(tenant))
            elif result == SEATS_TAKEN:
                raise seats_taken(tenant.name)
            else:
                there.append(i)
        for start in range(0, len(there), _REPLACED_AT_ONCE):
            some = there[start : start + _REPLACED_AT_ONCE]
            results |= zip(some, self._replaced(tenant.name, [devices[i] for i in some]), strict=True)
        return [results[i] for i in range(len(devices))]

    def _changed(
        self, tenant: str, name: str, change: Callable[[Device], Device], expected: int | None, kept: dict[str, Row]
    ) -> Device:
        """See `update`. `kept` are rows by name that are in the history; those that get there are added."""

        def checked(old: Device) -> Device:
            new = replace(change(old), name=old.name, created_us=old.created_us)
            check(new)
            return new

        def keep(old: Stored[Device]) -> None:
            if kept.get(old.name) != old.row:
                self._history.keep(tenant, [old])
                kept[old.name] = old.row

        try:
            return self._records.update((tenant,), name, checked, expected, keep)
        except NotFound:
            if name in kept:  # it was deleted in between, and its history must go, too
                self.forget_predecessors(tenant, name)
            raise
        finally:
            self._registration.changed(tenant)

    def _replaced(self, tenant: str, devices: Sequence[Device]) -> Iterator[Applied]:
        """Give distinct devices that exist a new description. What they were goes to the history in one write."""
        new = {device.name: device for device in devices}
        old = [
            stored
            for stored in self._records.find_all((tenant,), list(new))
            if pack(replace(_instead(new[stored.name], stored.value), created_us=stored.value.created_us))
            != pack(stored.value)
        ]
        if old:
            self._history.keep(tenant, old)
        kept = {stored.name: stored.row for stored in old}
        for device in devices:
            try:
                changed = self._changed(tenant, device.name, partial(_instead, device), None, kept)
                yield Applied(device.name, "updated", device=changed)
            except Rejected as error:
                yield Applied(device.name, "refused", error.code, str(error))

    def _matching(self, tenant: str, match: Match, limit: int | None, after: str | None) -> Iterator[Device]:
        first, name = read_cursor(after) if after else (0, "")
        for shard in range(first, SHARDS):
            last = name if shard == first else ""
            span = Span(max(match.prefix, last) or None, match.stop())
            # One more for the last one of the page before, one more to see whether another page follows.
            most = limit + 2 if limit is not None and match.everything() else None
            for stored in self._records.scan((tenant,), [shard], span, limit=most, wanted=match.sieve()):
                if stored.name != last and match.holds(stored.value):
                    yield stored.value


def _instead(device: Device, old: Device) -> Device:
    """Another description, of the same hardware."""
    return replace(device, hardware=old.hardware)


def _limit_reason(tenant: Tenant) -> str:
    return f"{tenant.name} has as many devices as limits.devices allows ({tenant.limits.devices}): raise it or delete some"
