"""Which devices of a tenant are meant, and pages of them.

Rule 1: the order is by shard, then by name: stable while devices come and go.
Rule 2: a cursor names the last device of a page, not a position, so nothing is skipped or shown twice when others change.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from widerow.model.check import MAX_NAME_BYTES, text_fault
from widerow.model.device import Device
from widerow.model.errors import Rejected
from widerow.schema.shards import SHARDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """What devices must have. All that is given must hold; nothing given means every device."""

    type: str | None = None
    location: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    prefix: str = ""
    """How the name begins."""
    text: str = ""
    """Words, in any case: each is somewhere in the name, the display name, the type, the location or the tags."""

    def __post_init__(self) -> None:
        given = [self.type or "", self.location or "", self.prefix, self.text, *self.tags, *self.tags.values()]
        for value in given:
            fault = text_fault(value, MAX_NAME_BYTES)
            if fault:
                raise Rejected(f"match: {value[:80]!r} {fault}", code="field")

    def holds(self, device: Device) -> bool:
        return (
            device.name.startswith(self.prefix)
            and self.type in (None, device.type)
            and self.location in (None, device.location)
            and all(device.tags.get(tag) == content for tag, content in self.tags.items())
            and (not self.text or self._says(device))
        )

    def _says(self, device: Device) -> bool:
        tags = [f"{name}:{value}" for name, value in device.tags.items()]
        says = "\n".join((device.name, device.display_name, device.type, device.location, *tags)).casefold()
        return all(word in says for word in words_of(self.text))

    def stop(self) -> str | None:
        """A text behind all names that begin with the prefix: no name has room for more than 64 of the last character."""
        return self.prefix + 64 * "\U0010ffff" if self.prefix else None

    def everything(self) -> bool:
        """Whether it asks for no more than a prefix, which the store can answer by itself."""
        return self.type is None and self.location is None and not self.tags and not self.text

    def sieve(self) -> Callable[[str, str], bool]:
        """Whether a row (name, body) may hold, without decoding it: a tenth of the time where few devices match.

        A body that lacks the JSON text of a wanted value does not hold it; one that has it may still have it elsewhere.
        """
        wanted = [value for value in (self.type, self.location) if value]
        wanted += [part for pair in self.tags.items() for part in pair]
        needles = [msgspec.json.encode(value).decode() for value in wanted]
        prefix = self.prefix
        return lambda name, body: name.startswith(prefix) and all(needle in body for needle in needles)


@dataclass(frozen=True, slots=True)
class Page:
    devices: tuple[Device, ...]
    after: str | None
    """The cursor of the next page; None: this was the last."""


def words_of(text: str) -> list[str]:
    """As they are looked for."""
    return text.casefold().split()


def cursor_of(shard: int, name: str) -> str:
    return urlsafe_b64encode(f"{shard}/{name}".encode()).decode().rstrip("=")


def read_cursor(cursor: str) -> tuple[int, str]:
    """The shard and name a page ended with."""
    try:
        text = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
        shard, name = text.split("/", 1)
        if 0 <= int(shard) < SHARDS and cursor_of(int(shard), name) == cursor:
            return int(shard), name
    except (Base64Error, UnicodeError, ValueError):
        pass
    raise Rejected("the cursor is not one that a page gave: start without one", code="cursor")
