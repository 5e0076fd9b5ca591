"""Packets that a client sends, as bytes. Numbers and names are those of the OASIS standard, MQTT 5.0.

Pure. What does not fit a field raises `ValueError`: such things are refused before (settings, topic templates).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

CONNECT, CONNACK, PUBLISH, PUBACK, SUBSCRIBE, SUBACK = 1, 2, 3, 4, 8, 9
PINGREQ, PINGRESP, DISCONNECT = 12, 13, 14

_SESSION_EXPIRY, _RECEIVE_MAXIMUM, _MAXIMUM_PACKET, _ALIAS_MAXIMUM = 0x11, 0x21, 0x27, 0x22
_MOST = 268_435_455


@dataclass(frozen=True, slots=True)
class Will:
    """What the broker publishes for us when we are gone without a word."""

    topic: str
    payload: bytes
    qos: int = 1
    retain: bool = False


@dataclass(frozen=True, slots=True)
class Subscription:
    filter: str
    qos: int = 1
    retain_handling: int = 0
    """0: retained messages are sent at every SUBSCRIBE; 1: if the subscription is new; 2: never."""


def connect(
    client_id: str,
    *,
    keep_alive_s: int = 60,
    clean_start: bool = False,
    session_expiry_s: int = 0,
    receive_maximum: int = 65_535,
    maximum_packet: int = 0,
    username: str | None = None,
    password: bytes | None = None,
    will: Will | None = None,
) -> bytes:
    """CONNECT. A Topic Alias Maximum of 0 is said aloud: `scan` takes no aliases. `maximum_packet` 0: no limit."""
    flags = clean_start << 1
    properties = struct.pack(">BI", _SESSION_EXPIRY, session_expiry_s) + struct.pack(
        ">BH", _RECEIVE_MAXIMUM, receive_maximum
    )
    if maximum_packet:
        properties += struct.pack(">BI", _MAXIMUM_PACKET, maximum_packet)
    properties += struct.pack(">BH", _ALIAS_MAXIMUM, 0)
    payload = [text(client_id)]
    if will is not None:
        flags |= 4 | will.qos << 3 | will.retain << 5
        payload += [b"\0", text(will.topic), binary(will.payload)]
    if username is not None:
        flags |= 0x80
        payload.append(text(username))
    if password is not None:
        flags |= 0x40
        payload.append(binary(password))
    head = text("MQTT") + struct.pack(">BBH", 5, flags, keep_alive_s)
    return packet(CONNECT << 4, head, varint(len(properties)), properties, *payload)


def subscribe(identifier: int, subscriptions: Sequence[Subscription]) -> bytes:
    topics = [text(s.filter) + bytes([s.qos | s.retain_handling << 4]) for s in subscriptions]
    return packet(SUBSCRIBE << 4 | 2, struct.pack(">H", identifier), b"\0", *topics)


def publish(
    topic: bytes, payload: bytes, *, identifier: int = 0, qos: int = 0, retain: bool = False, dup: bool = False
) -> bytes:
    """PUBLISH, at quality of service 0 or 1; the latter with an identifier."""
    if not topic or qos not in (0, 1) or (qos == 1) != (identifier > 0):
        raise ValueError("a topic, a quality of service of 0 or 1, and an identifier with 1")
    name = struct.pack(">H", identifier) if qos else b""
    return packet(PUBLISH << 4 | dup << 3 | qos << 1 | retain, binary(topic), name, b"\0", payload)


def puback(identifier: int, reason_code: int = 0) -> bytes:
    """PUBACK; success in its short form."""
    head = struct.pack(">H", identifier)
    return packet(PUBACK << 4, head, bytes([reason_code]) if reason_code else b"")


def pubacks(identifiers: npt.NDArray[np.uint16]) -> bytes:
    """A PUBACK of success for each, in order."""
    out = np.empty((len(identifiers), 2), ">u2")
    out[:, 0] = PUBACK << 12 | 2
    out[:, 1] = identifiers
    return out.tobytes()


def pingreq() -> bytes:
    return packet(PINGREQ << 4)


def disconnect(reason_code: int = 0) -> bytes:
    """DISCONNECT. It leaves the session's expiry as it is."""
    return packet(DISCONNECT << 4, bytes([reason_code]) if reason_code else b"")


def packet(first: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return bytes([first]) + varint(len(body)) + body


def varint(value: int) -> bytes:
    """A variable byte integer."""
    if not 0 <= value <= _MOST:
        raise ValueError(f"{value} does not fit a variable byte integer")
    out = bytearray()
    while True:
        value, low = value >> 7, value & 127
        out.append(low | (value > 0) << 7)
        if not value:
            return bytes(out)


def text(value: str) -> bytes:
    return binary(value.encode())


def binary(value: bytes) -> bytes:
    if len(value) > 65_535:
        raise ValueError(f"{len(value)} bytes do not fit a field of 65535")
    return struct.pack(">H", len(value)) + value
