"""What rollups cannot be asked about yet, as readers are told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from widerow.engine.port import Engine
from widerow.engine.rows import Key
from widerow.model.names import Names
from widerow.model.tenant import Tenant
from widerow.model.times import DAY
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


CLEAN = Dirt()

DirtOf: TypeAlias = Callable[[Tenant, Sequence[str]], Dirt]
"""Of some devices of a tenant, as it is now."""


def dirt_in_store(engine: Engine, tenant: Tenant, devices: Sequence[str]) -> Dirt:
    """As the store has it: for processes that do not roll. Of the shards that the devices are of. Which minutes are right
    only the process knows that writes them.
    """
    shards: list[Key] = [(tenant.name, shard) for shard in set(shards_of(Names.of(devices)).tolist())]
    hours, days = (
        {start for rows in engine.scan(table, shards) for start in np.unique(np.asarray(rows.keys[time])).tolist()}
        for table, time in ((DIRTY, "hour_us"), (DIRTY_DAYS, "day_us"))
    )
    return Dirt.of(hours, days)
