"""What was sent and what was acknowledged, kept outside of the server; and the judgement of what the server gives back.

Rule 1: a sending is noted before it leaves. It counts as acknowledged only when the answer said so; otherwise it may or may
not be there, as a whole: a report is never there in part.
Rule 2: a report (tenant, device, time) that is sent again is a correction. Cell by cell the later sending wins.
Rule 3: what a restarted server shows is settled: what is there stays, what is not there does not come back.
Values follow from a sending's serial number, so that none is sent twice and a wrong one says where it came from.
"""

from __future__ import annotations

import threading
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import shake_128
from itertools import product

Cells = dict[str, float | str]
Seen = Mapping[int, Cells]
"""What a device was found to hold: event time -> metric -> value."""

METRICS = ("m_a", "m_b", "m_state", "m_fill")
SHAPES = ((0,), (0, 1), (0, 1, 2), (1, 2), (0, 3))
"""Which metrics a report may have, as places in METRICS. The last is for filling a disk."""
FILL_BYTES = 8_000
MOST_SHOWN = 20


def value_of(metric: int, serial: int) -> float | str:
    if metric == 2:
        return f"state {serial}"
    if metric == 3:
        return b64encode(shake_128(b"%d" % serial).digest(FILL_BYTES * 3 // 4)).decode()  # no compression makes it small
    return serial + 0.25 if metric == 0 else serial * -1.5


def cells_of(serial: int, shape: int) -> Cells:
    return {METRICS[metric]: value_of(metric, serial) for metric in SHAPES[shape]}


@dataclass(slots=True)
class Sending:
    """One report on its way: which values, and whether it was acknowledged."""

    serial: int
    shape: int
    acknowledged: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """Where a report belongs."""

    tenant: str
    device: str
    time_us: int


@dataclass
class Ledger:
    """Safe to share between threads."""

    _devices: dict[tuple[str, str], dict[int, list[Sending]]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    acknowledged: int = 0
    unanswered: int = 0

    def sending(self, reports: Iterable[tuple[Place, Sending]]) -> None:
        """Note what is about to leave."""
        with self._lock:
            for place, sending in reports:
                times = self._devices.setdefault((place.tenant, place.device), {})
                times.setdefault(place.time_us, []).append(sending)
                self.unanswered += 1

    def acknowledge(self, reports: Iterable[tuple[Place, Sending]]) -> None:
        """The answer came, and it was yes."""
        with self._lock:
            for _, sending in reports:
                sending.acknowledged = True
                self.acknowledged += 1
                self.unanswered -= 1

    def devices(self) -> list[tuple[str, str]]:
        return sorted(self._devices)

    def certain_devices(self) -> set[tuple[str, str]]:
        """Those of which something was acknowledged."""
        return {
            device
            for device, times in self._devices.items()
            if any(sending.acknowledged for sendings in times.values() for sending in sendings)
        }

    def judge(self, tenant: str, device: str, seen: Seen, start_us: int, stop_us: int, *, settle: bool) -> Iterator[str]:
        """What is wrong with what was found in [start_us, stop_us). With `settle`, the found state holds from now on."""
        times = self._devices.get((tenant, device), {})
        for time_us in seen.keys() - times.keys():
            yield f"invented: {tenant}/{device} at {time_us} has {_shown(seen[time_us])}, which nobody sent"
        for time_us, sendings in times.items():
            if not start_us <= time_us < stop_us:
                continue
            found = seen.get(time_us, {})
            kept = next((kept for kept in histories(sendings) if cells_after(kept) == found), None)
            if kept is None:
                what = "lost" if not found else "changed"
                yield f"{what}: {tenant}/{device} at {time_us} has {_shown(found)}; sent were {_sent(sendings)}"
            elif settle:
                for sending in kept:
                    sending.acknowledged = True
                times[time_us] = kept


def histories(sendings: list[Sending]) -> Iterator[list[Sending]]:
    """What may have happened: everything acknowledged, and any of the rest."""
    for taken in product(*((True,) if s.acknowledged else (True, False) for s in sendings)):
        yield [sending for sending, is_taken in zip(sendings, taken, strict=True) if is_taken]


def cells_after(sendings: list[Sending]) -> Cells:
    """The later wins, cell by cell."""
    cells: Cells = {}
    for sending in sendings:
        cells |= cells_of(sending.serial, sending.shape)
    return cells


def _shown(cells: Cells) -> str:
    return ", ".join(f"{name}={str(value)[:24]}" for name, value in sorted(cells.items())) or "nothing"


def _sent(sendings: list[Sending]) -> str:
    return "; then ".join(
        f"{_shown(cells_of(s.serial, s.shape))} ({'acknowledged' if s.acknowledged else 'not answered'})" for s in sendings
    )
