"""Whether what a process needs answers, told to those who ask by `/health/ready`."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from widerow.config import Config, Store
from widerow.model.errors import StoreUnavailable
from widerow.ops.answers import EVERY_S, PATIENCE_S, Answers
from widerow.server.run import serve
from widerow.service import Service


class StandIn:
    """A server over TCP that answers each byte, or takes it and says nothing."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.goes_on = threading.Event()
        self.goes_on.set()
        threading.Thread(target=self._run, daemon=True).start()

    def ask(self) -> None:
        try:
            with socket.create_connection(self._listener.getsockname(), timeout=20) as connection:
                connection.sendall(b"?")
                if not connection.recv(1):
                    raise StoreUnavailable("10.1.2.3:9042 has closed the connection")
        except OSError as error:
            raise StoreUnavailable(f"10.1.2.3:9042: {error}") from error

    def close(self) -> None:
        self.goes_on.set()
        self._listener.close()

    def _run(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                with connection:
                    connection.recv(1)
                    self.goes_on.wait()
                    connection.sendall(b"!")


@contextmanager
def stand_in() -> Iterator[StandIn]:
    server = StandIn()
    try:
        yield server
    finally:
        server.close()


def within(seconds: float, holds: Callable[[], bool]) -> bool:
    until_s = time.monotonic() + seconds
    while not holds() and time.monotonic() < until_s:
        time.sleep(0.01)
    return holds()


def test_what_hangs_does_not_answer_and_answers_again_when_it_goes_on() -> None:
    with stand_in() as store, Answers("the store", store.ask, every_s=0.02, patience_s=0.2) as answers:
        assert not answers.strain()
        store.goes_on.clear()
        assert within(2, lambda: answers.strain() == "the store does not answer")
        store.goes_on.set()
        assert within(2, lambda: not answers.strain())


def test_what_refuses_connections_does_not_answer() -> None:
    with stand_in() as store, Answers("the store", store.ask, every_s=0.02, patience_s=5) as answers:
        store.close()
        assert within(2, lambda: answers.strain() == "the store does not answer")


def test_it_is_noticed_within_five_seconds() -> None:
    assert EVERY_S + PATIENCE_S <= 4


def test_ready_says_degraded_while_something_does_not_answer_and_then_ready_again(tmp_path: Path) -> None:
    config = Config(store=Store(url=f"rocksdb:{tmp_path}", reserve_mib=0))
    urls: list[str] = []
    started, stop = threading.Event(), threading.Event()

    def on_ready(url: str) -> None:
        urls.append(url)
        started.set()

    with (
        stand_in() as kafka,
        Answers("Kafka", kafka.ask, every_s=0.02, patience_s=0.2) as answers,
        Service.open(config) as service,
    ):
        server = threading.Thread(
            target=lambda: serve(service, host="127.0.0.1", on_ready=on_ready, stop=stop, strains=[answers.strain])
        )
        server.start()
        try:
            assert started.wait(30)

            def ready() -> tuple[int, dict[str, object]]:
                answer = httpx.get(f"{urls[0]}/health/ready", timeout=10)
                return answer.status_code, answer.json()

            assert ready() == (200, {"status": "ready"})
            kafka.goes_on.clear()
            wanted = 503, {"status": "degraded", "reasons": ["Kafka does not answer"]}
            assert within(5, lambda: ready() == wanted)
            kafka.goes_on.set()
            assert within(5, lambda: ready() == (200, {"status": "ready"}))
        finally:
            stop.set()
            server.join()
