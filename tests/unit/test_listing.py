"""Devices searched, sorted and paged in memory, compared with a plain version."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from widerow.catalog.directory import Directories, Directory, directory_of
from widerow.catalog.match import Match
from widerow.catalog.records import pack
from widerow.model.batch import Report, batch_of
from widerow.model.device import Device
from widerow.model.errors import Rejected, Unavailable
from widerow.model.times import MINUTE, SECOND, ManualClock
from widerow.query.listing import SORTS, Listing
from widerow.telemetry.presence import Presence

NOW = 1_700_000_000 * SECOND
ONLINE = 5 * MINUTE
WORDS = ("press", "Pump", "halle", "Süd", "x", "line", "a b", "7")
DEVICES = [
    Device(
        name="press-1", type="press", location="hall 1", display_name="Große Presse", tags={"line": "L1", "crew": "blue"}
    ),
    Device(name="press-10", type="press", location="hall 2", tags={"line": "L10"}),
    Device(name="pump-2", type="pump", location="hall 1"),
    Device(name="plain"),
]


def directory(devices: Sequence[Device]) -> Directory:
    return directory_of([([device.name for device in devices], [pack(device) for device in devices])])


def listing(devices: Sequence[Device], reported: dict[str, list[int]], hot: Sequence[str] = ()) -> Listing:
    presence = Presence(ManualClock(NOW), ONLINE)
    reports = [Report(name, at_us, {"x": 1.0}, {}) for name, times in reported.items() for at_us in times]
    if reports:
        presence.heard("acme", batch_of(reports))
    return Listing(directory(devices), presence.arrays("acme"), hot, NOW, ONLINE)


def pages(found: Listing, devices: Sequence[Device], match: Match, sort: str, state: str | None, limit: int) -> list[str]:
    """The names on all pages."""
    by_name = {device.name: device for device in devices}
    names: list[str] = []
    after: str | None = None
    while True:
        page = found.page(
            match,
            lambda some: [by_name[name] for name in some if name in by_name],
            sort=sort,
            state=state,
            limit=limit,
            after=after,
        )
        assert len(page.devices) <= limit
        names += [device.name for device in page.devices]
        after = page.after
        if after is None:
            return names


def test_words_are_found_in_names_types_locations_and_tags() -> None:
    def check(match: Match, *want: str) -> None:
        found = pages(listing(DEVICES, {}), DEVICES, match, "name", None, 2)
        assert found == sorted(want)
        assert found == sorted(device.name for device in DEVICES if match.holds(device))

    check(Match(), "plain", "press-1", "press-10", "pump-2")
    check(Match(text="GROSSE"), "press-1")
    check(Match(text="hall press"), "press-1", "press-10")
    check(Match(text="line:l1"), "press-1", "press-10")
    check(Match(tags={"line": "L1"}), "press-1")
    check(Match(tags={"line": "l1"}))
    check(Match(type="press", location="hall 2"), "press-10")
    check(Match(type="nosuch"))
    check(Match(prefix="p", text="1"), "press-1", "press-10", "pump-2")
    check(Match(prefix="press-1"), "press-1", "press-10")


facts = st.sampled_from(["", *WORDS])
devices_of = st.dictionaries(
    st.text("ab-é1", min_size=1, max_size=4),
    st.builds(
        lambda kind, place, shown, tags, times: (
            Device(name="", type=kind, location=place, display_name=shown, tags=tags),
            times,
        ),
        facts,
        facts,
        facts,
        st.dictionaries(st.sampled_from(WORDS), st.sampled_from(WORDS), max_size=2),
        st.lists(st.integers(NOW - 2 * ONLINE, NOW), max_size=3).map(sorted),
    ),
    max_size=12,
)


@given(devices_of, st.sampled_from(SORTS), st.sampled_from([None, "online", "stale"]), facts, st.integers(1, 5))
def test_pages_are_what_sorting_all_devices_gives(
    drawn: dict[str, tuple[Device, list[int]]], sort: str, state: str | None, text: str, limit: int
) -> None:
    devices = [replace(device, name=name) for name, (device, _) in drawn.items()]
    times = {name: times for name, (_, times) in drawn.items() if times}
    found, match = listing(devices, times), Match(text=text)
    presence = Presence(ManualClock(NOW), ONLINE)
    if times:
        presence.heard("acme", batch_of([Report(n, at, {"x": 1.0}, {}) for n, each in times.items() for at in each]))
    seen = {d.name: one for d, one in zip(devices, presence.of("acme", [d.name for d in devices], NOW), strict=True)}

    def is_online(name: str) -> bool:
        one = seen[name]
        return one is not None and one.online

    def key(name: str) -> tuple[float, bytes]:
        one = seen[name]
        if one is None:
            return float("inf"), name.encode()
        value = one.reports_per_s if sort.endswith("rate") else float(one.last_us)
        return -value if sort.startswith("-") else value, name.encode()

    names = [d.name for d in devices if match.holds(d) and (state is None or is_online(d.name) == (state == "online"))]
    want = sorted(names, key=str.encode, reverse=sort.startswith("-")) if sort.endswith("name") else sorted(names, key=key)
    assert pages(found, devices, match, sort, state, limit) == want


def test_counts_are_by_state_type_and_location() -> None:
    found = listing(DEVICES, {"press-1": [NOW], "pump-2": [NOW - ONLINE]}, hot=["press-1", "deleted"])
    counts = found.counts(Match())
    assert (counts.total, counts.online, counts.hot) == (4, 1, 1)
    assert counts.types == [("press", 2), ("pump", 1)]
    assert counts.locations == [("hall 1", 2), ("hall 2", 1)]
    assert found.counts(Match(type="pump")).online == 0
    assert pages(found, DEVICES, Match(), "name", "hot", 10) == ["press-1"]


def test_devices_that_are_gone_leave_no_gap_on_a_page() -> None:
    devices = [Device(name=f"d{i}") for i in range(20)]
    left = [device for device in devices if device.name not in ("d0", "d1", "d11")]
    found = listing(devices, {})
    assert pages(found, left, Match(), "name", None, 4) == sorted(device.name for device in left)


def test_a_cursor_belongs_to_its_order() -> None:
    found = listing(DEVICES, {})
    cursor = found.page(Match(), lambda _: DEVICES, sort="name", state=None, limit=1, after=None).after
    for after in (cursor, "!", "bm9uZQ"):
        with pytest.raises(Rejected, match="cursor"):
            found.page(Match(), lambda _: DEVICES, sort="-rate", state=None, limit=1, after=after)


class Stored:
    """Devices that change, and a clock."""

    def __init__(self) -> None:
        self.names, self.version, self.now_s, self.takes_s = ["a"], 0, 0.0, 0.0

    def read(self, _tenant: str) -> Iterator[tuple[list[str], list[str]]]:
        self.now_s += self.takes_s
        yield self.names, ["{}"] * len(self.names)

    def directories(self, small: int) -> Directories:
        return Directories(self.read, lambda _: self.version, reload_s=None, small=small, clock_s=lambda: self.now_s)


def test_a_small_directory_is_as_new_as_the_question() -> None:
    stored = Stored()
    directories = stored.directories(small=2)
    assert directories.of("acme").names.to_list() == ["a"]
    stored.names, stored.version = ["a", "b"], 1
    assert directories.of("acme").names.to_list() == ["a", "b"]
    directories.close()


def test_a_large_directory_is_made_again_after_a_while_and_the_old_one_answers() -> None:
    stored = Stored()
    stored.takes_s = 3.0
    directories = stored.directories(small=0)
    assert directories.of("acme").names.to_list() == ["a"]
    stored.names, stored.version = ["a", "b"], 1
    stored.now_s += 59
    assert directories.of("acme").names.to_list() == ["a"]
    stored.now_s += 1
    stored.takes_s = 0.0
    while directories.of("acme").names.to_list() == ["a"]:
        time.sleep(0.001)
    assert directories.of("acme").names.to_list() == ["a", "b"]
    directories.close()


def test_a_directory_that_cannot_be_read_is_unavailable() -> None:
    def read(_tenant: str) -> Iterator[tuple[list[str], list[str]]]:
        raise Unavailable("away")

    directories = Directories(read, lambda _: 0, reload_s=None)
    assert directories.at_hand("acme") is None
    with pytest.raises(Unavailable, match="try again"):
        directories.of("acme")
    directories.close()
