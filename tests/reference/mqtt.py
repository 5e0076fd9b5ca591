"""MQTT 5 packets as one would read them for a hundred: a byte at a time, plain Python, no speed.

It is the oracle of `widerow.codec.mqtt.scan`, written from the standard, and shares nothing with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field


class Bad(Exception):
    """The stream breaks the protocol here."""


class More(Exception):
    """The stream ends here, and nothing was wrong so far."""


@dataclass(frozen=True)
class Publish:
    topic: bytes
    payload: bytes
    qos: int
    retain: bool
    dup: bool
    identifier: int


@dataclass
class Stream:
    """What a whole stream holds, up to its end or its first fault."""

    packets: list[Publish | tuple[int, bytes]] = field(default_factory=list)
    broken: bool = False
    used: int = 0


def read(stream: bytes, max_packet: int) -> Stream:
    out = Stream()
    try:
        while out.used < len(stream):
            found, size = read_packet(stream[out.used :], max_packet)
            out.packets.append(found)
            out.used += size
    except More:
        pass
    except Bad:
        out.broken = True
    return out


def read_packet(stream: bytes, max_packet: int) -> tuple[Publish | tuple[int, bytes], int]:
    kind, flags = divmod(stream[0], 16)
    qos = flags // 2 % 4
    if kind == 3:
        if qos > 1 or (qos == 0 and flags >= 8):
            raise Bad
    elif kind == 0 or flags != (2 if kind in (6, 8, 10) else 0):
        raise Bad
    length, used = varint(stream[1:])
    size = 1 + used + length
    if size > max_packet:
        raise Bad
    if len(stream) < size:
        raise More
    body = stream[1 + used : size]
    if kind != 3:
        return (kind, body), size
    try:
        return publish(body, qos, retain=flags % 2 == 1, dup=flags >= 8), size
    except (IndexError, More):
        raise Bad from None


def publish(body: bytes, qos: int, *, retain: bool, dup: bool) -> Publish:
    topic, rest = field_of(body)
    identifier = 0
    if qos:
        identifier, rest = rest[0] * 256 + rest[1], rest[2:]
        if not identifier:
            raise Bad
    length, used = varint(rest)
    properties, payload = rest[used : used + length], rest[used + length :]
    if len(properties) < length or not topic:
        raise Bad
    while properties:
        name, properties = properties[0], properties[1:]
        if name in (0x03, 0x08, 0x09):
            _, properties = field_of(properties)
        elif name == 0x26:
            _, properties = field_of(field_of(properties)[1])
        elif name == 0x0B:
            value, used = varint(properties)
            if not value:
                raise Bad
            properties = properties[used:]
        elif name in (0x01, 0x02):
            width = 1 if name == 1 else 4
            if len(properties) < width:
                raise Bad
            properties = properties[width:]
        else:
            raise Bad
    return Publish(topic, payload, qos, retain, dup, identifier)


def field_of(body: bytes) -> tuple[bytes, bytes]:
    """A field that says how long it is, and what follows it."""
    size = body[0] * 256 + body[1]
    if len(body) < 2 + size:
        raise Bad
    return body[2 : 2 + size], body[2 + size :]


def varint(stream: bytes) -> tuple[int, int]:
    value = 0
    for k in range(4):
        if k == len(stream):
            raise More
        value += stream[k] % 128 * 128**k
        if stream[k] < 128:
            if k and not stream[k]:
                raise Bad
            return value, k + 1
    raise Bad
