"""A queue that keeps tenants apart: one line each, and fair turns.

Rule 1: what is in flight is counted in bytes, from `put` until `release`, per tenant. How much may be in flight in all is
decided where things are taken in (`admit.pressure`).
Rule 2: a full line refuses its own tenant (`TenantBusy`). It never waits.
Rule 3: takers get from each tenant in turn, at most a quantum's worth, so a burst waits behind itself only.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from typing import Generic, TypeVar

from widerow.model.errors import Overloaded, TenantBusy

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Items of many tenants. Safe to share between threads."""

    def __init__(
        self,
        *,
        max_tenant_bytes: int | None,
        quantum_bytes: int,
        ready: threading.Condition | None = None,
    ) -> None:
        """Without `max_tenant_bytes` it takes everything: what comes was admitted before. Queues with one `ready` share
        their lock, and whoever waits for one of them sees the others move.
        """
        self._max_tenant_bytes, self._quantum = max_tenant_bytes, quantum_bytes
        self._lines: OrderedDict[str, deque[tuple[T, int]]] = OrderedDict()
        self._held: dict[str, int] = {}
        self._queued = 0
        self._closed = False
        self._ready = ready or threading.Condition()

    def put(self, tenant: str, item: T, size: int, *, wake: bool = True) -> None:
        """Queue an item of that many bytes, or raise. An empty line takes any item, however large.

        Without `wake` a taker that waits goes on waiting, until `wake` is called.
        """
        with self._ready:
            held = self._held.get(tenant, 0)
            if self._closed:
                raise Overloaded("the server is stopping: send this again to another, or later")
            if held and self._max_tenant_bytes is not None and held + size > self._max_tenant_bytes:
                raise TenantBusy(
                    f"{tenant}: {held >> 20} MiB are in flight, pipeline.max_tenant_in_flight_mib allows "
                    f"{self._max_tenant_bytes >> 20}; wait for answers before sending more"
                )
            self._held[tenant] = held + size
            self._queued += size
            line = self._lines.get(tenant)
            if line is None:
                line = self._lines[tenant] = deque()
            line.append((item, size))
            if wake:
                self._ready.notify()

    def wake(self) -> None:
        """Let a taker see what was put quietly."""
        with self._ready:
            self._ready.notify()

    def take(self, max_bytes: int) -> list[tuple[str, list[T]]]:
        """Wait for work; then up to about `max_bytes` of it, by tenant, in fair turns. Empty: closed and drained."""
        with self._ready:
            self._ready.wait_for(lambda: self._lines or self._closed)
            return self.take_now(max_bytes)

    def take_now(self, max_bytes: int) -> list[tuple[str, list[T]]]:
        """The same without waiting: empty if there is nothing."""
        with self._ready:
            taken: dict[str, list[T]] = {}
            left = max_bytes
            while self._lines and left > 0:
                tenant, line = self._lines.popitem(last=False)
                turn = min(self._quantum, left)
                while line and turn > 0:
                    item, size = line.popleft()
                    taken.setdefault(tenant, []).append(item)
                    turn -= size
                    left -= size
                    self._queued -= size
                if line:
                    self._lines[tenant] = line  # to the end of the round
            return list(taken.items())

    def release(self, tenant: str, size: int) -> None:
        """An item is done with."""
        with self._ready:
            held = self._held[tenant] - size
            if held:
                self._held[tenant] = held
            else:
                del self._held[tenant]

    def close(self) -> None:
        """Take nothing more in; what is queued can still be taken."""
        with self._ready:
            self._closed = True
            self._ready.notify_all()

    def held(self) -> dict[str, int]:
        """Bytes in flight, by tenant."""
        with self._ready:
            return dict(self._held)

    @property
    def queued(self) -> int:
        """Bytes that wait to be taken."""
        return self._queued

    @property
    def closed(self) -> bool:
        return self._closed
