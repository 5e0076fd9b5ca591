"""Requests, counted by route and status and timed by route.

The children of labelled metrics are kept here: looking one up costs more than counting with it. Routes come from the route
table and statuses from `failures`, so their number is bounded.
"""

from __future__ import annotations

from prometheus_client import Counter, Histogram

from widerow.ops.counters import Counters


class Tally:
    """What the answers of one process came to."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._requests: dict[tuple[str, int], Counter] = {}
        self._seconds: dict[str, Histogram] = {}
        self._received: dict[str, Counter] = {}

    def answered(self, route: str, status: int, seconds: float) -> None:
        requests = self._requests.get((route, status))
        if requests is None:
            requests = self._requests[route, status] = self._counters.requests.labels(route, str(status))
        requests.inc()
        histogram = self._seconds.get(route)
        if histogram is None:
            histogram = self._seconds[route] = self._counters.request_seconds.labels(route)
        histogram.observe(seconds)

    def received(self, tenant: str, size: int) -> None:
        counter = self._received.get(tenant)
        if counter is None:
            counter = self._received[tenant] = self._counters.received_bytes.labels(tenant)
        counter.inc(size)


def timing(seconds: float) -> tuple[bytes, bytes]:
    """The header that tells a client how much of its waiting was ours."""
    return b"server-timing", b"total;dur=%.2f" % (seconds * 1000)
