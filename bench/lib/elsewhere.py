"""Processes that stand for machines elsewhere: they run when this one would be idle, and keep nothing waiting.

A low priority alone is not enough: whoever has a core keeps it for some milliseconds from one who has just woken up.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence


def started_elsewhere(command: Sequence[str], environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """Its standard output is a pipe."""
    process = subprocess.Popen(list(command), env={**os.environ, **(environment or {})}, stdout=subprocess.PIPE, text=True)
    if hasattr(os, "SCHED_IDLE"):  # threads that it starts have this from it
        os.sched_setscheduler(process.pid, os.SCHED_IDLE, os.sched_param(0))
    return process
