"""Messages of Kafka's, ours and others', into batches: those of one tenant and format together, in packs.

Rule 1: what is wrong with a message is its own: its neighbours of the pack are kept.
Rule 2: a report without a time, and one without a version, has the time that Kafka gave to its message, as often as it is
decoded and whatever our clock says. Within that millisecond its offset says which microsecond: messages of one device
that came in the same one are kept each. So are the reports of one message, each a microsecond later than the one before.
A message that is a little ahead of our clock waits (`ready_us`); a version that is further ahead is refused.
Rule 3: reports of different messages do not contradict each other. Ours were looked at by the front that made them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from widerow.codec.arrow import decode_streams
from widerow.codec.decoded import Decoded
from widerow.codec.json import JsonDecoder
from widerow.ingest.kafka.message import ARROW, FORMAT, JSON, TENANT, VERSION
from widerow.ingest.kafka.offsets import Place
from widerow.ingest.stamps import dated, timeless
from widerow.model.arrays import Ints
from widerow.model.batch import Batch, batch_of
from widerow.model.errors import Refusal
from widerow.model.names import Coded, Names
from widerow.model.tenant import ANY_NUMBER
from widerow.model.times import MAX_TIME_US, MS, SECOND, Clock, format_duration, format_time, whole_ms
from widerow.pipeline.job import Lane

PACK_BYTES = 1 << 20
PACK_MESSAGES = 1_000
MOST_AHEAD_US = 10 * SECOND
"""How far ahead of ours the clock of a sender may be: its messages wait for that long."""


@dataclass(frozen=True, slots=True, eq=False)
class Incoming:
    """A message as it was taken from Kafka."""

    place: Place
    value: bytes
    form: bytes
    tenant: str
    """Empty: it does not say."""
    device: str
    """What its key names; empty if it names none."""
    stamp_us: int
    """When Kafka says it came; when it was taken, if Kafka does not. Its version is that, in whole milliseconds."""
    sent_us: int
    """The clock of the front that made it; 0 if it is not ours."""
    ready_us: int
    """When our clock has passed the sender's, and the message's time; 0 if that was too far ahead to be waited for."""

    @property
    def time_us(self) -> int:
        """For reports without a time. A function of the message: whoever takes it, and however often, gives it the same."""
        return _time_us(self.place, self.stamp_us)

    @property
    def source(self) -> str:
        """For people: where it can be found again."""
        return f"kafka:{self.place.line.topic}/{self.place.line.partition}/{self.place.offset}"


def incoming(message: Message, place: Place, now_us: int) -> Incoming:
    """What a message says of itself."""
    headers = dict(message.headers() or ())
    key = message.key()
    named, _, device = (_text(key) or "").partition("/")
    kind, stamp_ms = message.timestamp()
    stamp_us = now_us if kind == TIMESTAMP_NOT_AVAILABLE or stamp_ms < 0 else min(stamp_ms * MS, MAX_TIME_US)
    form = _bytes(headers.get(FORMAT)) or JSON
    sent = _text(headers.get(VERSION))
    sent_us = int(sent) if sent and sent.isdecimal() and len(sent) < 17 else 0
    # Ours has a time and a version for each report.
    clock_us, until_us = (sent_us, sent_us) if sent_us and form == ARROW else (stamp_us, _time_us(place, stamp_us))
    return Incoming(
        place,
        message.value() or b"",
        form,
        _text(headers.get(TENANT)) or named,
        device,
        stamp_us,
        sent_us,
        until_us if clock_us <= now_us + MOST_AHEAD_US else 0,
    )


def _time_us(place: Place, stamp_us: int) -> int:
    return min(whole_ms(stamp_us) + place.offset % MS, MAX_TIME_US)


def _text(value: str | bytes | None) -> str | None:
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


Filed = dict[tuple[Place, str], set[int]]
"""Of messages and codes, the positions that dead letters were filed for; -1 is the whole message."""


@dataclass(slots=True, eq=False)
class Pack:
    """Messages of one tenant and one format, that take the way together."""

    lane: Lane
    messages: list[Incoming]
    size: int = 0
    attempts: int = 0
    starts: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """Set by decoding: the position of the first report of each message."""
    unread: frozenset[int] = frozenset()
    """Set by decoding: messages that could not be read at all, or have no positions within."""
    filed: Filed = field(default_factory=dict)
    """What need not be filed again when it is tried again."""

    @property
    def tenant(self) -> str:
        return self.messages[0].tenant

    @property
    def sent_us(self) -> int:
        return max(message.sent_us for message in self.messages)

    @property
    def ready_us(self) -> int:
        return max(message.ready_us for message in self.messages)

    def halves(self) -> list[Pack]:
        middle = len(self.messages) // 2
        parts = (self.messages[:middle], self.messages[middle:])
        return [Pack(self.lane, part, sum(max(1, len(m.value)) for m in part), filed=self.filed) for part in parts]

    def refused(self, refusals: Iterable[Refusal]) -> list[tuple[Incoming, list[Refusal]]]:
        """Refusals by message, in its own positions; without any, for the message as a whole."""
        found: dict[int, list[Refusal]] = {}
        for refusal in refusals:
            at = np.asarray(refusal.positions, np.int64)
            owner = np.searchsorted(self.starts, at, side="right") - 1
            for i in np.unique(owner).tolist():
                positions = [] if i in self.unread else (at[owner == i] - self.starts[i]).tolist()
                found.setdefault(i, []).append(Refusal(refusal.code, refusal.reason, positions))
        return [(self.messages[i], found[i]) for i in sorted(found)]


def packs_of(messages: Iterable[Incoming], lane: Lane) -> list[Pack]:
    """Packs in the order of their first messages; within a tenant and format the messages keep theirs."""
    packs: list[Pack] = []
    open_packs: dict[tuple[str, bytes], Pack] = {}
    for message in messages:
        who = (message.tenant, message.form)
        pack = open_packs.get(who)
        if pack is None or pack.size + len(message.value) > PACK_BYTES or len(pack.messages) == PACK_MESSAGES:
            pack = open_packs[who] = Pack(lane, [])
            packs.append(pack)
        pack.messages.append(message)
        pack.size += max(1, len(message.value))
    return packs


class Receiver:
    """Decodes packs. Safe to share between threads."""

    def __init__(self, json: JsonDecoder, clock: Clock) -> None:
        self._json, self._clock = json, clock

    def decode(self, pack: Pack, max_values: int = ANY_NUMBER) -> Decoded:
        """The reports of a pack. What cannot be read at all is a refusal, too: nothing is raised for the sender's faults."""
        form = pack.messages[0].form
        if form == ARROW:
            return self._arrow(pack)
        if form == JSON:
            return self._documents(pack, max_values)
        known = f"{ARROW.decode()} or {JSON.decode()}"
        reason = f"header {FORMAT} is {form[:40]!r}: give {known}, or leave it out for JSON"
        pack.starts, pack.unread = _whole(pack)
        return Decoded(batch_of([]), (Refusal("syntax", reason, pack.starts.tolist()),))

    def _arrow(self, pack: Pack) -> Decoded:
        read = decode_streams(
            [message.value for message in pack.messages],
            [message.time_us for message in pack.messages],
            latest_us=max(self._clock.now_us(), self._clock.version_us()),
        )
        pack.starts, pack.unread = read.starts, read.unread
        return self._without_future(pack, read.batch, read.refusals)

    def _documents(self, pack: Pack, max_values: int) -> Decoded:
        """All at once. Positions are numbers of messages."""
        messages = pack.messages
        texts = Names.of_bytes([message.value for message in messages])
        named = Coded.of([message.device for message in messages])
        nameless = np.array([not name for name in named.names], np.bool_)[named.codes]
        devices = Coded(named.names, np.where(nameless, -1, named.codes).astype(np.int32))
        pack.starts, pack.unread = _whole(pack)
        decoded = self._json.decode_documents(
            texts.data, texts.offsets, devices, now_us=_UNKNOWN_US, version_us=_UNKNOWN_US, max_values=max_values
        )
        batch = decoded.batch
        first_us = np.array([message.time_us for message in messages], np.int64)
        rows, stamp_us = timeless(batch, _UNKNOWN_US), first_us[batch.position]
        batch = replace(dated(batch, rows, batch.position[rows], first_us), version_us=stamp_us - stamp_us % MS)
        return self._without_future(pack, batch, decoded.refusals)

    def _without_future(self, pack: Pack, batch: Batch, refusals: tuple[Refusal, ...]) -> Decoded:
        """Without versions from the future. Those that were waited for are not, also if our clock was set back since."""
        now_us = max(self._clock.now_us(), self._clock.version_us())
        if not len(batch) or batch.version_us.max() <= now_us:
            return Decoded(batch, refusals, apart=True)
        owner = np.searchsorted(pack.starts, batch.position, side="right") - 1
        ready_us = np.array([message.ready_us for message in pack.messages], np.int64)[owner]
        ahead = batch.version_us > np.maximum(ready_us, now_us)
        kept = batch.take(~ahead)
        if len(kept):
            self._clock.cover(int(kept.version_us.max()))
        if not ahead.any():
            return Decoded(batch, refusals, apart=True)
        seen, most = format_time(int(batch.version_us.max())), format_duration(MOST_AHEAD_US)
        reason = (
            f"the time that Kafka has of the message, {seen}, is its version, and is ahead of the worker's clock, "
            f"{format_time(now_us)}, by more than {most}"
        )
        refusal = Refusal("future", reason, batch.position[ahead].tolist())
        return Decoded(kept, (*refusals, refusal), apart=True)


_UNKNOWN_US = MAX_TIME_US
"""Stands for the time of a message while many are decoded at once."""


def _whole(pack: Pack) -> tuple[Ints, frozenset[int]]:
    """Each message has one position, its number."""
    return np.arange(len(pack.messages)), frozenset(range(len(pack.messages)))
