"""The ends of the MQTT benchmark, each a process of its own so that none shares an interpreter with what is measured.

    publish   sends packets that were encoded beforehand, at quality of service 1, and waits for nothing but its window
    wire      a broker's side of one connection: it answers and sends packets as fast as the receive maximum allows
    paho      a subscriber as people write them, which counts
    ours      `widerow.ingest.mqtt.client`, which counts and acknowledges

A subscriber prints `ready` when it listens. When it has as many as it was told to await it prints how many came after the
first piece, the seconds from that piece on, and the seconds of CPU that it and the process at the other end used meanwhile.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from widerow.codec.mqtt import packets, warm_up
from widerow.codec.mqtt.packets import Subscription
from widerow.ingest.mqtt.client import Client
from widerow.ingest.mqtt.connection import ClientSettings
from widerow.ingest.mqtt.window import Block
from widerow.model.times import SystemClock
from widerow.ops.counters import Counters

FILTER = "$share/bench/widerow/v1/+/+/telemetry"
DEVICES = 10_000
PAYLOAD = (
    b'{"time":1763193600000,"values":{"temp":21.53,"pressure":4.071,"rpm":1480,"power":7.25,"vibration":0.0312,'
    b'"flow":12.8,"level":0.77,"state":"run"}}'
)
_IDENTIFIERS = 60_000
_CHUNK = 64
_TICKS = os.sysconf("SC_CLK_TCK")


def encoded(count: int) -> Iterator[bytes]:
    """That many packets, in pieces of `_CHUNK`, their identifiers going round."""
    chunks = [
        b"".join(
            packets.publish(b"widerow/v1/acme/device-%05d/telemetry" % (k % DEVICES), PAYLOAD, identifier=k + 1, qos=1)
            for k in range(start, start + _CHUNK)
        )
        for start in range(0, _IDENTIFIERS - _CHUNK + 1, _CHUNK)
    ]
    for i in range(count // _CHUNK):
        yield chunks[i % len(chunks)]


def publish(port: int, count: int, window: int) -> None:
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(packets.connect("", clean_start=True, keep_alive_s=0, username="widerow", password=b"secret"))
    assert sock.recv(4096)[0] == packets.CONNACK << 4
    _pump(sock, count, window)


def wire(count: int) -> None:
    """Listens, prints its port, serves one subscriber."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        sock, _ = listener.accept()
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    hello = sock.recv(4096)
    at = hello.find(b"\x21", 12)
    window = struct.unpack(">H", hello[at + 1 : at + 3])[0]
    sock.sendall(bytes([0x20, 3, 0, 0, 0]))
    asked = sock.recv(4096)
    identifier = asked[2:4] if asked[1] < 128 else asked[3:5]
    sock.sendall(bytes([0x90, 4]) + identifier + bytes([0, 1]))
    time.sleep(0.5)
    _pump(sock, count, min(window, _IDENTIFIERS) - _CHUNK)


def _pump(sock: socket.socket, count: int, window: int) -> None:
    """Send; a PUBACK of success has four bytes, and nothing else comes."""
    sent = acked = 0
    for chunk in encoded(count):
        while sent - acked // 4 >= window:
            acked += len(sock.recv(1 << 16))
        sock.sendall(chunk)
        sent += _CHUNK
    while acked // 4 < sent:
        part = sock.recv(1 << 16)
        if not part:
            break
        acked += len(part)


def cpu_s(pid: int) -> float:
    """What a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


class Count:
    """Counts until there are enough."""

    def __init__(self, enough: int, other: int) -> None:
        self.enough, self.other, self.seen, self.first = enough, other, 0, 0
        self.began: tuple[float, ...] = ()
        self.took: tuple[float, ...] = ()
        self.over = threading.Event()

    def add(self, n: int) -> None:
        if not self.seen:
            self.began, self.first = self._now(), n
        self.seen += n
        if self.seen >= self.enough and not self.took:
            self.took = tuple(now - then for now, then in zip(self._now(), self.began, strict=True))
            self.over.set()

    def _now(self) -> tuple[float, ...]:
        return time.perf_counter(), time.process_time(), cpu_s(self.other)

    def show(self) -> None:
        self.over.wait()
        time.sleep(0.2)  # the last acknowledgements
        print(self.seen - self.first, *self.took, flush=True)


def ours(port: int, enough: int, client_id: str, receive_maximum: int, other: int) -> None:
    warm_up()
    count = Count(enough, other)

    def received(block: Block) -> None:
        count.add(len(block.messages))
        client.done(block, np.arange(len(block.messages)))

    settings = ClientSettings(
        host="127.0.0.1",
        port=port,
        client_id=client_id,
        subscriptions=[Subscription(FILTER)],
        username="widerow",
        password=b"secret",
        receive_maximum=receive_maximum,
    )
    client = Client(settings, received, SystemClock(), Counters())
    client.start()
    assert client.wait_connected(20), client.trouble
    print("ready", flush=True)
    count.show()
    client.stop()


def paho(port: int, enough: int, client_id: str, receive_maximum: int, other: int) -> None:
    from paho.mqtt.client import Client as Paho  # noqa: PLC0415
    from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion  # noqa: PLC0415
    from paho.mqtt.packettypes import PacketTypes  # noqa: PLC0415
    from paho.mqtt.properties import Properties  # noqa: PLC0415

    count, ready = Count(enough, other), threading.Event()
    client = Paho(CallbackAPIVersion.VERSION2, client_id=client_id, protocol=MQTTProtocolVersion.MQTTv5)
    client.username_pw_set("widerow", "secret")
    client.on_message = lambda *_: count.add(1)
    client.on_subscribe = lambda *_: ready.set()
    properties = Properties(PacketTypes.CONNECT)
    properties.SessionExpiryInterval = 3600
    properties.ReceiveMaximum = receive_maximum
    client.connect("127.0.0.1", port, clean_start=False, properties=properties)
    client.loop_start()
    client.subscribe(FILTER, qos=1)
    ready.wait()
    print("ready", flush=True)
    count.show()
    client.disconnect()
    client.loop_stop()


if __name__ == "__main__":
    end, *given = sys.argv[1:]
    numbers = [int(text) if text.isdigit() else text for text in given]
    {"publish": publish, "wire": wire, "ours": ours, "paho": paho}[end](*numbers)  # type: ignore[operator]
