"""Questions about steps, answered: for one device, for many, for groups of them, for those at the top.

Rule: an answer is sorted by what its series are of: devices by name, groups by what they have in common, then metrics, then
aggregates in the order asked; those at the top come first things first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from widerow.model.arrays import Floats, Ints
from widerow.model.combine import united
from widerow.model.device import Device
from widerow.model.names import Coded, Names
from widerow.model.series import Reply, Series
from widerow.model.tenant import Tenant
from widerow.model.times import TimeSpan
from widerow.query.across import across, chunks, in_key_order
from widerow.query.budget import Budget
from widerow.query.fill import filled, grid
from widerow.query.question import Question, Top
from widerow.query.stepped import QUANTILES, Sources, Stepped, stepped
from widerow.query.steps import whole_span


def of_device(sources: Sources, tenant: Tenant, device: str, question: Question, budget: Budget) -> Reply:
    q = question
    found = stepped(
        sources,
        tenant,
        [device],
        span=q.span,
        steps=q.steps,
        budget=budget,
        metrics=q.metrics,
        quantiles=q.quantiles,
    )
    table = _Table()
    table.add(found, q, budget)
    return table.reply(q, budget)


def of_devices(sources: Sources, tenant: Tenant, devices: Sequence[str], question: Question, budget: Budget) -> Reply:
    """Each device's own series. The devices are distinct."""
    q, table = question, _Table()
    ordered = [devices[i] for i in in_key_order(devices).tolist()]
    read = chunks(
        sources,
        tenant,
        ordered,
        span=q.span,
        steps=q.steps,
        budget=budget,
        metrics=q.metrics,
        quantiles=q.quantiles,
    )
    for found, _ in read:
        table.add(found, q, budget)
    return table.reply(q, budget)


def of_groups(
    sources: Sources, tenant: Tenant, devices: Sequence[Device], by: Sequence[str], question: Question, budget: Budget
) -> Reply:
    """Series of groups of devices that have the same in all that is named `by`."""
    q = question
    keys = [tuple(_attribute(device, name) for name in by) for device in devices]
    distinct = sorted(set(keys))
    number = {key: i for i, key in enumerate(distinct)}
    found = across(
        sources,
        tenant,
        [device.name for device in devices],
        span=q.span,
        steps=q.steps,
        budget=budget,
        metrics=q.metrics,
        groups=np.array([number[key] for key in keys], np.int64),
        quantiles=q.quantiles,
    )
    owners = {
        name: Coded(column.names, column.codes[found.group])
        for i, name in enumerate(by)
        for column in [Coded.of([key[i] for key in distinct])]
    }
    values = {name: found.values(name) for name in q.aggregates}
    series = _series(owners, found.metric, found.group, found.start_us, values, q, found.missing, budget, grouped=True)
    return Reply(series, q.steps.name, q.steps.tz, found.used, found.missing)


def of_top(sources: Sources, tenant: Tenant, devices: Sequence[str], top: Top, question: Question, budget: Budget) -> Reply:
    """The series of the devices at the top; without a step, the value that put them there."""
    q = question
    best, used, missing = _ranked(sources, tenant, devices, top, q, budget)
    names = [name for name, _ in best]
    if q.steps.name:
        reply = of_devices(sources, tenant, names, q, budget) if names else _Table().reply(q, budget)
        total = dict(used)
        for level, rows in reply.used.items():
            total[level] = total.get(level, 0) + rows
        return replace(reply, series=_by_rank(reply.series, names), used=total, top=best)
    assert q.metrics is not None
    n = len(best)
    labels = {
        "device": Coded.of(names),
        "metric": Coded.constant(q.metrics[0], n),
        "agg": Coded.constant(top.by, n),
    }
    series = Series(labels, np.full(n, q.span.start_us), np.array([value for _, value in best], np.float64))
    return Reply(series, "", "", used, missing, best)


def _ranked(
    sources: Sources, tenant: Tenant, devices: Sequence[str], top: Top, q: Question, budget: Budget
) -> tuple[list[tuple[str, float]], dict[str, int], list[TimeSpan]]:
    """Those at the top, best first; of equals the first by name. Only so many are in memory at a time."""
    best: list[tuple[float, str]] = []
    used: dict[str, int] = {}
    missing: dict[TimeSpan, None] = {}
    sign = 1.0 if top.ascending else -1.0
    ordered = [devices[i] for i in in_key_order(devices).tolist()]
    steps = whole_span(q.span)
    read = chunks(
        sources,
        tenant,
        ordered,
        span=q.span,
        steps=steps,
        budget=budget,
        metrics=q.metrics,
        quantiles=top.by in QUANTILES,
    )
    for found, _ in read:
        for level, rows in found.used.items():
            used[level] = used.get(level, 0) + rows
        missing |= dict.fromkeys(found.missing)
        best += zip((sign * found.values(top.by)).tolist(), found.summary.device.to_list(), strict=True)
        best = sorted(best)[: top.count]
    return [(name, sign * value) for value, name in best], used, list(missing)


@dataclass(slots=True)
class _Table:
    """Values by device, metric and step, as they come in."""

    device: list[Coded] = field(default_factory=list)
    metric: list[Coded] = field(default_factory=list)
    start_us: list[Ints] = field(default_factory=list)
    values: dict[str, list[Floats]] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)
    missing: dict[TimeSpan, None] = field(default_factory=dict)
    points: int = 0

    def add(self, found: Stepped, q: Question, budget: Budget) -> None:
        """Of the statistics only what was asked for is kept."""
        self.points += len(found) * len(q.aggregates)
        budget.points(self.points)
        for level, rows in found.used.items():
            self.used[level] = self.used.get(level, 0) + rows
        self.missing |= dict.fromkeys(found.missing)
        self.device.append(found.summary.device)
        self.metric.append(found.summary.metric)
        self.start_us.append(found.summary.start_us)
        for name in q.aggregates:
            self.values.setdefault(name, []).append(found.values(name))

    def reply(self, q: Question, budget: Budget) -> Reply:
        missing = list(self.missing)
        device, metric = _united(self.device), _united(self.metric)
        start_us = np.concatenate([np.zeros(0, np.int64), *self.start_us])
        values = {name: np.concatenate([np.zeros(0), *self.values.get(name, [])]) for name in q.aggregates}
        if len(device.names) > 1 or len(self.device) > 1:
            order = np.lexsort((start_us, _ranks(metric), _ranks(device)))
            device, metric, start_us = device.take(order), metric.take(order), start_us[order]
            values = {name: column[order] for name, column in values.items()}
        series = _series({"device": device}, metric, device.codes, start_us, values, q, missing, budget)
        return Reply(series, q.steps.name, q.steps.tz, self.used, missing)


def _series(
    owners: Mapping[str, Coded],
    metric: Coded,
    owner: Ints | np.ndarray,
    start_us: Ints,
    values: Mapping[str, Floats],
    q: Question,
    missing: Sequence[TimeSpan],
    budget: Budget,
    *,
    grouped: bool = False,
) -> Series:
    """Entries sorted by owner, metric and step, as series: filled, and one for each aggregate."""
    rows = np.arange(len(start_us))
    first = np.ones(len(rows), np.bool_)
    first[1:] = (owner[1:] != owner[:-1]) | (metric.codes[1:] != metric.codes[:-1])
    number = np.cumsum(first) - 1
    columns = [values[name] for name in q.aggregates]
    if q.fill != "none" and len(rows):
        starts = grid(q.steps, q.span, missing)
        budget.points(int(number[-1] + 1) * len(starts) * len(columns))
        full = filled(number, start_us, starts)
        rows, start_us, number = full.row, full.time_us, number[full.row]
        columns = [full.values(column, q.fill) for column in columns]
    n, many = len(rows), len(columns)
    agg = Coded(Names.of(q.aggregates), np.repeat(np.arange(many, dtype=np.int32), n))
    if many > 1:
        order = np.argsort(np.tile(number, many) * many + agg.codes, kind="stable")
        rows, start_us, agg = np.tile(rows, many)[order], np.tile(start_us, many)[order], agg.take(order)
        columns = [np.concatenate(columns)[order]]
    labels = {**{name: column.take(rows) for name, column in owners.items()}, "metric": metric.take(rows), "agg": agg}
    return Series(labels, start_us, columns[0], grouped=grouped)


def _attribute(device: Device, name: str) -> str:
    if name == "device":
        return device.name
    if name.startswith("tag:"):
        return device.tags.get(name[4:], "")
    return str(getattr(device, name))


def _by_rank(series: Series, names: Sequence[str]) -> Series:
    """The same with devices in that order."""
    place = {name: i for i, name in enumerate(names)}
    device = series.labels["device"]
    rank = np.array([place[name] for name in device.names], np.int64)[device.codes]
    order = np.argsort(rank, kind="stable")
    labels = {name: column.take(order) for name, column in series.labels.items()}
    return Series(labels, series.time_us[order], series.number[order])


def _united(columns: Sequence[Coded]) -> Coded:
    return united(columns) if len(columns) > 1 else columns[0] if columns else Coded.of(())


def _ranks(column: Coded) -> Ints:
    """The place of each name in order, for each row."""
    texts = column.names.to_bytes_list()
    rank = np.empty(len(texts), np.int64)
    rank[sorted(range(len(texts)), key=texts.__getitem__)] = np.arange(len(texts))
    return rank[column.codes]
