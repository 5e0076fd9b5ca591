"""One stream of a worker: takes messages of a lane from Kafka and hands them to the pipeline; what is stored is committed.

Rule 1: an offset is committed when everything before it is durable in the store, marks and dead letters included.
Rule 2: nothing is skipped because of the store. What fails is handed over again, at growing distances, for as long as it
takes. What belongs to no tenant that we know has no place to go: it is counted, named in the log, and passed over.
Rule 3: what is in flight is bounded in bytes, for each lane by itself: the backlog never takes the room of the live ones.
When it is full, taking pauses, until half of it is free.
Rule 4: partitions are handed over cleanly. Before one is let go of, what was begun is finished, for a time, and committed;
what was not finished then comes to its next owner once more, which changes nothing in the store.
Rule 5: the thread is back at Kafka before it is missed there. It does not ask a store that hangs for each pack, and not at
all while partitions are handed over (`KnownTenants`); letters wait for as long as the last one did in vain.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Protocol, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from widerow.catalog.known import KnownTenants
from widerow.codec.decoded import or_rejected
from widerow.config import Config
from widerow.ingest.kafka.connect import client_settings, failure, partition_counts, topics
from widerow.ingest.kafka.offsets import Line
from widerow.ingest.kafka.receive import MOST_AHEAD_US, Filed, Incoming, Pack, Receiver, incoming, packs_of
from widerow.model.check import check_tenant
from widerow.model.errors import NotFound, Refusal, Rejected, Unavailable, WiderowError
from widerow.model.tenant import Tenant
from widerow.model.times import MS, SECOND, Clock
from widerow.ops.counters import Counters
from widerow.pipeline.job import Job, Lane, Outcome
from widerow.pipeline.pipeline import Pipeline

log = logging.getLogger(__name__)

_AT_ONCE = 500
_FIRST_GUESS, _FORGET = 256 << 10, 0.9
"""How large messages are taken to be, in bytes: rather too large, so that what is taken at once fits."""
_POLL_S, _PAUSED_POLL_S, _FULL_S = 0.1, 0.02, 0.2
_COMMIT_S, _LOOK_S, _LOOK_PAUSED_S = 1.0, 1.0, 5.0
_FIRST_RETRY_S, _LAST_RETRY_S = 0.1, 5.0
_RETRYING_S = 1.0
"""How long what is due again is handed in, before it is time to look after everything else."""
_STRANGER_S, _MOST_STRANGERS = 5.0, 10_000
_WARN_S = 10.0


class Letters(Protocol):
    """Where refused reports are kept."""

    def __call__(self, message: Incoming, refusals: Sequence[Refusal], filed: Filed) -> None:
        """Durable on return, or over a cap. Raises `Unavailable`. A refusal without positions is of the whole message.

        What is `filed` is not filed again; what is filed is added to it.
        """


class Stream:
    """One lane's topic, taken by a thread of its own."""

    def __init__(
        self,
        config: Config,
        lane: Lane,
        pipeline: Pipeline,
        tenants: KnownTenants,
        receiver: Receiver,
        letters: Letters,
        clock: Clock,
        counters: Counters,
    ) -> None:
        self._kafka, self._lane, self._topic = config.kafka, lane, topics(config.kafka)[lane]
        self._pipeline, self._tenants, self._receiver, self._letters = pipeline, tenants, receiver, letters
        self._clock, self._counters = clock, counters
        # Of backlog one tenant may have half of the lane: more would only be refused there.
        mib = config.kafka.max_in_flight_mib if lane is Lane.LIVE else max(1, config.backfill.max_in_flight_mib // 2)
        self._high, self._low = mib << 20, mib << 19
        self._in_flight, self._typical = 0, float(_FIRST_GUESS)
        self._lines: dict[int, Line] = {}
        self._new_lines: list[Line] = []
        self._finished: queue.SimpleQueue[tuple[Pack, Outcome]] = queue.SimpleQueue()
        self._again: list[tuple[float, int, Pack]] = []
        self._numbers = itertools.count()
        self._strangers: dict[str, float] = {}
        self._warned_s: dict[str, float] = {}
        self._paused = False
        self._stopping = self._handing_over = False
        self._file_s = 0.0
        """No letter is filed before."""
        self._commit_s = self._look_s = self._ask_s = 0.0
        self.assigned: Callable[[Sequence[int], int], None] = lambda _ours, _count: None
        """Told which partitions are ours, and of how many, soon after that changes."""
        self._changed = False
        self.failure: WiderowError | None = None
        """Why the thread ended, unless it was told to."""
        self._consumer = self._connect()
        self._thread = threading.Thread(target=self._run, name=f"kafka-{lane.value}")

    def _connect(self) -> Consumer:
        kafka = self._kafka
        settings = client_settings(kafka) | {
            "group.id": kafka.group if self._lane is Lane.LIVE else f"{kafka.group}.{self._lane.value}",
            "partition.assignment.strategy": "cooperative-sticky",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": kafka.session_timeout_s * 1000,
            "heartbeat.interval.ms": max(300, min(3000, kafka.session_timeout_s * 1000 // 5)),
            "fetch.wait.max.ms": 100,
            "queued.max.messages.kbytes": max(1024, self._low >> 10),
            "on_commit": self._committed,
        }
        try:
            return Consumer(settings)
        except KafkaException as error:
            raise failure("Kafka's consumer cannot be set up", error) from error

    def start(self) -> None:
        self._consumer.subscribe([self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)
        self._thread.start()

    def stop(self) -> None:
        """Take nothing more. `join` waits until what was begun is finished and committed, for `kafka.revoke_timeout_s`."""
        self._stopping = True

    def join(self) -> None:
        self._thread.join()

    @property
    def full(self) -> bool:
        return self._paused

    @property
    def topic(self) -> str:
        return self._topic

    # -- the thread

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._tend()
                if self._in_flight >= self._high and not self._paused:
                    self._wait_for_room()
                    continue
                room = max(1, int((self._high - self._in_flight) / self._typical))
                timeout_s = _PAUSED_POLL_S if self._paused or self._again else _POLL_S
                self._take(self._consumer.consume(min(_AT_ONCE, room), timeout_s))
        except KafkaException as error:
            self.failure = failure(f"{self._topic} cannot be taken from", error)
            log.error("%s", self.failure)  # noqa: TRY400 - it says all there is
        except Exception as error:
            log.exception("taking from %s failed", self._topic)
            self.failure = Unavailable(f"taking from {self._topic} failed: {type(error).__name__}")
        finally:
            with suppress(KafkaException):
                self._hand_over(list(self._lines.values()))
            self._consumer.close()

    def _tend(self) -> None:
        """All that is due, except taking more."""
        if self._new_lines:
            self._begin()
        self._settle()
        self._retry()
        now_s = time.monotonic()
        if self._paused and self._in_flight <= self._low:
            self._consumer.resume(self._partitions(self._lines.values()))
            self._paused = False
        if now_s >= self._commit_s:
            self._commit_s = now_s + _COMMIT_S
            self._commit(self._lines.values(), wait=False)
        if now_s >= self._look_s:
            self._look_s = now_s + _LOOK_S
            self._look(now_s)
            if self._changed:
                self._tell()

    def _wait_for_room(self) -> None:
        """For a moment: pausing throws away what was fetched ahead. Then pause."""
        until_s = time.monotonic() + _FULL_S
        while self._in_flight > self._low and time.monotonic() < until_s and not self._stopping:
            self._settle(wait_s=0.01)
            self._retry()
        if self._in_flight >= self._high:
            self._consumer.pause(self._partitions(self._lines.values()))
            self._paused = True
            self._counters.kafka_pauses.labels(self._topic).inc()

    # -- taking

    def _take(self, messages: Sequence[Message]) -> None:
        taken = []
        now_us, total = self._clock.now_us(), 0
        for message in messages:
            if (error := message.error()) is not None:
                self._warn(error.name(), "%s: %s", self._topic, error.str())
                if error.fatal():
                    raise KafkaException(error)
                continue
            partition, offset = message.partition(), message.offset()
            line = self._lines.get(partition) if partition is not None else None
            if line is None or offset is None:
                continue  # of a partition that has gone meanwhile
            value = message.value()
            size = len(value) if value else 1
            taken.append(incoming(message, line.take(offset, size), now_us))
            total += size
        if not taken:
            return
        self._in_flight += total
        self._typical = max(total / len(taken), self._typical * _FORGET)
        self._counters.kafka_taken.labels(self._topic).inc(len(taken))
        self._counters.kafka_taken_bytes.labels(self._topic).inc(total)
        for pack in packs_of(taken, self._lane):
            self._hand_in(pack)
        self._pipeline.wake()

    def _hand_in(self, pack: Pack) -> None:
        """To the pipeline; or aside, to be tried again."""
        ahead_us = pack.ready_us - self._clock.now_us()
        if 0 < ahead_us < MOST_AHEAD_US + MS:
            self._later(pack, ahead_us / SECOND)  # a sender's clock is ahead of ours
            return
        try:
            tenant = self._known(pack.tenant, ours=bool(pack.sent_us))
            if tenant is None:
                self._pass_over(pack)
                return
            job = Job(
                tenant,
                pack.size,
                lambda: or_rejected(lambda: self._receiver.decode(pack, tenant.limits.most_values)),
                lambda outcome: self._finished.put((pack, outcome)),
                lane=self._lane,
                counted=bool(pack.sent_us),  # by the front that made its messages
            )
            self._pipeline.submit(job, wake=False)
        except WiderowError as error:
            self._try_again(pack, error)

    def _known(self, name: str, *, ours: bool) -> Tenant | None:
        """The tenant; None if there is none. Who does not exist is asked for now and then only; but always for what is
        `ours`: a front that made and acknowledged a message has seen its tenant, perhaps a moment after we had not.
        """
        now_s = time.monotonic()
        if not ours and now_s < self._strangers.get(name, 0.0):
            return None
        try:
            find = self._tenants.at_hand if self._handing_over else self._tenants.get
            tenant = find(check_tenant(name))
        except Rejected:
            if len(self._strangers) >= _MOST_STRANGERS:
                self._strangers.clear()
            self._strangers[name] = now_s + _STRANGER_S
            return None
        self._strangers.pop(name, None)
        return tenant

    def _pass_over(self, pack: Pack) -> None:
        code = "unknown-tenant" if pack.tenant else "no-tenant"
        self._counters.kafka_skipped.labels(self._topic, code).inc(len(pack.messages))
        first = pack.messages[0]
        why = f"there is no tenant {pack.tenant[:80]!r}" if pack.tenant else "neither key nor header names a tenant"
        self._warn(code, "%s and %d more passed over: %s", first.source, len(pack.messages) - 1, why)
        self._release(pack)

    # -- what became of it

    def _settle(self, wait_s: float = 0.0) -> None:
        """Work off what the pipeline has finished."""
        while True:
            try:
                pack, outcome = self._finished.get(timeout=wait_s) if wait_s else self._finished.get_nowait()
            except queue.Empty:
                return
            wait_s = 0.0
            self._end(pack, outcome)

    def _end(self, pack: Pack, outcome: Outcome) -> None:
        error = outcome.error
        if all(message.place.line.gone for message in pack.messages):
            self._release(pack)
        elif isinstance(error, NotFound):
            self._pass_over(pack)  # the tenant was deleted
        elif error is not None and not isinstance(error, Rejected):
            self._try_again(pack, error)
        elif isinstance(error, Rejected) and len(pack.messages) > 1:
            for half in pack.halves():  # until the one is alone that did it
                self._hand_in(half)
            self._pipeline.wake()
        else:
            refused = pack.refused(outcome.refusals)
            if isinstance(error, Rejected):
                refused = [(pack.messages[0], [Refusal(error.code, str(error), ())]), *refused]
            try:
                self._file(pack, refused)
            except WiderowError as failed:
                self._try_again(pack, failed)
            else:
                self._release(pack)

    def _file(self, pack: Pack, refused: Iterable[tuple[Incoming, Sequence[Refusal]]]) -> None:
        """What was filed when the pack was tried before is not filed again."""
        for message, refusals in refused:
            began_s = time.monotonic()
            if began_s < self._file_s:
                raise Unavailable("the store did not take a dead letter a moment ago")
            try:
                self._letters(message, refusals, pack.filed)
            except Unavailable:
                now_s = time.monotonic()
                self._file_s = now_s + (now_s - began_s)
                raise

    def _release(self, pack: Pack) -> None:
        for message in pack.messages:
            place = message.place
            self._in_flight -= place.size
            place.line.finish(place)

    def _try_again(self, pack: Pack, error: WiderowError) -> None:
        self._counters.kafka_retries.labels(self._topic, error.code).inc()
        self._warn(error.code, "%s is handed over again: %s", pack.messages[0].source, error)
        delay_s = min(_LAST_RETRY_S, _FIRST_RETRY_S * 2 ** min(pack.attempts, 10))
        pack.attempts += 1
        self._later(pack, delay_s)

    def _later(self, pack: Pack, delay_s: float) -> None:
        heapq.heappush(self._again, (time.monotonic() + delay_s, next(self._numbers), pack))

    def _retry(self) -> None:
        now_s, handed_in = time.monotonic(), False
        while self._again and self._again[0][0] <= now_s and time.monotonic() < now_s + _RETRYING_S:
            _, _, pack = heapq.heappop(self._again)
            if all(message.place.line.gone for message in pack.messages):
                self._release(pack)
            else:
                self._hand_in(pack)
                handed_in = True
        if handed_in:
            self._pipeline.wake()

    # -- offsets

    def _partitions(self, lines: Iterable[Line]) -> list[TopicPartition]:
        return [TopicPartition(line.topic, line.partition) for line in lines]

    def _commit(self, lines: Iterable[Line], *, wait: bool) -> None:
        due = [(line, at) for line in lines if (at := line.to_commit()) is not None]
        if not due:
            return
        offsets = [TopicPartition(line.topic, line.partition, at) for line, at in due]
        try:
            if wait:
                self._consumer.commit(offsets=offsets, asynchronous=False)
            else:
                self._consumer.commit(offsets=offsets, asynchronous=True)
        except KafkaException as error:
            self._warn("commit", "%s: offsets could not be committed: %s", self._topic, error.args[0].str())
            return
        for line, at in due:
            line.committed = at  # an asynchronous one may yet fail; see `_committed`

    def _committed(self, error: KafkaError | None, partitions: Sequence[TopicPartition]) -> None:
        """Kafka's answer to an asynchronous commit. What failed is told again with the next."""
        for told in partitions:
            line = self._lines.get(told.partition)
            if line is not None and (error is not None or told.error is not None):
                line.committed = None
        if error is not None:
            self._warn("commit", "%s: offsets could not be committed: %s", self._topic, error.str())

    # -- partitions that come and go

    def _on_assign(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self._counters.kafka_rebalances.labels(self._topic, "assigned").inc()
        log.info("%s: partitions %s are ours now", self._topic, _numbers(partitions))
        for one in partitions:
            self._lines[one.partition] = Line(one.topic, one.partition)
            self._new_lines.append(self._lines[one.partition])
        consumer.incremental_assign(list(partitions))
        if self._paused and partitions:
            consumer.pause(list(partitions))
        self._changed = True

    def _begin(self) -> None:
        """Where partitions that came were left, before anything of them is committed. Not known: no gap is seen there."""
        lines, self._new_lines = [line for line in self._new_lines if not line.gone], []
        try:
            for found in self._consumer.committed(self._partitions(lines), timeout=1.0) if lines else ():
                if found.offset >= 0:
                    self._lines[found.partition].begin(found.offset)
        except KafkaException as error:
            self._warn("begin", "%s: where it was left is not known: %s", self._topic, error.args[0].str())

    def _tell(self) -> None:
        """Topics may get more partitions at any time; then everybody is assigned anew, and asks. Not while librdkafka calls
        us back: it ends the process if it is asked something then.
        """
        self._changed = False
        try:
            count = partition_counts(self._consumer, self._kafka)[self._lane]
        except WiderowError as error:
            self._warn("count", "%s: the number of its partitions is not known: %s", self._topic, error)
            self._changed = True
            return
        self.assigned(sorted(self._lines), max(1, count))

    def _on_revoke(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self._counters.kafka_rebalances.labels(self._topic, "revoked").inc()
        self._hand_over([self._lines[one.partition] for one in partitions if one.partition in self._lines])
        log.info("%s: partitions %s are handed over", self._topic, _numbers(partitions))
        consumer.incremental_unassign(list(partitions))

    def _on_lost(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        """Others have them already: there is nothing to commit."""
        self._counters.kafka_rebalances.labels(self._topic, "lost").inc()
        log.warning("%s: partitions %s were lost", self._topic, _numbers(partitions))
        self._let_go([self._lines[one.partition] for one in partitions if one.partition in self._lines])
        with suppress(KafkaException):
            consumer.incremental_unassign(list(partitions))

    def _hand_over(self, lines: Sequence[Line]) -> None:
        """Finish what was begun, for a time; commit; let go."""
        until_s = time.monotonic() + self._kafka.revoke_timeout_s
        self._handing_over = True
        while not all(line.idle for line in lines) and time.monotonic() < until_s:
            self._settle(wait_s=0.01)
            self._retry()
        self._settle()
        self._handing_over = False
        self._commit(lines, wait=True)
        self._let_go(lines)

    def _let_go(self, lines: Sequence[Line]) -> None:
        for line in lines:
            line.gone = True
            self._lines.pop(line.partition, None)
            with suppress(KeyError):
                self._counters.kafka_lag.remove(line.topic, str(line.partition))
        self._changed = True

    # -- what others can see

    def _look(self, now_s: float) -> None:
        """Bring gauges up to date."""
        self._counters.kafka_in_flight.labels(self._topic).set(self._in_flight)
        # What a fetch said is known; a partition that is paused is not fetched from, so it is asked for.
        ask = self._paused and now_s >= self._ask_s
        if ask:
            self._ask_s = now_s + _LOOK_PAUSED_S
        try:
            unknown = [line for line in self._lines.values() if line.next is None]
            if unknown:
                for found in self._consumer.committed(self._partitions(unknown), timeout=1.0):
                    if found.offset >= 0:
                        self._lines[found.partition].begin(found.offset)
            for line in self._lines.values():
                where = TopicPartition(line.topic, line.partition)
                cached = not ask and not line.gaps
                told = self._consumer.get_watermark_offsets(where, timeout=0.5, cached=cached)
                marks = cast("tuple[int, int] | None", told)  # None, whatever its types say, when nobody answers
                if marks is not None and not cached and (missed := line.missed(marks[0])):
                    self._counters.kafka_missed.labels(self._topic).inc(missed)
                    log.error("%s/%d: Kafka deleted %d messages before they were taken", line.topic, line.partition, missed)
                if marks is not None and marks[1] >= 0:
                    done = marks[0] if line.next is None else line.next
                    self._counters.kafka_lag.labels(line.topic, str(line.partition)).set(max(0, marks[1] - done))
        except KafkaException as error:
            self._warn("lag", "%s: the lag is not known: %s", self._topic, error.args[0].str())

    def _warn(self, what: str, text: str, *parts: object) -> None:
        """Now and then, for each thing there is to say."""
        now_s = time.monotonic()
        if now_s >= self._warned_s.get(what, 0.0):
            self._warned_s[what] = now_s + _WARN_S
            log.warning(text, *parts)


def _numbers(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(str(one.partition) for one in partitions) or "none"
