"""Senders: threads that report as fast as they are answered, in several forms, and keep the ledger.

Rule 1: each report has a time of its own within the run's slice of time, so a slice can be checked alone.
Rule 2: a correction leaves at least 2 ms after what it corrects was acknowledged: versions count whole milliseconds.
Rule 3: a sender goes on until it is told to stop, or the connection breaks: then nobody knows what became of its last body.
"""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from system.ledger import Ledger, Place, Sending, cells_of
from system.victim import TENANTS, Victim
from widerow.simulate.wire import TransportError

DEVICES = ("press-1", "press-2", "oven/3", "belt 4", "möbel-5", "tank-6")
SIZES = (1, 1, 1, 5, 20, 100)
"""Reports in a body."""
LARGE = 1_500
"""Reports in a body that is too large to be decoded by the front itself."""
_STRIDE = 982_451_653
"""A prime: times of a slice are all used before one would come again, and in no order."""
_CORRECTION_GAP_S = 0.002
_REFUSED_S = 0.2

Report = tuple[Place, Sending]


@dataclass
class Slice:
    """A stretch of event time for the reports of one run."""

    start_us: int
    width_us: int
    serials: Iterator[int]
    """Shared by all runs on a store: no value is ever sent twice."""

    @property
    def stop_us(self) -> int:
        return self.start_us + self.width_us

    def report(self, tenant: str, device: str, shape: int) -> Report:
        serial = next(self.serials)
        return Place(tenant, device, self.start_us + serial * _STRIDE % self.width_us), Sending(serial, shape)


@dataclass
class Load:
    """What the senders of one run share."""

    victim: Victim
    ledger: Ledger
    slice: Slice
    corrections: bool = False
    large: bool = False
    shapes: Sequence[int] = (0, 1, 2, 3)
    sizes: Sequence[int] = SIZES
    refusals: frozenset[int] = frozenset()
    """Statuses that may be given besides 204. What they answer counts as not acknowledged."""
    statuses: Counter[int] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)


@contextmanager
def sending(load: Load, chance: random.Random, count: int = 5) -> Iterator[None]:
    """Senders at work for as long as the context lasts. They are waited for at its end."""
    tenants = itertools.cycle(TENANTS)
    threads = [
        threading.Thread(target=_run, args=(load, next(tenants), random.Random(chance.random()), number == 0))
        for number in range(count)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        load.stopping.set()
        for thread in threads:
            thread.join()


def _run(load: Load, tenant: str, chance: random.Random, is_first: bool) -> None:
    done: list[Report] = []
    with load.victim.connection(tenant) as connection:
        while not load.stopping.is_set():
            if load.corrections and done and chance.random() < 0.3:
                time.sleep(_CORRECTION_GAP_S)
                reports = [
                    (place, Sending(next(load.slice.serials), chance.choice(load.shapes)))
                    for place in {place for place, _ in chance.choices(done, k=4)}
                ]
            else:
                size = LARGE if load.large and is_first else chance.choice(load.sizes)
                reports = [
                    load.slice.report(tenant, chance.choice(DEVICES), chance.choice(load.shapes)) for _ in range(size)
                ]
            path, headers, body = chance.choice(FORMS)(reports)
            load.ledger.sending(reports)
            try:
                answer = connection.request("POST", path, body, headers)
            except TransportError:
                return
            load.statuses[answer.status] += 1
            if answer.status == 204:
                load.ledger.acknowledge(reports)
                done += reports[:4]
            elif answer.status in load.refusals:
                time.sleep(_REFUSED_S)
            else:
                load.problems.append(f"a good body was answered by {answer.status}: {answer.body[:300]!r}")
                return


def as_lines(reports: Sequence[Report]) -> tuple[str, str, bytes]:
    """Line protocol: the metric is the measurement, an underscore and the field."""
    lines = []
    for place, sent in reports:
        cells = cells_of(sent.serial, sent.shape)
        fields = ",".join(
            f"{name[2:]}={json.dumps(value) if isinstance(value, str) else repr(value)}" for name, value in cells.items()
        )
        device = place.device.replace(" ", "\\ ")
        lines.append(f"m,device={device},site=hall\\ 1 {fields} {place.time_us}000")
    return "/api/v2/write?precision=ns", "", "\n".join(lines).encode()


def as_json(reports: Sequence[Report]) -> tuple[str, str, bytes]:
    return "/v1/write?precision=us", "Content-Type: application/json\r\n", json.dumps(_objects(reports)).encode()


def as_ndjson(reports: Sequence[Report]) -> tuple[str, str, bytes]:
    body = "\n".join(map(json.dumps, _objects(reports))).encode()
    return "/v1/write?precision=us", "Content-Type: application/x-ndjson\r\n", body


def _objects(reports: Sequence[Report]) -> list[dict[str, object]]:
    return [
        {
            "device": place.device,
            "time": place.time_us,
            "values": cells_of(sent.serial, sent.shape),
            "tags": {"site": "hall 1"},
        }
        for place, sent in reports
    ]


FORMS: tuple[Callable[[Sequence[Report]], tuple[str, str, bytes]], ...] = (as_lines, as_json, as_ndjson)
