"""Who is online: few writes, the last word, and nobody who waits for a store that does not answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from widerow.catalog.online import Status
from widerow.ingest.mqtt import statuses
from widerow.ingest.mqtt.aside import Aside
from widerow.ingest.mqtt.statuses import Statuses
from widerow.ingest.mqtt.window import Block
from widerow.model.errors import Unavailable
from widerow.ops.counters import Counters


class Site:
    """What is put aside waits here until `run`."""

    def __init__(self) -> None:
        self.told: list[list[Status]] = []
        self.done: list[int] = []
        self.fails: Exception | None = None
        self._actions: list[Callable[[], None]] = []
        aside = cast("Aside", SimpleNamespace(put=self._put))
        self.statuses = Statuses(self._tell, lambda _block, rows: self.done.extend(rows.tolist()), aside, Counters())

    def _put(self, action: Callable[[], None], *, delay_s: float) -> None:
        assert delay_s > 0
        self._actions.append(action)

    def _tell(self, said: Sequence[Status]) -> None:
        if self.fails:
            raise self.fails
        self.told.append(list(said))

    def say(self, row: int, device: str, online: bool) -> None:
        self.statuses.put([Status("acme", device, online, row, row)], cast("Block", None), np.array([row]))

    def run(self) -> None:
        actions, self._actions = self._actions, []
        for action in actions:
            action()


def test_what_comes_together_is_written_once_and_acknowledged_then() -> None:
    site = Site()
    for row in range(4):
        site.say(row, f"d{row % 2}", row > 1)
    assert site.done == []
    site.run()
    assert [[(s.device, s.online) for s in said] for said in site.told] == [[("d0", True), ("d1", True)]]
    assert site.done == [0, 1, 2, 3]
    site.run()
    assert len(site.told) == 1


def test_while_the_store_is_away_nobody_waits_and_nothing_is_forgotten() -> None:
    site = Site()
    site.fails = Unavailable("away")
    site.say(0, "a", True)
    site.run()
    assert site.done == [0]
    site.say(1, "a", False)
    site.say(2, "b", True)
    assert site.done == [0, 1, 2], "at once"
    site.run()
    site.fails = None
    site.run()
    assert [(s.device, s.online) for s in site.told[0]] == [("a", False), ("b", True)]
    site.say(3, "c", True)
    assert site.done == [0, 1, 2], "durable first, as ever"


def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statuses, "_MOST", 3)
    site = Site()
    site.fails = Unavailable("away")
    for row in range(10):
        site.say(row, f"d{row}", True)
        site.run()
    site.fails = None
    site.run()
    assert [s.device for s in site.told[0]] == ["d7", "d8", "d9"]


def test_what_cannot_be_stored_at_all_holds_up_nothing() -> None:
    site = Site()
    site.fails = ZeroDivisionError()
    site.say(0, "a", True)
    site.run()
    assert site.done == [0]
    site.fails = None
    site.say(1, "b", True)
    site.run()
    assert ([[s.device for s in said] for said in site.told], site.done) == ([["b"]], [0, 1])
