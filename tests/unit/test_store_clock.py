"""The clock of a store gives versions that never run back, across restarts and whatever the machine's clock does."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from widerow.config import Config, Store
from widerow.engine.memory import MemoryEngine
from widerow.engine.rocksdb import RocksEngine
from widerow.engine.rows import rows_of
from widerow.migrate.copy import copy
from widerow.model.batch import Report, batch_of
from widerow.model.store_clock import StoreClock
from widerow.model.tenant import Tenant
from widerow.model.times import DAY, HOUR, MS, SECOND, ManualClock
from widerow.schema.tables import LAST_SEEN, ONLINE
from widerow.service import Service

NOW_US = 1_800_000_000_123_456
WHOLE_US = NOW_US - NOW_US % MS
ACME = Tenant(name="acme")


class Seconds:
    """A monotonic clock that moves when told to."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_versions_follow_the_machine_in_whole_milliseconds() -> None:
    machine = ManualClock(NOW_US)
    clock = StoreClock(machine, clock_s=Seconds())
    assert clock.version_us() == clock.version_us() == WHOLE_US
    machine.time_us += HOUR
    assert (clock.version_us(), clock.now_us(), clock.ahead_us) == (WHOLE_US + HOUR, NOW_US + HOUR, 0)


@pytest.mark.parametrize("jump_us", [90 * SECOND, DAY, 40 * DAY, 3650 * DAY])
def test_versions_go_on_when_the_machine_goes_back(jump_us: int) -> None:
    machine, seconds = ManualClock(NOW_US + jump_us), Seconds()
    clock = StoreClock(machine, clock_s=seconds)
    before_us = clock.version_us()
    machine.time_us = NOW_US
    assert clock.version_us() == before_us
    seconds.now_s += 0.001
    machine.time_us += MS
    for _ in range(1000):  # often, so that no fraction may be lost
        seconds.now_s += 0.001
        machine.time_us += MS
        clock.version_us()
    gained_us = clock.version_us() - before_us
    assert 0.49 * SECOND < gained_us < 0.51 * SECOND, "it goes on, and the machine's clock comes nearer"
    assert clock.now_us() == machine.time_us
    machine.time_us = before_us + HOUR
    assert clock.version_us() == (before_us + HOUR) // MS * MS


def test_a_version_that_is_covered_is_never_passed_from_behind() -> None:
    clock = StoreClock(ManualClock(NOW_US), clock_s=Seconds())
    clock.cover(WHOLE_US + 5 * MS)
    assert clock.version_us() == clock.last_us == WHOLE_US + 5 * MS
    clock.cover(WHOLE_US)
    assert clock.version_us() == WHOLE_US + 5 * MS


def crashed(path: Path) -> Path:
    """The files of a store as they are now: what is left of it if its process is killed."""
    return Path(shutil.copytree(path, path.with_name(path.name + "x")))


def written(engine: RocksEngine, version_us: int) -> None:
    engine.apply([ONLINE])
    engine.write([(ONLINE, rows_of(ONLINE, [(("acme", 0, "a"), {"online": 1.0, "at_us": 0.0})], version_us=version_us))])


def test_a_killed_process_leaves_its_last_version(tmp_path: Path) -> None:
    engine = RocksEngine(tmp_path / "a", clock=ManualClock(NOW_US + 40 * DAY))
    last_us = engine.clock.version_us()
    written(engine, last_us)
    again = RocksEngine(crashed(tmp_path / "a"), clock=ManualClock(NOW_US))
    assert again.clock.version_us() >= last_us
    for each in (engine, again):
        each.close()


def test_each_write_keeps_what_was_given_so_far(tmp_path: Path) -> None:
    machine = ManualClock(NOW_US)
    for days in (1, 5, 2, 9, 0):
        machine.time_us = NOW_US + days * DAY
        engine = RocksEngine(tmp_path / "a", clock=machine)
        written(engine, engine.clock.version_us())
        engine.clock.cover(engine.clock.version_us() + MS)
        last_us = engine.clock.version_us()
        written(engine, last_us)
        engine.close()
        assert RocksEngine(crashed(tmp_path / "a"), clock=machine).clock.version_us() >= last_us
        shutil.rmtree(tmp_path / "ax")


def test_a_store_of_an_older_release_begins_with_the_dates_of_its_files(tmp_path: Path) -> None:
    engine = RocksEngine(tmp_path / "a", clock=ManualClock(NOW_US))
    engine.apply([ONLINE])  # no version was given, so none was kept
    engine.close()
    newest_us = max(file.stat().st_mtime_ns // 1000 for file in (tmp_path / "a").iterdir())
    again = RocksEngine(tmp_path / "a", clock=ManualClock(SECOND))
    assert again.clock.version_us() >= newest_us // MS * MS
    again.close()


def test_a_copied_store_begins_where_its_source_was() -> None:
    machine = ManualClock(NOW_US)
    source, target = MemoryEngine(machine), MemoryEngine(machine)
    source.apply([LAST_SEEN, ONLINE])
    last_us = WHOLE_US + 40 * DAY
    source.write([(ONLINE, rows_of(ONLINE, [(("acme", 0, "a"), {"online": 1.0, "at_us": 0.0})], version_us=last_us))])
    seen = {"bucket": 0.0, "width_us": 0.0, "sub_buckets": 1.0, "raw_us": 0.0}
    ahead = rows_of(
        LAST_SEEN, [(("acme", 0, "a"), dict(zip(LAST_SEEN.columns, seen.values(), strict=True)))], version_us=2 * last_us
    )
    source.write([(LAST_SEEN, ahead)])
    list(copy(source, target, machine, "memory:a"))
    assert last_us <= target.clock.version_us() < 2 * last_us, "event times are no versions"


@pytest.fixture
def opened(tmp_path: Path) -> Callable[[int], Service]:
    config = Config(store=Store(url=f"rocksdb:{tmp_path / 'store'}"))
    return lambda at_us: Service.open(config, ManualClock(at_us))


def reported(service: Service, value: float, *, at_us: int = NOW_US) -> None:
    version_us = service.clock.version_us()
    service.telemetry.write(ACME, batch_of([Report("a", at_us, {"x": value}, {}, version_us)]))


def latest(service: Service) -> list[float]:
    return list(service.queries.latest(ACME, ["a"]).number.tolist())


def test_a_correction_wins_after_the_clock_was_set_back(opened: Callable[[int], Service]) -> None:
    with opened(NOW_US + 90 * SECOND) as service:
        service.create_tenant(ACME)
        reported(service, 1.0)
    with opened(NOW_US) as service:
        service.clock.cover(service.clock.version_us() + MS)  # a millisecond later
        reported(service, 2.0)
        assert latest(service) == [2.0]


@pytest.mark.parametrize("metric", ["", "x"])
def test_erasing_covers_what_came_while_the_clock_was_ahead(opened: Callable[[int], Service], metric: str) -> None:
    with opened(NOW_US + DAY) as service:
        service.create_tenant(ACME)
        reported(service, 1.0)
    with opened(NOW_US) as service:
        service.telemetry.erase(ACME, device="a", metric=metric)
        assert latest(service) == []
        reported(service, 2.0)
        assert latest(service) == [2.0], "what is received later is kept, also in the same millisecond"
    with opened(NOW_US - DAY) as service:
        assert latest(service) == [2.0]
        reported(service, 3.0)
        assert latest(service) == [3.0]
