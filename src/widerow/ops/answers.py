"""Whether something that a process needs, and does not run itself, answers: a store, a broker.

Rule 1: a thread of its own asks a small question each second. Readers of the state never wait for the answer.
Rule 2: it does not answer when a question is unanswered for `patience_s`, whatever becomes of it, or the last one failed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Self

log = logging.getLogger(__name__)

EVERY_S, PATIENCE_S = 1.0, 2.0
"""Together with the time that a failure takes to be noticed they are less than the 5 s that `/health/ready` promises."""


class Answers:
    """`what` is asked by `ask`, which raises if there is no answer. Also a context: asking begins and ends with it."""

    def __init__(
        self, what: str, ask: Callable[[], object], *, every_s: float = EVERY_S, patience_s: float = PATIENCE_S
    ) -> None:
        self._what, self._ask, self._every_s, self._patience_s = what, ask, every_s, patience_s
        self._asked_s: float | None = None
        """Since when a question waits for its answer."""
        self._failed = False
        self._stopping = threading.Event()
        # A question to what hangs may take longer than a process has to stop.
        self._thread = threading.Thread(target=self._run, name=f"asks {what}", daemon=True)

    def strain(self) -> str:
        """The trouble; empty if it answers."""
        asked_s = self._asked_s
        waited_s = 0.0 if asked_s is None else time.monotonic() - asked_s
        return f"{self._what} does not answer" if self._failed or waited_s > self._patience_s else ""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(self._patience_s)

    def _run(self) -> None:
        while not self._stopping.wait(self._every_s):
            self._asked_s = time.monotonic()
            try:
                self._ask()
                failure = ""
            except Exception as error:  # noqa: BLE001 - whatever it is, it is asked again
                failure = f"{type(error).__name__}: {error}"
            if failure and not self._failed and not self._stopping.is_set():
                log.warning("%s does not answer: %s", self._what, failure)
            elif not failure and self._failed:
                log.warning("%s answers again", self._what)
            self._failed, self._asked_s = bool(failure), None
