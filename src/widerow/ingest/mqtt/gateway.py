"""The front for devices that speak MQTT: blocks of messages from the broker into jobs of the pipeline.

Rule 1: a message is acknowledged to the broker when its reports are durable, or when it is refused for good and that is
counted, filed and told. What can be tried again (an overload, a store that does not answer) is, later and later, and stays
unacknowledged: the receive maximum then slows the broker down.
Rule 2: the topic says whose report it is. A payload that names another device is refused.
Rule 3: messages of one tenant that arrive together are one job. None suffers for its neighbours: a job that is rejected
whole is tried again in halves, and two messages that contradict each other are written one after the other.
Rule 4: the client's thread never waits for the store, so that the connection outlives a store that does not answer.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import msgspec
import numpy as np

from widerow.catalog.tenants import Tenants
from widerow.codec.decoded import Decoded, or_rejected
from widerow.codec.json import JsonDecoder
from widerow.codec.mqtt import warm_up as warm_codec
from widerow.config import Mqtt
from widerow.ingest.mqtt.aside import Aside
from widerow.ingest.mqtt.client import Client
from widerow.ingest.mqtt.refusals import DeadLetter, Refusals
from widerow.ingest.mqtt.settings import client_settings
from widerow.ingest.mqtt.topics import OTHER, STATUS, TELEMETRY, Parsed, Template, Topics
from widerow.ingest.mqtt.window import Block
from widerow.model.arrays import Ints
from widerow.model.errors import NotFound, Refusal, Rejected, Unavailable, WiderowError
from widerow.model.names import Coded
from widerow.model.tenant import Tenant
from widerow.model.times import MS, Clock, whole_ms
from widerow.ops.counters import Counters
from widerow.pipeline.job import Job, Outcome
from widerow.pipeline.pipeline import Pipeline

log = logging.getLogger(__name__)

_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.02, 2.0
_MOST_UNKNOWN = 10_000

Online = Callable[[str, str, bool, int], None]
"""Told that a device of a tenant came online (or went offline) at a time. May raise `Unavailable`: then it is told again."""


@dataclass(slots=True)
class Parcel:
    """Messages of one tenant that came in one block."""

    tenant: str
    block: Block
    rows: Ints
    devices: Coded
    version_us: int
    tries: int = 0

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, which: Ints, version_us: int | None = None) -> Parcel:
        version = self.version_us if version_us is None else version_us
        return Parcel(self.tenant, self.block, self.rows[which], self.devices.take(which), version)


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
        online: Online | None = None,
    ) -> None:
        telemetry, status = (
            Template("mqtt.telemetry_topic", config.telemetry_topic),
            Template("mqtt.status_topic", config.status_topic),
        )
        errors = Template("mqtt.errors_topic", config.errors_topic)
        self._pipeline, self._tenants, self._clock, self._counters = pipeline, tenants, clock, counters
        self._json, self._online = json or JsonDecoder(), online
        self._max_payload = config.max_payload_kib << 10
        self._topics = Topics(telemetry, status)
        self._unknown: dict[str, int] = {}
        self._aside = Aside()
        self.client = Client(client_settings(config, telemetry, status), self._received, clock, counters)
        counters.mqtt_unacked.set_function(lambda: self.client.window.held_bytes)
        self._refusals = Refusals(errors, self.client.publish, clock, counters, dead_letter)

    def start(self) -> None:
        warm_codec()
        self._aside.start()
        self.client.start()

    def stop(self, grace_s: float = 10.0) -> bool:
        """Read nothing more, wait so long for what is under way, leave the session. Whether nothing is left over."""
        clean = self.client.stop(grace_s)
        self._aside.stop()
        return clean

    def trouble(self) -> str:
        """Why nothing comes from the broker; empty if it can."""
        return f"no connection to the MQTT broker: {self.client.trouble}" if self.client.trouble else ""

    # -- in, by the client's thread

    def _received(self, block: Block) -> None:
        parsed = self._topics.parse(block.messages)
        fits = block.messages.payload_size <= self._max_payload
        for kind, name in ((TELEMETRY, "telemetry"), (STATUS, "status"), (OTHER, "other")):
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
                for row in rows.tolist():
                    self._aside.put(partial(self._status, block, row, *parsed.names(row)))
            else:
                self._aside.put(partial(self._refuse_topics, block, rows))

    def _parcels(self, block: Block, parsed: Parsed, rows: Ints) -> Iterator[Parcel]:
        """Messages by tenant."""
        tenants = parsed.tenant[rows]
        version_us = whole_ms(block.received_us)
        for code in np.unique(tenants).tolist():
            own = rows[tenants == code]
            yield Parcel(parsed.tenants[code], block, own, parsed.devices(own), version_us)

    # -- through the pipeline

    def _submit(self, parcel: Parcel) -> None:
        if self.client.window.is_stale(parcel.block):  # it is delivered again
            self.client.done(parcel.block, parcel.rows)
            return
        try:
            tenant = self._tenant(parcel.tenant)
            if tenant is None:
                self._aside.put(partial(self._refuse_unknown, parcel))
                return
            size = int(parcel.block.messages.payload_size[parcel.rows].sum()) or 1
            self._pipeline.submit(Job(tenant, size, partial(self._decode, parcel), partial(self._done, parcel)))
        except Unavailable as error:
            self._later(parcel, error)

    def _tenant(self, name: str) -> Tenant | None:
        now_us = self._clock.now_us()
        known_us = self._unknown.get(name)
        if known_us is not None and abs(now_us - known_us) < self._tenants.refresh_us:
            return None
        try:
            return self._tenants.current(name, now_us)
        except NotFound:
            if len(self._unknown) >= _MOST_UNKNOWN:
                self._unknown.clear()
            self._unknown[name] = now_us
            return None

    def _decode(self, parcel: Parcel) -> Decoded:
        payloads = parcel.block.messages.payloads(parcel.rows)
        return or_rejected(
            lambda: self._json.decode_documents(
                payloads.data,
                payloads.offsets,
                parcel.devices,
                now_us=parcel.block.received_us,
                version_us=parcel.version_us,
            )
        )

    def _done(self, parcel: Parcel, outcome: Outcome) -> None:
        """In whatever thread the job ended: what takes time is put aside."""
        error = outcome.error
        if isinstance(error, Rejected):
            if len(parcel) > 1:
                half = len(parcel) // 2
                for which in (np.arange(half), np.arange(half, len(parcel))):
                    self._aside.put(partial(self._submit, parcel.part(which)))
            else:
                self._aside.put(partial(self._refuse, parcel, [Refusal(error.code, str(error), [0])]))
        elif error is not None:
            self._later(parcel, error)
        elif outcome.refusals:
            self._aside.put(partial(self._settle, parcel, list(outcome.refusals)))
        else:
            self.client.done(parcel.block, parcel.rows)

    def _later(self, parcel: Parcel, error: WiderowError) -> None:
        parcel.tries += 1
        delay_s = min(_LONGEST_DELAY_S, _FIRST_DELAY_S * 2 ** min(parcel.tries, 10))
        self._counters.mqtt_retries.labels(error.code).inc(len(parcel))
        self._aside.put(partial(self._submit, parcel), delay_s=delay_s * random.uniform(0.5, 1.0))  # noqa: S311 - spread

    # -- aside

    def _settle(self, parcel: Parcel, refusals: list[Refusal]) -> None:
        """Some messages were refused. Those that contradict only their neighbours are sent once more, alone."""
        bad = np.unique(np.concatenate([np.asarray(r.positions, np.int64) for r in refusals]))
        again = np.array([], np.int64)
        if len(parcel) > 1:
            conflicts = [np.asarray(r.positions, np.int64) for r in refusals if r.code == "conflict"]
            others = [np.asarray(r.positions, np.int64) for r in refusals if r.code != "conflict"]
            again = np.setdiff1d(np.concatenate([*conflicts, again]), np.concatenate([*others, again[:0]]))
        self.client.done(parcel.block, np.delete(parcel.rows, bad))
        refused = [replace(r, positions=np.setdiff1d(r.positions, again).tolist()) for r in refusals]
        self._refuse(parcel, [r for r in refused if len(r)])
        later: Counter[str] = Counter()
        for position in again.tolist():
            device = parcel.devices[position]
            later[device] += 1
            self._submit(parcel.part(np.array([position]), parcel.version_us + later[device] * MS))

    def _refuse(self, parcel: Parcel, refusals: list[Refusal]) -> None:
        """The messages at these positions of a parcel; each is acknowledged once all that is wrong with it is filed."""
        reasons: dict[int, list[Refusal]] = {}
        for refusal in refusals:
            for position in set(refusal.positions):
                reasons.setdefault(position, []).append(refusal)
        for position in sorted(reasons):
            self._refuse_one(parcel, position, reasons[position])

    def _refuse_one(self, parcel: Parcel, position: int, reasons: list[Refusal]) -> None:
        messages, row = parcel.block.messages, int(parcel.rows[position])
        device, topic, payload = parcel.devices[position], messages.topic(row), messages.payload(row)
        while reasons:
            try:
                why = reasons[0]
                self._refusals.file(parcel.tenant, device, topic, payload, why.code, why.reason, why.spent)
            except Unavailable as error:
                self._counters.mqtt_retries.labels(error.code).inc()
                self._aside.put(partial(self._refuse_one, parcel, position, reasons), delay_s=_LONGEST_DELAY_S)
                return
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

    def _status(self, block: Block, row: int, tenant: str, device: str) -> None:
        topic, payload = block.messages.topic(row), block.messages.payload(row)
        try:
            if payload and self._tenant(tenant) is None:
                self._refusals.tell(tenant, device, topic, "unknown-tenant", f"tenant {tenant!r} does not exist")
            elif payload:  # an empty one takes a retained message back
                is_online = _is_online(payload)
                if is_online is None:
                    self._refusals.tell(tenant, device, topic, "syntax", "a status is `online` or `offline`")
                elif self._online is not None:
                    self._online(tenant, device, is_online, block.received_us)
        except Unavailable as error:
            self._counters.mqtt_retries.labels(error.code).inc()
            self._aside.put(partial(self._status, block, row, tenant, device), delay_s=_LONGEST_DELAY_S)
            return
        except Rejected as error:
            self._refusals.tell(tenant, device, topic, error.code, str(error))
        except Exception:  # who is online is not worth holding up everything that came after it
            log.exception("the status of a device was not taken")
        self.client.done(block, np.array([row]))


class _Status(msgspec.Struct):
    status: str


def _is_online(payload: bytes) -> bool | None:
    """`online`, `offline`, or an object whose `status` is one of them; None for anything else."""
    text = payload.strip()
    if text[:1] == b"{":
        try:
            text = msgspec.json.decode(text, type=_Status).status.encode()
        except (msgspec.MsgspecError, UnicodeError):
            return None
    return {b"online": True, b"offline": False}.get(text)
