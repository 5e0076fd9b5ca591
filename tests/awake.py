"""For how long the machine ran: told by a process that does nothing but look at the clock.

Who says how long something may take means a machine that runs. A virtual one is taken away for seconds at times, and then
everything on it is late by as much. The watcher is a process of its own, so that only the machine can keep it from looking:
what a server does that is tested here, or a thread that holds the GIL, is not forgiven.
"""

from __future__ import annotations

import atexit
import shutil
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

_GAP_S = 0.25
"""Who wanted to look every twentieth of a second and could not for so long stood still."""

_WATCH = """
import os, sys, time
parent, ticks, gaps = os.getppid(), os.open(sys.argv[1], os.O_WRONLY), open(sys.argv[2], "a", buffering=1)
last = time.monotonic()
while os.getppid() == parent:
    time.sleep(0.05)
    now = time.monotonic()
    if now - last > float(sys.argv[3]):
        gaps.write(f"{last} {now}\\n")
    os.pwrite(ticks, f"{now:024.6f}".encode(), 0)
    last = now
"""


class Running:
    """Time in which the machine ran, from when this is made on."""

    def __init__(self) -> None:
        self._watcher = _watcher()
        self._began_s = time.monotonic()

    def seconds(self) -> float:
        """How many it were, up to now."""
        now_s = time.monotonic()
        return now_s - self._began_s - self._watcher.stood_still_s(self._began_s, now_s)

    def stood_still_s(self) -> float:
        return self._watcher.stood_still_s(self._began_s, time.monotonic())


def sleep(seconds: float) -> None:
    """Until the machine has run for so long."""
    running = Running()
    while (left_s := seconds - running.seconds()) > 0:
        time.sleep(left_s)


class _Watcher:
    """Ends with the process that started it, also if that is killed."""

    def __init__(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="widerow-awake-"))
        self._ticks, self._gaps = folder / "ticks", folder / "gaps"
        self._ticks.write_text("")
        self._gaps.write_text("")
        command = [sys.executable, "-S", "-E", "-c", _WATCH, str(self._ticks), str(self._gaps), str(_GAP_S)]
        self._process = subprocess.Popen(command)
        atexit.register(self._end, folder)
        self._await(time.monotonic())

    def stood_still_s(self, since_s: float, until_s: float) -> float:
        """How much of a span of the monotonic clock."""
        self._await(until_s)
        gaps = (map(float, line.split()) for line in self._gaps.read_text().splitlines())
        return sum(max(0.0, min(stop, until_s) - max(start, since_s)) for start, stop in gaps)

    def _end(self, folder: Path) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(folder)

    def _await(self, until_s: float) -> None:
        """Until it has looked at the clock later than that: what it had to say about the time before is said."""
        while float(self._ticks.read_text() or 0) < until_s:
            assert self._process.poll() is None, "who watches the machine has ended"
            time.sleep(0.01)


@cache
def _watcher() -> _Watcher:
    return _Watcher()
