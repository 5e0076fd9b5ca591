"""Packets other than PUBLISH that a broker sends: few, so plain Python reads them.

Rule: a body that is not what MQTT 5 says raises `MqttFault`, never anything else.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from widerow.codec.mqtt.fault import MALFORMED, MqttFault

_BYTE, _TWO, _FOUR, _VARINT, _BINARY, _PAIR = range(6)
_KINDS = {
    **dict.fromkeys((0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A), _BYTE),
    **dict.fromkeys((0x13, 0x21, 0x22, 0x23), _TWO),
    **dict.fromkeys((0x02, 0x11, 0x18, 0x27), _FOUR),
    0x0B: _VARINT,
    **dict.fromkeys((0x03, 0x08, 0x09, 0x12, 0x15, 0x16, 0x1A, 0x1C, 0x1F), _BINARY),
    0x26: _PAIR,
}
_FIXED = {_BYTE: 1, _TWO: 2, _FOUR: 4}

ASSIGNED_CLIENT_ID, SERVER_KEEP_ALIVE, REASON, RECEIVE_MAXIMUM = 0x12, 0x13, 0x1F, 0x21
MAXIMUM_QOS, MAXIMUM_PACKET, SHARED_AVAILABLE = 0x24, 0x27, 0x2A
"""Properties that somebody asks for."""

REASONS = {
    0x80: "unspecified error",
    0x81: "malformed packet",
    0x82: "protocol error",
    0x83: "implementation specific error",
    0x84: "unsupported protocol version",
    0x85: "client identifier not valid (mqtt.client_id)",
    0x86: "bad user name or password (mqtt.username, mqtt.password)",
    0x87: "not authorized",
    0x88: "server unavailable",
    0x89: "server busy",
    0x8A: "banned",
    0x8B: "server shutting down",
    0x8D: "keep alive timeout",
    0x8E: "session taken over: another connection uses this client identifier (mqtt.client_id)",
    0x8F: "topic filter invalid",
    0x90: "topic name invalid",
    0x91: "packet identifier in use",
    0x93: "receive maximum exceeded",
    0x95: "packet too large",
    0x97: "quota exceeded",
    0x98: "administrative action",
    0x9E: "shared subscriptions not supported",
    0xA2: "wildcard subscriptions not supported",
}

Properties = dict[int, int | bytes]


@dataclass(frozen=True, slots=True)
class Connack:
    session_present: bool
    reason_code: int
    properties: Properties = field(default_factory=dict)

    def number(self, name: int, default: int) -> int:
        value = self.properties.get(name, default)
        return value if isinstance(value, int) else default


@dataclass(frozen=True, slots=True)
class Suback:
    identifier: int
    reason_codes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Puback:
    identifier: int
    reason_code: int


def reason_of(code: int) -> str:
    """In words, with the number people look up."""
    return f"{REASONS.get(code, 'reason')} (0x{code:02X})"


def read_connack(body: bytes) -> Connack:
    if len(body) < 3 or body[0] > 1:
        raise MqttFault("a CONNACK is not as MQTT 5 wants it")
    properties, end = _properties(body, 2)
    if end != len(body):
        raise MqttFault("a CONNACK goes on behind its properties")
    return Connack(body[0] == 1, body[1], properties)


def read_suback(body: bytes) -> Suback:
    if len(body) < 4:
        raise MqttFault("a SUBACK ends before its fields do")
    _, end = _properties(body, 2)
    return Suback(_two(body, 0), tuple(body[end:]))


def read_puback(body: bytes) -> Puback:
    if len(body) < 2 or not _two(body, 0):
        raise MqttFault("a PUBACK has no packet identifier")
    if len(body) > 3 and _properties(body, 3)[1] != len(body):
        raise MqttFault("a PUBACK goes on behind its properties")
    return Puback(_two(body, 0), body[2] if len(body) > 2 else 0)


def read_disconnect(body: bytes) -> tuple[int, str]:
    """The reason's number, and the broker's words for it if it has any."""
    if len(body) < 2:
        return (body[0] if body else 0), ""
    properties, _ = _properties(body, 1)
    words = properties.get(REASON, b"")
    return body[0], words.decode(errors="replace") if isinstance(words, bytes) else ""


def _properties(body: bytes, at: int) -> tuple[Properties, int]:
    length, at = _varint(body, at)
    stop = at + length
    if stop > len(body):
        raise MqttFault("properties go on beyond their packet")
    out: Properties = {}
    while at < stop:
        name = body[at]
        kind = _KINDS.get(name)
        if kind is None:
            raise MqttFault(f"property 0x{name:02X} does not exist", MALFORMED)
        at += 1
        if kind == _VARINT:
            out[name], at = _varint(body, at)
        elif kind in _FIXED:
            out[name] = int.from_bytes(body[at : at + _FIXED[kind]])
            at += _FIXED[kind]
        else:
            for _ in range(2 if kind == _PAIR else 1):
                if at + 2 > stop:
                    raise MqttFault("properties end before their last does")
                size = _two(body, at)
                out[name] = body[at + 2 : at + 2 + size]
                at += 2 + size
    if at != stop:
        raise MqttFault("properties end before their last does")
    return out, stop


def _varint(body: bytes, at: int) -> tuple[int, int]:
    value = 0
    for k, b in enumerate(body[at : at + 4]):
        value |= (b & 127) << (7 * k)
        if b < 128:
            return value, at + k + 1
    raise MqttFault("a length is not a number of one to four bytes")


def _two(body: bytes, at: int) -> int:
    return body[at] << 8 | body[at + 1]
