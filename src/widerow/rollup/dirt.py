"""What rollups cannot be asked about yet, as readers are told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from widerow.model.tenant import Tenant
from widerow.model.times import DAY


@dataclass(frozen=True, slots=True)
class Dirt:
    """Of some devices: in these hours (by their start) only raw reports are right; in these days hours are, days are not."""

    hours: frozenset[int] = frozenset()
    days: frozenset[int] = frozenset()

    @classmethod
    def of(cls, hours: Iterable[int], days: Iterable[int] = ()) -> Dirt:
        """A day that has a dirty hour is dirty as well."""
        hours = frozenset(hours)
        return cls(hours, frozenset(days) | {hour - hour % DAY for hour in hours})


CLEAN = Dirt()

DirtOf: TypeAlias = Callable[[Tenant, Sequence[str]], Dirt]
"""Of some devices of a tenant, as it is now."""
