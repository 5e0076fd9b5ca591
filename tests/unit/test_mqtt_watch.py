"""Whether the store answers: read at the start and now and then, asked by one while it does not answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from system.mqtt_site import eventually
from widerow.ingest.mqtt import watch as watch_module
from widerow.ingest.mqtt.watch import Watch
from widerow.model.errors import Unavailable


class Store:
    def __init__(self) -> None:
        self.fails: Exception | None = None
        self.reads = self.questions = 0

    def read(self) -> None:
        self.reads += 1
        self._answer()

    def ask(self, number: int) -> int:
        self.questions += 1
        self._answer()
        return number

    def _answer(self) -> None:
        if self.fails:
            raise self.fails


@contextmanager
def watching(store: Store) -> Iterator[Watch]:
    watch = Watch(store.read)
    watch.start()
    try:
        yield watch
    finally:
        watch.stop()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "_AGAIN_S", 0.01)


def test_it_is_read_at_the_start_and_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "_EACH_S", 0.01)
    store = Store()
    with watching(store) as watch:
        eventually(lambda: store.reads >= 3)
        assert (watch.is_away, watch.away_s()) == (False, 0.0)


def test_while_it_does_not_answer_nobody_else_asks_it() -> None:
    store = Store()
    with watching(store) as watch:
        ask = watch.guarded(store.ask)
        assert ask(number=7) == 7
        eventually(lambda: store.reads == 1)
        store.fails = Unavailable("no answer in 10 s")
        for _ in range(5):
            with pytest.raises(Unavailable):
                ask(1)
        assert (store.questions, watch.is_away) == (2, True)
        eventually(lambda: store.reads >= 4 and watch.away_s() > 0)
        store.fails = None
        eventually(lambda: not watch.is_away)
        assert (ask(2), watch.away_s()) == (2, 0.0)


def test_an_answer_that_nobody_can_read_is_an_answer() -> None:
    store = Store()
    store.fails = ValueError("the body of tenant 'acme' cannot be read")
    with watching(store) as watch:
        eventually(lambda: store.reads == 1)
        assert not watch.is_away
        store.fails = Unavailable("no answer in 10 s")
        with pytest.raises(Unavailable):
            watch.guarded(store.ask)(1)
        store.fails = ValueError("still so")
        eventually(lambda: not watch.is_away)


def test_a_stop_does_not_wait_for_the_next_minute() -> None:
    with watching(Store()):
        pass
    assert "mqtt-watch" not in {thread.name for thread in threading.enumerate()}
