"""Kafka as the end of a front's pipeline: batches become messages, and are acknowledged when every replica has them.

Rule 1: a job is settled without an error only when Kafka has confirmed all its messages (`acks=all`, idempotent).
Rule 2: a message that is not confirmed in time fails its jobs (`Unavailable`). It may have arrived all the same: sending the
reports again does no harm.
Rule 3: what waits to be sent is bounded. When it is full, the commit waits, and with it everyone behind.
Rule 4: a front registers no devices. It refuses those that are unknown, where a tenant wants that; workers do the rest.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from widerow.config import Config
from widerow.ingest.kafka.connect import ASK_S, partition_counts, topics
from widerow.ingest.kafka.message import Header, Outgoing, headers_of, messages_of
from widerow.ingest.kafka.send import Sender
from widerow.model.arrays import Bytes, Flags
from widerow.model.batch import Batch
from widerow.model.errors import Refusal, StoreUnavailable, WiderowError, unexpected
from widerow.model.merge import merge
from widerow.model.names import Names
from widerow.model.tenant import Tenant
from widerow.model.times import MS, SECOND, Clock, whole_ms
from widerow.ops.counters import Counters
from widerow.pipeline.apportion import refusals_by_job, starts_of, without_unregistered
from widerow.pipeline.job import Job, Lane, Settle

log = logging.getLogger(__name__)

_RECOUNT_S = 60.0
"""How often the number of partitions is asked for again. Meanwhile devices stay where they were, which does no harm."""
_STEP_S = 0.005
"""For how long Kafka's word is waited for before somebody else may have a turn."""


class Registry(Protocol):
    """What a front asks of the catalog."""

    def __call__(self, tenant: Tenant, names: Names, used: Flags) -> Bytes:
        """A code per name: 0 if it is registered, or may be."""


class KafkaSink:
    """Sends to Kafka. One thread commits; see `Sink`."""

    backlog_bytes = 64 << 10

    def __init__(self, config: Config, clock: Clock, counters: Counters, registry: Registry | None = None) -> None:
        """`registry`: who is asked for the devices of tenants that do not register them by themselves; None: nobody."""
        self._kafka, self._clock, self._counters = config.kafka, clock, counters
        self._late_us = config.backfill.after_s * SECOND
        self._topics = topics(config.kafka)
        self._partitions: dict[Lane, int] = {}
        self._counted_s = 0.0
        self.sender = Sender(config.kafka, counters)
        self._registry = registry

    def commit(self, work: Sequence[tuple[str, list[Job]]], settle: Settle) -> None:
        sending = _Sending(settle)
        deadline_s = self.sender.deadline_s()
        for _, jobs in work:  # one that fails fails alone
            try:
                messages = self._prepare(jobs, self._counted(), sending)
            except WiderowError as error:
                sending.fail(jobs, error)
            except Exception as error:
                log.exception("preparing messages failed")
                sending.fail(jobs, unexpected(error))
            else:
                headers = headers_of(jobs[0].tenant.name, whole_ms(self._clock.now_us() + MS - 1))
                for message, owners in messages:
                    self._send(message, owners, headers, sending, deadline_s)
        while sending.waiting and time.monotonic() < deadline_s:
            self.sender.poll(_STEP_S)
        if sending.waiting:
            sending.end()
            self.sender.start_over("it does not say what became of messages")
        if sending.failure:
            self._counters.commit_failures.labels(sending.failure.code).inc()

    def close(self) -> None:
        """Nothing is waiting: a commit waits for its own messages."""
        self.sender.close()

    # -- before it is sent

    def _counted(self) -> dict[Lane, int]:
        """How many partitions there are, asked now and then."""
        now_s = time.monotonic()
        if self._partitions and now_s - self._counted_s < _RECOUNT_S:
            return self._partitions
        try:
            found = partition_counts(self.sender.producer, self._kafka, min(ASK_S, float(self._kafka.send_timeout_s)))
        except WiderowError:
            if not self._partitions:
                raise
        else:
            missing = [self._topics[lane] for lane, count in found.items() if not count]
            if missing:
                raise StoreUnavailable(f"Kafka has no topic {', '.join(missing)}: make it (see docs/guides/kafka.md)")
            self._partitions = found
        self._counted_s = now_s
        return self._partitions

    def _prepare(self, jobs: list[Job], partitions: dict[Lane, int], sending: _Sending) -> list[tuple[Outgoing, list[Job]]]:
        """The messages of a tenant, each with the jobs that wait for it. What is refused is noted, or settled at once."""
        tenant = jobs[0].tenant
        batch = merge([job.batch for job in jobs if job.batch is not None])
        owner = np.searchsorted(starts_of(jobs), batch.position, side="right") - 1
        batch, refusals = self._without_unknown(tenant, batch)
        late = batch.time_us < (self._clock.now_us() - self._late_us if self._late_us else 0)
        messages, too_large = messages_of(tenant.name, batch, late, partitions, self._kafka.max_message_kib << 10)
        if len(too_large):
            reason = f"the report is larger than a message may be (kafka.max_message_kib: {self._kafka.max_message_kib})"
            refusals.append(Refusal("too-large", reason, batch.position[too_large].tolist()))
        out = [(message, [jobs[j] for j in np.unique(owner[batch.position[message.rows]]).tolist()]) for message in messages]
        sending.expect(jobs, refusals_by_job(jobs, refusals), [owners for _, owners in out])
        return out

    def _without_unknown(self, tenant: Tenant, batch: Batch) -> tuple[Batch, list[Refusal]]:
        if self._registry is None or tenant.registers_devices:
            return batch, []
        used = np.zeros(len(batch.device.names), np.bool_)
        used[batch.device.codes] = True
        return without_unregistered(tenant, batch, self._registry(tenant, batch.device.names, used))

    # -- sending

    def _send(
        self,
        message: Outgoing,
        owners: list[Job],
        headers: list[Header],
        sending: _Sending,
        deadline_s: float,
    ) -> None:
        told = partial(self._told, sending, owners)
        topic = self._topics[message.lane]
        self.sender.send(topic, message.value, message.key, told, deadline_s, partition=message.partition, headers=headers)

    def _told(self, sending: _Sending, owners: list[Job], error: WiderowError | None) -> None:
        if error is not None:
            self._counted_s = -_RECOUNT_S  # perhaps a topic or a partition is no more
        sending.told(owners, error)


class _Sending:
    """The jobs of a commit, and for how many messages each still waits."""

    def __init__(self, settle: Settle) -> None:
        self._settle = settle
        self._left: dict[int, _Waiting] = {}
        self.failure: WiderowError | None = None
        """Why a job failed, if one did."""

    @property
    def waiting(self) -> bool:
        return bool(self._left)

    def expect(self, jobs: Sequence[Job], refusals: Sequence[Sequence[Refusal]], owners: Sequence[Sequence[Job]]) -> None:
        """Jobs with what is refused of them, and for each message those that wait for it."""
        for job, refused in zip(jobs, refusals, strict=True):
            self._left[id(job)] = _Waiting(job, refused)
        for several in owners:
            for job in several:
                self._left[id(job)].messages += 1
        for job in jobs:
            self._settle_if_done(job)

    def told(self, owners: Sequence[Job], error: WiderowError | None) -> None:
        """A message of theirs was delivered, or was not."""
        for job in owners:
            waiting = self._left.get(id(job))
            if waiting is not None:
                waiting.messages -= 1
                waiting.error = waiting.error or error
                self._settle_if_done(job)

    def fail(self, jobs: Sequence[Job], error: WiderowError) -> None:
        self.failure = error
        for job in jobs:
            self._left.pop(id(job), None)
            self._settle(job, (), error)

    def end(self) -> None:
        """Whoever still waits waits in vain."""
        for waiting in list(self._left.values()):
            self.fail([waiting.job], StoreUnavailable("Kafka did not confirm in time (kafka.send_timeout_s)"))

    def _settle_if_done(self, job: Job) -> None:
        waiting = self._left[id(job)]
        if not waiting.messages:
            del self._left[id(job)]
            self.failure = waiting.error or self.failure
            self._settle(job, waiting.refused, waiting.error)


@dataclass(slots=True)
class _Waiting:
    job: Job
    refused: Sequence[Refusal]
    messages: int = 0
    error: WiderowError | None = None
