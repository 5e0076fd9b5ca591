"""Hostile MQTT streams: packets good and bad, cut, spliced and flipped, in any pieces. The oracle says what must come out.

Run many with `PYTHONPATH=tests python -m fuzz.mqtt 1000000`.
"""

from __future__ import annotations

import contextlib
import random
import sys

import numpy as np

from reference import mqtt as reference
from widerow.codec.mqtt import MqttFault, Scanner, answers, packets

MAX_PACKET = 5_000
PROPERTIES = (
    b"\x01\x00", b"\x02\x00\x00\x00\x05", b"\x03\x00\x01j", b"\x08\x00\x00", b"\x09\x00\x02ab", b"\x0b\x01", b"\x0b\x80\x01",
    b"\x26\x00\x01k\x00\x01v", b"\x23\x00\x01", b"\x0b\x00", b"\x99", b"\x03\x00\x09j", b"\x02\x00", b"\x26\x00\x01k",
)  # fmt: skip
READERS = {2: answers.read_connack, 4: answers.read_puback, 9: answers.read_suback, 14: answers.read_disconnect}


def make_stream(rng: random.Random) -> bytes:
    stream = b"".join(make_packet(rng) for _ in range(rng.randrange(6)))
    for _ in range(rng.choice((0, 0, 0, 1, 2))):
        at = rng.randrange(len(stream) + 1)
        to = min(len(stream), at + rng.randrange(1, 9))
        stream = rng.choice(
            (
                stream[:at],
                stream[:at] + stream[to:],
                stream[:at] + rng.randbytes(3) + stream[to:],
                stream[:at] + stream[at:to] * 2,
            )
        )
    return stream


def make_packet(rng: random.Random) -> bytes:
    choice = rng.randrange(8)
    if choice == 0:
        return packets.puback(rng.randrange(1, 65536), rng.choice((0, 0x10, 0x87)))
    if choice == 1:
        return packets.packet(rng.choice((13, 14, 9, 2, 4)) << 4, rng.randbytes(rng.randrange(9)))
    if choice == 2:
        return packets.packet(rng.randrange(256), rng.randbytes(rng.randrange(200)))
    properties = b"".join(rng.choices(PROPERTIES[:8] if rng.random() < 0.8 else PROPERTIES, k=rng.choice((0, 0, 1, 3))))
    qos = rng.randrange(2)
    topic = rng.choice((b"t", b"widerow/v1/a/b/telemetry", "ü/1".encode(), b"\0", b"x" * 300))
    body = packets.binary(topic) + (rng.randrange(65536).to_bytes(2) if qos else b"")
    body += packets.varint(len(properties)) + properties + rng.randbytes(rng.choice((0, 1, 60, 130, 4_900)))
    return packets.packet(3 << 4 | qos << 1 | rng.randrange(2) | (8 if qos and rng.random() < 0.2 else 0), body)


def scanned(stream: bytes, cuts: list[int]) -> reference.Stream:
    """What our scanner makes of a stream that comes in pieces, in the oracle's words."""
    scanner, out, held = Scanner(MAX_PACKET), reference.Stream(), b""
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        held += stream[start:stop]
        while True:
            found = scanner.scan(np.frombuffer(held, np.uint8).copy(), 0, len(held))
            rows = found.publishes
            merged: list[reference.Publish | tuple[int, bytes]] = []
            before = [*found.others_before, len(rows) if rows else 0]
            for k, count in enumerate(before):
                for row in range(before[k - 1] if k else 0, count):
                    assert rows is not None
                    flags = int(rows.flags[row])
                    merged.append(
                        reference.Publish(
                            rows.topic(row),
                            rows.payload(row),
                            flags >> 1 & 3,
                            bool(rows.retain[row]),
                            bool(rows.dup[row]),
                            int(rows.identifier[row]),
                        )
                    )
                if k < len(found.others):
                    merged.append(found.others[k])
            out.packets += merged
            out.used += found.end
            held = held[found.end :]
            if found.fault:
                out.broken = True
                return out
            if not merged:
                break
    return out


def fuzz_mqtt(count: int, seed: int) -> None:
    """Raises AssertionError with the stream on the first disagreement."""
    rng = random.Random(seed)
    for _ in range(count):
        stream = make_stream(rng)
        cuts = sorted(rng.randrange(len(stream) + 1) for _ in range(rng.choice((0, 1, 3))))
        got, want = scanned(stream, cuts), reference.read(stream, MAX_PACKET)
        assert got == want, f"{stream!r} cut at {cuts}: got {got}, want {want}"
        for found in got.packets:
            if isinstance(found, tuple) and found[0] in READERS:
                with contextlib.suppress(MqttFault):
                    READERS[found[0]](found[1])


if __name__ == "__main__":
    fuzz_mqtt(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
