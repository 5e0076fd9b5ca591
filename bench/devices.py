"""What the dashboard's questions about devices cost: hearing of a batch, and pages of a tenant with a million devices.

    python -m bench.devices [--quick]

Batches are of 1,000 reports, of one device and of a thousand. Pages have 50 devices. All figures are the thread's own time,
since others want the processors, too.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from bench.lib.figures import Figures

from widerow.catalog.directory import Directory, directory_of
from widerow.catalog.match import Match
from widerow.catalog.records import pack
from widerow.model.batch import Report, batch_of
from widerow.model.device import Device
from widerow.model.names import Names
from widerow.model.times import HOUR, MINUTE, SECOND, ManualClock
from widerow.query.listing import Listing
from widerow.telemetry.presence import Presence

NOW_US = 1_700_000_000 * SECOND
ONLINE_US = 5 * MINUTE
KINDS = [
    Device(name="", type=("press", "pump", "robot")[i % 3], location=f"hall {i % 20}", tags={"line": str(i)})
    for i in range(60)
]


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.devices", description="What questions about devices cost.")
    parser.add_argument("--devices", type=int, default=1_000_000, help="devices of the tenant")
    parser.add_argument("--quick", action="store_true", help="few of all: to see that it works")
    options = parser.parse_args()
    if options.quick:
        options.devices = 10_000
    figures = Figures("devices", vars(options))
    hearing(figures)
    names = [f"press-{i:07d}" for i in range(options.devices)]
    began_ns = time.thread_time_ns()
    bodies = [pack(kind) for kind in KINDS]
    directory = directory_of([(names, [bodies[i % len(bodies)] for i in range(len(names))])])
    figures.add("devices_directory_s", (time.thread_time_ns() - began_ns) / 1e9, "s")
    figures.add("devices_directory_bytes", directory.bytes / len(names), "B/device")
    presence = Presence(ManualClock(NOW_US), ONLINE_US)
    ages_us = np.random.default_rng(1).integers(0, 20 * MINUTE, len(names))
    presence.load("acme", Names.of(names), NOW_US - ages_us)
    figures.add("devices_presence_bytes", presence.held()["acme"] / len(names), "B/device")
    pages(figures, directory, presence)
    timed(figures, "devices_online", 20, lambda: presence.online("acme", NOW_US))
    timed(figures, "devices_silent", 20, lambda: presence.silent("acme", NOW_US, HOUR))
    print(f"written to {figures.save()}")


def hearing(figures: Figures) -> None:
    for devices in (1, 1_000):
        presence = Presence(ManualClock(NOW_US), ONLINE_US)
        reports = [Report(f"press-{i % devices:07d}", NOW_US - i, {"x": 1.0}, {}) for i in range(1_000)]
        batch = batch_of(reports)
        timed(figures, f"devices_heard_1k_of_{devices}", 2_000, partial(presence.heard, "acme", batch), "us")


def pages(figures: Figures, directory: Directory, presence: Presence) -> None:
    def fetch(names: Sequence[str]) -> list[Device]:
        return [Device(name=name, type="press", location="hall 0") for name in names]

    def page(match: Match, sort: str, state: str | None = None) -> None:
        listing().page(match, fetch, sort=sort, state=state, limit=50, after=None)

    def listing() -> Listing:
        return Listing(directory, presence.arrays("acme"), (), NOW_US, ONLINE_US)

    for sort in ("name", "-last_seen", "-rate"):
        timed(figures, f"devices_by_{sort.strip('-')}", 20, partial(page, Match(), sort))
    timed(figures, "devices_online_by_name", 20, partial(page, Match(), "name", "online"))
    timed(figures, "devices_rare_word", 20, partial(page, Match(text=f"{len(directory) - 1:07d}"), "name"))
    timed(figures, "devices_common_words", 20, partial(page, Match(text="hall press"), "name"))
    timed(figures, "devices_counts", 20, lambda: listing().counts(Match()))


def timed(figures: Figures, name: str, rounds: int, work: Callable[[], object], unit: str = "ms") -> None:
    work()
    began_ns = time.thread_time_ns()
    for _ in range(rounds):
        work()
    mean_ns = (time.thread_time_ns() - began_ns) / rounds
    figures.add(name, mean_ns / (1e3 if unit == "us" else 1e6), unit)


if __name__ == "__main__":
    main()
