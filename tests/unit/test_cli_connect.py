"""From options and environment to a server."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from widerow.cli.connect import Where, connect, resolve, store_folder
from widerow.cli.failure import Failed, Misused
from widerow.model.errors import ConfigError
from widerow.server.sockets import is_served, reachable


def where(env: dict[str, str] | None = None, **given: str | None) -> Where:
    options = {"server": None, "token": None, "store": None, **given}
    return resolve(**options, config=None, environment=env or {})


def test_an_option_beats_the_environment() -> None:
    env = {"WIDEROW_URL": "http://env", "WIDEROW_TOKEN": "t-env", "WIDEROW_STORE": "rocksdb:env"}

    def check(found: Where, server: str | None, token: str | None, store: str | None) -> None:
        assert (found.server, found.token, found.store) == (server, token, store)

    check(where(env), "http://env", "t-env", None)
    check(where(env, server="http://a"), "http://a", "t-env", None)
    check(where(env, server="http://a", token="t"), "http://a", "t", None)
    check(where(env, store="rocksdb:a"), None, None, "rocksdb:a")
    check(where({"WIDEROW_STORE": "rocksdb:env"}), None, None, "rocksdb:env")
    check(where(env, token="t"), "http://env", "t", None)
    assert where(env, store="rocksdb:a").config.store.url == "rocksdb:a"


def test_options_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(Misused, match="--server and --store"):
        where(server="http://a", store="rocksdb:a")
    with pytest.raises(Misused, match="--token"):
        where(store="rocksdb:a", token="t")
    with pytest.raises(Misused, match="needs a server"):
        where({"WIDEROW_STORE": "rocksdb:a"}, token="t")


def test_without_anything_the_configured_store_is_taken_if_it_exists(tmp_path: Path) -> None:
    env = {"WIDEROW_STORE_URL": f"rocksdb:{tmp_path}"}
    with pytest.raises(Misused, match="give --server URL"):
        where(env)
    (tmp_path / "CURRENT").touch()
    assert where(env).store == f"rocksdb:{tmp_path}"


def test_store_urls() -> None:
    assert store_folder("rocksdb:a/b?layout=rows") == Path("a/b")
    assert store_folder("memory:") is None
    for bad in ("rocksdb:", "nosuch:x", "plain"):
        with pytest.raises(ConfigError):
            store_folder(bad)


def test_client_commands_refuse_a_store_in_memory_and_one_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Misused, match="memory"), connect(where(store="memory:")):
        pass
    with pytest.raises(Failed, match="no store at"), connect(where(store=f"rocksdb:{tmp_path}/typo")):
        pass
    assert not (tmp_path / "typo").exists()


def test_a_socket_nobody_listens_on_is_not_served(tmp_path: Path) -> None:
    path = tmp_path / "serve.sock"
    assert not is_served(path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        assert not is_served(path)
        listener.listen()
        assert is_served(path)
    assert not is_served(path)
    path.unlink()
    path.touch()
    assert not is_served(path)


def test_a_socket_in_a_deep_folder_can_be_reached(tmp_path: Path) -> None:
    folder = tmp_path / ("d" * 120)
    folder.mkdir()
    path = folder / "serve.sock"
    with reachable(path) as short, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(short)
        listener.listen()
        assert is_served(path)


def test_a_server_that_is_not_there_is_said_in_a_sentence() -> None:
    with (
        connect(where(server="http://127.0.0.1:9")) as api,
        pytest.raises(Failed, match=r"cannot reach http://127.0.0.1:9.*widerow serve"),
    ):
        api.get("/v1/metrics")


def test_a_server_is_taken_as_host_and_port_or_as_a_url() -> None:
    def check(given: str, want: str) -> None:
        with connect(where(server=given)) as api:
            assert api.where == want
        with connect(where({"WIDEROW_URL": given})) as api:
            assert api.where == want

    check("localhost:80", "http://localhost:80")
    check("10.0.0.7:8080/fleet/", "http://10.0.0.7:8080/fleet")
    check("[::1]:8080", "http://[::1]:8080")
    check("fleet.example", "http://fleet.example")
    check("http://a/", "http://a")
    check("https://fleet.example:8443/widerow", "https://fleet.example:8443/widerow")


def test_what_is_no_address_of_a_server_is_refused_as_misuse() -> None:
    def check(given: str) -> None:
        with pytest.raises(Misused, match=r"is no address: give HOST:PORT") as refused, connect(where(server=given)):
            pass
        assert refused.value.exit_code == 2

    check("ftp://a")
    check("rocksdb:telemetry")
    check("cassandra://a/b")
    check("localhost:99999")
    check("localhost:0")
    check("::1:8080")
    check("[::1:8080")
    check(":8080")
    check("http://")
    check("local host:80")
    check("localhost:80?tenant=acme")
