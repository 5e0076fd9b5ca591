"""Devices in the store, and the registration of devices by their reports.

Rule 1: `limits.devices` is exact: never exceeded, and nothing is refused while there is room. Every device that comes or
goes does so holding its tenant's roster lock; where processes share a store, having taken a seat there (`catalog.seats`).
Rule 2: a name the roster does not know is looked for in the store before it is refused: all of a batch in one go, since
other tenants' reports wait behind it.
Rule 3: known devices cost no Python per name; unknown ones one insert for all of them.
Rule 4: what a change replaces goes to the device's history; registration by reports writes none.
Removing a device removes its row and its history: erasing its data is the work of others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Literal

import numpy as np

from widerow.catalog.forms import check
from widerow.catalog.history import History, State
from widerow.catalog.match import Match, Page, cursor_of, read_cursor
from widerow.catalog.records import FIRST_REVISION, Records, Stored, pack
from widerow.catalog.roster import Roster
from widerow.catalog.seats import Seats
from widerow.engine.port import Engine, Span
from widerow.engine.rows import NEVER, Column, Key, Row, Rows
from widerow.model.arrays import Bytes, Flags, Ints, frozen
from widerow.model.batch import CellKind, Cells
from widerow.model.check import name_fault
from widerow.model.device import Device
from widerow.model.errors import Conflict, NotFound, Rejected, TenantBusy
from widerow.model.intern import NameTable
from widerow.model.names import NO_NAMES, Coded, Names
from widerow.model.tenant import LimitMode, Tenant
from widerow.model.times import MS, SECOND, Clock, whole_ms
from widerow.ops.courtesy import give_way
from widerow.schema.shards import SHARDS, shard_of, shards_of
from widerow.schema.tables import DEVICES

KNOWN, UNKNOWN_DEVICE, DEVICE_LIMIT, SEATS_TAKEN = 0, 1, 2, 3
"""What `register` says of a name. Two are refusals, with the codes `unknown-device` and `device-limit`. The last one is not:
other processes are registering devices, and have taken all places that are left; ask again in a moment.
"""

_COLUMNS = Names.of(("body", "revision"))
_LOOKED_UP = 1000
"""Names that are looked for in the store however few devices there are."""
_REPLACED_AT_ONCE = 1000
"""Devices of a bulk upsert whose former states are written together: a sync for all of them, not one for each."""


@dataclass(frozen=True, slots=True, eq=False)
class Registered:
    codes: Bytes
    """Per name: KNOWN, UNKNOWN_DEVICE, DEVICE_LIMIT or SEATS_TAKEN."""
    added: Names = NO_NAMES
    """The devices that this call registered: nobody ever wrote to them."""
    beyond: Flags | None = None
    """Per name: whether it was registered only because the limit is in shadow. None: no name was."""

    def __post_init__(self) -> None:
        frozen(self.codes)


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
        self.engine, self.clock = engine, clock
        self.refresh_us, self.reload_us = refresh_us, reload_us
        self._records = Records(engine, DEVICES, Device, "device")
        self._history = History(engine, clock, self._records)
        self._seats = Seats(engine, clock, refresh_us=refresh_us) if reload_us is not None else None
        self._rosters: dict[str, Roster] = {}
        self._rosters_lock = threading.Lock()

    def held(self) -> dict[str, int]:
        """What is held in memory for each tenant, in bytes."""
        return {tenant: roster.bytes for tenant, roster in list(self._rosters.items())}

    def get(self, tenant: str, name: str) -> Device:
        return self._records.get((tenant,), name).value

    def some(self, tenant: str, names: Sequence[str]) -> Sequence[Device]:
        """Those of the names that there are."""
        wanted = [name for name in dict.fromkeys(names) if not name_fault(name)]
        return [stored.value for stored in self._records.find_all((tenant,), wanted)]

    def names(self, tenant: str, prefix: str = "") -> Sequence[str]:
        """Of all devices, or of those whose names begin so, in the order of `list`; a tenth of its time."""
        found: list[str] = []
        for chunk in self._names(tenant):
            found += [name for name in chunk if name.startswith(prefix)]
            give_way()
        return found

    def create(self, tenant: Tenant, device: Device) -> Device:
        """Register one device as described, also for a tenant whose devices do not register themselves."""
        result = self._entered(tenant, [device])[0]
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
        roster = self._roster(tenant)
        begun = False

        def before(_: object) -> None:
            nonlocal begun
            if not begun:
                begun = True
                roster.remove(name)
                first()
            self._history.forget(tenant, [name], whole_ms(self.clock.now_us()))

        with roster.lock:
            try:
                removed = self._records.remove((tenant,), name, expected, before)
                self._give_back(tenant, 1)
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
        roster = self._roster(tenant)
        with roster.lock:
            version_us = whole_ms(self.clock.now_us())
            try:
                names = [name for chunk in self._names(tenant) for name in chunk.to_list()]
                self._history.forget(tenant, names, version_us)
                self._records.remove_all((tenant,), version_us)
                if self._seats:
                    self._seats.forget(tenant)
            finally:
                roster.unload()

    def forget_predecessors(self, tenant: str, name: str) -> None:
        """Take the history of devices that had this name before off the disk: somebody may have written it meanwhile."""
        version_us = whole_ms(self.clock.now_us())  # before looking: what is written from here on is of a later device
        found = self._records.find((tenant,), name)
        if found is not None:
            version_us = max(0, whole_ms(found.value.created_us) - MS)
        self._history.forget(tenant, [name], version_us)

    def forget(self) -> None:
        """Read every roster again before it is next used."""
        with self._rosters_lock:
            rosters = list(self._rosters.values())
        for roster in rosters:
            with roster.lock:
                roster.unload()

    def count(self, tenant: str) -> int:
        roster = self._ready(tenant)
        with roster.lock:
            self._load(tenant, roster)
            return roster.count

    def list(self, tenant: str, match: Match | None = None, *, limit: int | None = None, after: str | None = None) -> Page:
        """The devices that match, from behind the cursor `after` on, at most `limit` of them."""
        found = self._matching(tenant, match or Match(), limit, after)
        devices = tuple(islice(found, limit))
        more = limit is not None and next(found, None) is not None
        return Page(devices, cursor_of(shard_of(devices[-1].name), devices[-1].name) if more and devices else None)

    def names_of_shard(self, tenant: str, shard: int) -> Iterator[Names]:
        """The names of the devices of a shard, in their order, some at a time. Nothing else of them is read."""
        return self._names(tenant, [shard])

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
        entered = self._entered(tenant, [devices[i] for i in accepted.values()])
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

    def register(self, tenant: Tenant, names: Names, used: Flags | None = None, *, in_haste: bool = False) -> Registered:
        """Make the devices of a batch known, or say why not. Names have been checked; they may repeat.

        A batch's dictionary may hold names whose reports were all refused: those not marked as `used` are left alone.
        `in_haste`: others wait behind this, so what other processes have not settled is hardly waited for.
        """
        roster = self._ready(tenant.name)
        known = roster.known(names)
        if used is not None:
            known |= ~used
        if known.all():
            return Registered(np.zeros(len(names), np.uint8))
        codes = np.zeros(len(names), np.uint8)
        missing = np.flatnonzero(~known)
        table = NameTable(len(missing))
        distinct = table.add(names.take(missing))
        candidates = table.names()
        results = np.zeros(len(candidates), np.uint8)
        with roster.lock:
            self._load(tenant.name, roster)
            unknown = np.flatnonzero(~roster.known(candidates))
            bodies = Coded.constant(pack(Device(name="", created_us=self.clock.now_us())), len(unknown))
            room = _shadowed_room(tenant, roster.count)
            results[unknown], added = self._enter(
                tenant, roster, candidates.take(unknown), bodies, may_add=tenant.registers_devices, in_haste=in_haste
            )
        codes[missing] = results[distinct]
        beyond: Flags | None = None
        if room is not None and added[room:].any():
            over = np.zeros(len(candidates), np.bool_)
            over[unknown[room:]] = added[room:]
            beyond = np.zeros(len(names), np.bool_)
            beyond[missing] = over[distinct]
        return Registered(codes, candidates.take(unknown[added]), beyond)

    def _entered(self, tenant: Tenant, devices: Sequence[Device]) -> Sequence[Device | int]:
        """For each of these distinct devices: itself if it was created, else KNOWN (it exists) or why it was not."""
        for device in devices:
            check(device)
        now_us = self.clock.now_us()
        made = [replace(device, created_us=now_us, revision=FIRST_REVISION) for device in devices]
        names = Names.of([device.name for device in devices])
        roster = self._ready(tenant.name)
        results: list[Device | int] = [KNOWN] * len(made)
        with roster.lock:
            self._load(tenant.name, roster)
            unknown = np.flatnonzero(~roster.known(names))
            bodies = Coded(Names.of([pack(made[i]) for i in unknown]), np.arange(len(unknown), dtype=np.int32))
            entered, added = self._enter(tenant, roster, names.take(unknown), bodies, may_add=True)
        for i, code, is_new in zip(unknown.tolist(), entered.tolist(), added.tolist(), strict=True):
            results[i] = made[i] if is_new else int(code)
        return results

    def _enter(
        self, tenant: Tenant, roster: Roster, names: Names, bodies: Coded, *, may_add: bool, in_haste: bool = False
    ) -> tuple[Bytes, Flags]:
        """Insert distinct names that the roster does not know, while there is room; the lock is held.

        Gives a code per name, and which names this call inserted. A name that is found in the store takes a place as well:
        another process registered it, and it had not been counted.
        """
        allowed = tenant.limits.devices if tenant.mode("devices") is LimitMode.ENFORCE else 0
        codes = np.full(len(names), DEVICE_LIMIT if may_add else UNKNOWN_DEVICE, np.uint8)
        added, there = np.zeros(len(names), np.bool_), np.zeros(len(names), np.bool_)
        contested = False

        def insert(some: Ints) -> int:
            if len(some):
                added[some] = self.engine.insert(DEVICES, self._rows(tenant.name, names.take(some), bodies.take(some)))
                there[some] = True
                roster.add(names.take(some))
            return int(added[some].sum())

        try:
            if may_add and allowed and self._seats:
                contested = self._fill_seats(self._seats, tenant, roster, names, there, insert, in_haste)
            elif may_add:
                insert(np.arange(min(max(0, allowed - roster.count), len(names)) if allowed else len(names)))
            rest = np.flatnonzero(~there)
            if contested and len(rest):  # what others register now is stored in a moment: none is noted as absent
                codes[rest] = SEATS_TAKEN
                there[rest] = self._look_up(tenant.name, roster, names.take(rest))
            else:
                there[rest] = self._stored(tenant.name, roster, names.take(rest))
            roster.add(names.take(np.flatnonzero(there)))
        except BaseException:
            roster.unload()  # some may have been inserted: only the store knows
            raise
        codes[there] = KNOWN
        return codes, added

    def _fill_seats(
        self,
        seats: Seats,
        tenant: Tenant,
        roster: Roster,
        names: Names,
        there: Flags,
        insert: Callable[[Ints], int],
        in_haste: bool,
    ) -> bool:
        """Insert names while there are seats for them. `there` is what is in the store, as far as this finds out. Gives
        whether there may be more seats in a moment.

        Names that other processes registered need no seat: where there are too few for all, those are looked for first, and
        seats that came back unused, since others were faster, are taken once more.
        """

        def stored() -> int:
            return sum(map(len, self._names(tenant.name)))

        wanting = np.arange(len(names))
        while len(wanting):
            taken = seats.take(tenant, len(wanting), tenant.limits.devices, stored, in_haste=in_haste)
            if 0 < taken.seats < len(wanting):
                there[wanting] = self._look_up(tenant.name, roster, names.take(wanting))
                wanting = wanting[~there[wanting]]
            tried, wanting = wanting[: taken.seats], wanting[taken.seats :]
            used = insert(tried)
            seats.settle(tenant.name, taken, used)
            if used == taken.seats:
                return taken.contested
        return False

    def _give_back(self, tenant: str, count: int) -> None:
        if self._seats:
            self._seats.give_back(tenant, count)

    def _rows(self, tenant: str, names: Names, bodies: Coded) -> Rows:
        n = len(names)
        number, kind = np.full(2 * n, np.nan), np.full(2 * n, CellKind.TEXT, np.uint8)
        name, text = np.zeros(2 * n, np.int32), np.full(2 * n, -1, np.int32)
        text[0::2] = bodies.codes
        name[1::2], kind[1::2], number[1::2] = 1, CellKind.NUMBER, FIRST_REVISION
        cells = Cells(np.arange(0, 2 * n + 1, 2), _COLUMNS, name, kind, number, bodies.names, text)
        keys: dict[str, Column] = {
            "tenant_id": Coded.constant(tenant, n),
            "shard": shards_of(names),
            "device_id": Coded(names, np.arange(n, dtype=np.int32)),
        }
        return Rows(keys, np.full(n, whole_ms(self.clock.now_us())), np.full(n, NEVER), cells)

    def _stored(self, tenant: str, roster: Roster, names: Names) -> Flags:
        """Which of the names are in the store, reading each at most once every `refresh_us` while it is not."""
        now_us = self.clock.now_us()
        found = np.zeros(len(names), np.bool_)
        unsure = np.flatnonzero(~roster.lately_absent(names, now_us))
        if len(unsure):
            found[unsure] = self._look_up(tenant, roster, names.take(unsure))
            roster.note_absent(names.take(unsure[~found[unsure]]), now_us)
        return found

    def _look_up(self, tenant: str, roster: Roster, names: Names) -> Flags:
        """Which of these distinct names are in the store now; the lock is held. What it costs is bounded by what is stored:
        of more names than there are devices none is looked for, but all devices are read.
        """
        if len(names) > max(_LOOKED_UP, roster.count):
            roster.load(self._names(tenant), self.clock.now_us())
            return roster.known(names)
        found = NameTable(len(names))
        keys = [(tenant, shard, name) for shard, name in zip(shards_of(names).tolist(), names.to_list(), strict=True)]
        for some in self._names_at(keys):
            found.add(some)
        return found.find(names) >= 0

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

    def _roster(self, tenant: str) -> Roster:
        with self._rosters_lock:
            return self._rosters.setdefault(tenant, Roster(self.refresh_us))

    def _ready(self, tenant: str) -> Roster:
        """The tenant's roster, loaded; read again when it is due, by one thread while the others go on with the old one."""
        roster = self._rosters.get(tenant) or self._roster(tenant)
        if not roster.loaded:
            with roster.lock:
                self._load(tenant, roster)
        elif self._is_due(roster) and roster.lock.acquire(blocking=False):
            try:
                roster.load(self._names(tenant), self.clock.now_us())
            finally:
                roster.lock.release()
        return roster

    def _is_due(self, roster: Roster) -> bool:
        return self.reload_us is not None and self.clock.now_us() - roster.loaded_us >= self.reload_us

    def _load(self, tenant: str, roster: Roster) -> None:
        """Load the roster unless it is; the lock is held."""
        if not roster.loaded:
            roster.load(self._names(tenant), self.clock.now_us())

    def _names(self, tenant: str, shards: Iterable[int] = range(SHARDS)) -> Iterator[Names]:
        return self._names_at([(tenant, shard) for shard in shards])

    def _names_at(self, keys: Sequence[Key]) -> Iterator[Names]:
        for rows in self.engine.scan(DEVICES, keys, columns=("revision",)):
            column = self._records.names(rows)
            yield column.names.take(column.codes)


def _instead(device: Device, old: Device) -> Device:
    """Another description, of the same hardware."""
    return replace(device, hardware=old.hardware)


def _shadowed_room(tenant: Tenant, count: int) -> int | None:
    """How many devices more a limit in shadow would have let in; None: it is not in shadow."""
    allowed = tenant.limits.devices if tenant.mode("devices") is LimitMode.SHADOW else 0
    return max(0, allowed - count) if allowed else None


def seats_taken(tenant: str) -> TenantBusy:
    """What whoever wants to register a device is told while other processes have the last places in hand."""
    return TenantBusy(f"other processes are registering devices of {tenant}, which is close to limits.devices: try again")


def _limit_reason(tenant: Tenant) -> str:
    return f"{tenant.name} has as many devices as limits.devices allows ({tenant.limits.devices}): raise it or delete some"
