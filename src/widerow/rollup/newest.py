"""In which hour each metric of a device has its newest value: a row for each device.

Rule 1: rolling an hour writes it, with the hour: what is in no row is in an hour that is not rolled yet. Rolling a day adds
what is missing, as where two processes rolled two hours of a device at once.
Rule 2: a metric moves to a later hour only. But where an hour is rolled again without it, because it was erased, the metric
goes back to the newest hour before that one which has a record of it.
Rule 3: hours that are older than raw reports may be shown are left out. A row takes `MOST_BYTES`: of a device whose metrics
need more, those with the oldest values are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec
import numpy as np

from widerow.engine.port import Engine, Span
from widerow.engine.rows import Key, Rows, rows_of
from widerow.model.batch import CellKind
from widerow.model.names import Coded, Names
from widerow.model.times import HOUR
from widerow.schema.rollups import DIRTY, NEWEST_HOURS
from widerow.schema.shards import shard_of, shards_of
from widerow.schema.table import Table
from widerow.telemetry.erasure import TenantMarks

MOST_BYTES = 256 << 10

_Hour: TypeAlias = tuple[int, tuple[str, ...]]
"""Its begin, and metrics that it has records of."""

_DECODER = msgspec.json.Decoder(dict[int, list[str]])


@dataclass(frozen=True, slots=True)
class RolledHour:
    """An hour that was rolled."""

    start_us: int
    before: Callable[[str, Sequence[str]], Mapping[str, int]]
    """Of a device and some metrics: the newest hour before it that has a record of each."""


class NewestHours:
    """Safe to share between threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        engine.apply([NEWEST_HOURS])

    def read(self, tenant: str, devices: Sequence[str]) -> dict[str, str]:
        """The row of each device that has one, as it is stored: see `hours_of`."""
        if len(devices) == 1:
            row = self._engine.get(NEWEST_HOURS, (tenant, shard_of(devices[0]), devices[0]))
            return {} if row is None else {devices[0]: str(row["hours"])}
        return dict(text for rows in self._stored(tenant, devices) for text in _texts(rows))

    def _stored(self, tenant: str, devices: Sequence[str]) -> Iterator[Rows]:
        shards = shards_of(Names.of(devices)).tolist()
        keys: list[Key] = [(tenant, shard, device) for shard, device in zip(shards, devices, strict=True)]
        return self._engine.scan(NEWEST_HOURS, keys) if keys else iter(())

    def change(
        self,
        tenant: str,
        devices: Sequence[str],
        hours: Sequence[Rows],
        version_us: int,
        *,
        oldest_us: int,
        marks: TenantMarks,
        rolled: RolledHour | None = None,
    ) -> tuple[Table, Rows]:
        """What to write with rows of hours of some devices. The version is from before this is called, as that of what is
        rolled. Raw reports before `oldest_us` are not shown. `rolled`: the hour that was rolled, of all of the devices.
        """
        stored = self._live(tenant, devices, marks)
        found: dict[str, tuple[_Hour, ...]] = {}
        for rows in hours:
            for device, hour in zip(_device(rows).to_list(), metrics_in(rows), strict=True):
                found[device] = (*found.get(device, ()), hour)
        made: dict[tuple[str, tuple[_Hour, ...]], str] = {}
        shards = shards_of(Names.of(devices)).tolist()
        changed: list[tuple[Key, dict[str, str]]] = []
        for device, shard in zip(devices, shards, strict=True):
            text, new = stored.get(device, ""), found.get(device, ())
            after = made.get((text, new))  # most devices of a fleet are alike
            if after is None:
                hour_of = hours_of(text)
                gone = {name for name, at_us in hour_of.items() if rolled and at_us == rolled.start_us}
                for at_us, names in new:
                    gone.difference_update(names)
                    hour_of.update((name, at_us) for name in names if hour_of.get(name, -1) < at_us)
                if rolled and gone:
                    earlier = rolled.before(device, sorted(gone))
                    hour_of = {name: at_us for name, at_us in hour_of.items() if name not in gone} | {**earlier}
                after = _text({name: at_us for name, at_us in hour_of.items() if at_us + HOUR > oldest_us})
                if not gone:
                    made[text, new] = after
            if after != text:
                changed.append(((tenant, shard, device), {"hours": after}))
        return NEWEST_HOURS, rows_of(NEWEST_HOURS, changed, version_us=version_us)

    def _live(self, tenant: str, devices: Sequence[str], marks: TenantMarks) -> dict[str, str]:
        """The rows of devices, but for those that were written before their device was erased."""
        live: dict[str, str] = {}
        for rows in self._stored(tenant, devices):
            named = _device(rows)
            newer = rows.version_us > marks.erased_us(named.names)[named.codes]
            live.update(_texts(rows if newer.all() else rows.take(newer)))
        return live

    def unrolled(self, tenant: str, devices: Sequence[str], hours: Sequence[int]) -> dict[int, list[str]]:
        """Which of the hours are marked to be rolled, and of which of the devices."""
        wanted, asked = set(hours), set(devices)
        shards: list[Key] = [(tenant, shard) for shard in set(shards_of(Names.of(devices)).tolist())]
        found: dict[int, list[str]] = {}
        for rows in self._engine.scan(DIRTY, shards, Span(min(hours), max(hours) + 1)):
            for device, hour_us in zip(_device(rows).to_list(), np.asarray(rows.keys["hour_us"]).tolist(), strict=True):
                if hour_us in wanted and device in asked:
                    found.setdefault(hour_us, []).append(device)
        return found

    def forget(self, tenant: str, device: str, version_us: int) -> None:
        """A device that was erased up to that version. Harmless where it is repeated."""
        self._engine.delete(NEWEST_HOURS, [(tenant, shard_of(device))], Span(device, device + "\0"), version_us=version_us)


def hours_of(text: str) -> dict[str, int]:
    """The hour of each metric, from a row as it is stored."""
    return {name: hour_us for hour_us, names in _DECODER.decode(text).items() for name in names} if text else {}


def metrics_in(hours: Rows) -> Iterator[_Hour]:
    """Of each row of hours its begin and the metrics it has records of."""
    cells = hours.cells.keep(hours.cells.kind == CellKind.RECORD)
    names = cells.names.to_list()
    offsets = cells.offsets.tolist()
    known: dict[bytes, tuple[str, ...]] = {}
    for i, start_us in enumerate(np.asarray(hours.keys["start_us"]).tolist()):
        codes = cells.name[offsets[i] : offsets[i + 1]]
        key = codes.tobytes()
        if key not in known:
            known[key] = tuple(names[code] for code in codes.tolist())
        yield start_us, known[key]


def _text(hour_of: Mapping[str, int]) -> str:
    """As it is stored: the newest hours first."""
    by_hour: dict[int, list[str]] = {}
    size = 0
    for at_us, name in sorted((-at_us, name) for name, at_us in hour_of.items()):
        size += len(name.encode()) + 8
        if size > MOST_BYTES:
            break
        by_hour.setdefault(-at_us, []).append(name)
    return msgspec.json.encode(by_hour).decode() if by_hour else ""


def _texts(rows: Rows) -> Iterator[tuple[str, str]]:
    return zip(_device(rows).to_list(), Coded(rows.cells.texts, rows.cells.text).to_list(), strict=True)


def _device(rows: Rows) -> Coded:
    device = rows.keys["device_id"]
    assert isinstance(device, Coded)
    return device
