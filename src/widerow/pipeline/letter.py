"""A dead letter: what was refused, why, and from whom it came.

Rule 1: an id begins with the time of filing, so ids sort as times do: `20261115T080000123456Z-3f9a0c1d`. Its last digit
names its shard. So a letter is found by its id alone, and no index is kept.
Rule 2: stored letters evolve. Keys we do not know are ignored, keys that are missing get their defaults.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from widerow.engine.rows import Key
from widerow.model.errors import Corrupt
from widerow.model.times import DAY, SECOND, bucket_start
from widerow.pipeline.origin import Origin
from widerow.pipeline.parts import Kept
from widerow.schema.tables import LETTER_SHARDS

_ID = re.compile(r"[0-9]{8}T[0-9]{12}Z-[0-9a-f]{8}")
_SECONDS = len("20261115T080000")
_TIME = "%Y%m%dT%H%M%S"


class Letter(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why something was refused, and how to read its bytes."""

    code: str
    reason: str
    source: str
    media_type: str
    precision: str
    encoding: str = ""
    device: str = ""
    reports: int = 0
    """How many reports it is of; 0: a body is kept as a whole."""
    positions: tuple[int, ...] = ()
    """Where the first of them stood in the body they came in."""
    kept: Kept = Kept.WHOLE
    size: int = 0
    """Bytes that are kept."""
    replays: int = 0
    """How often it was sent again, and refused again."""
    replayed_us: int = 0
    version_us: int = 0
    """Which its reports were given when they were received; 0: an earlier release filed it, and did not say."""

    def origin(self, body: bytes) -> Origin:
        return Origin(
            self.source, self.media_type, self.precision, self.encoding, body, self.device, version_us=self.version_us
        )


_LETTER_DECODER = msgspec.json.Decoder(Letter)


@dataclass(frozen=True, slots=True)
class Filed:
    """A letter in the store."""

    id: str
    letter: Letter
    version_us: int
    body: bytes = b""
    """Only where it was asked for."""

    @property
    def filed_us(self) -> int:
        return filed_us(self.id)


def new_id(now_us: int, chance: bytes) -> str:
    """An id of a letter that is filed now; `chance` are four random bytes."""
    return f"{id_at(now_us)}-{chance.hex()}"


def id_at(time_us: int) -> str:
    """What stands between the ids of before that time and those of from then on."""
    return f"{datetime.fromtimestamp(time_us // SECOND, UTC).strftime(_TIME)}{time_us % SECOND:06d}Z"


def is_id(text: str) -> bool:
    """Whether a letter could have it."""
    try:
        return _ID.fullmatch(text) is not None and filed_us(text) >= 0
    except ValueError:  # a 13th month
        return False


def filed_us(letter_id: str) -> int:
    """When it was filed, by its id."""
    moment = datetime.strptime(letter_id[:_SECONDS], _TIME).replace(tzinfo=UTC)
    return int(moment.timestamp()) * SECOND + int(letter_id[_SECONDS : _SECONDS + 6])


def partition_of(tenant: str, letter_id: str) -> Key:
    day_us = bucket_start(filed_us(letter_id), DAY)
    return tenant, int(letter_id[-1], 16) % LETTER_SHARDS, day_us


def pack(letter: Letter) -> str:
    return msgspec.json.encode(letter).decode()


def unpack(letter_id: str, stored: str) -> Letter:
    try:
        return _LETTER_DECODER.decode(stored)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"dead letter {letter_id} cannot be read: {error}") from error
