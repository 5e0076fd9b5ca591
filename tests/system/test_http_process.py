"""The process around the API: health, figures, headers, sockets, and stopping."""

from __future__ import annotations

import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

from awake import Running
from system.conftest import Site, config_at
from widerow.model.errors import ConfigError
from widerow.model.tenant import Tenant
from widerow.model.token import Role
from widerow.server.run import running
from widerow.service import Service


def test_every_answer_carries_timing_and_security_headers(site: Site) -> None:
    client = site.client()
    answers = [
        client.get("/"),
        client.get("/v1/devices"),
        client.get("/nothing"),
        client.post("/v1/write", json={"device": "headers", "values": {"a": 1}}),
        client.post("/v1/write", content=b"{"),
        site.client(None).get("/v1/devices"),
    ]
    for answer in answers:
        assert re.fullmatch(r"total;dur=\d+\.\d\d", answer.headers["Server-Timing"])
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["X-Frame-Options"] == "DENY"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert "server" not in answer.headers


def test_a_process_that_works_is_live_and_ready(site: Site) -> None:
    client = site.client(None)
    assert client.get("/health/live").json() == {"status": "live"}
    assert client.get("/health/ready").json() == {"status": "ready"}


def test_ping_and_health_answer_whatever_the_caller_accepts(site: Site) -> None:
    def check(path: str, accept: str, status: int, body: bytes) -> None:
        answer = site.client(None).get(path, headers={"Accept": accept})
        assert (answer.status_code, answer.content) == (status, body), (path, accept)

    for accept in ("text/plain", "application/csv", "image/png", "application/json;q=0", "nonsense"):
        check("/ping", accept, 204, b"")
        check("/health/live", accept, 200, b'{"status":"live"}')
        check("/health/ready", accept, 200, b'{"status":"ready"}')


def test_the_status_of_a_tenant_is_its_own_and_operators_see_all(site: Site) -> None:
    site.write("counted", {"a": 1, "b": 2})
    site.write("counted", {"a": 1}, tenant="umbra")
    own = site.client(Role.READ).get("/v1/status").json()
    assert [tenant["name"] for tenant in own["tenants"]] == ["acme"]
    assert "store" not in own
    assert own["total"]["reports"] >= 1
    assert own["total"]["devices"] >= 1
    assert own["tenants"][0]["memory_bytes"]["catalog"] > 0
    everything = site.client(Role.OPERATOR).get("/v1/status").json()
    assert {tenant["name"] for tenant in everything["tenants"]} >= {"acme", "umbra"}
    engine, size = site.service.config.store.url.partition(":")[0], everything["store"]["disk_bytes"]
    assert size == 0 if engine == "memory" else size > 0 if engine == "rocksdb" else size is None, "a cluster does not say"
    one = site.client(Role.OPERATOR).get("/v1/status?tenant=umbra").json()
    assert [tenant["name"] for tenant in one["tenants"]] == ["umbra"]


def test_requests_are_counted_by_route_and_status(site: Site) -> None:
    client = site.client(Role.OPERATOR)
    client.get("/v1/devices/no-such-device?tenant=acme")
    text = client.get("/metrics").text
    assert 'widerow_http_requests_total{route="GET /v1/devices/{device}",status="404"}' in text
    assert 'widerow_http_request_seconds_count{route="GET /v1/devices/{device}"}' in text
    assert "no-such-device" not in text
    site.write("measured", {"a": 1})
    text = client.get("/metrics", headers={"Accept": "application/openmetrics-text, text/plain;q=0.5, */*;q=0.1"}).text
    assert 'widerow_http_requests_total{route="POST /v1/write",status="204"}' in text
    assert 'widerow_received_bytes_total{tenant="acme"}' in text
    assert 'widerow_tenant_memory_bytes{tenant="acme",what="catalog"}' in text


def test_the_local_socket_is_its_owners_and_needs_no_token(site: Site) -> None:
    assert stat.S_IMODE(site.socket_path.stat().st_mode) == 0o600
    local = site.local()
    assert local.get("/v1/admin/tenants").status_code == 200
    assert local.get("/v1/devices").status_code == 400
    report = {"device": "by-socket", "values": {"a": 1}}
    assert local.post("/v1/write?tenant=acme", json=report).status_code == 204
    # A token that is sent there counts.
    reader = {"Authorization": f"Bearer {site.token(Role.READ)}"}
    assert local.get("/v1/admin/tenants", headers=reader).status_code == 403
    assert local.get("/v1/devices", headers={"Authorization": "Bearer wrong"}).status_code == 401


def test_a_socket_that_was_left_behind_is_replaced_and_removed_at_the_end(service: Service, tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)  # longer than the system allows for the path of a socket
    folder.mkdir()
    path = folder / "serve.sock"
    path.write_text("left behind")
    with running(service, host=None, socket_path=path) as address:
        assert address == f"unix:{path}"
        assert stat.S_ISSOCK(path.stat().st_mode)
    assert not path.exists()


def test_a_port_that_is_taken_is_named(site: Site, service: Service) -> None:
    port = int(site.url.rpartition(":")[2])
    with pytest.raises(ConfigError, match=str(port)), running(service, port=port):
        pass


def test_stopping_finishes_what_is_under_way(tmp_path: Path) -> None:
    """Nothing is lost: every request that was sent before the stop is answered, and what was acknowledged is there."""
    kept: list[int] = []
    with Service.open(config_at(tmp_path)) as service:
        service.catalog.tenants.create(Tenant(name="acme"))
        secret, _ = service.catalog.tokens.create(Role.ADMIN, tenant="acme")
        headers = {"Authorization": f"Bearer {secret}"}
        enough = threading.Event()

        def send(url: str) -> None:
            with httpx.Client(base_url=url, headers=headers, timeout=30) as client:
                for i in range(100_000):
                    try:
                        answer = client.post("/v1/write", json={"device": "d", "time": now + i, "values": {"n": i}})
                    except httpx.TransportError:
                        return
                    if answer.status_code == 204:
                        kept.append(i)
                    if i == 20:
                        enough.set()

        now = time.time_ns() // 1_000_000 - 60_000
        with running(service) as url:
            sender = threading.Thread(target=send, args=(url,))
            sender.start()
            assert enough.wait(30)
            stopping = Running()
        assert stopping.seconds() < 5
        sender.join()
        with running(service) as url, httpx.Client(base_url=url, headers=headers, timeout=30) as client:
            points = client.get("/v1/devices/d/series").json()["series"][0]["points"]
    assert {int(value) for _, value in points} >= set(kept)


def test_a_request_that_never_ends_does_not_keep_the_server_from_stopping(service: Service) -> None:
    with running(service) as url:
        port = int(url.rpartition(":")[2])
        idle = socket.create_connection(("127.0.0.1", port))
        half = socket.create_connection(("127.0.0.1", port))
        half.sendall(b"GET /v1/devices HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n12345")
        half.settimeout(10)
        assert half.recv(1) == b"H"  # refused for want of a token, while its body is still on the way
        late = socket.create_connection(("127.0.0.1", port))
        late.sendall(b"GET /health/live HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n12345")
        time.sleep(0.1)
        stopping = Running()
    assert stopping.seconds() < 5
    for connection in (idle, half, late):
        connection.close()


_SERVE = """
import sys
from pathlib import Path
from system.conftest import config_at
from widerow.server.run import serve
from widerow.service import Service
folder = Path(sys.argv[1])
with Service.open(config_at(folder)) as service:
    serve(service, host="127.0.0.1", socket_path=folder / "serve.sock", on_ready=lambda url: print(url, flush=True))
print("closed", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_process_in_good_order(tmp_path: Path, number: signal.Signals) -> None:
    tests = str(Path(__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([tests, *sys.path])}
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVE, str(tmp_path)], stdout=subprocess.PIPE, text=True, env=environment
    )
    with process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        with httpx.Client(base_url=url, timeout=30) as client:
            assert client.get("/health/live").status_code == 200
            stopping = Running()
            process.send_signal(number)
            assert process.stdout.read().strip() == "closed"
        assert process.wait(60) == 0
        assert stopping.seconds() < 5
    assert not (tmp_path / "serve.sock").exists()
