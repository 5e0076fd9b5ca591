"""Topics: templates such as `widerow/v1/{tenant}/{device}/telemetry`, and what the topics of many messages say.

Rule 1: a name is a level of its own, percent-encoded where it holds `/`, `+`, `#`, `%` or NUL. There is one way to encode a
name; a topic that encodes more than it must is no topic of ours, since the broker's access rules look at the text alone.
Rule 2: a topic is taken apart once. What was seen is kept in a table that is bounded in number and bytes; when that is full
it starts afresh.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from urllib.parse import unquote_to_bytes

import numpy as np

from widerow.codec.mqtt import Publishes
from widerow.model.arrays import PAD, Bytes, Codes, Ints
from widerow.model.check import name_fault
from widerow.model.errors import ConfigError
from widerow.model.intern import NameTable, slices
from widerow.model.names import Coded

OTHER, TELEMETRY, STATUS = range(3)
"""What a topic is for."""

_ENCODED = {ord(c): f"%{ord(c):02X}" for c in "/+#%\0"}
_MOST_BYTES = 65_535
_CAPACITY, _CAPACITY_BYTES = 1 << 20, 192 << 20
"""What is known of topics: a million, or so many bytes. Whoever may publish at all can make up long ones."""
_FIELDS = ("{tenant}", "{device}")


def encode_name(name: str) -> str:
    """A tenant's or device's name as a level of a topic."""
    return name.translate(_ENCODED)


def decode_name(level: str) -> str | None:
    """The name that a level stands for; None if it stands for none."""
    if "%" not in level:
        return level
    try:
        name = unquote_to_bytes(level).decode()
    except UnicodeDecodeError:
        return None
    return name if encode_name(name) == level else None


class Template:
    """A topic with `{tenant}` and `{device}`, each once and as a level of its own."""

    def __init__(self, setting: str, text: str) -> None:
        levels = text.split("/")
        for field in _FIELDS:
            if levels.count(field) != 1 or text.count(field) != 1:
                raise ConfigError(f"{setting} is {text!r}: give {field} once, as a level of its own")
        plain = [level for level in levels if level not in _FIELDS]
        if any(set(level) & set("+#{}\0") for level in plain) or text.startswith("$") or len(text.encode()) > 1000:
            raise ConfigError(f"{setting} is {text!r}: the other levels are plain text, without + # {{ }} and no $ in front")
        self.setting, self.text, self._levels = setting, text, levels
        self._tenant_at, self._device_at = levels.index("{tenant}"), levels.index("{device}")
        self._plain = [(k, level) for k, level in enumerate(levels) if level not in _FIELDS]

    def filter(self, group: str = "") -> str:
        """What is subscribed to; with a group, as one of those who share the messages."""
        levels = ["+" if level in _FIELDS else level for level in self._levels]
        return "/".join([*(("$share", group) if group else ()), *levels])

    def topic(self, tenant: str, device: str) -> bytes:
        """The topic of a device. Raises `ValueError` for names that make it longer than a topic may be."""
        levels = list(self._levels)
        levels[self._tenant_at], levels[self._device_at] = encode_name(tenant), encode_name(device)
        topic = "/".join(levels).encode()
        if len(topic) > _MOST_BYTES:
            raise ValueError("the topic is too long")
        return topic

    def parse(self, topic: str) -> tuple[str, str] | None:
        """Tenant and device of a topic; None if it is not of this form."""
        levels = topic.split("/")
        if len(levels) != len(self._levels) or any(levels[k] != level for k, level in self._plain):
            return None
        tenant, device = decode_name(levels[self._tenant_at]), decode_name(levels[self._device_at])
        if not tenant or not device or name_fault(device) or name_fault(tenant):
            return None
        return tenant, device


@dataclass(frozen=True, slots=True)
class Parsed:
    """What the topics of some messages say. `tenant` and `device` mean nothing where the kind is OTHER."""

    kind: Bytes
    tenant: Codes
    tenants: list[str]
    _ids: Codes
    _space: _Space

    def devices(self, rows: Ints) -> Coded:
        """The devices of these messages, one name for each that differs."""
        known, codes = np.unique(self._ids[rows], return_inverse=True)
        s = self._space
        return Coded(slices(s.text, s.device_at[known], s.device_size[known]), codes.astype(np.int32))

    def names(self, row: int) -> tuple[str, str]:
        """Tenant and device of a message."""
        s, i = self._space, int(self._ids[row])
        at, size = int(s.device_at[i]), int(s.device_size[i])
        return self.tenants[int(self.tenant[row])], s.text[at : at + size].tobytes().decode()


class _Space:
    """What is known of each topic of a table, by its id. Arrays that grow are replaced, so what was handed out stays."""

    def __init__(self) -> None:
        self.kind = np.zeros(1024, np.uint8)
        self.tenant = np.zeros(1024, np.int32)
        self.device_at, self.device_size = np.zeros(1024, np.int64), np.zeros(1024, np.int64)
        self.text = np.zeros(1 << 16, np.uint8)
        self.used = 0
        self.tenants: list[str] = []
        self.codes: dict[str, int] = {}

    def put(self, i: int, kind: int, tenant: str, device: str) -> None:
        if i >= len(self.kind):
            for name in ("kind", "tenant", "device_at", "device_size"):
                setattr(self, name, np.concatenate([getattr(self, name), np.zeros_like(getattr(self, name))]))
        text = device.encode()
        while self.used + len(text) + PAD > len(self.text):
            self.text = np.concatenate([self.text, np.zeros_like(self.text)])
        self.text[self.used : self.used + len(text)] = np.frombuffer(text, np.uint8)
        self.kind[i], self.device_at[i], self.device_size[i] = kind, self.used, len(text)
        self.used += len(text)
        code = self.codes.get(tenant)
        if code is None:
            code = self.codes[tenant] = len(self.tenants)
            self.tenants.append(tenant)
        self.tenant[i] = code


def require_distinct(templates: Sequence[Template]) -> None:
    """Raises `ConfigError` if two stand for the same topics."""
    for one, other in combinations(templates, 2):
        if one.filter() == other.filter():
            raise ConfigError(f"{one.setting} and {other.setting} are one and the same")


class Topics:
    """Takes the topics of messages apart. For one thread."""

    def __init__(
        self,
        reports: Template,
        status: Template | None = None,
        *,
        capacity: int = _CAPACITY,
        capacity_bytes: int = _CAPACITY_BYTES,
    ) -> None:
        self._templates = [(TELEMETRY, reports)]
        if status is not None:
            require_distinct((reports, status))
            self._templates.append((STATUS, status))
        self._capacity, self._capacity_bytes = capacity, capacity_bytes
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._table, self._space, self._known = NameTable(self._capacity), _Space(), 0

    def parse(self, messages: Publishes) -> Parsed:
        topics = messages.topics()
        if self._table.bytes > self._capacity_bytes:
            self._start_afresh()
        ids = self._table.add(topics)
        if len(ids) and ids.min() < 0:
            self._start_afresh()
            ids = self._table.add(topics)
        if len(self._table) > self._known:
            self._learn(messages, ids)
        s = self._space
        return Parsed(s.kind[ids], s.tenant[ids], s.tenants, ids, s)

    def _learn(self, messages: Publishes, ids: Codes) -> None:
        """Those that were added last, each once."""
        new, rows = np.unique(ids, return_index=True)
        for i, row in zip(new.tolist(), rows.tolist(), strict=True):
            if i >= self._known:
                self._space.put(i, *self._kind(messages.topic(row)))
        self._known = len(self._table)

    def _kind(self, topic: bytes) -> tuple[int, str, str]:
        try:
            text = topic.decode()
        except UnicodeDecodeError:
            return OTHER, "", ""
        for kind, template in self._templates:
            if found := template.parse(text):
                return kind, *found
        return OTHER, "", ""
