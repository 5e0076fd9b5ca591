"""The newest value of each metric, wherever it lies within the raw retention.

Rule 1: the last bucket of a device is read first, then the hours before it that are not rolled yet: all their metrics.
Rule 2: a row for each device names the hour of each metric (`rollup.newest`). That hour is read for the metric, unless there
is a newer value. The row is read after the marks of hours, and as it was written last: it has every hour without a mark.
Rule 3: rolling may be far behind, or off. Then a question reads the newest `_MOST_HOURS` that wait, and of many devices
fewer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from widerow.engine.rows import Rows
from widerow.model.arrays import Ints
from widerow.model.labels import Selectors
from widerow.model.names import Coded
from widerow.model.points import Points
from widerow.model.tenant import Tenant
from widerow.query.budget import Budget
from widerow.query.points import joined, newest, points_of
from widerow.query.stepped import Sources
from widerow.rollup.newest import hours_of
from widerow.telemetry.store import LastSeen

_FEW_HOURS = 2
"""So many that wait are read of each device without a look at which devices they wait for: the last one, mostly."""
_MOST_HOURS, _MOST_AT_ONCE = 24, 20_000
"""So many are read at the most, of all devices together."""


def latest(
    sources: Sources, tenant: Tenant, devices: Sequence[str], metrics: Selectors | None, budget: Budget | None
) -> Points:
    """By device and metric. Devices that were never seen are left out."""

    def points(chunks: list[Rows]) -> Points:
        if budget is not None:
            budget.count(sum(map(len, chunks)))
        return points_of(chunks)

    telemetry, devices = sources.telemetry, list(dict.fromkeys(devices))
    seen = telemetry.last_seen(tenant.name, devices, may_lag=True)
    if not seen:
        return points([])
    found = points(telemetry.latest(tenant, devices, metrics=metrics, may_lag=True, seen=seen))
    if waiting := _unrolled(sources, tenant, seen):
        found = joined([found, points(telemetry.latest_in(tenant, waiting, metrics=metrics, may_lag=True))])
    found = newest(found)
    stored = sources.rollups.newest.read(tenant.name, [last.device for last in seen])
    hours, names = _elsewhere(found, stored, metrics)
    if hours:
        found = newest(joined([found, points(telemetry.latest_in(tenant, hours, metrics=names, may_lag=True))]))
    return found


def _unrolled(sources: Sources, tenant: Tenant, seen: Sequence[LastSeen]) -> dict[int, list[str]]:
    """Hours before the last bucket that are not rolled yet, the newest first, and the devices they wait for."""
    devices = [last.device for last in seen]
    newest_us = max(last.bucket for last in seen)
    waiting = (hour_us for hour_us in sources.dirt_of(tenant, devices).hours if hour_us < newest_us)
    hours = sorted(waiting, reverse=True)[:_MOST_HOURS]
    if not hours:
        return {}
    bucket = {last.device: last.bucket for last in seen}
    marked = sources.rollups.newest.unrolled(tenant.name, devices, hours) if len(hours) > _FEW_HOURS else None
    found: dict[int, list[str]] = {}
    count = 0
    for hour_us in hours:
        some = devices if marked is None else marked.get(hour_us, [])
        if some := [device for device in some if hour_us < bucket[device]]:
            found[hour_us] = some
            count += len(some)
            if count > _MOST_AT_ONCE:
                break
    return found


def _elsewhere(
    found: Points, stored: Mapping[str, str], metrics: Selectors | None
) -> tuple[dict[int, list[str]], list[str]]:
    """Hours of devices that have metrics of which nothing so new was found, and these metrics."""
    codes, numbers = dict[str, int](), dict[str, int]()
    found_code, found_number = _coded(found.metric, codes), _coded(found.device, numbers)
    hours_by_text: dict[str, tuple[Ints, Ints]] = {}
    for text in set(stored.values()):  # most devices of a fleet are alike
        hour_of = {name: at_us for name, at_us in hours_of(text).items() if metrics is None or name in metrics}
        mine = [codes.setdefault(name, len(codes)) for name in hour_of]
        hours_by_text[text] = np.array(mine, np.int64), np.array([*hour_of.values()], np.int64)
    parts = [hours_by_text[text] for text in stored.values()]
    devices, sizes = [*stored], [len(code) for code, _ in parts]
    owner = np.repeat(np.arange(len(devices)), sizes)
    code, hour_us = (np.concatenate([part[k] for part in parts] or [owner]) for k in (0, 1))
    number = np.array([numbers.setdefault(device, len(numbers)) for device in devices], np.int64)[owner]
    count = len(codes)
    _, at, there = np.intersect1d(number * count + code, found_number * count + found_code, return_indices=True)
    found_us = np.full(len(code), -1)
    found_us[at] = found.time_us[there]
    missing = np.flatnonzero(found_us < hour_us)
    hours: dict[int, dict[str, None]] = {}
    for at_us, i in zip(hour_us[missing].tolist(), owner[missing].tolist(), strict=True):
        hours.setdefault(at_us, {})[devices[i]] = None
    names = [*codes]
    return {at_us: [*some] for at_us, some in hours.items()}, [names[c] for c in np.unique(code[missing]).tolist()]


def _coded(column: Coded, numbers: dict[str, int]) -> Ints:
    """The number of the name in each row."""
    of_name = [numbers.setdefault(name, len(numbers)) for name in column.names.to_list()]
    return np.array(of_name, np.int64)[column.codes]
