"""TLS on the HTTP port: with a certificate it speaks nothing else, and one that does not work stops the start."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import httpx
import pytest

from servers.fixtures import had
from servers.mosquitto import program
from widerow.config import Config, Http, Store
from widerow.model.errors import ConfigError
from widerow.server.run import running
from widerow.service import Service


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    tool = str(had(lambda: program("openssl", "openssl")))
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = [tool, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    subject = ["-subj", "/CN=widerow", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*made, *subject, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True, timeout=60)
    return cert, key


def config_of(http: Http) -> Config:
    return Config(http=http, store=Store(url="memory:"))


def test_the_port_speaks_tls_alone_and_the_socket_does_not(certificate: tuple[Path, Path], tmp_path: Path) -> None:
    cert, key = certificate
    path = tmp_path / "serve.sock"
    config = config_of(Http(tls_cert=str(cert), tls_key=str(key)))
    with Service.open(config) as service, running(service, socket_path=path) as url:
        assert url.startswith("https://127.0.0.1:")
        assert httpx.get(f"{url}/health/live", verify=ssl.create_default_context(cafile=str(cert)), timeout=30).json() == {
            "status": "live"
        }
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx.get(f"{url}/health/live", timeout=30)
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.get(f"http{url.removeprefix('https')}/health/live", timeout=30)
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), timeout=30) as local:
            assert local.get("http://local/health/live").status_code == 200


def test_a_certificate_that_does_not_work_is_an_error_of_the_configuration(certificate: tuple[Path, Path]) -> None:
    cert, key = certificate

    def check(http: Http, match: str) -> None:
        with Service.open(config_of(http)) as service, pytest.raises(ConfigError, match=match), running(service):
            pass

    check(Http(tls_cert="/no/such.pem"), r"/no/such\.pem.*http\.tls_cert")
    check(Http(tls_cert=str(cert)), r"http\.tls_key")
    check(Http(tls_key=str(key)), r"without http\.tls_cert")
