"""Long histories of simulated fleets, for tests: made as columns, a year of 50 devices in seconds."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import numpy as np

from widerow.model.batch import Batch
from widerow.model.names import Coded, Names
from widerow.model.times import DAY, MINUTE, MS
from widerow.schema.shards import shard_of
from widerow.simulate.fleet import Fleet
from widerow.simulate.kinds import KINDS


def days_of(
    devices: int,
    days: range,
    *,
    start_us: int,
    pace_us: int = 10 * MINUTE,
    kinds: tuple[str, ...] = tuple(KINDS),
    seed: int = 1,
    one_shard: bool = False,
) -> Iterator[tuple[int, Batch]]:
    """For each of the days, counted from the start: when it begins, and its reports, received at their own times.

    `one_shard`: the devices are renamed so that all are in one shard. Hours are rolled by shard: with all of them in one
    there is a sixteenth to roll.
    """
    fleet = Fleet(seed, devices, start_us=start_us, kinds=kinds, interval_us=pace_us)
    names = Names.of([_in_first_shard(name) for name in fleet.names]) if one_shard else fleet.names
    for day in days:
        # The tick that a day begins in belongs to the day before, in part, if the pace does not divide the day.
        ticks = range(day * DAY // pace_us, -(-(day + 1) * DAY // pace_us))
        batch = fleet.made(ticks)
        begin_us = start_us + day * DAY
        batch = batch.take((batch.time_us >= begin_us) & (batch.time_us < begin_us + DAY))
        position = np.arange(len(batch), dtype=np.int32)
        received_us = batch.time_us - batch.time_us % MS
        yield begin_us, Batch(Coded(names, batch.device.codes), batch.time_us, received_us, position, batch.cells)


def _in_first_shard(name: str) -> str:
    return next(tried for n in count() if shard_of(tried := f"{name} {n}") == 0)
