"""The front for devices that speak MQTT: blocks of messages from the broker into jobs of the pipeline.

Rule 1: a message is acknowledged to the broker when its reports are durable, or when it is refused for good and that is
counted, filed and told. What can be tried again (an overload, a store that does not answer) is, later and later, and stays
unacknowledged: the receive maximum then slows the broker down. What passed its limits once is not charged again for that.
Rule 2: the topic says whose report it is. A payload that names another device is refused.
Rule 3: messages of one tenant that arrive together are one job. None suffers for its neighbours: a job that is rejected
whole is tried again in halves, and two messages that contradict each other are written one after the other (`order`).
Reports without a time have one of their own (`stamps`), so they do not.
Rule 4: the client's thread never waits for the store, so that the connection outlives a store that does not answer. In
front of Kafka nothing needs it: what was known of tenants counts, and all are (`watch`) but those that are new or do not
exist; statuses wait (`statuses`); and what is refused is filed within `_FILING_S`, or not at all.
Rule 5: backlog has a topic, and for that another gateway like this one, with its own session, window and threads: PUBACKs
leave in order, so in one session live messages would wait at the broker for the backlog before them.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from widerow.catalog.online import Status
from widerow.catalog.recent import GRACE_US
from widerow.catalog.tenants import Tenants
from widerow.codec.decoded import Decoded, or_rejected
from widerow.codec.json import JsonDecoder
from widerow.codec.mqtt import warm_up as warm_codec
from widerow.config import Mqtt
from widerow.ingest.mqtt.aside import Aside
from widerow.ingest.mqtt.client import Client
from widerow.ingest.mqtt.order import Order
from widerow.ingest.mqtt.parcel import Parcel, reports_at_most
from widerow.ingest.mqtt.refusals import DeadLetter, Refusals
from widerow.ingest.mqtt.settings import client_settings, topic_templates
from widerow.ingest.mqtt.statuses import Statuses, Tell, is_online_of
from widerow.ingest.mqtt.topics import OTHER, STATUS, TELEMETRY, Parsed, Topics
from widerow.ingest.mqtt.watch import Watch
from widerow.ingest.mqtt.window import Block
from widerow.ingest.stamps import Stamps, dated, timeless
from widerow.model.arrays import Ints
from widerow.model.errors import NotFound, Overloaded, Refusal, Rejected, TenantBusy, Unavailable, WiderowError
from widerow.model.lane import Lane
from widerow.model.tenant import Tenant
from widerow.model.times import SECOND, Clock
from widerow.ops.counters import Counters
from widerow.pipeline.job import Job, Outcome
from widerow.pipeline.pipeline import Pipeline

log = logging.getLogger(__name__)

_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.02, 2.0
_FILING_S = 60.0
"""For how long filing a message that is refused is tried, while those behind it wait; and how long a store may not have
answered for that to be tried at all.
"""
_MOST_UNKNOWN = 10_000


@dataclass(frozen=True, slots=True)
class Both:
    """What the gateways of live reports and of backlog have together; it is the former's to start and stop."""

    refusals: Refusals
    stamps: Stamps
    watch: Watch


class Gateway:
    """Runs from `start` to `stop`. The pipeline and the catalog are their owner's, and outlive it."""

    def __init__(
        self,
        config: Mqtt,
        *,
        pipeline: Pipeline,
        tenants: Tenants,
        clock: Clock,
        counters: Counters,
        json: JsonDecoder | None = None,
        dead_letter: DeadLetter | None = None,
        online: Tell | None = None,
        trust_us: int = GRACE_US,
        lane: Lane = Lane.LIVE,
        both: Both | None = None,
    ) -> None:
        """`trust_us`: for how long what is known of tenants counts while the store does not answer. `lane`, `both`: of the
        one for backlog, which this one makes.
        """
        telemetry, status, errors, *backfill = topic_templates(config)
        self._pipeline, self._tenants, self._clock, self._counters = pipeline, tenants, clock, counters
        self._json = json or JsonDecoder()
        self._max_payload = config.max_payload_kib << 10
        self._lane = lane
        ours = (telemetry, status) if lane is Lane.LIVE else (backfill[0], None)
        self._topics = Topics(*ours)
        self._unknown: dict[str, int] = {}
        self._trust_us = trust_us
        self._aside, self._order = Aside(), Order()
        self._stamps, self._watch = (both.stamps, both.watch) if both else (Stamps(), Watch(tenants.read_all))
        self.client = Client(client_settings(config, *ours, lane=lane), self._received, clock, counters)
        counters.mqtt_unacked.labels(lane.value).set_function(lambda: self.client.window.held_bytes)
        guarded = self._watch.guarded
        self._current = guarded(tenants.current)
        file = guarded(dead_letter) if dead_letter else None
        self._refusals = both.refusals if both else Refusals(errors, self.client.publish, clock, counters, file)
        tell = guarded(online) if online else lambda _: None
        self._statuses = Statuses(tell, self.client.done, self._aside, counters)
        self.backlog: Gateway | None = None
        """None: there is no topic for it, or this is it."""
        if backfill and lane is Lane.LIVE:
            self.backlog = Gateway(
                config,
                pipeline=pipeline,
                tenants=tenants,
                clock=clock,
                counters=counters,
                json=json,
                trust_us=trust_us,
                lane=Lane.BACKFILL,
                both=Both(self._refusals, self._stamps, self._watch),
            )

    def start(self) -> None:
        warm_codec()
        if self._lane is Lane.LIVE:
            self._watch.start()
        self._aside.start()
        self.client.start()
        if self.backlog:
            self.backlog.start()

    def stop(self, grace_s: float = 10.0) -> bool:
        """Read nothing more, wait so long for what is under way, leave the sessions. Whether nothing is left over."""
        by_s = time.monotonic() + grace_s
        if self.backlog:
            self.backlog.client.leave(by_s)
        clean = self.client.stop(grace_s)
        self._aside.stop()
        clean = (self.backlog is None or self.backlog.stop(by_s - time.monotonic())) and clean
        if self._lane is Lane.LIVE:
            self._watch.stop()
        return clean

    def trouble(self) -> str:
        """Why nothing comes from the broker; empty if it can. Not of backlog, which is no reason to send live reports
        elsewhere: the log and `widerow_mqtt_connected` tell that.
        """
        return f"no connection to the MQTT broker: {self.client.trouble}" if self.client.trouble else ""

    # -- in, by the client's thread

    def _received(self, block: Block) -> None:
        parsed = self._topics.parse(block.messages)
        fits = block.messages.payload_size <= self._max_payload
        reports = "telemetry" if self._lane is Lane.LIVE else "backfill"
        for kind, name in ((TELEMETRY, reports), (STATUS, "status"), (OTHER, "other")):
            rows = np.flatnonzero(parsed.kind == kind)
            if not len(rows):
                continue
            self._counters.mqtt_messages.labels(name).inc(len(rows))
            if kind == TELEMETRY:
                for parcel in self._parcels(block, parsed, rows[fits[rows]]):
                    if self._tenants.at_hand(parcel.tenant, block.received_us) is not None:
                        self._submit(parcel)
                    else:
                        self._aside.put(partial(self._submit, parcel))
                for parcel in self._parcels(block, parsed, rows[~fits[rows]]):
                    self._aside.put(partial(self._refuse_large, parcel))
            elif kind == STATUS:
                self._aside.put(partial(self._take_statuses, block, rows, parsed, self._clock.version_us()))
            else:
                self._aside.put(partial(self._refuse_topics, block, rows))

    def _parcels(self, block: Block, parsed: Parsed, rows: Ints) -> Iterator[Parcel]:
        """Messages by tenant."""
        if not len(rows):
            return
        tenants = parsed.tenant[rows]
        version_us = self._clock.version_us()
        counts = reports_at_most(block.messages, rows)
        first_us = self._stamps.take(block.received_us, int(counts.sum())) + np.cumsum(counts) - counts
        for code in np.unique(tenants).tolist():
            its = tenants == code
            own = rows[its]
            yield Parcel(parsed.tenants[code], block, own, parsed.devices(own), version_us, first_us[its])

    # -- through the pipeline

    def _submit(self, parcel: Parcel) -> None:
        if self.client.window.is_stale(parcel.block):  # it is delivered again
            self.client.done(parcel.block, parcel.rows)
            return
        try:
            tenant = self._tenant(parcel.tenant)
        except Unavailable as error:
            self._later(parcel, error)
            return
        if tenant is None:
            self._aside.put(partial(self._refuse_unknown, parcel))
            return
        size = int(parcel.block.messages.payload_size[parcel.rows].sum()) or 1
        job = Job(
            tenant,
            size,
            partial(self._decode, parcel, tenant.limits.most_values),
            lambda outcome: self._done(parcel, job, outcome),
        )
        job.lane, job.admitted = self._lane, parcel.admitted
        try:
            self._pipeline.submit(job)
        except Unavailable as error:
            job.done = _told
            self._failed(parcel, job, error)

    def _tenant(self, name: str) -> Tenant | None:
        now_us = self._clock.now_us()
        known_us = self._unknown.get(name)
        if known_us is not None and abs(now_us - known_us) < self._tenants.refresh_us:
            return None
        try:
            return self._current(name, now_us)
        except Unavailable:
            if tenant := self._trusted(name):
                return tenant
            raise
        except NotFound:
            if len(self._unknown) >= _MOST_UNKNOWN:
                self._unknown.clear()
            self._unknown[name] = now_us
            return None

    def _trusted(self, name: str) -> Tenant | None:
        """The store does not answer: what it said in the last minutes counts."""
        now_us = self._clock.now_us()
        return self._tenants.at_hand(name, now_us) if self._tenants.trust(name, now_us, self._trust_us) else None

    def _decode(self, parcel: Parcel, max_values: int) -> Decoded:
        payloads = parcel.block.messages.payloads(parcel.rows)
        return or_rejected(
            lambda: _dated(
                parcel,
                self._json.decode_documents(
                    payloads.data,
                    payloads.offsets,
                    parcel.devices,
                    now_us=parcel.block.received_us,
                    version_us=parcel.version_us,
                    max_values=max_values,
                ),
            )
        )

    def _done(self, parcel: Parcel, job: Job, outcome: Outcome) -> None:
        """In whatever thread the job ended: what takes time is put aside."""
        job.done = _told  # it knows the job, and would keep it and its messages in memory until garbage is collected
        error = outcome.error
        if isinstance(error, Rejected):
            if len(parcel) > 1:
                half = len(parcel) // 2
                for which in (np.arange(half), np.arange(half, len(parcel))):
                    self._aside.put(partial(self._submit, parcel.part(which)))
            else:
                self._aside.put(partial(self._refuse, parcel, [Refusal(error.code, str(error), [0])]))
        elif error is not None:
            self._failed(parcel, job, error)
        elif outcome.refusals or (not parcel.in_order and self._order.is_ahead(parcel.version_us)):
            if not parcel.in_order and _has_conflict(outcome.refusals):
                self._order.expect()
            self._aside.put(partial(self._settle, parcel, list(outcome.refusals)))
        else:
            self.client.done(parcel.block, parcel.rows)

    def _failed(self, parcel: Parcel, job: Job, error: WiderowError) -> None:
        """Try again, what passed its limits without asking them again. What they refused stays refused; and live reports do
        not wait until there is room for the backlog that came with them.
        """
        if job.batch is None or parcel.admitted:
            self._later(parcel, error)
            return
        if job.admitted:
            limited = [r for r in job.refusals if r.spent]  # what else is wrong is found again
            final = [replace(r, positions=np.setdiff1d(r.positions, job.batch.position).tolist()) for r in limited]
            if final := [r for r in final if len(r)]:
                self._aside.put(partial(self._refuse, parcel, final))
            gone = np.array([position for r in final for position in r.positions], np.int64)
            self._later(replace(parcel.part(np.setdiff1d(np.arange(len(parcel)), gone)), admitted=True), error)
            return
        old = np.unique(job.batch.position[~self._pipeline.is_live(job.batch)]).astype(np.int64)
        live = np.setdiff1d(np.arange(len(parcel)), old)
        if isinstance(error, Overloaded | TenantBusy) and len(old) and len(live):
            self._aside.put(partial(self._submit, parcel.part(live)))
            parcel = parcel.part(old)
        self._later(parcel, error)

    def _later(self, parcel: Parcel, error: WiderowError) -> None:
        parcel.tries += 1
        delay_s = min(_LONGEST_DELAY_S, _FIRST_DELAY_S * 2 ** min(parcel.tries, 10))
        self._counters.mqtt_retries.labels(error.code).inc(len(parcel))
        self._aside.put(partial(self._submit, parcel), delay_s=delay_s * random.uniform(0.5, 1.0))  # noqa: S311 - spread

    # -- aside

    def _settle(self, parcel: Parcel, refusals: list[Refusal]) -> None:
        """Some messages were refused, or lose against earlier ones. Those that only contradict others are written again."""
        none = np.array([], np.int64)
        bad = np.unique(np.concatenate([none, *(np.asarray(r.positions, np.int64) for r in refusals)]))
        good, conflicts = np.setdiff1d(np.arange(len(parcel)), bad), none
        if len(parcel) > 1 and not parcel.in_order:
            others = [np.asarray(r.positions, np.int64) for r in refusals if r.code != "conflict"]
            conflicts = np.setdiff1d(bad, np.concatenate([none, *others]))
        again = []
        if not parcel.in_order:
            known = parcel.tenant, parcel.devices, parcel.version_us
            again = self._order.again(*known, good, conflicts, expected=_has_conflict(refusals))
        elsewhere = np.concatenate([none, *(positions for positions, _, _ in again)])
        self.client.done(parcel.block, parcel.rows[np.setdiff1d(good, elsewhere)])
        refused = [replace(r, positions=np.setdiff1d(r.positions, conflicts).tolist()) for r in refusals]
        self._refuse(parcel, [r for r in refused if len(r)])
        for positions, version_us, admitted in again:
            part = replace(parcel.part(positions), version_us=version_us, admitted=admitted, in_order=True)
            # Not before its version: that would be one of the future.
            self._clock.cover(version_us)
            early_us = version_us - self._clock.version_us()
            self._aside.put(partial(self._submit, part), delay_s=max(0.0, early_us / SECOND))

    def _refuse(self, parcel: Parcel, refusals: list[Refusal]) -> None:
        """The messages at these positions of a parcel; each is acknowledged once all that is wrong with it is filed."""
        reasons: dict[int, list[Refusal]] = {}
        for refusal in refusals:
            for position in set(refusal.positions):
                reasons.setdefault(position, []).append(refusal)
        for position in sorted(reasons):
            self._refuse_one(parcel, position, reasons[position])

    def _refuse_one(self, parcel: Parcel, position: int, reasons: list[Refusal], by_s: float | None = None) -> None:
        messages, row = parcel.block.messages, int(parcel.rows[position])
        device, topic, payload = parcel.devices[position], messages.topic(row), messages.payload(row)
        began_s = time.monotonic()
        while reasons:
            try:
                why = reasons[0]
                said = why.code, why.reason, why.spent
                self._refusals.file(parcel.tenant, device, topic, payload, *said, version_us=parcel.version_us)
            except Unavailable as error:
                by_s = by_s or began_s + _FILING_S
                if time.monotonic() < by_s and self._watch.away_s() < _FILING_S:
                    self._counters.mqtt_retries.labels(error.code).inc()
                    again = partial(self._refuse_one, parcel, position, reasons, by_s)
                    self._aside.put(again, delay_s=_LONGEST_DELAY_S)
                    return
                self._counters.dead_letters_dropped.labels(parcel.tenant).inc()
                self._refusals.tell(parcel.tenant, device, topic, why.code, why.reason, why.spent)
            reasons = reasons[1:]
        self.client.done(parcel.block, parcel.rows[position : position + 1])

    def _refuse_large(self, parcel: Parcel) -> None:
        try:
            tenant = self._tenant(parcel.tenant)
        except Unavailable:
            self._aside.put(partial(self._refuse_large, parcel), delay_s=_LONGEST_DELAY_S)
            return
        if tenant is None:
            self._refuse_unknown(parcel)
            return
        most = f"{self._max_payload >> 10} KiB, as mqtt.max_payload_kib allows"
        reason = f"the payload is larger than {most}; send several smaller ones"
        self._refuse(parcel, [Refusal("too-large", reason, range(len(parcel)))])

    def _refuse_unknown(self, parcel: Parcel) -> None:
        reason = f"tenant {parcel.tenant!r} does not exist; `widerow tenant create` makes one"
        for position, row in enumerate(parcel.rows.tolist()):
            topic = parcel.block.messages.topic(row)
            self._refusals.tell(parcel.tenant, parcel.devices[position], topic, "unknown-tenant", reason)
        self.client.done(parcel.block, parcel.rows)

    def _refuse_topics(self, block: Block, rows: Ints) -> None:
        for row in rows.tolist():
            self._refusals.count(block.messages.topic(row), "topic", "no tenant and device can be read from this topic")
        self.client.done(block, rows)

    def _take_statuses(self, block: Block, rows: Ints, parsed: Parsed, version_us: int) -> None:
        names = [parsed.names(row) for row in rows.tolist()]
        try:
            exists = {tenant: self._tenant(tenant) is not None for tenant in {tenant for tenant, _ in names}}
        except Unavailable as error:
            self._counters.mqtt_retries.labels(error.code).inc(len(rows))
            again = partial(self._take_statuses, block, rows, parsed, version_us)
            self._aside.put(again, delay_s=_LONGEST_DELAY_S)
            return
        said: list[Status] = []
        for row, (tenant, device) in zip(rows.tolist(), names, strict=True):
            topic, payload = block.messages.topic(row), block.messages.payload(row)
            is_online = is_online_of(payload)
            if not payload:  # takes a retained message back
                continue
            if not exists[tenant]:
                self._refusals.tell(tenant, device, topic, "unknown-tenant", f"tenant {tenant!r} does not exist")
            elif is_online is None:
                self._refusals.tell(tenant, device, topic, "syntax", "a status is `online` or `offline`")
            else:
                said.append(Status(tenant, device, is_online, block.received_us, version_us))
        self._statuses.put(said, block, rows)


def _dated(parcel: Parcel, decoded: Decoded) -> Decoded:
    """Reports without a time have one of their message's own: it is the same whenever the message is tried again."""
    batch = decoded.batch
    rows = timeless(batch, parcel.block.received_us)
    return replace(decoded, batch=dated(batch, rows, batch.position[rows], parcel.first_us)) if len(rows) else decoded


def _has_conflict(refusals: Iterable[Refusal]) -> bool:
    return any(refusal.code == "conflict" for refusal in refusals)


def _told(_outcome: Outcome) -> None:
    """Once is enough."""
