"""Work that is done now and then by a thread of its own.

Rule 1: nothing that the work raises ends the thread: it is logged, and tried again next time.
Rule 2: `stop` waits for work that has begun, and begins none.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from widerow.model.errors import WiderowError


def tried(work: Callable[[], object], failing: str, log: logging.Logger) -> bool:
    """Do it; what it raises is logged, as what did not happen (`failing`), and no more. Whether it was done."""
    try:
        work()
    except WiderowError as error:
        log.warning("%s: %s", failing, error)
    except Exception:
        log.exception(failing)
    else:
        return True
    return False


class Recurring:
    """`work`, every so often (None: never by itself) and when woken. `failing` says in the log what did not happen."""

    def __init__(
        self,
        name: str,
        work: Callable[[], object],
        every_s: float | None,
        *,
        failing: str,
        at_once: bool = False,
    ) -> None:
        """`at_once`: the first time is when it starts, not a while later."""
        self._work, self._every_s, self._failing, self._at_once = work, every_s, failing, at_once
        self._log = logging.getLogger(work.__module__)
        self._woken, self._stopping = threading.Event(), False
        self._thread = threading.Thread(target=self._run, name=name)

    @property
    def stopping(self) -> bool:
        """For work that takes long: whether it should come to an end."""
        return self._stopping

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Do it now, or again when what is being done is done. Before `start` it makes the first time come at once."""
        self._woken.set()

    def stop(self) -> None:
        """Also if it was never started."""
        self._stopping = True
        self._woken.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        if not self._at_once:
            self._woken.wait(self._every_s)
        while not self._stopping:
            self._woken.clear()
            tried(self._work, self._failing, self._log)
            if not self._stopping:
                self._woken.wait(self._every_s)
