"""The demo's tokens work after a restart with the same folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from system.conftest import config_at
from widerow.cli.api import Api
from widerow.cli.demo_tokens import DESCRIPTION, FILE, demo_tokens
from widerow.model.errors import Unauthorized
from widerow.model.tenant import Tenant
from widerow.server.run import running
from widerow.server.sockets import reachable
from widerow.service import Service

WANTED = [("operator", ""), ("admin", "acme"), ("write", "acme"), ("write", "globex")]


def started(folder: Path, *, forget: str = "") -> dict[tuple[str, str], str]:
    """The tokens of a demo that is started and stopped, each of them good; `forget`: a tenant deleted before."""
    with Service.open(config_at(folder)) as service:
        for tenant in ("acme", "globex"):
            if tenant not in [one.name for one in service.catalog.tenants.list()]:
                service.catalog.tenants.create(Tenant(name=tenant))
        if forget:
            service.catalog.tokens.revoke_all(forget)
        socket = folder / "serve.sock"
        with running(service, socket_path=socket), reachable(socket) as path, Api.of_socket(path, None, "demo") as api:
            found = demo_tokens(api, folder, WANTED)
        for (role, tenant), secret in found.items():
            token = service.catalog.tokens.verify(secret, service.clock.now_us())
            assert (token.role, token.tenant, token.description) == (role, tenant, DESCRIPTION)
        assert len(service.catalog.tokens.list()) == len(WANTED)
    return found


def test_a_demo_that_is_started_again_has_the_tokens_that_it_had(tmp_path: Path) -> None:
    first = started(tmp_path)
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    assert started(tmp_path) == first
    without = started(tmp_path, forget="acme")
    assert {who for who in first if without[who] != first[who]} == {("admin", "acme"), ("write", "acme")}
    (tmp_path / FILE).write_text("[1, {}]")
    anew = started(tmp_path)
    assert not set(anew.values()) & set(without.values())
    with Service.open(config_at(tmp_path)) as service, pytest.raises(Unauthorized):
        service.catalog.tokens.verify(without["operator", ""], service.clock.now_us())
