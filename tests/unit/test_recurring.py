"""Work that is done now and then."""

from __future__ import annotations

import logging
import threading

import pytest

from widerow.model.errors import Unavailable
from widerow.ops.recurring import Recurring


class Work:
    """Counts how often it was done; raises what it is told to."""

    def __init__(self) -> None:
        self.times = 0
        self.fails: Exception | None = None
        self.began, self.may_end = threading.Semaphore(0), threading.Event()
        self.may_end.set()

    def do(self) -> None:
        self.times += 1
        self.began.release()
        self.may_end.wait(10)
        if self.fails:
            raise self.fails

    def wait(self) -> None:
        assert self.began.acquire(timeout=10), "it is not done"


def test_it_is_done_again_and_again() -> None:
    work = Work()
    recurring = Recurring("test", work.do, 0.001, failing="")
    recurring.start()
    for _ in range(3):
        work.wait()
    recurring.stop()
    done = work.times
    assert done >= 3
    recurring.wake()
    assert work.times == done


def test_only_when_woken() -> None:
    work = Work()
    recurring = Recurring("test", work.do, None, failing="")
    recurring.start()
    assert not work.began.acquire(timeout=0.05)
    for _ in range(2):
        recurring.wake()
        work.wait()
    recurring.stop()
    assert work.times == 2


def test_at_once_and_then_seldom() -> None:
    work = Work()
    recurring = Recurring("test", work.do, 3600, failing="", at_once=True)
    recurring.start()
    work.wait()
    recurring.stop()
    assert work.times == 1


def test_woken_while_at_work_it_is_done_again() -> None:
    work = Work()
    work.may_end.clear()
    recurring = Recurring("test", work.do, None, failing="")
    recurring.wake()  # before the start
    recurring.start()
    work.wait()
    recurring.wake()
    work.may_end.set()
    work.wait()
    recurring.stop()
    assert work.times == 2


@pytest.mark.parametrize("error", [Unavailable("the store is away"), ZeroDivisionError("a bug")])
def test_what_fails_is_told_and_tried_again(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    work = Work()
    work.fails = error
    recurring = Recurring("test", work.do, 0.001, failing="the house is not kept")
    with caplog.at_level(logging.WARNING):
        recurring.start()
        work.wait()
        work.wait()
        recurring.stop()
    told = caplog.records[0]
    assert "the house is not kept" in told.getMessage()
    assert bool(told.exc_info) == isinstance(error, ZeroDivisionError), "only what nobody foresaw has a trace"


def test_stopping_waits_for_what_has_begun() -> None:
    work = Work()
    work.may_end.clear()
    recurring = Recurring("test", work.do, None, failing="")
    recurring.start()
    recurring.wake()
    work.wait()
    stopper = threading.Thread(target=recurring.stop)
    stopper.start()
    stopper.join(0.05)
    assert stopper.is_alive()
    assert recurring.stopping
    work.may_end.set()
    stopper.join(10)
    assert not stopper.is_alive()


def test_what_was_never_started_can_be_stopped() -> None:
    Recurring("test", lambda: None, 1.0, failing="").stop()
