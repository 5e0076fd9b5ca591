"""Statistics across devices: of all, or of groups of them, over steps of time.

Rule 1: the statistics of a group are merged from those of its devices, one after another in the order of their keys (shard,
then name), whatever chunks they are read in: asking again gives the same bits.
Rule 2: memory is bounded: a chunk of devices is read, merged and forgotten before the next but one; what stays is one entry
for each group, metric and step.
Rule 3: an answer is of all devices or there is none: an error in one chunk is the error of the whole.
What counters gained is added up; first and last have no meaning across devices.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from widerow.codec.stats import Stats
from widerow.codec.stats import stacked as stacked_stats
from widerow.engine.port import Columns
from widerow.model.arrays import Floats, Ints
from widerow.model.combine import in_order, united
from widerow.model.names import Coded, Names
from widerow.model.tenant import Tenant
from widerow.model.times import TimeSpan
from widerow.query.budget import ENTRY_BYTES, Budget
from widerow.query.labels import kept_labels
from widerow.query.stepped import AGGREGATES, Sources, Stepped, seconds_of, stepped
from widerow.query.steps import Steps
from widerow.rollup.aggregate import summary_of_raw
from widerow.schema.shards import shards_of

ACROSS = tuple(name for name in AGGREGATES if name not in ("first", "last"))
"""What can be asked of groups."""

_DEVICES_AT_ONCE, _FEWEST_AT_ONCE = 128, 8
_ENTRIES_AT_ONCE = 16_384
"""Of a metric, about: what is merged in one go keeps others waiting."""


@dataclass(frozen=True, slots=True, eq=False)
class Across:
    """Statistics by group, metric and step, in that order."""

    group: Ints
    metric: Coded
    start_us: Ints
    stats: Stats
    """All but first, last and increase."""
    gained: Floats
    """What counters gained, all devices together."""
    devices: Ints
    """How many devices had values; of merged variants, each device once for each."""
    steps: Steps
    span: TimeSpan
    used: Mapping[str, int]
    missing: Sequence[TimeSpan] = ()
    lacking: bool = False
    """Whether metrics were left out, because they lack a label that they should be grouped by."""

    def __len__(self) -> int:
        return len(self.start_us)

    def values(self, aggregate: str) -> Floats:
        stats = self.stats
        if aggregate == "avg":
            return stats.mean
        if aggregate == "stddev":
            return stats.stddev()
        if aggregate == "increase":
            return self.gained
        if aggregate == "rate":
            return self.gained / seconds_of(self.start_us, self.steps, self.span)
        if aggregate not in ACROSS:
            raise ValueError(f"{aggregate} has no meaning across devices")
        column: Floats | Ints = getattr(stats, aggregate)
        return column.astype(np.float64)


def in_key_order(devices: Sequence[str], groups: Ints | None = None) -> Ints:
    """The order in which devices are read and merged: by group, then as the store has them."""
    shards = shards_of(Names.of(devices))
    names = np.array(devices, object)
    by_name = np.argsort(names, kind="stable") if len(names) else np.zeros(0, np.int64)
    group = np.zeros(len(devices), np.int64) if groups is None else groups
    return by_name[np.lexsort((shards[by_name], group[by_name]))]


def across(
    sources: Sources,
    tenant: Tenant,
    devices: Sequence[str],
    *,
    span: TimeSpan,
    steps: Steps,
    budget: Budget,
    metrics: Columns | None = None,
    groups: Ints | None = None,
    labels: Sequence[str] = (),
    quantiles: bool = True,
    answers: int = 0,
) -> Across:
    """`groups`: the number of each device's group; None: all are one. Devices are distinct. `labels`: variants of metrics
    that have the same values of these are merged (see `query.labels`). `answers`: how many points of the answer each entry
    becomes; 0: entries are merged further.
    """
    group = np.zeros(len(devices), np.int64) if groups is None else groups
    order = in_key_order(devices, group)
    names = [devices[i] for i in order.tolist()]
    group_of = dict(zip(names, group[order].tolist(), strict=True))
    merging = _Merging(steps, labels)
    used: dict[str, int] = {}
    missing: dict[TimeSpan, None] = {}
    read = chunks(sources, tenant, names, span=span, steps=steps, budget=budget, metrics=metrics, quantiles=quantiles)
    for found, last in read:
        for level, rows in found.used.items():
            used[level] = used.get(level, 0) + rows
        missing |= dict.fromkeys(found.missing)
        merging.add(found, group_of, closed_before=group_of[last])
        budget.points(answers * merging.entries)
        budget.hold(ENTRY_BYTES * merging.entries)
    return merging.result(span, used, list(missing))


def chunks(
    sources: Sources,
    tenant: Tenant,
    devices: Sequence[str],
    *,
    span: TimeSpan,
    steps: Steps,
    budget: Budget,
    metrics: Columns | None = None,
    quantiles: bool = True,
    texts: bool = False,
    states: bool = False,
) -> Iterator[tuple[Stepped, str]]:
    """The statistics of devices, some at a time, in their order; with each the last device it is of."""
    many = _DEVICES_AT_ONCE
    if budget.readers <= 1:  # otherwise a read takes longer than what is merged of it
        count = (span.stop_us - span.start_us) // steps.shortest_us() + 1
        many = min(max(_ENTRIES_AT_ONCE // count, _FEWEST_AT_ONCE), many)
    parts = [devices[i : i + many] for i in range(0, len(devices), many)]

    def read(some: Sequence[str]) -> Stepped:
        return stepped(
            sources,
            tenant,
            some,
            span=span,
            steps=steps,
            budget=budget,
            metrics=metrics,
            quantiles=quantiles,
            texts=texts,
            states=states,
        )

    if len(parts) <= 1 or budget.readers <= 1:
        for some in parts:
            yield read(some), some[-1]
        return
    ahead = budget.readers + 1  # chunks that are being read or wait to be merged
    with ThreadPoolExecutor(budget.readers, thread_name_prefix="across") as pool:
        waiting: deque[tuple[Future[Stepped], str]] = deque()
        left = iter(parts)
        try:
            while True:
                for some in islice(left, ahead - len(waiting)):
                    waiting.append((pool.submit(read, some), some[-1]))
                if not waiting:
                    return
                future, last = waiting.popleft()
                yield future.result(), last
        except BaseException:
            budget.stop()
            pool.shutdown(cancel_futures=True)
            raise


class _Merging:
    """Groups as they are merged. Devices come group after group, so only the last one is still open."""

    def __init__(self, steps: Steps, labels: Sequence[str] = ()) -> None:
        self._steps, self._labels = steps, labels
        self._lacking = False
        self._done: list[_Entries] = []
        self._open: _Entries | None = None

    def add(self, found: Stepped, group_of: Mapping[str, int], *, closed_before: int) -> None:
        """Of further devices; groups below `closed_before` have no more."""
        device = found.summary.device
        group = np.array([group_of[name] for name in device.names], np.int64)[device.codes]
        new = _Entries(
            group,
            found.summary.metric,
            found.summary.start_us,
            found.summary.stats,
            found.increase(),
            np.ones(len(found), np.int64),
        )
        if self._labels:
            metric, has = kept_labels(new.metric, self._labels)
            self._lacking |= not has.all()
            new = replace(new, metric=metric).take(np.flatnonzero(has))
        merged = _merged([new] if self._open is None else [self._open, new])
        closed = int(np.searchsorted(merged.group, closed_before))
        if closed:
            self._done.append(merged.take(np.arange(closed)))
        self._open = merged.take(np.arange(closed, len(merged.group))) if closed else merged

    @property
    def entries(self) -> int:
        return sum(len(part.group) for part in (*self._done, self._open) if part is not None)

    def result(self, span: TimeSpan, used: Mapping[str, int], missing: Sequence[TimeSpan]) -> Across:
        parts = [part for part in (*self._done, self._open) if part is not None and len(part.group)]
        if not parts:
            nothing = summary_of_raw([], self._steps)
            entries = _Entries(
                np.zeros(0, np.int64),
                nothing.metric,
                nothing.start_us,
                nothing.stats,
                np.zeros(0),
                np.zeros(0, np.int64),
            )
        else:
            entries = _stacked(parts)
        return Across(
            entries.group,
            entries.metric,
            entries.start_us,
            entries.stats,
            entries.gained,
            entries.devices,
            self._steps,
            span,
            used,
            missing,
            self._lacking,
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Entries:
    group: Ints
    metric: Coded
    start_us: Ints
    stats: Stats
    gained: Floats
    devices: Ints

    def take(self, which: Ints) -> _Entries:
        return _Entries(
            self.group[which],
            self.metric.take(which),
            self.start_us[which],
            self.stats.take(which),
            self.gained[which],
            self.devices[which],
        )


def _stacked(parts: Sequence[_Entries]) -> _Entries:
    if len(parts) == 1:
        return parts[0]
    return _Entries(
        np.concatenate([part.group for part in parts]),
        united([part.metric for part in parts]),
        np.concatenate([part.start_us for part in parts]),
        stacked_stats([part.stats for part in parts]),
        np.concatenate([part.gained for part in parts]),
        np.concatenate([part.devices for part in parts]),
    )


def _merged(parts: Sequence[_Entries]) -> _Entries:
    """One entry for each group, metric and step; what is merged keeps its order."""
    entries = _stacked(parts)
    if not len(entries.group):
        return entries
    rank = in_order(entries.metric).codes
    order = np.lexsort((entries.start_us, rank, entries.group))
    entries = entries.take(order)
    rank = rank[order]
    first = np.ones(len(order), np.bool_)
    first[1:] = (
        (entries.group[1:] != entries.group[:-1]) | (rank[1:] != rank[:-1]) | (entries.start_us[1:] != entries.start_us[:-1])
    )
    heads = np.flatnonzero(first)
    number = np.cumsum(first) - 1
    return _Entries(
        entries.group[heads],
        entries.metric.take(heads),
        entries.start_us[heads],
        entries.stats.merged(np.append(heads, len(order))),
        np.bincount(number, entries.gained, len(heads)).astype(np.float64),
        np.bincount(number, entries.devices, len(heads)).astype(np.int64),
    )
