"""Listing devices: what matches, and paging through it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from widerow.catalog.devices import Devices
from widerow.catalog.match import Match, cursor_of, read_cursor
from widerow.engine.memory import MemoryEngine
from widerow.engine.port import Engine
from widerow.engine.rocksdb import RocksEngine
from widerow.model.device import Device
from widerow.model.errors import Rejected
from widerow.model.tenant import Tenant
from widerow.model.times import ManualClock
from widerow.schema.tables import TABLES

ACME = Tenant(name="acme")
NAMES = [f"pump-{i:03d}" for i in range(150)] + [
    "pumpen/Halle 2",
    "pump",
    "Zähler",
    "fan \U0010ffff",
    "fan \U0010ffff\U0010ffff",
]


@pytest.fixture(params=["memory", "rocksdb"])
def devices(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Devices]:
    clock = ManualClock(1_800_000_000_000_000)
    engine: Engine = MemoryEngine(clock) if request.param == "memory" else RocksEngine(tmp_path / "db", clock=clock)
    engine.apply(TABLES)
    yield Devices(engine, clock)
    engine.close()


def pages(devices: Devices, match: Match, limit: int) -> list[list[str]]:
    out, after = [], None
    while True:
        page = devices.list("acme", match, limit=limit, after=after)
        out.append([d.name for d in page.devices])
        after = page.after
        if after is None:
            return out


def test_pages_together_are_the_whole_in_a_stable_order(devices: Devices) -> None:
    devices.apply(ACME, [Device(name=n) for n in NAMES])
    whole = [d.name for d in devices.list("acme").devices]
    assert sorted(whole) == sorted(NAMES)
    for limit in (1, 7, len(NAMES) - 1, len(NAMES), len(NAMES) + 1):
        got = pages(devices, Match(), limit)
        assert [name for page in got for name in page] == whole
        assert all(len(page) == limit for page in got[:-1])
        assert got[-1]
    for prefix in ("pump", "pump-01", "fan \U0010ffff", "Zähler", "none"):
        wanted = [name for name in whole if name.startswith(prefix)]
        assert [name for page in pages(devices, Match(prefix=prefix), 5) for name in page] == wanted
        assert [d.name for d in devices.list("acme", Match(prefix=prefix)).devices] == wanted


def test_all_that_is_given_must_match(devices: Devices) -> None:
    devices.apply(
        ACME,
        [
            Device(name="a", type="pump", location="hall 1", tags={"floor": "1", "line": "x"}, display_name="Große Pumpe"),
            Device(name="b", type="pump", location="hall 2", tags={"floor": "2"}),
            Device(name="c", type="fan", location="hall 1", tags={"floor": "1"}),
            Device(name="d", tags={"note": 'a "quoted" \\ text', "pump": "floor"}),
        ],
    )

    def check(match: Match, want: str) -> None:
        assert "".join(sorted(d.name for d in devices.list("acme", match).devices)) == want
        assert "".join(sorted(name for page in pages(devices, match, 1) for name in page)) == want

    check(Match(), "abcd")
    check(Match(type="pump"), "ab")
    check(Match(type=""), "d")
    check(Match(type="pump", location="hall 1"), "a")
    check(Match(tags={"floor": "1"}), "ac")
    check(Match(tags={"floor": "1", "line": "x"}), "a")
    check(Match(tags={"floor": "x"}), "")
    check(Match(tags={"note": 'a "quoted" \\ text'}), "d")
    check(Match(text="GROSSE"), "a")
    check(Match(text="B"), "b")
    check(Match(type="pump", prefix="b"), "b")


def test_deleting_while_paging_skips_and_repeats_nothing(devices: Devices) -> None:
    devices.apply(ACME, [Device(name=n) for n in NAMES])
    whole = [d.name for d in devices.list("acme").devices]
    first = devices.list("acme", limit=10)
    devices.delete("acme", whole[9])
    devices.delete("acme", whole[3])
    rest = devices.list("acme", after=first.after)
    assert [d.name for d in rest.devices] == whole[10:]
    assert rest.after is None


def test_a_limit_of_nothing_gives_nothing(devices: Devices) -> None:
    devices.create(ACME, Device(name="a"))
    page = devices.list("acme", limit=0)
    assert (page.devices, page.after) == ((), None)


def test_cursors_are_safe_in_urls() -> None:
    for name in [*NAMES, "a/b?c=d&e#f", "x" * 256]:
        cursor = cursor_of(15, name)
        assert re.fullmatch(r"[A-Za-z0-9_-]+", cursor)
        assert read_cursor(cursor) == (15, name)


def test_a_foreign_cursor_is_refused() -> None:
    for cursor in ("!", "abc", "ümlaut", cursor_of(16, "a"), cursor_of(3, "a") + "=", "LTEvYQ"):
        with pytest.raises(Rejected) as caught:
            read_cursor(cursor)
        assert caught.value.code == "cursor"


def test_a_match_that_no_device_could_meet_is_refused() -> None:
    for match in ({"prefix": "\ud800"}, {"type": "a\0"}, {"text": "x" * 257}):
        with pytest.raises(Rejected):
            Match(**match)  # type: ignore[arg-type]
