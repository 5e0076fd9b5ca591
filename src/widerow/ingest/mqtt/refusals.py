"""What becomes of messages that are refused: counted, filed, and said to the device on its `errors` topic.

Rule 1: every refusal is counted by its code.
Rule 2: a device is told of the first few, then of one a second; all together of a few hundred a second. The rest is counted.
Nobody can use a refusal to make us send more than that.
Rule 3: what a tenant we know sent is filed as a dead letter before it is acknowledged; a failure to do so is raised.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

import msgspec

from widerow.admit.bucket import Bucket
from widerow.ingest.mqtt.topics import Template
from widerow.model.errors import Spent
from widerow.model.times import Clock, format_time
from widerow.ops.counters import Counters
from widerow.pipeline.dead_letters import FILED_CODES
from widerow.pipeline.origin import Origin

log = logging.getLogger(__name__)

_DEVICE_BURST, _DEVICE_PER_S = 5.0, 1.0
_ALL_BURST, _ALL_PER_S = 1_000.0, 200.0
_LOG_BURST, _LOG_PER_S = 10.0, 0.2
_MOST_DEVICES = 10_000
_MOST_REASON = 1_000


class DeadLetter(Protocol):
    """`DeadLetters.file`. May raise `Unavailable`: then it is tried again."""

    def __call__(self, tenant: str, origin: Origin, code: str, reason: str) -> None: ...


class Refusals:
    """Safe to share between threads. Filing, which takes time, holds nobody else up."""

    def __init__(
        self,
        errors: Template,
        publish: Callable[[bytes, bytes], bool],
        clock: Clock,
        counters: Counters,
        dead_letter: DeadLetter | None,
    ) -> None:
        self._errors, self._publish, self._dead_letter = errors, publish, dead_letter
        self._clock, self._counters = clock, counters
        self._lock = threading.Lock()
        now_us = clock.now_us()
        self._all, self._log = Bucket(_ALL_PER_S, _ALL_BURST, now_us), Bucket(_LOG_PER_S, _LOG_BURST, now_us)
        self._devices: OrderedDict[tuple[str, str], Bucket] = OrderedDict()

    def file(
        self,
        tenant: str,
        device: str,
        topic: bytes,
        payload: bytes,
        code: str,
        reason: str,
        spent: Spent | None = None,
        *,
        version_us: int = 0,
    ) -> None:
        """A message of a tenant that exists. Raises what filing raises; nothing else was done then."""
        if self._dead_letter is not None and code in FILED_CODES:
            source = f"mqtt:{topic.decode(errors='replace')}"
            # The broker forgets a message that was acknowledged: its letter must be on disk by then.
            origin = Origin(source, "application/json", "ms", "", payload, device, durable=True, version_us=version_us)
            self._dead_letter(tenant, origin, code, reason)
        self.tell(tenant, device, topic, code, reason, spent)

    def tell(self, tenant: str, device: str, topic: bytes, code: str, reason: str, spent: Spent | None = None) -> None:
        """Tell the device, if it may be told one more."""
        self.count(topic, code, reason)
        now_us = self._clock.now_us()
        if not self._may_tell(tenant, device, now_us):
            self._counters.mqtt_errors.labels("limited").inc()
            return
        said: dict[str, object] = {"code": code, "reason": reason[:_MOST_REASON]}
        said |= {"topic": topic.decode(), "time": format_time(now_us)}
        if spent:
            said |= {"limit": spent.limit, "allowed": spent.allowed, "seen": spent.seen}
            said["retry_after_s"] = spent.retry_after_s
        sent = self._publish(self._errors.topic(tenant, device), msgspec.json.encode(said))
        self._counters.mqtt_errors.labels("queued" if sent else "dropped").inc()

    def count(self, topic: bytes, code: str, reason: str) -> None:
        """What has no device that could be told."""
        self._counters.mqtt_refused.labels(code).inc()
        with self._lock:
            may_log = self._log.take(1, self._clock.now_us())
        if may_log:
            log.warning("MQTT message on %r refused: %s: %s", topic[:300], code, reason[:_MOST_REASON])

    def _may_tell(self, tenant: str, device: str, now_us: int) -> bool:
        with self._lock:
            return bool(self._bucket(tenant, device, now_us).take(1, now_us) and self._all.take(1, now_us))

    def _bucket(self, tenant: str, device: str, now_us: int) -> Bucket:
        bucket = self._devices.pop((tenant, device), None) or Bucket(_DEVICE_PER_S, _DEVICE_BURST, now_us)
        self._devices[tenant, device] = bucket
        if len(self._devices) > _MOST_DEVICES:
            self._devices.popitem(last=False)
        return bucket
