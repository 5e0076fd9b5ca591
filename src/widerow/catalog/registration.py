"""How devices get their places: by the reports that name them, or by an operator who describes them.

Rule 1: `limits.devices` is exact: never exceeded, and nothing is refused while there is room. Every device that comes or
goes does so holding its tenant's roster lock; where processes share a store, having taken a seat there (`catalog.seats`).
Rule 2: a name the roster does not know is looked for in the store before it is refused: all of a batch in one go, since
other tenants' reports wait behind it.
Rule 3: known devices cost no Python per name; unknown ones one insert for all of them.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from widerow.catalog.forms import check
from widerow.catalog.records import FIRST_REVISION, pack
from widerow.catalog.roster import Roster
from widerow.catalog.seats import Seats
from widerow.engine.port import Engine
from widerow.engine.rows import NEVER, Column, Key, Rows
from widerow.model.arrays import Bytes, Flags, Ints, frozen
from widerow.model.batch import CellKind, Cells
from widerow.model.device import Device
from widerow.model.errors import TenantBusy
from widerow.model.intern import NameTable
from widerow.model.names import NO_NAMES, Coded, Names
from widerow.model.tenant import LimitMode, Tenant
from widerow.model.times import Clock
from widerow.schema.shards import SHARDS, shards_of
from widerow.schema.tables import DEVICES

KNOWN, UNKNOWN_DEVICE, DEVICE_LIMIT, SEATS_TAKEN = 0, 1, 2, 3
"""What `register` says of a name. Two are refusals, with the codes `unknown-device` and `device-limit`. The last one is not:
other processes are registering devices, and have taken all places that are left or hold up the counting; ask again in a
moment.
"""

_COLUMNS = Names.of(("body", "revision"))
_LOOKED_UP = 1000
"""Names that are looked for in the store however few devices there are."""


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


class Registration:
    """Safe to share between threads. For `reload_us` see `Devices`."""

    def __init__(self, engine: Engine, clock: Clock, *, refresh_us: int, reload_us: int | None) -> None:
        self._engine, self._clock = engine, clock
        self._refresh_us, self._reload_us = refresh_us, reload_us
        self._seats = Seats(engine, clock, refresh_us=refresh_us) if reload_us is not None else None
        self._rosters: dict[str, Roster] = {}
        self._changes = Counter[str]()
        self._rosters_lock = threading.Lock()

    def held(self) -> dict[str, int]:
        """What is held in memory for each tenant, in bytes."""
        return {tenant: roster.bytes for tenant, roster in list(self._rosters.items())}

    def count(self, tenant: str) -> int:
        roster = self._ready(tenant)
        with roster.lock:
            self._load(tenant, roster)
            return roster.count

    def version(self, tenant: str) -> int:
        """Grows with each change of the tenant's devices by this process."""
        return self._changes[tenant]

    def changed(self, tenant: str) -> None:
        self._changes[tenant] += 1

    def counts_at_hand(self) -> dict[str, int]:
        return {tenant: roster.count for tenant, roster in list(self._rosters.items()) if roster.loaded}

    def registered(self, tenant: str, names: Names) -> Flags:
        return self._ready(tenant).known(names)

    def forget(self) -> None:
        """Read every roster again before it is next used."""
        with self._rosters_lock:
            rosters = list(self._rosters.values())
        for roster in rosters:
            with roster.lock:
                roster.unload()

    def roster(self, tenant: str) -> Roster:
        """As it is: perhaps not loaded."""
        with self._rosters_lock:
            return self._rosters.setdefault(tenant, Roster(self._refresh_us))

    def left(self, tenant: str) -> None:
        """A device has gone: its place is free."""
        self.changed(tenant)
        if self._seats:
            self._seats.give_back(tenant, 1)

    def all_left(self, tenant: str) -> None:
        self.changed(tenant)
        if self._seats:
            self._seats.forget(tenant)

    def names(self, tenant: str, shards: Iterable[int] = range(SHARDS)) -> Iterator[Names]:
        """Of the devices in the store, in their order, some at a time."""
        return self._names_at([(tenant, shard) for shard in shards])

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
            bodies = Coded.constant(pack(Device(name="", created_us=self._clock.now_us())), len(unknown))
            room = _shadowed_room(tenant, roster.count)
            results[unknown], added = self._insert(
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

    def enter(self, tenant: Tenant, devices: Sequence[Device]) -> Sequence[Device | int]:
        """For each of these distinct devices: itself if it was created, else KNOWN (it exists) or why it was not."""
        for device in devices:
            check(device)
        now_us = self._clock.now_us()
        made = [replace(device, created_us=now_us, revision=FIRST_REVISION) for device in devices]
        names = Names.of([device.name for device in devices])
        roster = self._ready(tenant.name)
        results: list[Device | int] = [KNOWN] * len(made)
        with roster.lock:
            self._load(tenant.name, roster)
            unknown = np.flatnonzero(~roster.known(names))
            bodies = Coded(Names.of([pack(made[i]) for i in unknown]), np.arange(len(unknown), dtype=np.int32))
            entered, added = self._insert(tenant, roster, names.take(unknown), bodies, may_add=True)
        for i, code, is_new in zip(unknown.tolist(), entered.tolist(), added.tolist(), strict=True):
            results[i] = made[i] if is_new else int(code)
        return results

    def _insert(
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
                added[some] = self._engine.insert(DEVICES, self._rows(tenant.name, names.take(some), bodies.take(some)))
                there[some] = True
                roster.add(names.take(some))
                self.changed(tenant.name)
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
            return sum(map(len, self.names(tenant.name)))

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
        return Rows(keys, np.full(n, self._clock.version_us()), np.full(n, NEVER), cells)

    def _stored(self, tenant: str, roster: Roster, names: Names) -> Flags:
        """Which of the names are in the store, reading each at most once every `refresh_us` while it is not."""
        now_us = self._clock.now_us()
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
            roster.load(self.names(tenant), self._clock.now_us())
            return roster.known(names)
        found = NameTable(len(names))
        keys = [(tenant, shard, name) for shard, name in zip(shards_of(names).tolist(), names.to_list(), strict=True)]
        for some in self._names_at(keys):
            found.add(some)
        return found.find(names) >= 0

    def _ready(self, tenant: str) -> Roster:
        """The tenant's roster, loaded; read again when it is due, by one thread while the others go on with the old one."""
        roster = self._rosters.get(tenant) or self.roster(tenant)
        if not roster.loaded:
            with roster.lock:
                self._load(tenant, roster)
        elif self._is_due(roster) and roster.lock.acquire(blocking=False):
            try:
                roster.load(self.names(tenant), self._clock.now_us())
            finally:
                roster.lock.release()
        return roster

    def _is_due(self, roster: Roster) -> bool:
        return self._reload_us is not None and self._clock.now_us() - roster.loaded_us >= self._reload_us

    def _load(self, tenant: str, roster: Roster) -> None:
        """Load the roster unless it is; the lock is held."""
        if not roster.loaded:
            roster.load(self.names(tenant), self._clock.now_us())

    def _names_at(self, keys: Sequence[Key]) -> Iterator[Names]:
        for rows in self._engine.scan(DEVICES, keys, columns=("revision",)):
            column = rows.keys["device_id"]
            assert isinstance(column, Coded)
            yield column.names.take(column.codes)


def _shadowed_room(tenant: Tenant, count: int) -> int | None:
    """How many devices more a limit in shadow would have let in; None: it is not in shadow."""
    allowed = tenant.limits.devices if tenant.mode("devices") is LimitMode.SHADOW else 0
    return max(0, allowed - count) if allowed else None


def seats_taken(tenant: str) -> TenantBusy:
    """What whoever wants to register a device is told while other processes have the last places in hand, or the row that
    counts them.
    """
    return TenantBusy(f"other processes are registering devices of {tenant}, which has limits.devices: try again")
