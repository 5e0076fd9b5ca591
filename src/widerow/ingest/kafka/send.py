"""Messages on their way to Kafka, through a producer that is replaced when it has failed for good.

Rule 1: a sender is told of its message, by the thread that sends or polls. Told None, it is on every replica that the topic
asks for (`acks=all`, idempotent); told an error, it may have arrived all the same.
Rule 2: what waits is bounded (`kafka.send_queue_mib`). When it is full, sending waits until its deadline.
Rule 3: an idempotent producer that can no longer keep its promise is "fatal": it takes nothing any more. Another one takes
its place, at most one a second, because that one may fail, too (it may not be allowed to write). What the old one had counts
as not sent, and those who sent it send it again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeAlias

from confluent_kafka import KafkaError, KafkaException, Producer

from widerow.config import Kafka
from widerow.ingest.kafka.connect import failure, producer_settings
from widerow.ingest.kafka.message import Header
from widerow.model.errors import StoreUnavailable, Unavailable, WiderowError
from widerow.ops.counters import Counters

log = logging.getLogger(__name__)

Told: TypeAlias = Callable[[WiderowError | None], None]

_ANY = -1
"""The partition that the key stands for."""
_FULL_S = 0.05
_REST_S = 1.0
"""What lies at least between two producers."""
_GRACE_S, _GOING_S = 5.0, 1.0
"""How much longer than librdkafka says we wait for its word; and for the last words of a producer that is replaced."""


class Sender:
    """Sends messages. Of one thread. `producer` changes when it has failed for good."""

    def __init__(self, kafka: Kafka, counters: Counters) -> None:
        self._kafka, self._counters = kafka, counters
        self.producer = self._connect()
        self._began_s = -_REST_S

    def _connect(self) -> Producer:
        try:
            return Producer(producer_settings(self._kafka))
        except KafkaException as error:
            raise failure("Kafka's producer cannot be set up", error) from error

    def deadline_s(self) -> float:
        """Until when word can be waited for of what is sent now, by `time.monotonic`."""
        return time.monotonic() + self._kafka.send_timeout_s + _GRACE_S

    def send(
        self,
        topic: str,
        value: bytes,
        key: bytes,
        told: Told,
        deadline_s: float,
        *,
        partition: int = _ANY,
        headers: list[Header] | None = None,
    ) -> None:
        """`told` may be called before this returns, or while another message is sent, or by `poll`."""
        delivered = partial(self._delivered, topic, len(value), told)
        while True:
            try:
                self.producer.produce(topic, value, key, partition, headers=headers or [], on_delivery=delivered)
            except BufferError:
                if time.monotonic() < deadline_s:
                    self.poll(_FULL_S)
                    continue
                told(Unavailable("too much waits to be sent to Kafka (kafka.send_queue_mib)"))
            except KafkaException as error:
                cause: KafkaError = error.args[0]
                delivered(cause, None)
                if cause.code() == KafkaError._FATAL:  # noqa: SLF001 - here `fatal()` is false, whatever it was
                    self.start_over(cause.str())
            return

    def poll(self, timeout_s: float) -> None:
        """Tell senders what is known by now, or will be within that time."""
        try:
            self.producer.poll(timeout_s)
        except KafkaException as error:  # so it says that it has failed for good
            self.start_over(error.args[0].str())

    def start_over(self, why: str) -> None:
        """With another producer. Who waits for word of the old one's messages is told that they were not sent."""
        log.error("Kafka's producer is set up again: %s", why)
        time.sleep(max(0.0, self._began_s + _REST_S - time.monotonic()))
        self._began_s = time.monotonic()
        before = self.producer
        try:
            self.producer = self._connect()
        except WiderowError as error:
            log.error("%s", error)  # noqa: TRY400 - it says all there is; the old one will fail again, and this is tried again
        before.purge()
        for wait_s in (0, _GOING_S):  # it may have to say first that it has failed, which is raised
            with suppress(KafkaException):
                before.flush(wait_s)

    def close(self) -> None:
        """Those who send wait for word of their own: nothing is on its way."""
        with suppress(KafkaException):
            self.producer.flush(0)

    def _delivered(self, topic: str, size: int, told: Told, error: KafkaError | None, _message: object) -> None:
        """What Kafka's client says of a message."""
        if error is not None:
            self._counters.kafka_send_failures.labels(topic, error.name()).inc()
            told(StoreUnavailable(f"Kafka did not confirm: {error.str()}"))
            return
        self._counters.kafka_sent.labels(topic).inc()
        self._counters.kafka_sent_bytes.labels(topic).inc(size)
        told(None)
