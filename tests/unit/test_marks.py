"""What is marked again while somebody takes marks is taken, or stays."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from contract.rollup_suite import NOW, TENANT, Site
from widerow.engine.memory import MemoryEngine
from widerow.model.times import DAY, HOUR, ManualClock
from widerow.rollup.unit import Unit
from widerow.schema.shards import shard_of

HOUR_US, DAY_US = NOW // HOUR * HOUR, NOW // DAY * DAY


@pytest.fixture
def site() -> Site:
    clock = ManualClock(NOW)
    return Site(MemoryEngine(clock), clock)


def meanwhile(
    site: Site, monkeypatch: pytest.MonkeyPatch, mark: Callable[[], None], take: Callable[[], Sequence[str]]
) -> list[str]:
    """What another thread takes that begins when a mark has its version, and is not written yet."""
    taken: list[str] = []
    other = threading.Thread(target=lambda: taken.extend(take()))
    write = site.engine.write

    def slowly(changes: object) -> None:
        monkeypatch.undo()
        other.start()
        other.join(0.2)  # it does what it can
        write(changes)  # type: ignore[arg-type]

    monkeypatch.setattr(site.engine, "write", slowly)
    mark()
    other.join()
    return taken


def test_who_takes_an_hour_waits_for_what_is_being_marked_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def take() -> Sequence[str]:
        taken = site.marks.take(Unit(TENANT.name, HOUR_US, shard_of("a")))
        site.marks.finish(taken)
        return taken.devices

    assert meanwhile(site, monkeypatch, lambda: site.marks.again(TENANT.name, "a", np.array([HOUR_US])), take) == ["a"]
    assert (site.marks.pending(), list(site.marks.units())) == ({}, [])


def test_who_takes_a_day_waits_for_what_is_being_marked_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    days, unit = site.roller.days, Unit(TENANT.name, DAY_US, shard_of("a"))

    def take() -> Sequence[str]:
        devices = days.devices([unit], NOW)
        days.finish([unit], NOW)
        return devices

    assert meanwhile(site, monkeypatch, lambda: days.again(TENANT.name, "a", np.array([DAY_US]), NOW), take) == ["a"]
    assert days.pending() == {}


def test_what_is_marked_again_after_a_day_was_taken_stays(site: Site) -> None:
    days, unit = site.roller.days, Unit(TENANT.name, DAY_US, shard_of("a"))
    assert days.devices([unit], NOW) == []
    days.again(TENANT.name, "a", np.array([DAY_US]), NOW)  # within the same millisecond
    days.finish([unit], NOW)
    assert list(days.pending()) == [unit]
    assert days.devices([unit], NOW + HOUR) == ["a"]
