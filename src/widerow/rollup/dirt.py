"""What rollups cannot be asked about yet, as readers are told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from widerow.engine.port import Engine, Span
from widerow.engine.rows import Key
from widerow.model.names import Names
from widerow.model.tenant import Tenant
from widerow.model.times import DAY, HOUR, MINUTE
from widerow.schema.rollups import DIRTY, DIRTY_DAYS
from widerow.schema.shards import shards_of


@dataclass(frozen=True, slots=True)
class Dirt:
    """Of some devices: in these hours (by their start) only raw reports are right, but for what `minutes` says; in these
    days hours are, days are not.
    """

    hours: frozenset[int] = frozenset()
    days: frozenset[int] = frozenset()
    minutes: Mapping[int, int] = field(default_factory=dict)
    """Of some of the hours: from their start until then minutes are right, too."""

    @classmethod
    def of(cls, hours: Iterable[int], days: Iterable[int] = (), minutes: Mapping[int, int] | None = None) -> Dirt:
        """A day that has a dirty hour is dirty as well."""
        hours = frozenset(hours)
        return cls(hours, frozenset(days) | {hour - hour % DAY for hour in hours}, minutes or {})

    def with_raw(self, other: Dirt) -> Dirt:
        """What is dirty in either; of the other no minutes are right."""
        minutes = {hour: until_us for hour, until_us in self.minutes.items() if hour not in other.hours}
        return Dirt(self.hours | other.hours, self.days | other.days, minutes)


CLEAN = Dirt()

DirtOf: TypeAlias = Callable[[Tenant, Sequence[str]], Dirt]
"""Of some devices of a tenant, as it is now."""


_SOON_US = 10 * MINUTE
"""After its end an hour is mostly rolled by then."""


def unlooked_us(now_us: int) -> int:
    """From which hour on everything is taken for dirty without a look: of the present every device has a mark, and reading
    these would take longer than reading what was asked for.
    """
    return now_us - _SOON_US - (now_us - _SOON_US) % HOUR


def dirt_in_store(engine: Engine, tenant: Tenant, devices: Sequence[str], now_us: int) -> Dirt:
    """As the store has it: for processes that do not roll. Of the shards that the devices are of. Which minutes are right
    only the process knows that writes them.
    """
    shards: list[Key] = [(tenant.name, shard) for shard in set(shards_of(Names.of(devices)).tolist())]
    present_us = unlooked_us(now_us)
    hours, days = (
        {
            start
            for rows in engine.scan(table, shards, Span(None, before_us))
            for start in np.unique(np.asarray(rows.keys[time])).tolist()
        }
        for table, time, before_us in ((DIRTY, "hour_us", present_us), (DIRTY_DAYS, "day_us", present_us - present_us % DAY))
    )
    return Dirt.of(hours.union(range(present_us, now_us + DAY, HOUR)), days)
