"""Connections whose last request was too much are read again in a pause of the others, and nothing of theirs is lost."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from typing import Self

import pytest

from widerow.model.tenant import Limits, Tenant
from widerow.model.token import Role
from widerow.server import connection
from widerow.server.run import running
from widerow.service import Service

PATIENCE_S = 0.2
"""Longer than a request takes that is not put off."""
NEVER_S = 600.0


class Busy:
    """Whether something is urgent."""

    def __init__(self) -> None:
        self.is_urgent, self.looked = False, threading.Event()

    def __call__(self) -> bool:
        self.looked.set()
        return self.is_urgent


class Client:
    """A connection that is kept."""

    def __init__(self, url: str, token: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])))
        self._socket.settimeout(10)
        self._token, self._left = token, b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, times: int = 1) -> None:
        """A report each, in one piece, without waiting for answers."""
        body = b"m,device=d x=1"
        head = (
            f"POST /write HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self._token}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._socket.sendall(times * (head.encode() + body))

    def status(self) -> int:
        """Of the next answer."""
        while not (found := re.match(rb"HTTP/1.1 (\d+)(?s:.*?)\r\n\r\n", self._left)):
            self._left += self._received()
        length = re.search(rb"(?i)content-length: (\d+)", found[0])
        end = found.end() + (int(length[1]) if length else 0)
        while len(self._left) < end:
            self._left += self._received()
        self._left = self._left[end:]
        return int(found[1])

    def asks(self) -> int:
        self.send()
        return self.status()

    def hears_nothing(self) -> bool:
        self._socket.settimeout(PATIENCE_S)
        try:
            return not self._socket.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return True
        finally:
            self._socket.settimeout(10)

    def _received(self) -> bytes:
        part = self._socket.recv(65536)
        assert part, "the server went away"
        return part


@pytest.fixture
def busy(service: Service, monkeypatch: pytest.MonkeyPatch) -> Busy:
    busy = Busy()
    monkeypatch.setattr(service.turns, "is_urgent", busy)
    return busy


@pytest.fixture(scope="module")
def tokens(service: Service) -> dict[str, str]:
    """Of a tenant that may send one report now and then, and of one that may send what it likes."""
    service.create_tenant(Tenant(name="loud", limits=Limits(writes_per_s=1, writes_burst=1)))
    service.create_tenant(Tenant(name="calm"))
    return {name: service.catalog.tokens.create(Role.WRITE, tenant=name)[0] for name in ("loud", "calm")}


@pytest.fixture
def url(service: Service, busy: Busy) -> Iterator[str]:
    assert not busy.is_urgent
    with running(service) as url:
        yield url


@pytest.fixture
def loud(url: str, tokens: dict[str, str]) -> Iterator[Client]:
    with Client(url, tokens["loud"]) as client:
        yield client


def refused(client: Client) -> None:
    assert 429 in (client.asks() for _ in range(5))


def answered(*statuses: int) -> bool:
    """One report a second is kept."""
    return set(statuses) <= {204, 429}


def test_who_sends_too_much_is_read_again_in_the_next_pause(
    url: str, loud: Client, tokens: dict[str, str], busy: Busy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "LONGEST_S", NEVER_S)
    busy.is_urgent = True
    refused(loud)
    loud.send()
    assert loud.hears_nothing()
    with Client(url, tokens["calm"]) as calm:
        assert [calm.asks() for _ in range(3)] == [204] * 3, "its neighbours are"
    with Client(url, tokens["loud"]) as other:
        refused(other)
        other.send()
        assert other.hears_nothing()
        busy.is_urgent = False
        assert answered(loud.status(), other.status()), "all of them at once"


def test_without_a_pause_it_is_read_again_after_a_while(loud: Client, busy: Busy) -> None:
    busy.is_urgent = True
    refused(loud)
    assert answered(*(loud.asks() for _ in range(10)))


def test_whatever_was_sent_without_waiting_for_answers_has_one_each(loud: Client, busy: Busy) -> None:
    busy.is_urgent = True
    loud.send(50)
    statuses = [loud.status() for _ in range(50)]
    assert answered(*statuses)
    assert 429 in statuses
    assert answered(loud.asks())


def test_who_goes_away_while_it_is_put_off_harms_nobody(
    url: str, loud: Client, tokens: dict[str, str], busy: Busy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "LONGEST_S", NEVER_S)
    busy.is_urgent = True
    refused(loud)
    with Client(url, tokens["loud"]) as other:
        refused(other)
        other.send()
    busy.looked.clear()
    assert busy.looked.wait(10)
    busy.is_urgent = False
    assert answered(loud.asks())


def test_a_server_stops_while_some_are_put_off(
    service: Service, tokens: dict[str, str], busy: Busy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "LONGEST_S", NEVER_S)
    busy.is_urgent = True
    with running(service) as url, Client(url, tokens["loud"]) as client:
        refused(client)
