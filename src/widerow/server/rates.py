"""How fast things go: counters now against counters a few seconds ago.

The server takes a sample each second; ten seconds of them are kept. Before the first sample the rates are those since start.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from prometheus_client import Counter

from widerow.ops.counters import Counters

KEPT_SAMPLES = 10


@dataclass(frozen=True, slots=True)
class Sample:
    at_s: float
    reports: dict[str, float] = field(default_factory=dict)
    """By tenant, like the next two."""
    values: dict[str, float] = field(default_factory=dict)
    refused: dict[str, float] = field(default_factory=dict)
    commits: float = 0
    failures: float = 0


class Rates:
    """Safe to share between threads."""

    def __init__(self, counters: Counters, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._counters, self._clock_s = counters, clock_s
        self._samples: deque[Sample] = deque([self._take()], maxlen=KEPT_SAMPLES)

    def sample(self) -> None:
        """Call it once a second."""
        self._samples.append(self._take())

    def span(self) -> tuple[Sample, Sample]:
        """The oldest sample that is kept, and one taken now."""
        return self._samples[0], self._take()

    def writes_fail(self) -> bool:
        """Whether, lately, commits were tried and not one of them worked."""
        before, now = self.span()
        failures = now.failures - before.failures
        return failures > 0 and now.commits - before.commits <= failures

    def _take(self) -> Sample:
        c = self._counters
        return Sample(
            self._clock_s(),
            _by_tenant(c.reports),
            _by_tenant(c.values),
            _by_tenant(c.refused),
            sum(_by_tenant(c.commits).values()),
            sum(_by_tenant(c.commit_failures).values()),
        )


def _by_tenant(counter: Counter) -> dict[str, float]:
    sums: dict[str, float] = {}
    for family in counter.collect():
        for sample in family.samples:
            if sample.name.endswith("_total"):
                tenant = sample.labels.get("tenant", "")
                sums[tenant] = sums.get(tenant, 0.0) + sample.value
    return sums
