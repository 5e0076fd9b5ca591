"""What a tenant's questions may read, all together: rows per second.

Nobody knows what a question costs before it is answered. So a question is admitted while the tenant has something left, and
what it reads is taken off as it is read, below nothing if need be; the next one waits until that is made up for.
Those under way are expected to read what this tenant's questions usually did: that is promised to them, and not left.
Otherwise as many would be let in at once as come before the first has read anything, each of them on the same rows.
Over any time that is no more than rate x time + burst, and what was admitted last; as far as it was as usual.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from widerow.model.errors import QuotaExceeded
from widerow.model.tenant import BURST_S, LimitMode, Tenant
from widerow.ops.counters import Counters

LIMIT = "query_cost_per_s"
_FEWEST_SWEPT = 1024
_WEIGHT = 0.25
"""Of the last question, in what is usual."""


class Bucket:
    """Rows that may be read. By who holds the lock."""

    __slots__ = ("_at_s", "_full_s", "_left", "_read", "burst", "per_s", "promised", "usual")

    def __init__(self, per_s: float, burst: float, now_s: float) -> None:
        self.per_s, self.burst = per_s, burst
        self._left, self._at_s = burst, now_s
        self._full_s, self._read = now_s, 0.0
        """When it was last full, and what was read since."""
        self.promised, self.usual = 0, 0.0
        """What questions under way are still expected to read, and what they usually do, if that is known."""

    def change(self, per_s: float, burst: float, now_s: float) -> None:
        """Other limits from now on. A debt stays one."""
        self.left(now_s)
        self.per_s, self.burst = per_s, burst
        self._left = min(self._left, burst)

    def left(self, now_s: float) -> float:
        passed_s = now_s - self._at_s
        if passed_s > 0:
            self._left, self._at_s = self._left + passed_s * self.per_s, now_s
        if self._left >= self.burst:
            self._left, self._full_s, self._read = self.burst, now_s, 0.0
        return self._left

    def is_free(self, now_s: float) -> bool:
        """Whether there is more than was promised."""
        return self.left(now_s) > self.promised

    def take(self, rows: int, now_s: float) -> None:
        self.left(now_s)
        self._left -= rows
        self._read += rows

    def retry_after_s(self) -> float:
        return max(0.0, 1 - self._left + self.promised) / self.per_s

    def seen_per_s(self, now_s: float) -> float:
        """What was read per second since it was last full, and promised: where nothing is free, more than the rate."""
        return (self._read + self.promised) / max(now_s - self._full_s, self.burst / self.per_s)


class Meter:
    """What counts the rows of one question."""

    __slots__ = ("_bucket", "_costs", "_promised", "_read", "_tenant")

    def __init__(self, costs: Costs, tenant: str, bucket: Bucket | None = None) -> None:
        """`bucket`: what it is promised from."""
        self._costs, self._tenant, self._bucket = costs, tenant, bucket
        self._read, self._promised = 0, round(bucket.usual) if bucket else 0
        if bucket:
            bucket.promised += self._promised

    def count(self, rows: int) -> None:
        """So many rows were read."""
        self._costs.count(self._tenant, rows, self)

    def end(self) -> None:
        """The question is answered, or has failed. Ending twice is harmless."""
        self._costs.end(self)

    # -- by who holds the lock of costs

    def redeem(self, rows: int) -> None:
        """What is read is not to be read any more."""
        self._read += rows
        if self._bucket:
            kept = min(self._promised, rows)
            self._promised -= kept
            self._bucket.promised -= kept

    def close(self) -> None:
        if self._bucket:
            bucket, self._bucket = self._bucket, None
            bucket.promised -= self._promised
            bucket.usual += (_WEIGHT if bucket.usual else 1) * (self._read - bucket.usual)


class Costs:
    """Of all tenants, as this process answers them. Safe to share between threads."""

    def __init__(self, counters: Counters, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._counters, self._clock_s = counters, clock_s
        self._lock = threading.Lock()
        self._buckets: dict[str, Bucket] = {}

    def admit(self, tenant: Tenant) -> Meter:
        """A question begins; whoever asks ends the meter when it is over. Raises `QuotaExceeded`."""
        per_s, mode = tenant.limits.query_cost_per_s, tenant.mode(LIMIT)
        if not per_s or mode is LimitMode.OFF:
            with self._lock:
                self._buckets.pop(tenant.name, None)
            return Meter(self, tenant.name)
        burst, now_s = tenant.limits.query_cost_burst or per_s * BURST_S, self._clock_s()
        with self._lock:
            bucket = self._buckets.get(tenant.name)
            if bucket is None:
                self._sweep(now_s)
                bucket = self._buckets[tenant.name] = Bucket(per_s, burst, now_s)
            elif (bucket.per_s, bucket.burst) != (per_s, burst):
                bucket.change(per_s, burst, now_s)
            if bucket.is_free(now_s):
                return Meter(self, tenant.name, bucket)
            if mode is LimitMode.ENFORCE:
                raise self._refused(tenant, bucket, now_s)
        self._counters.query_shadowed.labels(tenant.name).inc()
        return Meter(self, tenant.name)

    def turn_away(self, tenant: Tenant) -> None:
        """Raises `QuotaExceeded` if nothing is left now: such a question need not wait for its turn to be told. What is only
        promised may be left when it is.
        """
        if tenant.mode(LIMIT) is not LimitMode.ENFORCE:
            return
        with self._lock:
            bucket, now_s = self._buckets.get(tenant.name), self._clock_s()
            # With other limits than it has it is for `admit` to say.
            if bucket and bucket.per_s == tenant.limits.query_cost_per_s and bucket.left(now_s) <= 0:
                raise self._refused(tenant, bucket, now_s)

    def _refused(self, tenant: Tenant, bucket: Bucket, now_s: float) -> QuotaExceeded:
        self._counters.query_refused.labels(tenant.name, QuotaExceeded.code).inc()
        seen, retry_after_s = bucket.seen_per_s(now_s), bucket.retry_after_s()
        return QuotaExceeded(tenant.name, LIMIT, bucket.per_s, round(seen, 1), round(retry_after_s, 3))

    def count(self, tenant: str, rows: int, meter: Meter) -> None:
        """So many rows were read for a question."""
        self._counters.query_rows.labels(tenant).inc(rows)
        with self._lock:
            bucket = self._buckets.get(tenant)
            if bucket is not None:
                bucket.take(rows, self._clock_s())
            meter.redeem(rows)

    def end(self, meter: Meter) -> None:
        with self._lock:
            meter.close()

    def _sweep(self, now_s: float) -> None:
        """Forget those that are full: a new one would be, too."""
        if len(self._buckets) >= _FEWEST_SWEPT:
            self._buckets = {name: b for name, b in self._buckets.items() if b.left(now_s) < b.burst or b.promised}
