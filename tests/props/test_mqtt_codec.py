"""The MQTT codec against an oracle and against paho: any stream, cut anywhere, gives the same packets."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from fuzz.mqtt import MAX_PACKET, fuzz_mqtt, scanned
from reference import mqtt as reference
from widerow.codec.mqtt import Scanner, packets
from widerow.codec.mqtt.scan import MOST_PUBLISHES

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
TOPICS = TEXTS.filter(bool).map(str.encode)
PAYLOADS = st.binary(max_size=300)


@st.composite
def publishes(draw: st.DrawFn) -> tuple[reference.Publish, bytes]:
    """A PUBLISH and its bytes; its properties are packed by paho."""
    qos = draw(st.integers(0, 1))
    message = reference.Publish(
        draw(TOPICS),
        draw(PAYLOADS),
        qos,
        draw(st.booleans()),
        bool(qos) and draw(st.booleans()),
        draw(st.integers(1, 65_535)) if qos else 0,
    )
    properties = Properties(PacketTypes.PUBLISH)
    if draw(st.booleans()):
        properties.PayloadFormatIndicator = draw(st.integers(0, 1))
    if draw(st.booleans()):
        properties.MessageExpiryInterval = draw(st.integers(0, 2**32 - 1))
    if draw(st.booleans()):
        properties.UserProperty = draw(st.tuples(TEXTS, TEXTS))
    if draw(st.booleans()):
        properties.SubscriptionIdentifier = draw(st.integers(1, 268_435_455))
    if draw(st.booleans()):
        properties.ContentType = draw(TEXTS)
    head = packets.binary(message.topic) + (message.identifier.to_bytes(2) if qos else b"")
    first = 0x30 | message.dup << 3 | qos << 1 | message.retain
    return message, packets.packet(first, head, properties.pack(), message.payload)


@given(st.lists(publishes(), max_size=8), st.data())
def test_any_cut_of_a_stream_gives_the_same_packets(
    messages: list[tuple[reference.Publish, bytes]], data: st.DataObject
) -> None:
    stream = b"".join(raw for _, raw in messages)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=5)))
    found = scanned(stream, cuts)
    assert found.packets == [message for message, _ in messages]
    assert not found.broken
    assert found.used == len(stream)


@given(TOPICS, PAYLOADS, st.integers(0, 65_535), st.booleans())
def test_what_is_made_is_read_again(topic: bytes, payload: bytes, identifier: int, retain: bool) -> None:
    qos = 1 if identifier else 0
    stream = packets.publish(topic, payload, identifier=identifier, qos=qos, retain=retain)
    want = reference.Publish(topic, payload, qos, retain, dup=False, identifier=identifier)
    assert reference.read(stream, MAX_PACKET).packets == [want]


def test_hostile_streams_are_answered_as_the_oracle_answers_them() -> None:
    fuzz_mqtt(3_000, seed=20261115)


def test_more_packets_than_one_scan_takes_are_all_found() -> None:
    one = packets.publish(b"t", b"x", identifier=7, qos=1)
    data = np.frombuffer(one * (MOST_PUBLISHES + 10), np.uint8).copy()
    scanner, at, count, more = Scanner(100), 0, 0, True
    while more:
        found = scanner.scan(data, at, len(data))
        at, more = found.end, found.more
        count += len(found.publishes) if found.publishes else 0
    assert (count, at) == (MOST_PUBLISHES + 10, len(data))


@given(st.lists(st.integers(1, 65_535), max_size=50))
def test_pubacks_of_many_are_the_pubacks_of_each(identifiers: list[int]) -> None:
    assert packets.pubacks(np.array(identifiers, np.uint16)) == b"".join(map(packets.puback, identifiers))


def test_a_connect_says_what_paho_reads() -> None:
    will = packets.Will("w/t", b"gone", qos=1, retain=True)
    made = packets.connect(
        "name",
        keep_alive_s=30,
        session_expiry_s=600,
        receive_maximum=99,
        maximum_packet=4096,
        username="u",
        password=b"p",
        will=will,
    )
    assert made[0] == 0x10
    assert made[1] == len(made) - 2
    assert made[2:12] == b"\0\4MQTT\5\xec\0\x1e"  # user, password, will retained at 1; no clean start
    properties = Properties(PacketTypes.CONNECT)
    _, size = properties.unpack(made[12:])
    said = (
        properties.SessionExpiryInterval,
        properties.ReceiveMaximum,
        properties.MaximumPacketSize,
        properties.TopicAliasMaximum,
    )
    assert said == (600, 99, 4096, 0)
    assert made[12 + size :] == b"\0\4name" + b"\0" + b"\0\3w/t" + b"\0\4gone" + b"\0\1u" + b"\0\1p"
