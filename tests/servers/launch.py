"""Becomes a server that the kernel kills when the thread that started it is gone, however it went.

    python launch.py PARENT PROGRAM ARGUMENT...

A program of its own, because code between fork and exec is unsafe in a process with threads, and Python 3.12 warns of it.
The process id stays the same: this replaces itself.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, program = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("whoever wanted this server is gone already")
    os.execvp(program[0], program)


if __name__ == "__main__":
    main()
