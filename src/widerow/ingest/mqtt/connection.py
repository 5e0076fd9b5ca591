"""One connection to a broker, from CONNECT to its end, driven by one thread.

Rule 1: nothing is read while more than `max_unacked_bytes` are not done with; the broker's own queues hold the rest. Its
answer to our CONNECT is: it brings no message, and would be taken for silence.
Rule 2: silence is a failure after twice the keep-alive, but not while we do not listen.
Rule 3: whatever goes wrong ends the connection with an exception; the next one takes up the session.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import select
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from widerow.codec.mqtt import MqttFault, Publishes, Scanner, answers, packets
from widerow.codec.mqtt.fault import PROTOCOL
from widerow.codec.mqtt.packets import Subscription, Will
from widerow.ingest.mqtt.outbox import Outbox
from widerow.ingest.mqtt.window import Window
from widerow.model.lane import Lane

log = logging.getLogger(__name__)

READ_BYTES = 256 << 10
_SEND_BYTES = 256 << 10
_ANSWER_S = 10.0
_TAKEN_OVER = 0x8E
_FAILED = 0x80
_MOST_SENT = 65_535

_CONNECTING, _CONNECTED, _SUBSCRIBED = range(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    host: str
    port: int
    client_id: str
    subscriptions: Sequence[Subscription]
    username: str | None = None
    password: bytes | None = None
    tls: ssl.SSLContext | None = None
    will: Will | None = None
    session_expiry_s: int = 604_800
    receive_maximum: int = 10_000
    max_packet_bytes: int = 32 << 20
    max_unacked_bytes: int = 64 << 20
    keep_alive_s: int = 30
    most_queued: int = 1_000
    """Messages of our own that wait to be sent or acknowledged."""
    lane: Lane = Lane.LIVE
    """What the session is for, in metrics and the log."""
    if_denied: str = ""
    """It is one that we can do without: what to say if the broker refuses its subscription. Empty: that is a failure."""


class Denied(MqttFault):
    """The broker refuses a subscription."""


class Bell:
    """Wakes a thread that waits in `poll`. Rung from any thread."""

    def __init__(self) -> None:
        self.handle = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def ring(self) -> None:
        os.eventfd_write(self.handle, 1)

    def hush(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.handle)

    def __del__(self) -> None:
        os.close(self.handle)  # not before: what is under way when a client stops rings it later


@dataclass(slots=True)
class Shared:
    """What outlives a connection."""

    window: Window
    outbox: Outbox
    bell: Bell
    received: Callable[[Publishes], None]
    connected: Callable[[bool], None]
    """Told that the subscriptions are in force, and whether there was a session."""
    stop_by_s: float | None = None
    """When to be gone; None: stay."""


class Connection:
    """Opened by the constructor, used by one thread. Raises `OSError` and `MqttFault`."""

    def __init__(self, settings: ClientSettings, shared: Shared) -> None:
        self._settings, self._shared = settings, shared
        self._scanner = Scanner(settings.max_packet_bytes)
        self._buffer = np.empty(READ_BYTES, np.uint8)
        self._filled = 0
        self._out = bytearray()
        self._state = _CONNECTING
        self._resumed = False
        self._keep_alive_s = float(settings.keep_alive_s)
        self._most_sent = _MOST_SENT
        self._asked = 0
        self._began_s = self._heard_s = self._said_s = time.monotonic()
        self._pinged_s: float | None = None
        plain = socket.create_connection((settings.host, settings.port), _ANSWER_S)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            tls = settings.tls
            self._socket = plain if tls is None else tls.wrap_socket(plain, server_hostname=settings.host)
        except BaseException:
            plain.close()
            raise
        self._socket.setblocking(False)
        shared.window.begin()
        self._out += packets.connect(
            settings.client_id,
            keep_alive_s=settings.keep_alive_s,
            session_expiry_s=settings.session_expiry_s,
            receive_maximum=settings.receive_maximum,
            maximum_packet=settings.max_packet_bytes,
            username=settings.username,
            password=settings.password,
            will=settings.will,
        )

    def close(self) -> None:
        self._socket.close()

    def run(self) -> None:
        """Until told to stop. Then the session is left as it is, for whoever connects next."""
        poll, handle, interest = select.poll(), self._socket.fileno(), -1
        poll.register(self._shared.bell.handle, select.POLLIN)
        while not self._finished():
            self._fill()
            self._send()
            reading = self._reads()
            wanted = (select.POLLIN if reading else 0) | (select.POLLOUT if self._out else 0)
            if wanted != interest:
                interest = wanted
                poll.register(handle, interest)
            for ready, event in poll.poll(self._wait_ms()):
                if ready != handle:
                    self._shared.bell.hush()
                elif reading and event & ~select.POLLOUT:
                    self._receive()
                elif event & (select.POLLHUP | select.POLLERR):
                    raise ConnectionError("the broker closed the connection")
            self._keep_alive(reading)
        self._socket.settimeout(1.0)
        self._socket.sendall(bytes(self._out) + packets.disconnect())

    def _finished(self) -> bool:
        by_s = self._shared.stop_by_s
        return by_s is not None and (time.monotonic() >= by_s or (self._shared.window.is_empty() and not self._out))

    def _reads(self) -> bool:
        has_room = self._shared.window.held_bytes < self._settings.max_unacked_bytes
        return self._shared.stop_by_s is None and (has_room or self._state == _CONNECTING)

    def _wait_ms(self) -> float:
        until_s = min(self._said_s + self._keep_alive_s / 2, self._shared.stop_by_s or math.inf)
        return min(max((until_s - time.monotonic()) * 1000, 1), 1000)

    # -- out

    def _fill(self) -> None:
        if len(self._out) < _SEND_BYTES:
            self._out += self._shared.window.take()
            if self._state == _SUBSCRIBED:
                self._out += self._shared.outbox.take(_SEND_BYTES, self._most_sent)

    def _send(self) -> None:
        while self._out:
            try:
                count = self._socket.send(self._out)
            except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                return
            del self._out[:count]
            self._said_s = time.monotonic()

    def _keep_alive(self, reading: bool) -> None:
        now_s = time.monotonic()
        if self._state == _CONNECTING:
            if now_s - self._began_s > _ANSWER_S:
                raise TimeoutError("the broker does not answer a CONNECT")
            return
        if now_s - self._said_s >= self._keep_alive_s / 2 and not self._out:
            self._out += packets.pingreq()
            self._pinged_s = self._pinged_s or now_s
        if not reading:
            self._pinged_s = None
        elif self._pinged_s is not None and now_s - self._pinged_s > self._keep_alive_s:
            raise TimeoutError(f"the broker has said nothing for {now_s - self._heard_s:.0f}s")

    # -- in

    def _receive(self) -> None:
        while True:
            try:
                count = self._socket.recv_into(self._buffer[self._filled :].data)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            if not count:
                raise ConnectionError("the broker closed the connection")
            self._filled += count
            self._heard_s, self._pinged_s = time.monotonic(), None
            self._scan()
            # What TLS has unpacked already makes no socket readable.
            if not (isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() and self._reads()):
                return

    def _scan(self) -> None:
        at, need, more = 0, 0, True
        while more:
            found = self._scanner.scan(self._buffer, at, self._filled)
            first = found.others_before.count(0)  # a CONNACK and the first messages may come in one piece
            for kind, body in found.others[:first]:
                self._take(kind, body)
            if found.publishes is not None:
                if self._state == _CONNECTING:
                    raise MqttFault("a PUBLISH came before the CONNACK", PROTOCOL)
                self._shared.received(found.publishes)
            for kind, body in found.others[first:]:
                self._take(kind, body)
            if found.fault is not None:
                self._say(found.fault.reason_code)
                raise found.fault
            at, need, more = found.end, found.need, found.more
        self._move(at, need)

    def _move(self, at: int, need: int) -> None:
        """The rest to the front, where there is room for the packet it begins; `scan` has seen that it may be so large."""
        rest, size = self._filled - at, max(need, READ_BYTES)
        if len(self._buffer) != size:
            larger = np.empty(size, np.uint8)
            larger[:rest] = self._buffer[at : self._filled]
            self._buffer = larger
        elif at and rest:
            self._buffer[:rest] = self._buffer[at : self._filled].copy()
        self._filled = rest

    def _say(self, reason_code: int) -> None:
        with contextlib.suppress(OSError):
            self._socket.settimeout(1.0)
            self._socket.sendall(packets.disconnect(reason_code))

    def _take(self, kind: int, body: bytes) -> None:
        """A packet that is no PUBLISH."""
        if self._state == _CONNECTING:
            if kind != packets.CONNACK:
                raise MqttFault(f"the broker answers a CONNECT with a packet of type {kind}", PROTOCOL)
            self._accepted(answers.read_connack(body))
        elif kind == packets.PUBACK:
            self._published(answers.read_puback(body))
        elif kind == packets.SUBACK:
            self._subscribed(answers.read_suback(body))
        elif kind == packets.DISCONNECT:
            code, words = answers.read_disconnect(body)
            if code == _TAKEN_OVER:
                log.error("MQTT client identifier is used twice: give each process its own (mqtt.client_id)")
            raise MqttFault(f"the broker ended the connection: {answers.reason_of(code)} {words}".rstrip(), code)
        elif kind != packets.PINGRESP:
            raise MqttFault(f"the broker sent a packet of type {kind}, which nothing asked for", PROTOCOL)

    def _accepted(self, answer: answers.Connack) -> None:
        if answer.reason_code:
            raise MqttFault(f"the broker refuses the gateway: {answers.reason_of(answer.reason_code)}", answer.reason_code)
        if not answer.number(answers.SHARED_AVAILABLE, 1):
            raise MqttFault("the broker has no shared subscriptions, which are needed")
        self._state, self._resumed = _CONNECTED, answer.session_present
        self._keep_alive_s = float(answer.number(answers.SERVER_KEEP_ALIVE, self._settings.keep_alive_s)) or math.inf
        self._most_sent = answer.number(answers.RECEIVE_MAXIMUM, _MOST_SENT)
        # Also when there was a session: the settings may have changed, and asking twice is harmless.
        self._asked = self._shared.outbox.identifier()
        self._out += packets.subscribe(self._asked, self._settings.subscriptions)
        self._out += self._shared.outbox.again(dup=answer.session_present)

    def _subscribed(self, answer: answers.Suback) -> None:
        if answer.identifier != self._asked or len(answer.reason_codes) != len(self._settings.subscriptions):
            raise MqttFault("a SUBACK answers nothing that was asked", PROTOCOL)
        for asked, code in zip(self._settings.subscriptions, answer.reason_codes, strict=True):
            if code >= _FAILED:
                raise Denied(f"the broker refuses the subscription {asked.filter}: {answers.reason_of(code)}", code)
        self._state = _SUBSCRIBED
        self._shared.connected(self._resumed)

    def _published(self, answer: answers.Puback) -> None:
        topic = self._shared.outbox.acknowledged(answer.identifier)
        if topic is not None and answer.reason_code >= _FAILED:
            log.warning("the broker refuses %s: %s", topic.decode(errors="replace"), answers.reason_of(answer.reason_code))
