"""A store on disk, served on a free port, with two tenants and a token of every kind for each."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx
import pytest

from patient import PATIENT
from servers.bigtable import Bigtable
from servers.cassandra import Cassandra
from widerow.config import Config, Http, Store
from widerow.model.tenant import Tenant
from widerow.model.token import OF_ALL_TENANTS, Role
from widerow.server.run import running
from widerow.service import Service

TENANTS = ("acme", "umbra")
OWN_DEVICE = "own-device"
"""The device of each tenant's device token."""
MAX_BODY_MIB = 1


@dataclass
class Site:
    """A served store. Clients are closed with it."""

    service: Service
    url: str
    tokens: dict[tuple[str, Role], str]
    socket_path: Path
    _clients: list[httpx.Client] = field(default_factory=list)

    def token(self, role: Role = Role.ADMIN, tenant: str = "acme") -> str:
        return self.tokens["" if role in OF_ALL_TENANTS else tenant, role]

    def client(self, role: Role | None = Role.ADMIN, tenant: str = "acme") -> httpx.Client:
        """A client with that token; role None: without any."""
        headers = {} if role is None else {"Authorization": f"Bearer {self.token(role, tenant)}"}
        client = httpx.Client(base_url=self.url, headers=headers, timeout=30)
        self._clients.append(client)
        return client

    def local(self) -> httpx.Client:
        """A client of the local socket."""
        transport = httpx.HTTPTransport(uds=str(self.socket_path))
        client = httpx.Client(base_url="http://localhost", transport=transport, timeout=30)
        self._clients.append(client)
        return client

    def write(self, device: str, values: dict[str, Any], *, tenant: str = "acme", time_ms: int | None = None) -> int:
        """Store one report, and give its time."""
        at = now_ms() if time_ms is None else time_ms
        answer = self.client(Role.WRITE, tenant).post("/v1/write", json={"device": device, "time": at, "values": values})
        assert answer.status_code == 204, answer.text
        return at

    def values(self, device: str, *, tenant: str = "acme") -> dict[str, Any]:
        """The latest value of each metric of a device."""
        answer = self.client(Role.READ, tenant).get(f"/v1/devices/{in_path(device)}/latest")
        assert answer.status_code == 200, answer.text
        return {series["metric"]: series["points"][0][1] for series in answer.json()["series"]}

    def close(self) -> None:
        for client in self._clients:
            client.close()


def in_path(name: str) -> str:
    """A name as one segment of a path. Dots too: clients resolve those that are not encoded."""
    return quote(name, safe="").replace(".", "%2E")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def config_at(folder: Path) -> Config:
    return replace(
        Config(),
        store=replace(Store(), url=f"rocksdb:{folder / 'store'}", cache_mib=16, write_buffer_mib=16, reserve_mib=0),
        http=replace(Http(), max_body_mib=MAX_BODY_MIB),
    )


ENGINES = ("memory", "rocksdb", "cassandra", "bigtable")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "about_http: tests HTTP itself and asks no store; runs on the engine in memory alone")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [item for item in items if _is_left_out(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in set(left_out)]


def _is_left_out(item: pytest.Item) -> bool:
    """Tests marked `about_http` run in memory alone, all others on the engines that users have."""
    called = getattr(item, "callspec", None)
    if called is None or "service" not in called.params:
        return False
    in_memory: bool = called.params["service"] == ENGINES[0]
    return in_memory != any(item.iter_markers("about_http"))


@pytest.fixture(scope="module", params=ENGINES)
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service on a store of its own, on each engine."""
    with Service.open(stored(request, config_at(tmp_path_factory.mktemp("widerow")))) as service:
        yield service


def stored(request: pytest.FixtureRequest, config: Config) -> Config:
    """The configuration, with a store on the engine that the fixture is asked for."""
    if request.param == "memory":
        config = replace(config, store=replace(config.store, url="memory:"))
    if request.param == "cassandra":
        server: Cassandra = request.getfixturevalue("cassandra_server")
        url = server.store_url(f"system_{uuid4().hex[:12]}")
        config = replace(config, store=replace(config.store, url=url), cassandra=PATIENT)
    if request.param == "bigtable":
        emulator: Bigtable = request.getfixturevalue("bigtable_server")
        patch = request.getfixturevalue("module_environment")
        patch.setenv("BIGTABLE_EMULATOR_HOST", emulator.address)
        config = replace(config, store=replace(config.store, url=emulator.store_url(f"s{uuid4().hex[:8]}")))
    return config


@pytest.fixture(scope="module")
def module_environment() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def site(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The same, served over TCP and a local socket, with tenants and tokens."""
    with served(service, tmp_path_factory.mktemp("socket") / "serve.sock") as site:
        yield site


@contextmanager
def served(service: Service, socket_path: Path) -> Iterator[Site]:
    """A service with tenants and tokens, served."""
    tokens: dict[tuple[str, Role], str] = {}
    for tenant in TENANTS:
        service.catalog.tenants.create(Tenant(name=tenant))
        for role in (Role.WRITE, Role.READ, Role.ADMIN, Role.DEVICE):
            device = OWN_DEVICE if role is Role.DEVICE else ""
            tokens[tenant, role], _ = service.catalog.tokens.create(role, tenant=tenant, device=device)
    for role in OF_ALL_TENANTS:
        tokens["", role], _ = service.catalog.tokens.create(role)
    with running(service, socket_path=socket_path) as url:
        site = Site(service, url, tokens, socket_path)
        try:
            yield site
        finally:
            site.close()
