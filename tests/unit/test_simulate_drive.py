"""The load driver: nothing vanishes, stalls are charged for, and it stops when told to."""

import gzip
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from typing import ClassVar

import numpy as np
import pytest
import zstandard

from awake import Running
from widerow.model.batch import reports_of
from widerow.simulate.answer import kept_reports
from widerow.simulate.chaos import ChaosSettings
from widerow.simulate.drive import DriveReport, Plan, Work, drive, troubled_work, work_of
from widerow.simulate.encode import FORMATS, encode_line
from widerow.simulate.fleet import Fleet
from widerow.simulate.latency import Latencies
from widerow.simulate.wire import Connection, Response, Target, TransportError

FLEET = Fleet(5, 100, start_us=1_760_000_000_000_000)
CALM = Fleet(5, 100, start_us=1_760_000_000_000_000, gaps=0, duplicates=0, out_of_order=0)

Answer = tuple[int, dict[str, str], bytes]
KEPT: Answer = (204, {}, b"")


@dataclass
class StandIn:
    """A server that answers as the test wants and remembers what it was sent."""

    answer: Callable[[int], Answer | None]
    """From the number of the request; None drops the connection."""
    url: str = ""
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


def handler_of(stand_in: StandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm: ClassVar = False  # a Unix socket has none

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with stand_in.lock:
                stand_in.bodies.append(body)
                stand_in.headers.append({**dict(self.headers.items()), "path": self.path})
                number = len(stand_in.bodies) - 1
            answer = stand_in.answer(number)
            if answer is None:
                self.close_connection = True
                return
            status, headers, content = answer
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if status != 204 and "Transfer-Encoding" not in headers:
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@contextmanager
def serving(answer: Callable[[int], Answer | None]) -> Iterator[StandIn]:
    stand_in = StandIn(answer)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(stand_in))
    server.daemon_threads = True
    stand_in.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield stand_in
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_everything_sent_is_acknowledged_and_counted() -> None:
    with serving(lambda _: KEPT) as server:
        report = drive(server.url, CALM, reports=500, lines=40, connections=3, token="secret")
    assert (report.acknowledged, report.refused, report.failed) == (500, 0, 0)
    assert report.requests == len(server.bodies) == 15  # 40 + 40 + 20 a tick
    assert report.statuses == {204: 15}
    assert report.metrics == sum(len(w.batch.cells) - tags(w.batch.cells.kind) for w in works(500))
    assert report.sent_bytes == sum(map(len, server.bodies))
    assert server.headers[0]["Authorization"] == "Bearer secret"
    assert server.headers[0]["path"] == "/write"


def tags(kind: np.ndarray) -> int:
    return int((kind == 2).sum())


def works(reports: int) -> list[Work]:
    return list(work_of(CALM, Plan(FORMATS["line"], 40, None, reports, 0, None)))


def test_the_bodies_are_the_fleet() -> None:
    with serving(lambda _: KEPT) as server:
        drive(server.url, FLEET, reports=300, lines=100, connections=1, first_tick=7)
    assert server.bodies[1] == encode_line(FLEET.batch(8), FLEET.types())


def test_cutting_into_requests_loses_no_report() -> None:
    plan = Plan(FORMATS["line"], 7, 50.0, 200, 3, None)
    lines = b"".join(encode_line(w.batch, w.types) for w in work_of(FLEET, plan)).splitlines()
    whole = b"".join(encode_line(FLEET.batch(t), FLEET.types()) for t in (3, 4)).splitlines()
    assert sorted(lines) == sorted(whole)
    assert [round(w.due_s, 9) for w in work_of(FLEET, plan)][:3] == [0.14, 0.28, 0.42]


@pytest.mark.parametrize(("how", "undo"), [("gzip", gzip.decompress), ("zstd", zstandard.decompress)])
def test_bodies_can_be_compressed(how: str, undo: Callable[[bytes], bytes]) -> None:
    with serving(lambda _: KEPT) as server:
        drive(server.url, FLEET, reports=100, lines=100, connections=1, format="ndjson", compress=how)
    assert server.headers[0]["Content-Encoding"] == how
    assert undo(server.bodies[0]) == FORMATS["ndjson"].encode(FLEET.batch(0), [])


def test_a_stall_is_charged_to_all_that_had_to_wait() -> None:
    def answer(number: int) -> Answer:
        if number == 0:
            time.sleep(0.5)
        return KEPT

    with serving(answer) as server:
        report = drive(server.url, CALM, rate=2000, lines=10, reports=200, connections=1)
    # A request each 5 ms for 0.1 s, all of them due during the stall. Counted from sending, half would look instant.
    assert report.acknowledged == 200
    assert report.latency_s(0.5) > 0.35
    assert report.latencies.max_s >= 0.5


def test_a_rate_is_kept() -> None:
    with serving(lambda _: KEPT) as server:
        for _ in range(6):
            running = Running()
            report = drive(server.url, CALM, rate=1000, lines=20, seconds=0.5, connections=2)
            if not running.stood_still_s():
                break
    assert 400 <= report.acknowledged <= 500
    assert report.wall_s == pytest.approx(0.5, abs=0.2)


def test_it_waits_when_asked_to_and_tries_again() -> None:
    def answer(number: int) -> Answer:
        return (429 if number == 0 else 503, {"Retry-After": "0.1"}, b"slow down") if number < 2 else KEPT

    with serving(answer) as server:
        report = drive(server.url, CALM, reports=100, lines=100, connections=1)
    assert (report.acknowledged, report.failed, report.retries) == (100, 0, 2)
    assert report.statuses == {429: 1, 503: 1, 204: 1}
    assert report.latencies.max_s >= 0.2
    assert server.bodies[0] == server.bodies[1] == server.bodies[2]


def test_retries_are_bounded() -> None:
    with serving(lambda _: (503, {"Retry-After": "0"}, b"")) as server:
        report = drive(server.url, CALM, reports=100, lines=100, connections=1)
    assert (report.acknowledged, report.failed, report.retries, len(server.bodies)) == (0, 100, 5, 6)
    assert report.statuses == {503: 6}


def test_a_lost_connection_is_counted_and_reopened() -> None:
    with serving(lambda number: None if number == 1 else KEPT) as server:
        report = drive(server.url, CALM, reports=300, lines=100, connections=1)
    assert (report.acknowledged, report.transport_failures, report.retries) == (300, 1, 1)
    assert len(server.bodies) == 4


def test_a_server_that_is_gone_ends_the_drive() -> None:
    with serving(lambda _: KEPT) as server:
        gone = server.url
    report = drive(gone, CALM, lines=100, connections=1, seconds=3)
    assert report.acknowledged == 0
    assert report.transport_failures >= 6
    assert report.failed >= 100


def test_refusals_are_counted() -> None:
    def check(answer: Answer, acknowledged: int, refused: int, failed: int = 0) -> None:
        with serving(lambda _: answer) as server:
            report = drive(server.url, CALM, reports=100, lines=100, connections=1)
        assert (report.acknowledged, report.refused, report.failed) == (acknowledged, refused, failed)

    check((207, {}, b'{"refused": 3, "refusals": [{"code": "future", "count": 3}]}'), 97, 3)
    check((207, {}, b'{"refusals": [{"index": 4, "code": "future"}]}'), 99, 1)
    check((207, {}, b"?"), 0, 100)
    check((400, {}, b'{"error": "partial write: bad lines dropped=40"}'), 60, 40)
    check((401, {}, b""), 0, 100)
    check((422, {}, b"{}"), 0, 100)
    check((500, {}, b"oops"), 0, 0, 100)


def test_it_stops_when_told_to_and_reports_progress() -> None:
    stop = threading.Event()
    seen: list[DriveReport] = []

    def progress(report: DriveReport) -> None:
        seen.append(report)
        stop.set()

    with serving(lambda _: KEPT) as server:
        report = drive(server.url, CALM, rate=500, lines=50, connections=2, progress=progress, stop=stop)
    assert seen
    assert 0 < seen[0].acknowledged <= report.acknowledged
    assert report.wall_s < 5


def test_what_makes_no_sense_is_refused() -> None:
    for options in ({"format": "xml"}, {"compress": "rar"}, {"lines": 0}, {"rate": 0}):
        with pytest.raises(ValueError, match=next(iter(options))):
            drive("http://127.0.0.1:1", CALM, **options)
    with pytest.raises(ValueError, match="Unix socket"):
        drive("ftp://somewhere", CALM)


def test_a_unix_socket_works_as_well(tmp_path: Path) -> None:
    stand_in = StandIn(lambda _: (200, {"Transfer-Encoding": "chunked"}, b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n"))
    path = str(tmp_path / "s.sock")
    with ThreadingUnixStreamServer(path, handler_of(stand_in)) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        with Connection(Target.of(path), {}) as connection:
            assert [connection.request("POST", "/a", b"x").body for _ in range(3)] == [b"abcde"] * 3
        server.shutdown()
        thread.join()
    with pytest.raises(TransportError), Connection(Target.of(str(tmp_path / "none")), {}) as connection:
        connection.request("GET", "/")


def test_unknown_answers_keep_nothing() -> None:
    assert kept_reports(Response(302, {}, b""), 5) == 0
    assert kept_reports(Response(207, {}, b"[1]"), 5) == 0


def test_quantiles_are_within_one_percent() -> None:
    rng = np.random.default_rng(1)
    times_s = rng.lognormal(-6, 1.5, 5000)
    parts = Latencies(), Latencies()
    for i, seconds in enumerate(times_s.tolist()):
        parts[i % 2].add(seconds)
    parts[0].merge(parts[1])
    for q in (0.0, 0.5, 0.95, 0.99, 0.999, 1.0):
        assert parts[0].quantile(q) == pytest.approx(np.quantile(times_s, q, method="inverted_cdf"), rel=0.0101)
    assert parts[0].max_s == times_s.max()
    assert Latencies().quantile(0.5) == 0


def test_latencies_of_any_size_find_a_bucket() -> None:
    latencies = Latencies()
    for seconds in (0.0, 1e-9, 1e9):
        latencies.add(seconds)
    assert len(latencies) == 3
    assert latencies.quantile(0.1) <= 1e-6


def test_chaos_loses_nothing_and_what_is_sent_last_is_true() -> None:
    trucks = Fleet(5, 30, start_us=1_760_000_000_000_000, kinds=("truck",), interval_us=60_000_000, gaps=0)
    much = ChaosSettings(late=0.2, offline=0.5, duplicates=0.3, corrections=0.3, reordered=0.5)
    with serving(lambda _: KEPT) as server:
        report = drive(server.url, trucks, reports=1500, lines=50, connections=3, format="ndjson", trouble=much)
    held: dict[tuple[str, int, str], object] = {}
    rows = [json.loads(line) for body in server.bodies for line in body.splitlines()]
    for row in rows:
        held |= {(row["device"], row["time"], name): value for name, value in row["values"].items()}
    truth = reports_of(trucks.made(range(50)))
    assert held == {(r.device, r.time_us, name): value for r in truth for name, value in r.values.items()}
    assert report.acknowledged == len(rows) > 1.3 * len(truth)
    assert len({len(body.splitlines()) for body in server.bodies}) > 5
    times = [row["time"] for row in rows]
    assert times != sorted(times)


def test_chaos_keeps_a_rate_and_an_end() -> None:
    plan = Plan(FORMATS["line"], 40, 1000.0, 20_000, 0, None, ChaosSettings())
    works = list(troubled_work(CALM, plan, slice(1, None, 2)))
    sent = np.cumsum([len(w.batch) for w in works])
    assert 10_000 < sent[-1] < 11_500
    assert [w.due_s for w in works] == (sent / 500.0).tolist()
    assert max(len(w.batch) for w in works) <= 40
    assert all(w.types == [name.split("-")[0] for name in w.batch.device.names] for w in works if tame_names(w))


def tame_names(work: Work) -> bool:
    return all("-" in name for name in work.batch.device.names)
