"""The last hour of a process, minute by minute: its figures, those of its busiest tenants, and refusals by code.

`fold` is called every few seconds with a fresh sample. The minute that runs is shown as far as it has come.
Rule 1: everything comes from counters in memory, so it begins with the process, and answers while the store stands still.
Rule 2: it is bounded: `MOST_TENANTS` tenants with their figures, and `MOST_REFUSALS` pairs of tenant and code.
Rule 3: a tenant finds nothing of an earlier tenant of the same name: `forget` drops that one, `begin` blanks what is older.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from widerow.model.times import MINUTE
from widerow.ops.figures import Figures, Sample, figures, tenant_figures
from widerow.ops.rings import MINUTES, Rings

MOST_TENANTS = 1_000
MOST_REFUSALS = 4_000
TENANT_FIGURES = ("ingestion_rate", "metrics_rate", "refused_rate", "quota_rejections", "hot_partitions")
"""The figures that a tenant may see."""
ONLINE = "devices_online"
_EVERY_S = 5.0
"""How often the minute that runs is brought up to date: a rate of its first second says nothing."""
_ALL = ""


@dataclass(frozen=True, slots=True)
class Refused:
    """Refusals for one reason."""

    code: str
    count: float
    """In the hour."""
    minutes: list[float | None]


class LastHour:
    """Safe to share between threads. The empty name is the process, any other name a tenant."""

    def __init__(self, first: Sample, now_us: int) -> None:
        self._lock = threading.Lock()
        self._minute, self._since, self._put_s = now_us // MINUTE, first, first.at_s
        self._rings = {name: Rings[str](MOST_TENANTS + 1) for name in (*Figures.__dataclass_fields__, ONLINE)}
        self._refusals = Rings[tuple[str, str]](MOST_REFUSALS)
        self._gone = set[str]()
        """Tenants that were forgotten in the minute that runs, of which it has no more."""

    def fold(self, now: Sample, now_us: int, online: Mapping[str, int]) -> None:
        """`online`: devices online by tenant, and of all under the empty name."""
        with self._lock:
            minute = now_us // MINUTE
            if minute == self._minute and now.at_s - self._put_s < _EVERY_S:
                return
            self._put_s = now.at_s
            # The first sample of a new minute ends the one before.
            self._put(now, online)
            if minute != self._minute:
                self._minute, self._since = minute, now
                self._gone.clear()

    def forget(self, tenant: str) -> None:
        """The tenant was deleted."""
        with self._lock:
            self._gone.add(tenant)
            for rings in self._rings.values():
                rings.drop(lambda name: name == tenant)
            self._refusals.drop(lambda key: key[0] == tenant)

    def begin(self, tenant: str, created_us: int) -> None:
        """The tenant was made then: minutes that were over before are of another tenant."""
        with self._lock:
            minute = created_us // MINUTE
            for rings in self._rings.values():
                rings.blank(lambda name: name == tenant, minute)
            self._refusals.blank(lambda key: key[0] == tenant, minute)

    def _put(self, now: Sample, online: Mapping[str, int]) -> None:
        before = self._since
        found = {_ALL: asdict(figures(before, now))}
        for tenant in {*now.reports, *now.refused} - self._gone:
            of_tenant = asdict(tenant_figures(before, now, tenant))
            found[tenant] = {name: of_tenant[name] for name in TENANT_FIGURES}
        for name, rings in self._rings.items():
            if name != ONLINE:
                rings.put(self._minute, {key: values[name] for key, values in found.items() if name in values})
        self._rings[ONLINE].put(self._minute, online)
        refusals = {
            key: count - before.refusals.get(key, 0.0) for key, count in now.refusals.items() if key[0] not in self._gone
        }
        self._refusals.put(self._minute, refusals)

    def minutes_us(self) -> list[int]:
        """When the sixty minutes begin, the oldest first."""
        with self._lock:
            last = self._rings[ONLINE].minute
        return [minute * MINUTE for minute in range(last - MINUTES + 1, last + 1)]

    def of(self, figure: str, tenant: str = _ALL) -> list[float | None]:
        with self._lock:
            return self._rings[figure].of(tenant)

    def refusals(self, tenant: str = _ALL) -> list[Refused]:
        """By code, the most first; with the empty name of all tenants."""
        with self._lock:
            found: dict[str, Refused] = {}
            for (name, code), count in self._refusals.sums().items():
                if count > 0 and tenant in (_ALL, name):
                    known = found.get(code, Refused(code, 0.0, [None] * MINUTES))
                    minutes = [_plus(a, b) for a, b in zip(known.minutes, self._refusals.of((name, code)), strict=True)]
                    found[code] = Refused(code, known.count + count, minutes)
        return sorted(found.values(), key=lambda one: (-one.count, one.code))


def _plus(a: float | None, b: float | None) -> float | None:
    return b if a is None else a if b is None else a + b
