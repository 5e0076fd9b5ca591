"""A kernel that takes a buffer of received bytes apart: PUBLISH packets into columns, all others by where they are.

Rule 1: what it gives does not depend on how the stream was cut into buffers. A packet that is not complete yet stays.
Rule 2: it never reads beyond a packet's own end, whatever the lengths inside say, and goes forward with every step.
Rule 3: at the first fault it stops; packets before it are good.
Properties of a PUBLISH are walked, not kept. A topic alias is a fault, since we announce that we take none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from widerow.codec.mqtt.fault import MALFORMED, PROTOCOL, TOO_LARGE, MqttFault
from widerow.model.arrays import PAD, Bytes, Flags, Ints, frozen
from widerow.model.intern import slices
from widerow.model.kernel import inlined, kernel
from widerow.model.names import Names

MOST_PUBLISHES = 1 << 14
MOST_OTHERS = 1 << 12
"""Packets of one scan; a buffer that holds more is scanned again from where the first scan ended."""

_AT, _PUBLISHES, _OTHERS, _NEED, _FAULT = range(5)

_PUBLISH = 3
_FLAGS = np.array([255, 0, 0, 255, 0, 0, 2, 0, 2, 0, 2, 0, 0, 0, 0, 0], np.uint8)
"""What the low four bits of a packet's first byte must be, by its type; 255: not one value."""

_BYTE, _TWO, _FOUR, _VARINT, _TEXT, _PAIR, _ALIAS = range(1, 8)
_PROPERTIES = np.zeros(256, np.uint8)
for _kind, _numbers in {
    _BYTE: [0x01],
    _FOUR: [0x02],
    _TEXT: [0x03, 0x08, 0x09],
    _VARINT: [0x0B],
    _PAIR: [0x26],
    _ALIAS: [0x23],
}.items():
    _PROPERTIES[_numbers] = _kind
_PROPERTIES.flags.writeable = _FLAGS.flags.writeable = False

_FAULTS = (
    ("", 0),
    ("the length of a packet is not a number of one to four bytes, as short as can be", MALFORMED),
    ("a packet is larger than the maximum packet size that was announced", TOO_LARGE),
    ("a packet has a type or flags that do not exist", MALFORMED),
    ("a PUBLISH has a quality of service that was not asked for, or flags that do not go together", PROTOCOL),
    ("a PUBLISH ends before its fields do", MALFORMED),
    ("a PUBLISH has no topic, or an alias in its place; none were allowed", PROTOCOL),
    ("a PUBLISH has the packet identifier 0", MALFORMED),
    ("the properties of a PUBLISH are not what MQTT 5 allows there", MALFORMED),
)
_LENGTH, _LARGE, _TYPE, _QOS, _SHORT, _TOPIC, _IDENTIFIER, _PROPERTY = range(1, 9)


@dataclass(frozen=True, slots=True, eq=False)
class Publishes:
    """PUBLISH packets as columns over the buffer they came in, in the order they came. `PAD` bytes follow the last."""

    data: Bytes
    identifier: npt.NDArray[np.uint16]
    """0 where there is none: at quality of service 0."""
    flags: Bytes
    """The low four bits of the first byte: dup (8), quality of service (2), retain (1)."""
    topic_at: Ints
    topic_size: Ints
    payload_at: Ints
    payload_size: Ints

    def __post_init__(self) -> None:
        columns = (
            self.data,
            self.identifier,
            self.flags,
            self.topic_at,
            self.topic_size,
            self.payload_at,
            self.payload_size,
        )
        for column in columns:
            frozen(column)

    def __len__(self) -> int:
        return len(self.identifier)

    @property
    def dup(self) -> Flags:
        return (self.flags & 8).astype(np.bool_)

    @property
    def retain(self) -> Flags:
        return (self.flags & 1).astype(np.bool_)

    def topics(self) -> Names:
        return slices(self.data, self.topic_at, self.topic_size)

    def payloads(self, rows: Ints) -> Names:
        """Those of the given packets, in one buffer. They are any bytes, not UTF-8."""
        return slices(self.data, self.payload_at[rows], self.payload_size[rows])

    def topic(self, row: int) -> bytes:
        return self._piece(int(self.topic_at[row]), int(self.topic_size[row]))

    def payload(self, row: int) -> bytes:
        return self._piece(int(self.payload_at[row]), int(self.payload_size[row]))

    def _piece(self, at: int, size: int) -> bytes:
        return self.data[at : at + size].tobytes()


@dataclass(frozen=True, slots=True)
class Scanned:
    """What a scan found."""

    publishes: Publishes | None
    others: list[tuple[int, bytes]]
    """Type and body of each other packet."""
    others_before: list[int]
    """How many PUBLISH packets came before each of them."""
    end: int
    """Where the first byte is that was not used."""
    need: int
    """The size of the packet that begins there; 0 if that cannot be seen yet."""
    more: bool
    """Whether to scan on from `end`, because one scan takes only so many packets."""
    fault: MqttFault | None


class Scanner:
    """Scans buffers of one connection. Its columns are used again and again, hence one thread."""

    def __init__(self, max_packet: int) -> None:
        self._max_packet = max_packet
        self._identifier = np.empty(MOST_PUBLISHES, np.uint16)
        self._flags = np.empty(MOST_PUBLISHES, np.uint8)
        self._spans = np.empty((4, MOST_PUBLISHES), np.int64)
        self._others = np.empty((MOST_OTHERS, 4), np.int64)
        self._state = np.zeros(5, np.int64)

    def scan(self, data: Bytes, start: int, stop: int) -> Scanned:
        """The packets of `data[start:stop]`, which must begin with one. What is given owns copies of what it holds."""
        state = self._state
        _scan(data, start, stop, self._max_packet, self._identifier, self._flags, self._spans, self._others, state)
        end, n, m, need, fault = state.tolist()
        publishes = None
        if n:
            own = np.zeros(end - start + PAD, np.uint8)
            own[: end - start] = data[start:end]
            spans = self._spans[:, :n].copy()
            spans[0] -= start
            spans[2] -= start
            publishes = Publishes(own, self._identifier[:n].copy(), self._flags[:n].copy(), *spans)
        rows = self._others[:m].tolist()
        return Scanned(
            publishes,
            [(kind, data[at : at + size].tobytes()) for kind, at, size, _ in rows],
            [before for _, _, _, before in rows],
            end,
            need,
            n == MOST_PUBLISHES or m == MOST_OTHERS,
            MqttFault(*_FAULTS[fault]) if fault else None,
        )


def warm_up() -> None:
    """Compile the kernels."""
    packet = np.frombuffer(b"\x32\x0b\x00\x01t\x00\x01\x04\x01\x00\x01\x01x" + bytes(PAD), np.uint8)
    found = Scanner(100).scan(packet.copy(), 0, 13).publishes
    assert found is not None
    found.topics()


@inlined
def _varint(data: Any, at: Any, stop: Any) -> Any:
    """A variable byte integer: its value and where it ends. Value -1: it goes on beyond `stop`; -2: it is none."""
    value = np.int64(0)
    for k in range(4):
        if at + k >= stop:
            return np.int64(-1), at
        b = np.int64(data[at + k])
        value |= (b & 127) << (7 * k)
        if b < 128:
            if b == 0 and k > 0:  # it could have been shorter
                return np.int64(-2), at
            return value, at + k + 1
    return np.int64(-2), at


@inlined
def _property_fault(data: Any, at: Any, stop: Any) -> Any:
    """Whether properties that fill these bytes are allowed in a PUBLISH."""
    while at < stop:
        kind = _PROPERTIES[data[at]]
        at += 1
        if kind == _BYTE:
            at += 1
        elif kind == _FOUR:
            at += 4
        elif kind == _VARINT:
            value, at = _varint(data, at, stop)
            if value <= 0:
                return _PROPERTY
        elif kind in (_TEXT, _PAIR):
            for _ in range(2 if kind == _PAIR else 1):
                if at + 2 > stop:
                    return _PROPERTY
                at += 2 + (np.int64(data[at]) << 8 | np.int64(data[at + 1]))
        elif kind == _ALIAS:
            return _TOPIC
        else:
            return _PROPERTY
    return 0 if at == stop else _PROPERTY


@kernel
def _scan(
    data: Bytes,
    start: int,
    stop: int,
    max_packet: int,
    identifier: npt.NDArray[np.uint16],
    flags: Bytes,
    spans: npt.NDArray[np.int64],
    others: npt.NDArray[np.int64],
    state: Ints,
) -> None:
    at, n, m, need, fault = np.int64(start), 0, 0, np.int64(0), 0
    while at < stop and n < len(identifier) and m < len(others):
        first = np.int64(data[at])
        kind, low = first >> 4, first & 15
        if _FLAGS[kind] != low and kind != _PUBLISH:
            fault = _TYPE
            break
        quality = low >> 1 & 3
        if kind == _PUBLISH and (quality > 1 or (quality == 0 and low & 8)):
            fault = _QOS
            break
        size, p = _varint(data, at + 1, stop)
        if size == -1:
            break
        if size < 0:
            fault = _LENGTH
            break
        if p - at + size > max_packet:
            fault = _LARGE
            break
        end = p + size
        if end > stop:
            need = end - at
            break
        if kind != _PUBLISH:
            others[m, 0], others[m, 1], others[m, 2], others[m, 3] = kind, p, size, n
            m += 1
            at = end
            continue
        if p + 2 > end:
            fault = _SHORT
            break
        topic = np.int64(data[p]) << 8 | np.int64(data[p + 1])
        p += 2
        spans[0, n], spans[1, n] = p, topic
        p += topic
        name = np.int64(0)
        if quality:
            if p + 2 > end:
                fault = _SHORT
                break
            name = np.int64(data[p]) << 8 | np.int64(data[p + 1])
            p += 2
            if name == 0:
                fault = _IDENTIFIER
                break
        if p >= end:
            fault = _SHORT
            break
        length, p = _varint(data, p, end)
        if length < 0 or p + length > end:
            fault = _PROPERTY
            break
        fault = _property_fault(data, p, p + length)
        if fault == 0 and topic == 0:
            fault = _TOPIC
        if fault:
            break
        p += length
        spans[2, n], spans[3, n] = p, end - p
        identifier[n], flags[n] = name, low
        n += 1
        at = end
    state[0], state[1], state[2], state[3], state[4] = at, n, m, need, fault
