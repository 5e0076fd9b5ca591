"""Places of a limit of devices, given out by several processes: nobody exceeds it, nobody is refused while there is room.

On the memory engine and on RocksDB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from unit.registering import ACME, KINDS, NOW_US, codes_of, limited, register, store
from widerow.catalog.devices import Devices
from widerow.catalog.records import pack
from widerow.catalog.registration import DEVICE_LIMIT, KNOWN, SEATS_TAKEN
from widerow.catalog.seats import Seats
from widerow.engine.memory import MemoryEngine
from widerow.engine.port import Engine
from widerow.engine.rows import Key, Row, Rows
from widerow.model.arrays import Flags
from widerow.model.device import Device
from widerow.model.errors import TenantBusy, Unavailable
from widerow.model.names import Coded, Names
from widerow.model.times import SECOND, ManualClock
from widerow.schema.table import Table
from widerow.schema.tables import DEVICE_SEATS, DEVICES, TABLES


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_US)


@pytest.fixture(params=KINDS)
def engine(request: pytest.FixtureRequest, clock: ManualClock, tmp_path: Path) -> Iterator[Engine]:
    with store(request.param, clock, tmp_path) as engine:
        yield engine


def sharing(engine: Engine, clock: ManualClock) -> Devices:
    """As one of several processes has it."""
    return Devices(engine, clock, reload_us=60 * SECOND)


def test_a_name_that_another_process_registered_leaves_its_seat_to_its_neighbour(engine: Engine, clock: ManualClock) -> None:
    one, two = sharing(engine, clock), sharing(engine, clock)
    assert two.count("acme") == 0  # which is what it knows from here on
    assert register(one, limited(4), "a", "b", "c") == [KNOWN] * 3
    assert register(two, limited(4), "a", "b", "c", "d", "e") == [KNOWN] * 4 + [DEVICE_LIMIT]
    assert register(one, limited(4), "e", "d") == [DEVICE_LIMIT, KNOWN]
    assert sorted(one.names("acme")) == ["a", "b", "c", "d"]


class Interrupted(MemoryEngine):
    """Does something else before it next inserts."""

    first: Callable[[], object] | None = None

    def insert(self, table: Table, rows: Rows) -> Flags:
        first, self.first = self.first, None
        if first:
            first()
        return super().insert(table, rows)


def test_a_seat_that_comes_back_unused_since_another_process_was_faster_goes_to_the_next_name(clock: ManualClock) -> None:
    engine = Interrupted(clock)
    engine.apply(TABLES)
    one, two = sharing(engine, clock), sharing(engine, clock)
    assert register(one, limited(4), "a") == [KNOWN]
    assert two.count("acme") == 1
    seats = Seats(engine, clock, refresh_us=SECOND)
    taken = seats.take(limited(4), 1, 4, lambda: 1)

    def be_faster() -> None:
        engine.insert(DEVICES, one._registration._rows("acme", Names.of(["x"]), Coded.constant(pack(Device(name="")), 1)))
        seats.settle("acme", taken, 1)

    engine.first = be_faster
    assert register(two, limited(4), "x", "y", "z") == [KNOWN] * 3
    assert register(two, limited(4), "late") == [DEVICE_LIMIT]
    assert sorted(two.names("acme")) == ["a", "x", "y", "z"]


def test_nobody_is_refused_while_another_process_has_the_last_seats_in_hand(
    engine: Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr("widerow.catalog.seats.time.sleep", waits.append)
    devices, seats = sharing(engine, clock), Seats(engine, clock, refresh_us=SECOND)
    assert register(devices, limited(4), "a") == [KNOWN]
    taken = seats.take(limited(4), 2, 4, lambda: 1)
    waits.clear()
    codes = codes_of(devices.register(limited(4), Names.of(["a", "b", "c"]), in_haste=True))
    assert codes == [KNOWN, KNOWN, SEATS_TAKEN]
    assert (len(waits), max(waits) <= 0.016) == (8, True)
    assert register(devices, limited(4), "c") == [SEATS_TAKEN]
    assert len(waits) == 8 + 40
    sharing(engine, clock).register(ACME, Names.of(["d"]))  # as who has the seats does before it settles
    assert register(devices, limited(4), "c", "d") == [SEATS_TAKEN, KNOWN]
    with pytest.raises(TenantBusy, match="try again"):
        devices.create(limited(4), Device(name="c"))
    with pytest.raises(TenantBusy, match="try again"):
        devices.apply(limited(4), [Device(name="a"), Device(name="c")])
    seats.settle("acme", taken, 1)
    assert register(devices, limited(4), "c", "e") == [KNOWN, DEVICE_LIMIT]
    assert sorted(devices.names("acme")) == ["a", "b", "c", "d"]


class Rivals(MemoryEngine):
    """Others change the row that counts seats first, so many times."""

    winning = 0

    def put_if(self, table: Table, key: Key, row: Row | None, expected: Row | None) -> bool:
        if self.winning and table is DEVICE_SEATS:
            self.winning -= 1
            return False
        return super().put_if(table, key, row, expected)


def test_who_loses_every_race_for_a_seat_is_told_to_come_again_and_comes_seldom(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr("widerow.catalog.seats.time.sleep", waits.append)
    monkeypatch.setattr("widerow.catalog.seats.random.uniform", lambda _, longest: longest)
    engine = Rivals(clock)
    engine.apply(TABLES)
    devices = sharing(engine, clock)
    assert register(devices, limited(9), "a") == [KNOWN]
    for in_haste, tries in ((True, 20), (False, 100)):
        waits.clear()
        engine.winning = tries
        codes = codes_of(devices.register(limited(9), Names.of(["a", "b"]), in_haste=in_haste))
        assert (codes, engine.winning, len(waits)) == ([KNOWN, SEATS_TAKEN], 0, tries - 1)
        assert waits == sorted(waits)
        assert waits[-1] == 0.5
    assert register(devices, limited(9), "b") == [KNOWN]
    taken = Seats(engine, clock, refresh_us=SECOND).take(limited(9), 1, 9, lambda: 2)
    engine.winning = 99
    Seats(engine, clock, refresh_us=SECOND).settle("acme", taken, 0)  # which nobody may be told to try again
    assert engine.winning == 0
    taken = Seats(engine, clock, refresh_us=SECOND).take(limited(9), 1, 9, lambda: 2)
    engine.winning = 100
    with pytest.raises(Unavailable, match="too many register devices of acme at once"):
        Seats(engine, clock, refresh_us=SECOND).settle("acme", taken, 0)
