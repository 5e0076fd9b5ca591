"""Questions about steps, answered: for one device, for many, for groups of them, for those at the top.

Rule: an answer is sorted by what its series are of: devices by name, groups by what they have in common, then metrics, then
aggregates in the order asked, numbers before texts; those at the top come first things first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from widerow.model.arrays import Floats, Ints
from widerow.model.combine import in_order, stacked, united
from widerow.model.device import Device
from widerow.model.names import Coded, Names
from widerow.model.series import NUMBER, TEXT, Reply, Series
from widerow.model.tenant import Tenant
from widerow.model.times import Clock, TimeSpan
from widerow.query.across import across, chunks, in_key_order
from widerow.query.budget import Budget
from widerow.query.fill import COUNTS, filled, grid
from widerow.query.labels import apart, by_owner, labels_in, refuse_unknown
from widerow.query.question import Question, Top
from widerow.query.stepped import QUANTILES, Sources, Stepped, stepped
from widerow.query.steps import whole_span
from widerow.query.texts import STATES, Lasting, lasting, text_values
from widerow.rollup.aggregate import Summary, TextSummary


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
        texts=bool(q.texts),
        states=q.states,
        sketches=False,
    )
    table = _Table()
    table.add(found, q, budget, sources.clock)
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
        texts=bool(q.texts),
        states=q.states,
    )
    for found, _ in read:
        table.add(found, q, budget, sources.clock)
    return table.reply(q, budget)


def of_groups(
    sources: Sources, tenant: Tenant, devices: Sequence[Device], by: Sequence[str], question: Question, budget: Budget
) -> Reply:
    """Series of groups of devices, and of variants of metrics, that have the same in all that is named `by`."""
    q, labels = question, labels_in(by)
    attributes = [name for name in by if name not in labels]
    keys = [tuple(_attribute(device, name) for name in attributes) for device in devices]
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
        labels=tuple(dict.fromkeys(labels.values())),
        quantiles=q.quantiles,
        answers=len(q.aggregates),
    )
    owners = {
        name: Coded(column.names, column.codes[found.group])
        for i, name in enumerate(attributes)
        for column in [Coded.of([key[i] for key in distinct])]
    }
    values = {name: found.values(name) for name in q.aggregates}
    metric, group, start_us = found.metric, found.group, found.start_us
    if labels:
        if found.lacking and not len(found):
            refuse_unknown(labels)
        metric, said = apart(metric, labels)
        owners = {name: said[name] if name in said else owners[name] for name in by}
        order, group = by_owner(owners, metric, start_us)
        owners = {name: column.take(order) for name, column in owners.items()}
        metric, start_us = metric.take(order), start_us[order]
        values = {name: column[order] for name, column in values.items()}
    series = series_of(owners, metric, group, start_us, values, q, found.missing, budget, grouped=True)
    return Reply(series, q.steps.name, q.steps.tz, found.used, found.missing)


def of_top(sources: Sources, tenant: Tenant, devices: Sequence[str], top: Top, question: Question, budget: Budget) -> Reply:
    """The series of the devices at the top; without a step, the value that put them there."""
    q = question
    ranked, used, missing = _ranked(sources, tenant, devices, top, q, budget)
    names, metrics = [name for name, _, _ in ranked], [metric for _, metric, _ in ranked]
    best = [(name, value) for name, _, value in ranked]
    if q.steps.name:
        reply = of_devices(sources, tenant, names, q, budget) if names else _Table().reply(q, budget)
        total = dict(used)
        for level, rows in reply.used.items():
            total[level] = total.get(level, 0) + rows
        return replace(reply, series=_by_rank(reply.series, names), used=total, top=best)
    n = len(best)
    labels = {
        "device": Coded.of(names),
        "metric": Coded.of(metrics),
        "agg": Coded.constant(top.by, n),
        "kind": Coded.constant(NUMBER, n),
    }
    series = Series(labels, np.full(n, q.span.start_us), np.array([value for _, value in best], np.float64))
    return Reply(series, "", "", used, missing, best)


def _ranked(
    sources: Sources, tenant: Tenant, devices: Sequence[str], top: Top, q: Question, budget: Budget
) -> tuple[list[tuple[str, str, float]], dict[str, int], list[TimeSpan]]:
    """Those at the top, best first, each by its best variant of the metric; of equals the first by name. Only so many are
    in memory at a time.
    """
    best: list[tuple[float, str, str]] = []
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
        values, of = (sign * found.values(top.by)).tolist(), found.summary
        best += zip(values, of.device.to_list(), of.metric.to_list(), strict=True)
        firsts: dict[str, tuple[float, str, str]] = {}
        for one in sorted(best):
            firsts.setdefault(one[1], one)
        best = list(firsts.values())[: top.count]
    return [(name, metric, sign * value) for value, name, metric in best], used, list(missing)


@dataclass(slots=True)
class _Columns:
    """Values by device, metric and step, as they come in: numbers, and of texts their codes."""

    device: list[Coded] = field(default_factory=list)
    metric: list[Coded] = field(default_factory=list)
    start_us: list[Ints] = field(default_factory=list)
    values: dict[str, list[Floats]] = field(default_factory=dict)
    texts: dict[str, list[Coded]] = field(default_factory=dict)

    def add(self, of: Summary | TextSummary | Lasting) -> None:
        self.device.append(of.device)
        self.metric.append(of.metric)
        self.start_us.append(of.start_us)

    def series(self, aggregates: Sequence[str], q: Question, missing: Sequence[TimeSpan], budget: Budget) -> Series:
        device, metric = _united(self.device), _united(self.metric)
        start_us = np.concatenate([np.zeros(0, np.int64), *self.start_us])
        values = {name: np.concatenate([np.zeros(0), *self.values.get(name, [])]) for name in aggregates}
        texts = {name: stacked(columns) for name, columns in self.texts.items()}
        if len(device.names) > 1 or len(self.device) > 1:
            order = np.lexsort((start_us, in_order(metric).codes, in_order(device).codes))
            device, metric, start_us = device.take(order), metric.take(order), start_us[order]
            values = {name: column[order] for name, column in values.items()}
            texts = {name: column.take(order) for name, column in texts.items()}
        return series_of({"device": device}, metric, device.codes, start_us, values, q, missing, budget, texts=texts)


@dataclass(slots=True)
class _Table:
    """What an answer is made of."""

    numbers: _Columns = field(default_factory=_Columns)
    said: _Columns = field(default_factory=_Columns)
    lasting: _Columns = field(default_factory=_Columns)
    used: dict[str, int] = field(default_factory=dict)
    missing: dict[TimeSpan, None] = field(default_factory=dict)
    points: int = 0

    def add(self, found: Stepped, q: Question, budget: Budget, clock: Clock) -> None:
        """Of the statistics only what was asked for is kept."""
        self.points += len(found) * len(q.numbers) + (0 if found.texts is None else len(found.texts) * len(q.texts))
        budget.points(self.points)
        for level, rows in found.used.items():
            self.used[level] = self.used.get(level, 0) + rows
        self.missing |= dict.fromkeys(found.missing)
        if q.numbers:
            self.numbers.add(found.summary)
        for name in q.numbers:
            self.numbers.values.setdefault(name, []).append(found.values(name))
        if found.texts is not None and len(found.texts) and q.texts:
            self.said.add(found.texts)
            for name in q.texts:
                number, text = text_values(found.texts, name)
                self.said.values.setdefault(name, []).append(number)
                self.said.texts.setdefault(name, []).append(text)
        if found.texts is not None and q.states:
            self._add_lasting(found.texts, found, q, budget, clock)

    def _add_lasting(self, said: TextSummary, found: Stepped, q: Question, budget: Budget, clock: Clock) -> None:
        lasted = lasting(
            said,
            found.earlier,
            q.steps,
            grid(q.steps, q.span, found.missing),
            q.span,
            budget.asked_us(clock),
            lambda points: budget.points(self.points + points),
        )
        self.points += len(lasted)
        if len(lasted):
            self.lasting.add(lasted)
            self.lasting.values.setdefault(STATES, []).append(np.full(len(lasted), np.nan))
            self.lasting.texts.setdefault(STATES, []).append(lasted.texts())

    def reply(self, q: Question, budget: Budget) -> Reply:
        missing = list(self.missing)
        series = self.numbers.series(q.numbers, q, missing, budget)
        for columns, names in ((self.said, q.texts), (self.lasting, (STATES,))):
            if columns.device:
                series = _both(series, columns.series(names, q, missing, budget), q.aggregates)
        return Reply(series, q.steps.name, q.steps.tz, self.used, missing)


def series_of(
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
    texts: Mapping[str, Coded] | None = None,
) -> Series:
    """Entries sorted by owner, metric and step, as series: filled, and one for each aggregate."""
    rows = np.arange(len(start_us))
    first = np.ones(len(rows), np.bool_)
    first[1:] = (owner[1:] != owner[:-1]) | (metric.codes[1:] != metric.codes[:-1])
    number = np.cumsum(first) - 1
    columns = list(values.values())
    said = [] if not texts else [texts[name].codes for name in values]
    if q.fill != "none" and len(rows):
        starts = grid(q.steps, q.span, missing)
        budget.points(int(number[-1] + 1) * len(starts) * len(columns))
        full = filled(number, start_us, starts)
        rows, start_us, number = full.row, full.time_us, number[full.row]
        columns = [
            full.counts(column, q.fill) if name in COUNTS else full.values(column, q.fill) for name, column in values.items()
        ]
        # There is no line between texts, and states are in all steps that they lasted through.
        said = [
            full.codes(codes, "null" if q.fill == "linear" or name == STATES else q.fill)
            for name, codes in zip(values, said, strict=False)
        ]
    n, many = len(rows), len(columns)
    agg = Coded(Names.of(values), np.repeat(np.arange(many, dtype=np.int32), n))
    order = np.arange(n)
    if many > 1:
        order = np.argsort(np.tile(number, many) * many + agg.codes, kind="stable")
        rows, start_us, agg = np.tile(rows, many)[order], np.tile(start_us, many)[order], agg.take(order)
    kind = Coded.constant(TEXT if texts else NUMBER, len(rows))
    whose = {name: column.take(rows) for name, column in owners.items()}
    labels = {**whose, "metric": metric.take(rows), "agg": agg, "kind": kind}
    text = None
    if texts:
        text = stacked([Coded(texts[name].names, codes) for name, codes in zip(values, said, strict=True)]).take(order)
    values_in_order = np.concatenate(columns)[order] if columns else np.zeros(0)
    return Series(labels, start_us, values_in_order, text, grouped=grouped)


def _both(numbers: Series, texts: Series, aggregates: Sequence[str]) -> Series:
    """Series of numbers and of texts as one, in order."""
    if not len(numbers):
        return texts
    labels = {name: united([numbers.labels[name], texts.labels[name]]) for name in texts.labels}
    place = {name: i for i, name in enumerate(aggregates)}
    agg = labels["agg"]
    rank = np.array([place[name] for name in agg.names], np.int64)[agg.codes]
    time_us = np.concatenate([numbers.time_us, texts.time_us])
    device, metric, kind = (in_order(labels[name]).codes for name in ("device", "metric", "kind"))
    order = np.lexsort((time_us, kind, rank, metric, device))
    no_text = Coded(Names.of(()), np.full(len(numbers), -1, np.int32))
    assert texts.text is not None
    said = no_text if numbers.text is None else numbers.text
    return Series(
        {name: column.take(order) for name, column in labels.items()},
        time_us[order],
        np.concatenate([numbers.number, texts.number])[order],
        stacked([said, texts.text]).take(order),
    )


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
    text = None if series.text is None else series.text.take(order)
    return Series(labels, series.time_us[order], series.number[order], text)


def _united(columns: Sequence[Coded]) -> Coded:
    return united(columns) if len(columns) > 1 else columns[0] if columns else Coded.of(())
