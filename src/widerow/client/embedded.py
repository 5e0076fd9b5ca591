"""A store without a server: opened in this process, or reached through the socket of whoever serves it on this machine."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import httpx

from widerow.client.connection import Connection
from widerow.config import load
from widerow.ingest.kafka.front import to_kafka, workers_write
from widerow.model.errors import Conflict, NotFound
from widerow.model.store import Embedded, InMemory, is_shared, parse_store
from widerow.model.times import SystemClock
from widerow.server.inside import InsideTransport
from widerow.server.sockets import SOCKET, is_served, reachable
from widerow.service import Service

_TICK_S = 0.2
"""How soon the end of the program is seen."""


def open_store(
    store: str, tenant: str, *, create: bool, writes: bool, config: Path | None, timeout_s: float | None
) -> Connection:
    """See `Client.open`."""
    with ExitStack() as stack:
        transport = stack.enter_context(_connected(store, create=create, writes=writes, config=config))
        # No proxy and no .netrc of the environment has a say in what happens on this machine.
        http = httpx.Client(base_url="http://localhost", transport=transport, timeout=timeout_s, trust_env=False)
        stack.callback(http.close)
        if create or isinstance(parse_store(store), InMemory):
            with suppress(Conflict):  # it is there
                Connection(http, store, None).send("POST", "/v1/admin/tenants", body={"name": tenant})
        connection = Connection(http, store, tenant, stack.pop_all())
    if isinstance(transport, InsideTransport):
        _close_with_the_program(connection)
    return connection


@contextmanager
def _connected(store: str, *, create: bool, writes: bool, config: Path | None) -> Iterator[httpx.BaseTransport]:
    """A way to ask a store, for as long as the context lasts. Rules as for commands: an embedded store that is being served
    is its owner's, and opening makes none unless that is wanted.
    """
    place = parse_store(store)
    if isinstance(place, Embedded):
        owner = place.path / SOCKET
        if is_served(owner):
            with reachable(owner) as path:
                yield httpx.HTTPTransport(uds=path, verify=False)  # no TLS, so no certificates are read
            return
        if not create and not (place.path / "CURRENT").exists():
            raise NotFound(f"there is no store at {place.path}: check the path, or give create=True", code="no-store")
    named = os.environ.get("WIDEROW_CONFIG")
    settings = load(config or (Path(named) if named else None))
    settings = replace(settings, store=replace(settings.store, url=store))
    clock = SystemClock()
    sink = to_kafka(settings, clock) if writes and workers_write(settings) else None
    # Whoever writes rolls up as well: there may be no other process that would.
    writes = sink is None and (writes or not is_shared(store))
    with Service.open(settings, clock, writes=writes, rolls=writes, sink=sink) as service:
        transport = InsideTransport(service)
        try:
            yield transport
        finally:
            transport.close()


def _close_with_the_program(connection: Connection) -> None:
    """What nobody closes is closed when the program ends: the threads of an open store would keep it from ending."""

    def watch() -> None:
        while not connection.closed.wait(_TICK_S):
            if not threading.main_thread().is_alive():
                connection.close()

    threading.Thread(target=watch, name="closer").start()
