"""Reports sent on the one path, and read again."""

from __future__ import annotations

import threading

from widerow.model.tenant import Tenant
from widerow.model.times import HOUR, TimeSpan
from widerow.pipeline.job import Job, Lane, Outcome
from widerow.service import Service


def send(service: Service, tenant: Tenant, *bodies: str, lane: Lane = Lane.LIVE, whole: bool = False) -> list[Outcome]:
    """Submit all at once, wait for all."""
    outcomes: dict[int, Outcome] = {}
    done = threading.Event()

    def finish(k: int, outcome: Outcome) -> None:
        outcomes[k] = outcome
        if len(outcomes) == len(bodies):
            done.set()

    for k, text in enumerate(bodies):
        body = text.encode()
        decode = service.bodies.lines(body, encoding="", precision="us", max_bytes=1 << 30)
        job = Job(tenant, len(body), decode, lambda o, k=k: finish(k, o), lane=lane, whole=whole)  # type: ignore[misc]
        service.pipeline.submit(job)
    assert done.wait(30)
    return [outcomes[k] for k in range(len(bodies))]


def values(service: Service, tenant: Tenant, device: str) -> list[float]:
    now_us = service.clock.now_us()
    span = TimeSpan(now_us - 2 * HOUR, now_us + HOUR)
    points = service.queries.series(tenant, device, span=span, limit=1_000_000).points
    return [float(x) for x in points.number]
