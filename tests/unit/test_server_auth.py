"""Who is asking, and for which tenant."""

from __future__ import annotations

import asyncio
import threading
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from httpx import ASGITransport, AsyncClient, Response

from awake import Running
from widerow.catalog.recent import GRACE_US
from widerow.config import Config, Store
from widerow.engine.rows import Key, Row
from widerow.model.errors import Forbidden, NotFound, Rejected, Unauthorized, Unavailable
from widerow.model.tenant import Tenant
from widerow.model.times import MINUTE, SECOND, ManualClock
from widerow.model.token import Role
from widerow.schema.table import Table
from widerow.server import auth as auth_module
from widerow.server.app import App
from widerow.server.auth import ADMINS, OPERATOR, OPERATORS, READERS, WRITERS, Auth, Caller, allow, secret_of
from widerow.server.call import Front
from widerow.service import Service


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service.open(replace(Config(), store=replace(Store(), url="memory:"))) as service:
        service.catalog.tenants.create(Tenant(name="acme"))
        yield service


def test_a_token_is_found_in_every_usual_header() -> None:
    def check(header: bytes, want: str) -> None:
        assert secret_of(header) == want

    check(b"Bearer wr_x", "wr_x")
    check(b"bearer  wr_x ", "wr_x")
    check(b"Token wr_x", "wr_x")
    check(b"Basic " + b64encode(b"user:wr_x"), "wr_x")
    check(b"Basic " + b64encode(b":wr_x"), "wr_x")
    check(b"Basic " + b64encode(b"user:with:colon"), "with:colon")


@pytest.mark.parametrize("header", [b"", b"wr_x", b"Digest wr_x", b"Basic", b"Basic !!", b"Basic " + b64encode(b"alone")])
def test_other_headers_hold_no_token(header: bytes) -> None:
    with pytest.raises(Unauthorized):
        secret_of(header)


def test_a_role_that_is_not_enough_learns_which_would_be() -> None:
    with pytest.raises(Forbidden, match="role admin or read; yours has role write"):
        allow(Caller(Role.WRITE, "acme"), READERS)
    with pytest.raises(Forbidden, match="role operator"):
        allow(Caller(Role.ADMIN, "acme"), OPERATORS)
    for roles in (READERS, WRITERS, ADMINS, OPERATORS):
        allow(OPERATOR, roles)


def test_a_token_makes_its_caller(service: Service) -> None:
    auth = Auth(service, local=False)
    secret, token = service.catalog.tokens.create(Role.DEVICE, tenant="acme", device="press-7")
    assert auth.caller(f"Bearer {secret}".encode()) == Caller(Role.DEVICE, "acme", "press-7", token.id)
    assert auth.caller(None, secret) == Caller(Role.DEVICE, "acme", "press-7", token.id)
    with pytest.raises(Unauthorized, match="no token"):
        auth.caller(None)
    with pytest.raises(Unauthorized, match="not known"):
        auth.caller(b"Bearer \xff\xfe")


def test_the_local_socket_needs_no_token_but_heeds_one(service: Service) -> None:
    auth = Auth(service, local=True)
    secret, _ = service.catalog.tokens.create(Role.READ, tenant="acme")
    assert auth.caller(None) == OPERATOR
    assert auth.caller(f"Bearer {secret}".encode()).role is Role.READ
    with pytest.raises(Unauthorized):
        auth.caller(b"Bearer wrong")


def test_the_token_decides_the_tenant_and_an_operator_names_it(service: Service) -> None:
    auth, reader = Auth(service, local=False), Caller(Role.READ, "acme")
    assert auth.tenant(reader, None).name == "acme"
    assert auth.tenant(reader, "acme").name == "acme"
    assert auth.tenant(OPERATOR, "acme").name == "acme"
    with pytest.raises(Forbidden, match="acme"):
        auth.tenant(reader, "umbra")
    with pytest.raises(Rejected, match=r"\?tenant="):
        auth.tenant(OPERATOR, None)
    with pytest.raises(NotFound):
        auth.tenant(OPERATOR, "umbra")
    with pytest.raises(NotFound):
        auth.tenant(OPERATOR, "No Slug\0")


@pytest.mark.parametrize("hangs", [False, True], ids=["it fails", "it hangs"])
def test_while_the_store_does_not_answer_what_it_said_lately_counts(monkeypatch: pytest.MonkeyPatch, *, hangs: bool) -> None:
    clock = ManualClock(1_800_000_000 * SECOND)
    config = replace(Config(), store=replace(Store(), url="memory:"))
    with asyncio.Runner() as runner, Service.open(config, clock) as service:
        service.catalog.tenants.create(Tenant(name="acme"))
        known, known_token = service.catalog.tokens.create(Role.WRITE, tenant="acme")
        stranger, _ = service.catalog.tokens.create(Role.WRITE, tenant="acme")
        revoked, token = service.catalog.tokens.create(Role.WRITE, tenant="acme")
        auth = Auth(service, local=False)
        auth._threads = ThreadPoolExecutor(4)  # as for a store that others share
        goes_on = threading.Event()

        def ask(secret: str, within_s: float = 15) -> Caller:
            header = f"Bearer {secret}".encode()

            async def asked() -> Caller:
                if not auth.at_hand(header, None, None):
                    running = Running()
                    await asyncio.wait_for(auth.fetch(header, None, None), within_s)
                    assert running.seconds() < 1.5
                return auth.caller(header)

            return runner.run(asked())

        def away(table: Table, key: Key, *, may_lag: bool = False) -> Row | None:  # noqa: ARG001
            if hangs:
                goes_on.wait(20)
            raise Unavailable("the store is away")

        caller = Caller(Role.WRITE, "acme", token=known_token.id)
        assert ask(known) == caller
        assert ask(revoked).token == token.id
        service.catalog.tokens.revoke(token.id)
        with monkeypatch.context() as patch:
            patch.setattr(service.engine, "get", away)
            patch.setattr(auth_module, "_PATIENCE_S", 0.15)
            for _ in range(3):
                clock.time_us += 3 * MINUTE
                assert ask(known) == caller
            # These wait for as long as the store does not answer: ten times what those are given that need not.
            with pytest.raises((Unavailable, TimeoutError)):
                ask(stranger, 1.5)
            with pytest.raises((Unavailable, Unauthorized, TimeoutError)):
                ask(revoked, 1.5)
            clock.time_us += GRACE_US
            with pytest.raises((Unavailable, TimeoutError)):
                ask(known, 1.5)
            goes_on.set()
        auth.close()


def test_a_tenant_that_an_operator_names_is_looked_up_by_a_thread_too() -> None:
    config = replace(Config(), store=replace(Store(), url="memory:"))
    with Service.open(config) as service:
        service.catalog.tenants.create(Tenant(name="acme"))
        secret, _ = service.catalog.tokens.create(Role.OPERATOR)
        for header, local in ((f"Bearer {secret}".encode(), False), (None, True)):
            auth = Auth(service, local=local)
            auth._threads = ThreadPoolExecutor(1)  # as for a store that others share
            service.catalog.tenants._recent.forget("acme")
            assert not auth.at_hand(header, None, "acme")
            asyncio.run(auth.fetch(header, None, "acme"))
            assert auth.at_hand(header, None, "acme")
            auth.close()


def test_an_overview_of_a_tenant_that_the_store_is_slow_to_find_keeps_no_other_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    goes_on, asked = threading.Event(), threading.Event()

    async def main(service: Service) -> None:
        app = App(Front(service), local=True)
        app._auth._threads = ThreadPoolExecutor(2)  # as for a store that others share
        async with AsyncClient(transport=ASGITransport(app), base_url="http://local") as client:

            def ask(tenant: str) -> asyncio.Task[Response]:
                return asyncio.create_task(client.get("/v1/overview", params={"tenant": tenant}))

            slow = ask("umbra")
            await asyncio.to_thread(asked.wait, 15)
            assert (await asyncio.wait_for(ask("acme"), 15)).status_code == 200
            goes_on.set()
            assert (await asyncio.wait_for(slow, 15)).status_code == 200
        app.close()

    with Service.open(replace(Config(), store=replace(Store(), url="memory:"))) as service:
        for name in ("acme", "umbra"):
            service.catalog.tenants.create(Tenant(name=name))
        get = service.catalog.tenants.get

        def slowly(name: str) -> Tenant:
            if name == "umbra":
                asked.set()
                goes_on.wait(20)
            return get(name)

        monkeypatch.setattr(service.catalog.tenants, "get", slowly)
        asyncio.run(main(service))
