"""What the connection does when Bigtable does not do what it should: a server of ours that fails on demand."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import parse_qsl

import grpc
import pytest
from google.cloud.bigtable_v2 import types as bigtable

from widerow.config import Bigtable, Config, Store
from widerow.engine.bigtable import BigtableEngine
from widerow.engine.bigtable.connection import _ERRORS, BigtableSettings, Connection, failure
from widerow.engine.bigtable.keys import TableKeys
from widerow.engine.bigtable.mutations import entry, set_cell
from widerow.engine.open import open_engine
from widerow.engine.rows import Row, Rows, rows_of
from widerow.model.errors import ConfigError, StorageFull, Unavailable
from widerow.model.names import Names
from widerow.model.times import DAY, HOUR, SECOND, ManualClock
from widerow.schema.tables import LAST_SEEN, TENANTS, telemetry

pytestmark = pytest.mark.rest  # Bigtable's kernels take half a minute to compile


Answer = Callable[[Any, Any], Iterator[Any]]


class Server:
    """A gRPC server that speaks like Bigtable and answers as a test says, one answer after another."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.asked: list[Any] = []
        self.routed: list[dict[str, str]] = []
        """What the routing header of each request said."""
        self._server = grpc.server(ThreadPoolExecutor(4))
        streams = {"ReadRows": bigtable.ReadRowsRequest, "MutateRows": bigtable.MutateRowsRequest}
        handlers = {
            name: grpc.unary_stream_rpc_method_handler(self._stream, kind.deserialize) for name, kind in streams.items()
        }
        handlers["CheckAndMutateRow"] = grpc.unary_unary_rpc_method_handler(
            lambda request, context: next(self._stream(request, context)), bigtable.CheckAndMutateRowRequest.deserialize
        )
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("google.bigtable.v2.Bigtable", handlers),)
        )
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()

    def _stream(self, request: Any, context: Any) -> Iterator[bytes]:
        self.asked.append(request)
        self.routed.append(dict(parse_qsl(dict(context.invocation_metadata()).get("x-goog-request-params", ""))))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        for message in answer(request, context):
            yield type(message).serialize(message)

    def stop(self) -> None:
        self._server.stop(None).wait(5)


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.stop()


def connected(server: Server, monkeypatch: pytest.MonkeyPatch, deadline_s: float) -> Iterator[Connection]:
    monkeypatch.setenv("BIGTABLE_EMULATOR_HOST", f"127.0.0.1:{server.port}")
    connection = Connection("p", "i", BigtableSettings(deadline_s=deadline_s, app_profile="batch"), None)
    yield connection
    connection.close()


@pytest.fixture
def connection(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    """For what ends by itself: a machine that stands still for seconds is not what these tests are about."""
    yield from connected(server, monkeypatch, 60.0)


@pytest.fixture
def impatient(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    """For what never ends by itself."""
    yield from connected(server, monkeypatch, 1.0)


def fails(code: grpc.StatusCode) -> Answer:
    def answer(_request: Any, context: Any) -> Iterator[Any]:
        context.abort(code, "on purpose")
        yield

    return answer


def statuses(**codes: int) -> Answer:
    """For each entry the code of its row key, 0 if not given; rows of code -1 are left out."""

    def answer(request: Any, _context: Any) -> Iterator[Any]:
        known = [(i, codes.get(e.row_key.decode(), 0)) for i, e in enumerate(request.entries)]
        yield bigtable.MutateRowsResponse(
            entries=[{"index": i, "status": {"code": code, "message": "on purpose"}} for i, code in known if code >= 0]
        )

    return answer


def entries(*keys: str) -> Names:
    return Names.of_bytes([entry(key.encode(), [set_cell("readings", b"t", 1000, b"12345678")]) for key in keys])


def rows_asked(server: Server) -> list[list[str]]:
    return [[e.row_key.decode() for e in request.entries] for request in server.asked]


def test_a_write_names_its_table_and_profile(server: Server, connection: Connection) -> None:
    server.answers = [statuses()]
    connection.mutate("t", [entries("a", "b")])
    assert server.asked[0].table_name == "projects/p/instances/i/tables/t"
    assert server.asked[0].app_profile_id == "batch"
    assert rows_asked(server) == [["a", "b"]]


def nothing(_request: Any, _context: Any) -> Iterator[Any]:
    yield bigtable.ReadRowsResponse()


def no_match(_request: Any, _context: Any) -> Iterator[Any]:
    yield bigtable.CheckAndMutateRowResponse(predicate_matched=False)


def test_every_request_says_in_its_header_what_it_says_in_its_body(server: Server, connection: Connection) -> None:
    calls: list[tuple[Answer, Callable[[], object]]] = [
        (nothing, lambda: connection.read("t", [b""])),
        (statuses(), lambda: connection.mutate("t", [entries("a")])),
        (no_match, lambda: connection.check("t", [b""])),
    ]
    for answer, call in calls:
        server.answers = [answer]
        call()
    named = {"table_name": "projects/p/instances/i/tables/t", "app_profile_id": "batch"}
    assert server.routed == [named] * 3
    assert [{"table_name": r.table_name, "app_profile_id": r.app_profile_id} for r in server.asked] == [named] * 3


def test_without_a_profile_the_instance_has_its_default(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIGTABLE_EMULATOR_HOST", f"127.0.0.1:{server.port}")
    connection = Connection("p", "i", BigtableSettings(), None)
    server.answers = [nothing]
    connection.read("t", [b""], may_lag=True)
    connection.close()
    assert server.asked[0].app_profile_id == ""
    assert server.routed == [{"table_name": "projects/p/instances/i/tables/t"}]


def test_only_what_says_that_it_may_lag_is_read_elsewhere(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIGTABLE_EMULATOR_HOST", f"127.0.0.1:{server.port}")
    settings = BigtableSettings(app_profile="one", read_app_profile="any")
    engine = BigtableEngine("p", "i", "w", clock=ManualClock(SECOND), settings=settings)
    reports = telemetry(30 * DAY)
    engine._tables = {table.name: TableKeys(table) for table in (reports, LAST_SEEN, TENANTS)}

    def check(answer: Answer, profile: str, call: Callable[[], object]) -> None:
        server.answers, server.asked, server.routed = [answer], [], []
        call()
        assert [request.app_profile_id for request in server.asked] == [profile]
        assert [header["app_profile_id"] for header in server.routed] == [profile]

    place = ("acme", "d", 0, 0)
    check(nothing, "any", lambda: list(engine.scan(reports, [place], may_lag=True)))
    check(nothing, "any", lambda: list(engine.scan(reports, [place], limit=1, may_lag=True)))
    check(nothing, "any", lambda: list(engine.scan(reports, None, may_lag=True)))
    check(nothing, "any", lambda: engine.get(LAST_SEEN, ("acme", 0, "d"), may_lag=True))
    check(nothing, "one", lambda: list(engine.scan(reports, [place])))
    check(nothing, "one", lambda: engine.get(TENANTS, (0, "acme")))
    check(nothing, "one", lambda: engine.delete(reports, [place], version_us=SECOND))
    check(no_match, "one", lambda: engine.put_if(TENANTS, (0, "acme"), {"body": "{}"}, None))
    check(statuses(), "one", lambda: engine.write([(LAST_SEEN, seen())]))
    engine.close()


def seen() -> Rows:
    row: Row = {"bucket": 0.0, "width_us": float(HOUR), "sub_buckets": 1.0, "keep_us": 0.0}
    return rows_of(LAST_SEEN, [(("acme", 0, "d"), row)], version_us=0)


def test_the_profile_of_the_url_beats_the_one_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIGTABLE_EMULATOR_HOST", "127.0.0.1:1")

    def check(url: str, settings: Bigtable, app_profile: str, read_app_profile: str) -> None:
        engine = open_engine(Config(store=Store(url=url), bigtable=settings), ManualClock(SECOND))
        assert isinstance(engine, BigtableEngine)
        got = engine._connection.settings
        assert (got.app_profile, got.read_app_profile) == (app_profile, read_app_profile)
        engine.close()

    check("bigtable://p/i/w", Bigtable(), "", "")
    check("bigtable://p/i/w", Bigtable(app_profile="set", read_app_profile="any"), "set", "any")
    check("bigtable://p/i/w?app_profile=url", Bigtable(app_profile="set"), "url", "")


def test_a_profile_that_forbids_comparing_is_named(server: Server, connection: Connection) -> None:
    server.answers = [fails(grpc.StatusCode.FAILED_PRECONDITION)]
    with pytest.raises(ConfigError, match=r"bigtable\.app_profile must route to a single cluster"):
        connection.check("t", [b""])


def test_rows_without_a_status_have_failed_and_only_they_are_sent_again(server: Server, connection: Connection) -> None:
    server.answers = [statuses(b=-1, c=14), statuses(c=-1), statuses()]
    connection.mutate("t", [entries("a", "b", "c", "d")])
    assert rows_asked(server) == [["a", "b", "c", "d"], ["b", "c"], ["c"]]


def test_a_row_that_never_gets_a_status_is_not_acknowledged(server: Server, impatient: Connection) -> None:
    server.answers = [statuses(b=-1)]
    with pytest.raises(Unavailable, match="1 of 1 rows"):
        impatient.mutate("t", [entries("a", "b")])


def test_an_empty_answer_is_not_an_acknowledgement(server: Server, impatient: Connection) -> None:
    server.answers = [lambda _request, _context: iter(())]
    with pytest.raises(Unavailable):
        impatient.mutate("t", [entries("a")])


def test_a_row_that_is_refused_is_not_sent_again(server: Server, connection: Connection) -> None:
    server.answers = [statuses(b=3)]
    with pytest.raises(ValueError, match="on purpose"):
        connection.mutate("t", [entries("a", "b")])
    assert len(server.asked) == 1


def test_what_is_repeatable_is_repeated(server: Server, connection: Connection) -> None:
    def row(_request: Any, _context: Any) -> Iterator[Any]:
        yield bigtable.ReadRowsResponse(last_scanned_row_key=b"k")

    server.answers = [fails(grpc.StatusCode.UNAVAILABLE), fails(grpc.StatusCode.ABORTED), row]
    assert connection.read("t", [b""]) == [bigtable.ReadRowsResponse.serialize(next(row(None, None)))]
    server.answers = [fails(grpc.StatusCode.UNAVAILABLE), statuses()]
    connection.mutate("t", [entries("a")])
    assert connection.counts.repeated == 3


def test_a_comparison_is_asked_once(server: Server, connection: Connection) -> None:
    server.answers = [fails(grpc.StatusCode.UNAVAILABLE)]
    with pytest.raises(Unavailable):
        connection.check("t", [b""])
    assert len(server.asked) == 1


def test_every_call_has_a_deadline(server: Server, impatient: Connection) -> None:
    def sleeps(_request: Any, context: Any) -> Iterator[Any]:
        while context.is_active():
            time.sleep(0.05)
        yield bigtable.MutateRowsResponse()

    server.answers = [sleeps]
    calls: list[Callable[[], object]] = [
        lambda: impatient.read("t", [b""]),
        lambda: impatient.mutate("t", [entries("a")]),
        lambda: impatient.check("t", [b""]),
    ]
    for call in calls:
        start = time.monotonic()
        with pytest.raises(Unavailable, match="deadline exceeded"):
            call()
        assert time.monotonic() - start < 10


def test_a_server_that_is_not_there_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIGTABLE_EMULATOR_HOST", "127.0.0.1:1")
    connection = Connection("p", "i", BigtableSettings(deadline_s=0.5), None)
    with pytest.raises(Unavailable):
        connection.read("t", [b""])
    connection.close()


def test_every_status_has_a_meaning() -> None:
    assert set(_ERRORS) == set(grpc.StatusCode) - {grpc.StatusCode.OK}
    assert isinstance(failure(grpc.StatusCode.RESOURCE_EXHAUSTED, "t", ""), StorageFull)
    assert isinstance(failure(grpc.StatusCode.PERMISSION_DENIED, "t", ""), ConfigError)
    assert str(failure(grpc.StatusCode.NOT_FOUND, "t", "no such table")) == "Bigtable, t: not found: no such table"
