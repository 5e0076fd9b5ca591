"""Several processes that write to one store, and roll what they wrote: what they agree on, so that no report stays unrolled.

A process that writes alone knows which hours it has marked, and learns at once when they are taken for rolling. Here the
one that rolls a shard is mostly another than those that write to it. They agree on times instead of messages:
Rule 1: a writer relies on a mark for `share_us` after it wrote it. Reports that come later bring a mark of their own.
Rule 2: a mark is taken for rolling when it is *ripe*, two times `share_us` old. Whatever relied on it has been durable for
long then, or was given up: a write that takes so long that this may not be true is marked again when it is done, and is
acknowledged after that. The half of `share_us` that is left between the two is what clocks may differ by.
Rule 3: everybody may roll everything, at the same time too: a rollup is a function of what is in the store, and who read
later wins. Shards are given out so that it is not done twice, not so that it is right. Only the fleet's hours, which are put
together from all shards, are rolled by one: whoever has the first shard.
Open minutes are not kept: of a device that several processes write nobody has all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from widerow.engine.port import Engine
from widerow.model.times import MINUTE
from widerow.rollup.backlog import waiting_in
from widerow.rollup.unit import Unit
from widerow.schema.shards import SHARDS
from widerow.schema.table import Table

FIRST = 0
"""The shard whose owner does what is done once: the fleet's hours, expiry, purging."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrewSettings:
    share_us: int = MINUTE

    @property
    def ripe_us(self) -> int:
        """How old a mark is when nobody relies on it any more."""
        return 2 * self.share_us

    @property
    def longest_us(self) -> int:
        """How old a mark may have become when a write that relied on it is done."""
        return self.share_us + self.share_us // 2


class Crew:
    """A process as one of several. Safe to share between threads."""

    def __init__(self, engine: Engine, settings: CrewSettings, tenants: Callable[[], Iterable[str]]) -> None:
        self._engine, self._tenants = engine, tenants
        self.settings = settings
        self._lock = threading.Lock()
        self._shards: frozenset[int] = frozenset()

    def take_over(self, shards: AbstractSet[int]) -> None:
        """From here on this process rolls these shards, and no others."""
        with self._lock:
            self._shards = frozenset(shards)

    def shards(self) -> frozenset[int]:
        with self._lock:
            return self._shards

    def leads(self) -> bool:
        return FIRST in self.shards()

    def waiting(self, table: Table, before_us: int, *, all_shards: bool = False) -> dict[Unit, int]:
        """What is marked in windows that begin before a time, of the shards of this process; and when it was last."""
        shards = range(SHARDS) if all_shards else sorted(self.shards())
        return waiting_in(self._engine, table, self._tenants(), shards, before_us)


def shards_of_partitions(partitions: Iterable[int], count: int) -> frozenset[int]:
    """The shards that whoever reads these of a topic's partitions rolls: each shard goes to one partition."""
    mine = set(partitions)
    return frozenset(shard for shard in range(SHARDS) if shard % count in mine)
