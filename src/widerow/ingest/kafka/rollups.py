"""Hours that were rolled, on their way out: a message of JSON for each device and hour, keyed `tenant/device`.

Rule: at least once. An hour is sent after it is in the store and before its marks go; what is not confirmed is rolled and
sent again. An hour that late reports change is sent again with its new values: the later message holds.
"""

from __future__ import annotations

import time
from itertools import pairwise

import msgspec
import numpy as np

from widerow.config import Kafka
from widerow.engine.rows import Rows
from widerow.ingest.kafka.partition import key_of
from widerow.ingest.kafka.send import Sender
from widerow.model.errors import Unavailable, WiderowError
from widerow.model.tenant import Tenant
from widerow.model.times import HOUR, format_time
from widerow.ops.counters import Counters
from widerow.rollup.aggregate import Summary, summary_of_rollups

_PLAIN = ("count", "min", "max", "sum", "p50", "p95", "p99", "increase", "first", "last")
_STEP_S = 0.05


class RollupsOut:
    """Sends hours of numbers. Called by the thread that rolls."""

    def __init__(self, kafka: Kafka, counters: Counters) -> None:
        self._topic = kafka.rollups_topic
        self.sender = Sender(kafka, counters)

    def __call__(self, tenant: Tenant, hours: Rows) -> None:
        """Confirmed on return. Raises `Unavailable`."""
        waiting, errors = 0, list[WiderowError]()

        def told(error: WiderowError | None) -> None:
            nonlocal waiting
            waiting -= 1
            if error is not None:
                errors.append(error)

        deadline_s = self.sender.deadline_s()
        for device, value in messages_of_hours(tenant.name, summary_of_rollups([hours], HOUR)) if len(hours) else ():
            waiting += 1
            self.sender.send(self._topic, value, key_of(tenant.name, device), told, deadline_s)
            if errors:  # all of it is sent again
                break
        while waiting and time.monotonic() < deadline_s:
            self.sender.poll(_STEP_S)
        if waiting:
            errors.append(Unavailable("no word from it (kafka.send_timeout_s)"))
            self.sender.start_over("it does not say what became of hours")
        if errors:
            raise Unavailable(f"hours were not confirmed by {self._topic}: {errors[0]}")


def messages_of_hours(tenant: str, summary: Summary) -> list[tuple[str, bytes]]:
    """Of each device and hour: the device, and what is said of its metrics."""
    if not len(summary):
        return []
    stats = summary.stats
    columns = {name: getattr(stats, name).tolist() for name in _PLAIN}
    columns |= {"avg": stats.mean.tolist(), "stddev": stats.stddev().tolist()}
    columns |= {
        "first_time": [*map(format_time, stats.first_us.tolist())],
        "last_time": [*map(format_time, stats.last_us.tolist())],
    }
    said = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    metrics, devices = summary.metric.to_list(), summary.device.to_list()
    # A summary is in the order of devices, metrics, hours; a message has all metrics of a device and hour.
    order = np.lexsort((summary.start_us, summary.device.codes))
    keys = np.stack([summary.device.codes[order], summary.start_us[order]])
    cuts = [0, *(np.flatnonzero((keys[:, 1:] != keys[:, :-1]).any(axis=0)) + 1).tolist(), len(order)]
    out = []
    for start, stop in pairwise(cuts):
        which = order[start:stop].tolist()
        body = {
            "tenant": tenant,
            "device": devices[which[0]],
            "level": "hour",
            "start": format_time(int(summary.start_us[which[0]])),
            "metrics": {metrics[i]: said[i] for i in which},
        }
        out.append((devices[which[0]], msgspec.json.encode(body)))
    return out
