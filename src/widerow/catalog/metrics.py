"""The metric catalogue: what each metric is, inferred from the first reports that name it.

Rule 1: observing costs a set lookup per distinct name of a batch; the store is asked only about names never seen before.
Rule 2: a number is a gauge, or a counter if its name ends in `_total` or `_count`; a text is a text; tags are not metrics.
Rule 3: a tenant has at most `most` metrics catalogued. Further names are stored as data all the same, and counted in
`uncatalogued`, so that a broken sender cannot grow the catalogue without end.
Rule 4: what is remembered is bounded: beyond `capacity` names, the tenant seen least recently is forgotten and read again.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from widerow.catalog.forms import check
from widerow.catalog.records import FIRST_REVISION, Records
from widerow.engine.port import Engine
from widerow.engine.rows import rows_of
from widerow.model.arrays import Flags
from widerow.model.batch import CellKind, Cells
from widerow.model.device import Metric, MetricKind
from widerow.model.labels import parted
from widerow.model.names import Names
from widerow.model.times import Clock
from widerow.schema.shards import SHARDS, shards_of
from widerow.schema.tables import METRICS

COUNTER_ENDINGS = ("_total", "_count")
_NAME_BYTES = 128
"""What a name takes in a set."""


@dataclass(slots=True, eq=False)
class _Seen:
    """The catalogued names of one tenant. `names` is None until they have been read from the store."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    names: set[str] | None = None


class Metrics:
    """Safe to share between threads. Raises `NotFound`, `Conflict`, and `Rejected` for what may not be stored."""

    def __init__(self, engine: Engine, clock: Clock, *, most: int = 10_000, capacity: int = 1_000_000) -> None:
        self.engine, self.clock, self.most, self.capacity = engine, clock, most, capacity
        self.uncatalogued: Counter[str] = Counter()
        """Per tenant, how often a batch held a name that did not fit into the catalogue."""
        self._records = Records(engine, METRICS, Metric, "metric")
        self._seen: OrderedDict[str, _Seen] = OrderedDict()
        self._seen_lock = threading.Lock()

    def held(self) -> dict[str, int]:
        """What is held in memory for each tenant, in bytes, about."""
        with self._seen_lock:
            return {tenant: _NAME_BYTES * len(seen.names or ()) for tenant, seen in self._seen.items()}

    def observe(self, tenant: str, cells: Cells, now_us: int) -> int:
        """Catalogue the metrics of a batch that are new; how many there were."""
        seen = self._of(tenant)
        known = seen.names
        names = cells.names.to_list()
        unknown = [code for code, name in enumerate(names) if known is None or name not in known]
        if not unknown:
            return 0
        is_number, is_text = _used(cells, CellKind.NUMBER), _used(cells, CellKind.TEXT)
        kinds = {names[code]: _kind(names[code], is_number[code]) for code in unknown if is_number[code] or is_text[code]}
        return self._infer(tenant, seen, kinds, now_us) if kinds else 0

    def get(self, tenant: str, name: str) -> Metric:
        return self._records.get((tenant,), name).value

    def update(self, tenant: str, name: str, change: Callable[[Metric], Metric], *, expected: int | None = None) -> Metric:
        """Store what `change` makes of it; with an `expected` revision, only if it is still at that one.

        `change` may be called again when another process was faster, so it must be a function of its argument.
        """

        def checked(old: Metric) -> Metric:
            new = replace(change(old), name=old.name, created_us=old.created_us)
            check(new)
            return new

        return self._records.update((tenant,), name, checked, expected)

    def delete(self, tenant: str, name: str, *, expected: int | None = None) -> Metric:
        """Remove the row. The next report that names the metric infers it anew."""
        seen = self._of(tenant)
        with seen.lock:
            try:
                return self._records.remove((tenant,), name, expected)
            finally:
                seen.names = None

    def delete_all(self, tenant: str) -> None:
        """Remove every row of a tenant. Repeating is harmless."""
        seen = self._of(tenant)
        with seen.lock:
            try:
                self._records.remove_all((tenant,), self.clock.version_us())
            finally:
                seen.names = None
                self.uncatalogued.pop(tenant, None)

    def forget(self) -> None:
        """Read every tenant's names again before they are next used."""
        with self._seen_lock:
            known = [*self._seen.values()]
        for seen in known:
            with seen.lock:
                seen.names = None

    def list(self, tenant: str) -> Sequence[Metric]:
        """All of a tenant, by name."""
        return sorted((stored.value for stored in self._records.scan((tenant,))), key=lambda metric: metric.name)

    def _infer(self, tenant: str, seen: _Seen, kinds: dict[str, MetricKind], now_us: int) -> int:
        with seen.lock:
            known = self._names(tenant) if seen.names is None else seen.names
            fresh = [name for name in kinds if name not in known]
            kept = fresh[: max(0, self.most - len(known))]
            if len(kept) < len(fresh):
                self.uncatalogued[tenant] += len(fresh) - len(kept)
            added = 0
            try:
                if kept:
                    added = self._insert(tenant, [Metric(name=n, kind=kinds[n], created_us=now_us) for n in kept])
                    known.update(kept)
            except BaseException:
                seen.names = None  # some may have been inserted: only the store knows
                raise
            grown = bool(kept) or seen.names is None
            seen.names = known
        if grown:
            self._bound()
        return added

    def _insert(self, tenant: str, metrics: Sequence[Metric]) -> int:
        shards = shards_of(Names.of([metric.name for metric in metrics])).tolist()
        rows = [
            ((tenant, shard, metric.name), self._records.row(metric, FIRST_REVISION))
            for shard, metric in zip(shards, metrics, strict=True)
        ]
        return int(self.engine.insert(METRICS, rows_of(METRICS, rows, version_us=self.clock.version_us())).sum())

    def _names(self, tenant: str) -> set[str]:
        chunks = self.engine.scan(METRICS, [(tenant, shard) for shard in range(SHARDS)], columns=("revision",))
        return {name for rows in chunks for name in self._records.names(rows).to_list()}

    def _of(self, tenant: str) -> _Seen:
        with self._seen_lock:
            seen = self._seen.setdefault(tenant, _Seen())
            self._seen.move_to_end(tenant)
            return seen

    def _bound(self) -> None:
        """Forget the names of tenants not seen for long, never those of the last one."""
        with self._seen_lock:
            held = sum(len(seen.names or ()) for seen in self._seen.values())
            for seen in list(self._seen.values())[:-1]:
                if held <= self.capacity:
                    return
                held -= len(seen.names or ())
                seen.names = None


def _used(cells: Cells, kind: CellKind) -> Flags:
    """For each name of the dictionary, whether a cell of that kind has it."""
    used = np.zeros(len(cells.names), np.bool_)
    used[cells.name[cells.kind == kind]] = True
    return used


def _kind(name: str, is_number: bool) -> MetricKind:
    if not is_number:
        return MetricKind.TEXT
    return MetricKind.COUNTER if parted(name)[0].endswith(COUNTER_ENDINGS) else MetricKind.GAUGE
