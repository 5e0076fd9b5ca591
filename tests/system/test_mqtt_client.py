"""The client on the wire: against a broker of a few lines where each byte matters, against mosquitto for the rest."""

from __future__ import annotations

import fcntl
import os
import resource
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from servers.fixtures import had
from servers.mosquitto import PASSWORD, USER, Mosquitto, program
from system.mqtt_site import Device, eventually
from widerow.codec.mqtt import packets, warm_up
from widerow.codec.mqtt.packets import Subscription
from widerow.ingest.mqtt.client import Client, _pause_after
from widerow.ingest.mqtt.connection import READ_BYTES, ClientSettings
from widerow.ingest.mqtt.window import Block
from widerow.model.times import SystemClock
from widerow.ops.counters import Counters

CONNACK = bytes([0x20, 3, 0, 0, 0])
RESUMED = bytes([0x20, 3, 1, 0, 0])
SUBACK = b"\x90\x04\x00\x01\x00\x01"


class Script:
    """A broker that says what a test tells it to, one connection after the other."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(20)
        self.port = self._listener.getsockname()[1]

    def accept(self, greeting: bytes = CONNACK) -> socket.socket:
        peer, _ = self._listener.accept()
        peer.settimeout(20)
        read_packet(peer, 0x10)
        peer.sendall(greeting)
        asked = read_packet(peer, 0x82)
        peer.sendall(b"\x90\x04" + asked[:2] + b"\x00\x01")
        return peer

    def close(self) -> None:
        self._listener.close()


def read_packet(peer: socket.socket, first: int) -> bytes:
    head = read(peer, 2)
    assert head[0] == first, head
    return read(peer, head[1])


def read(peer: socket.socket, size: int) -> bytes:
    out = b""
    while len(out) < size:
        part = peer.recv(size - len(out))
        assert part, f"closed after {out!r}"
        out += part
    return out


def publishes(identifiers: list[int], payload: bytes = b"x", *, dup: bool = False) -> bytes:
    return b"".join(packets.publish(b"t", payload, identifier=name, qos=1, dup=dup) for name in identifiers)


@dataclass
class Taken:
    """A client and the blocks it was given. With `at_once`, each is done as it comes."""

    client: Client
    blocks: list[Block] = field(default_factory=list)

    def rows(self) -> list[tuple[Block, int]]:
        return [(block, row) for block in list(self.blocks) for row in range(len(block.messages))]

    def identifiers(self) -> list[int]:
        return [int(block.messages.identifier[row]) for block, row in self.rows()]

    def done(self, place: int) -> None:
        block, row = self.rows()[place]
        self.client.done(block, np.array([row]))


@contextmanager
def client_of(port: int, *, at_once: bool = False, stop_s: float = 2.0, **settings: Any) -> Iterator[Taken]:
    warm_up()

    def received(block: Block) -> None:
        taken.blocks.append(block)
        if at_once:
            taken.client.done(block, np.arange(len(block.messages)))

    given = {"client_id": "c", "subscriptions": [Subscription("t")], "host": "127.0.0.1", **settings}
    taken = Taken(Client(ClientSettings(port=port, **given), received, SystemClock(), Counters()))
    taken.client.start()
    try:
        yield taken
    finally:
        taken.client.stop(stop_s)


@pytest.fixture
def script() -> Iterator[Script]:
    script = Script()
    yield script
    script.close()


def test_pubacks_come_in_the_order_of_the_publishes(script: Script) -> None:
    with client_of(script.port) as taken, script.accept() as peer:
        peer.sendall(publishes([11, 12, 13]))
        eventually(lambda: taken.identifiers() == [11, 12, 13])
        peer.sendall(publishes([14, 15]))
        eventually(lambda: len(taken.blocks) == 2 and len(taken.rows()) == 5)
        for place in (4, 2, 1):
            taken.done(place)
        peer.settimeout(0.2)
        with pytest.raises(TimeoutError):  # the first is not done, so nothing leaves
            peer.recv(1)
        peer.settimeout(20)
        taken.done(0)
        assert read(peer, 12) == b"".join(map(packets.puback, (11, 12, 13)))
        taken.done(3)
        assert read(peer, 8) == b"".join(map(packets.puback, (14, 15)))


def test_an_acknowledgement_of_an_earlier_connection_is_dropped(script: Script) -> None:
    with client_of(script.port) as taken:
        with script.accept() as peer:
            peer.sendall(publishes([1, 2]))
            eventually(lambda: len(taken.rows()) == 2)
        with script.accept(RESUMED) as peer:
            assert taken.client.wait_connected(10)
            peer.sendall(publishes([1, 2], dup=True))
            eventually(lambda: len(taken.rows()) == 4)
            taken.done(0)
            taken.done(1)
            taken.done(2)
            assert read(peer, 4) == packets.puback(1)
            peer.settimeout(0.2)
            with pytest.raises(TimeoutError):
                peer.recv(1)
            taken.done(3)


def test_messages_of_our_own_are_sent_again_when_nobody_acknowledged_them(script: Script) -> None:
    with client_of(script.port, most_queued=2) as taken:
        with script.accept() as peer:
            assert taken.client.wait_connected(10)
            assert [taken.client.publish(b"e", b"%d" % i) for i in range(3)] == [True, True, False]
            first = [read_packet(peer, 0x32) for _ in range(2)]
        with script.accept(RESUMED) as peer:
            pass
        with script.accept(RESUMED) as peer:
            assert [read_packet(peer, 0x3A) for _ in range(2)] == first
            for body in first:
                peer.sendall(packets.puback(struct.unpack(">H", body[3:5])[0]))
            eventually(lambda: taken.client.publish(b"e", b"3"))
            read_packet(peer, 0x32)


@pytest.mark.parametrize(
    "stream",
    [
        b"\x36\x05\x00\x01t\x00\x01",
        b"\x30\xff\xff\xff\xff\xff",
        b"\x00\x00",
        publishes([1], b"x" * 3000),
        b"\x30\x06\0\0\x03\x23\0\1",
    ],
    ids=["quality 3", "length", "type", "too large", "alias"],
)
def test_a_broker_that_breaks_the_protocol_is_told_and_left(script: Script, stream: bytes) -> None:
    with client_of(script.port, max_packet_bytes=2000) as taken, script.accept() as peer:
        assert taken.client.wait_connected(10)
        peer.sendall(stream)
        assert read(peer, 2)[0] == 0xE0
        read(peer, 1)
        assert peer.recv(1) == b""
        eventually(lambda: taken.client.trouble)
        script.accept().close()  # it comes again


def test_a_broker_that_comes_back_is_answered_while_nothing_more_may_be_read(script: Script) -> None:
    """And nothing more is read: not what the broker sends behind its CONNACK either, but for what came with it."""
    with client_of(script.port, max_unacked_bytes=100) as taken:
        with script.accept() as peer:
            peer.sendall(publishes([1], b"x" * 200))
            eventually(lambda: taken.client.window.held_bytes > 100)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # the client does not listen
        with script.accept(RESUMED) as peer:  # it asks for its subscriptions, so it has read the CONNACK
            peer.sendall(publishes([1], b"x" * 200, dup=True))
            assert (taken.client.wait_connected(0.3), len(taken.blocks)) == (False, 1)
            taken.done(0)
            eventually(lambda: taken.identifiers() == [1, 1])
            taken.done(1)
            assert read(peer, 4) == packets.puback(1)
            assert taken.client.trouble == ""


def test_bytes_that_are_not_acknowledged_are_bounded(mosquitto: Mosquitto) -> None:
    limit, size, count = 1 << 20, 50_000, 200
    login: Any = {
        "username": USER,
        "password": PASSWORD.encode(),
        "client_id": "bounded",
        "subscriptions": [Subscription("$share/b/bounded")],
    }
    with client_of(mosquitto.port, max_unacked_bytes=limit, **login) as taken, Device(mosquitto) as device:
        assert taken.client.wait_connected(20)
        for sent in [device.send("bounded", b"x" * size) for _ in range(count)]:
            sent.wait_for_publish(20)
        eventually(lambda: taken.client.window.held_bytes >= limit)
        time.sleep(0.3)
        assert taken.client.window.held_bytes <= limit + READ_BYTES + 2 * size
        seen: set[int] = set()
        most = 0

        def all_came() -> bool:
            nonlocal most
            for block in list(taken.blocks):
                most = max(most, taken.client.window.held_bytes)
                if id(block) not in seen:
                    seen.add(id(block))
                    taken.client.done(block, np.arange(len(block.messages)))
            return len(taken.rows()) >= count

        eventually(all_came)
        assert most <= limit + READ_BYTES + 2 * size
        assert all(block.messages.payload(row) == b"x" * size for block, row in taken.rows())


def test_a_broker_that_falls_silent_is_left(script: Script) -> None:
    with client_of(script.port, keep_alive_s=2) as taken, script.accept() as peer:
        assert taken.client.wait_connected(10)
        assert read(peer, 2) == packets.pingreq()
        peer.sendall(b"\xd0\x00")
        assert read(peer, 2) == packets.pingreq()
        eventually(lambda: "nothing for" in taken.client.trouble)


def test_after_any_number_of_failures_it_is_tried_again_soon() -> None:
    assert _pause_after(0) < _pause_after(3) < _pause_after(100) == _pause_after(5_000) <= 15


def test_a_lost_connection_is_made_again_also_in_a_process_with_many_open_files(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    made = os.eventfd

    def beyond(*how: int) -> int:
        handle = made(*how)
        try:
            return fcntl.fcntl(handle, fcntl.F_DUPFD_CLOEXEC, 1500)
        finally:
            os.close(handle)

    monkeypatch.setattr(os, "eventfd", beyond)
    with client_of(script.port) as taken:
        script.accept().close()
        with script.accept(RESUMED) as peer:
            peer.sendall(publishes([7]))
            eventually(lambda: taken.identifiers() == [7])


def test_a_stop_disconnects_and_keeps_the_session(script: Script) -> None:
    with client_of(script.port) as taken, script.accept() as peer:
        peer.sendall(publishes([5]))
        eventually(taken.rows)
        stopping = threading.Thread(target=taken.client.stop, args=(10,))
        stopping.start()
        time.sleep(0.1)
        taken.done(0)
        stopping.join()
        assert read(peer, 6) == packets.puback(5) + packets.disconnect()


def test_tls_is_spoken_and_the_name_is_checked(tmp_path: Path) -> None:
    tool = str(had(lambda: program("openssl", "openssl")))
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = [tool, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(certificate)]
    named = ["-days", "1", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run([*command, *named], check=True, capture_output=True, timeout=60)
    context = ssl.create_default_context(cafile=str(certificate))

    def configuration(broker: Mosquitto) -> str:
        return (
            f"listener {broker.port} {broker.host}\nuser root\nallow_anonymous true\n"
            f"certfile {certificate}\nkeyfile {key}\nmax_queued_messages 0\n"
        )

    with Mosquitto(configuration=configuration, tls=context) as broker:
        with client_of(broker.port, at_once=True, host="localhost", tls=context) as taken:
            assert taken.client.wait_connected(20), taken.client.trouble
            for _ in range(50):
                assert taken.client.publish(b"t", b"y" * 30_000)
            eventually(lambda: len(taken.rows()) == 50)
        with client_of(broker.port, tls=context) as taken:  # 127.0.0.1 is not in the certificate
            eventually(lambda: "certificate verify failed" in taken.client.trouble)
