"""The wire side of the client: errors arrive as what they were, and nothing partial passes for whole."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pyarrow as pa
import pytest

from widerow import Client, Rejected, Unavailable, WiderowError
from widerow.client.connection import failure, in_path
from widerow.codec.answer import ARROW, stream_of
from widerow.model import errors
from widerow.server import failures


def stream() -> bytes:
    columns = {"device": ["d"], "time": [0], "metric": ["t"], "value": [1.5], "text": pa.nulls(1, pa.string())}
    return stream_of(pa.table(columns))


@contextmanager
def answering(answer: bytes, *, hold: bool = False) -> Iterator[str]:
    """A server that sends these bytes to whoever connects, and hangs up; or, on hold, never does."""
    listener = socket.create_server(("127.0.0.1", 0))
    done = threading.Event()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(answer)
            if hold:
                done.wait()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        done.set()
        thread.join()
        listener.close()


def response(body: bytes, *headers: str, kind: str = ARROW) -> bytes:
    return "\r\n".join(["HTTP/1.1 200 OK", f"Content-Type: {kind}", *headers, "", ""]).encode() + body


def asked(answer: bytes) -> int:
    with answering(answer) as url, Client(url) as client:
        return len(client.series("d"))


def test_an_answer_that_was_cut_off_is_an_error() -> None:
    body = stream()
    length = f"Content-Length: {len(body)}"
    assert asked(response(body, length)) == 1
    assert asked(response(body)) == 1
    for size in (len(body) - 1, len(body) - 8, len(body) - 100, 8, 0):
        for headers in ((length,), ()):  # with a length HTTP knows; without, only the stream does
            with pytest.raises(Unavailable) as cut:
                asked(response(body[:size], *headers))
            assert cut.value.code == "unreachable"


def test_who_is_no_widerow_server_is_found_out() -> None:
    with pytest.raises(Unavailable, match="is it a Widerow server"):
        asked(response(b"<html>", "Content-Length: 6", kind="text/html"))
    with (
        answering(response(b"[]", "Content-Length: 2")) as url,
        Client(url) as client,
        pytest.raises(Unavailable, match="is it a Widerow server"),
    ):
        client.device("d")
    with pytest.raises(Unavailable) as unknown:
        asked(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 4\r\n\r\nnope")
    assert (unknown.value.code, str(unknown.value)) == ("unavailable", "HTTP 502: nope")


def test_nobody_there_and_no_answer_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with Client(f"http://127.0.0.1:{port}") as client, pytest.raises(Unavailable) as nobody:
        client.latest()
    assert nobody.value.code == "unreachable"
    with (
        answering(b"HTTP/1.1 200 OK\r\n", hold=True) as url,
        Client(url, timeout_s=0.2) as client,
        pytest.raises(Unavailable) as late,
    ):
        client.latest()
    assert late.value.code == "timeout"
    with (
        answering(b"HTTP/1.1 204 No Content\r\n", hold=True) as url,
        Client(url, write_timeout_s=0.2) as client,
        pytest.raises(Unavailable) as unsure,
    ):
        client.write([{"device": "d", "values": {"x": 1.0}}])
    assert unsure.value.code == "timeout"


@pytest.mark.parametrize(
    "error",
    [
        errors.Rejected("no", code="field"),
        errors.Unauthorized("who"),
        errors.Forbidden("no"),
        errors.NotFound("nothing"),
        errors.NotFound("nothing here", code="route"),
        errors.Conflict("there"),
        failures.PreconditionFailed("changed"),
        errors.TooLarge("large"),
        errors.Unsupported("odd"),
        errors.QuotaExceeded("acme", "writes_per_s", 10, 20, 1.5),
        errors.QueryLimit("too much", "query.max_rows", 10, 20, "ask for less"),
        errors.Unavailable("later", retry_after_s=3),
        errors.Overloaded("full"),
        errors.TenantBusy("busy"),
        errors.StoreUnavailable("gone"),
        errors.StorageFull("full"),
        errors.NotTheWriter("another"),
    ],
    ids=lambda error: f"{type(error).__name__}-{error.code}",
)
def test_an_error_arrives_as_what_it_was(error: WiderowError) -> None:
    sent = failures.failure(error)
    arrived = failure(httpx.Response(sent.status, content=sent.body))
    assert isinstance(error, type(arrived))
    assert type(arrived).__module__ == errors.__name__
    assert (arrived.code, str(arrived)) == (error.code, str(failures.told(error)))
    assert vars(arrived) == {**vars(error), "code": error.code}


def test_errors_of_http_itself_are_the_callers_or_ours() -> None:
    for error, kind in ((failures.MethodNotAllowed("PUT", ["GET"]), Rejected), (failures.NotAcceptable("no"), Rejected)):
        sent = failures.failure(error)
        assert type(failure(httpx.Response(sent.status, content=sent.body))) is kind
    sent = failures.failure(ValueError("a bug"))
    ours = failure(httpx.Response(sent.status, content=sent.body))
    assert (type(ours), ours.code) == (WiderowError, "internal")


def test_any_name_is_one_segment_of_a_path() -> None:
    for name in ("a/b", "..", ".", "%2F", "a?b#c", "ü ☃"):
        url = httpx.URL(f"http://h/v1/devices/{in_path(name)}/series")
        assert url.raw_path.count(b"/") == 4
        assert url.path == f"/v1/devices/{name}/series"


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = (
        "import sys; before = set(sys.modules); import widerow; widerow.__version__;"
        "new = {name for name in set(sys.modules) - before if 'widerow' not in name};"
        "heavy = {'numpy', 'pyarrow', 'httpx', 'polars', 'typer'} & new;"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
