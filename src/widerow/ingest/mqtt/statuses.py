"""Who is online, as devices and their last wills tell it, on its way to the store.

Rule 1: of a device the last word counts. What comes within a moment is written together: a fleet that comes back, or a
device that says it a thousand times a second, is a write now and then, and not one for each message.
Rule 2: messages are acknowledged when that is durable. Should the store not answer they are acknowledged all the same, and
written when it does: who is online is not worth holding up the reports behind it. A process that ends before has forgotten
it, until the device says it again, or the broker, which keeps what is retained.
Rule 3: what waits for the store is bounded: beyond `_MOST` devices the one that was heard of first is forgotten.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import msgspec

from widerow.catalog.online import Status
from widerow.ingest.mqtt.aside import Aside
from widerow.ingest.mqtt.window import Block
from widerow.model.arrays import Ints
from widerow.model.errors import Unavailable
from widerow.ops.counters import Counters

log = logging.getLogger(__name__)

_TOGETHER_S, _AGAIN_S = 0.05, 2.0
_MOST = 100_000


Tell = Callable[[Sequence[Status]], None]
"""Makes them durable. May raise `Unavailable`: then it is told again."""


class Statuses:
    """For the aside thread."""

    def __init__(self, tell: Tell, done: Callable[[Block, Ints], None], aside: Aside, counters: Counters) -> None:
        self._tell, self._done, self._aside, self._counters = tell, done, aside, counters
        self._waiting: dict[tuple[str, str], Status] = {}
        self._messages: list[tuple[Block, Ints]] = []
        self._is_due = self._is_away = False

    def put(self, said: Sequence[Status], block: Block, rows: Ints) -> None:
        """What the messages at these rows of a block said, in order."""
        for status in said:
            self._waiting.pop((status.tenant, status.device), None)
            self._waiting[status.tenant, status.device] = status
        while len(self._waiting) > _MOST:
            self._waiting.pop(next(iter(self._waiting)))
        if self._is_away:
            self._done(block, rows)
        else:
            self._messages.append((block, rows))
        if not self._is_due:
            self._is_due = True
            self._aside.put(self._flush, delay_s=_TOGETHER_S)

    def _flush(self) -> None:
        said, messages = list(self._waiting.values()), self._messages
        self._is_due = self._is_away = False
        try:
            self._tell(said)
        except Unavailable as error:
            self._is_due = self._is_away = True
            self._counters.mqtt_retries.labels(error.code).inc(len(said))
            self._aside.put(self._flush, delay_s=_AGAIN_S)
        except Exception:  # trying that again would not help
            log.exception("the online status of %s devices was not stored", len(said))
            self._waiting = {}
        else:
            self._waiting = {}
        self._messages = []
        for block, rows in messages:
            self._done(block, rows)


class _Status(msgspec.Struct):
    status: str


_STATUS_DECODER = msgspec.json.Decoder(_Status)


def is_online_of(payload: bytes) -> bool | None:
    """`online`, `offline`, or an object whose `status` is one of them; None for anything else."""
    text = payload.strip()
    if text[:1] == b"{":
        try:
            text = _STATUS_DECODER.decode(text).status.encode()
        except (msgspec.MsgspecError, UnicodeError):
            return None
    return {b"online": True, b"offline": False}.get(text)
