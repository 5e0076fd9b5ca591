"""Whether the store answers, for a gateway that goes on without it.

Rule 1: all tenants are read at the start and each minute, by a thread of its own: should the store not answer, only those
that were made in the last minute are not known.
Rule 2: who finds that the store does not answer tells everybody. From then on that thread alone asks it, until it answers:
nobody else spends ten seconds on each question to learn the same.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from time import monotonic
from typing import ParamSpec, TypeVar

from widerow.model.errors import Unavailable

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

_EACH_S, _AGAIN_S = 60.0, 2.0


class Watch:
    """All methods may be called from any thread. `read` reads what is to be known, and raises `Unavailable`."""

    def __init__(self, read: Callable[[], None]) -> None:
        self._read = read
        self._changed = threading.Condition()
        self._since_s: float | None = None
        """When the store was first found not to answer; None: it does."""
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="mqtt-watch")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join()

    @property
    def is_away(self) -> bool:
        return self._since_s is not None

    def away_s(self) -> float:
        """For how long the store has not answered; 0 if it does."""
        since_s = self._since_s
        return 0.0 if since_s is None else monotonic() - since_s

    def guarded(self, ask: Callable[P, T]) -> Callable[P, T]:
        """The same question to the store, which raises `Unavailable` at once while it is known not to answer."""

        def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
            if self.is_away:
                raise Unavailable("the store does not answer")
            try:
                return ask(*args, **kwargs)
            except Unavailable:
                self._tell(away=True)
                raise

        return guarded

    def _tell(self, *, away: bool) -> None:
        with self._changed:
            if away != self.is_away:
                self._since_s = monotonic() if away else None
                self._changed.notify_all()

    def _run(self) -> None:
        while not self._stopping:
            away = False
            try:
                self._read()
            except Unavailable:
                away = True
            except Exception:  # it did answer
                log.exception("the tenants could not be read; the last known ones stay in use")
            self._tell(away=away)
            with self._changed:
                self._changed.wait_for(lambda: self._stopping or self.is_away, _EACH_S)
                # Also if it answered: what it does not answer may be another question than ours.
                self._changed.wait_for(lambda: self._stopping, _AGAIN_S)
