"""What a command says when it cannot go on: one line, what to do about it, and an exit code.

Rule: a command never ends with a traceback. `WIDEROW_TRACEBACK=1` asks for one, to report a fault of ours.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from widerow.cli.output import note, printable
from widerow.model.errors import INTERNAL, ConfigError, Rejected, WiderowError
from widerow.model.system import explained

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

USAGE = 2
"""The exit code for a command that was put wrongly; 1 is for one that was understood and failed."""
INTERRUPTED = 130

STATES = ("device-limit",)
"""Codes of requests that were put well, and came at the wrong time."""


class Failed(WiderowError):
    """The command failed. `code` is the server's, or one of ours; `todo` says what would help."""

    code = "failed"

    def __init__(self, message: str, *, code: str | None = None, todo: str = "", exit_code: int = 1) -> None:
        super().__init__(message)
        self.code = code or self.code
        self.todo, self.exit_code = todo, exit_code

    def __str__(self) -> str:
        return f"{super().__str__()}; {self.todo}" if self.todo else super().__str__()


class Misused(Failed):
    """The options do not go together, or one has a value it cannot have."""

    code = "usage"

    def __init__(self, message: str, *, todo: str = "") -> None:
        super().__init__(message, todo=todo, exit_code=USAGE)


@contextmanager
def as_misuse(option: str = "") -> Iterator[None]:
    """What cannot be read in here came from the command line: it was put wrongly. `option`: where it stood."""
    try:
        yield
    except (Rejected, ConfigError) as error:
        raise Failed(f"{option}: {error}" if option else str(error), code=error.code, exit_code=USAGE) from None


def leave(error: BaseException) -> NoReturn:
    """End the process after an error that nothing else has caught."""
    if isinstance(error, SystemExit):
        raise error
    if isinstance(error, KeyboardInterrupt):
        os._exit(INTERRUPTED)
    if isinstance(error, BrokenPipeError):
        # The reader of our output has gone, as `head` does. Python would complain once more when it closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(1)
    sys.exit(ended(error))


def heed_later(unraisable: UnraisableHookArgs) -> None:
    """Python's `sys.unraisablehook`, with which an interrupt that met an object's end is not lost: it comes once more."""
    if isinstance(unraisable.exc_value, KeyboardInterrupt):
        again = partial(signal.pthread_kill, threading.main_thread().ident or 0, signal.SIGINT)
        while True:
            try:
                threading.Timer(0.01, again).start()
            except KeyboardInterrupt:  # it came while this thread still waited for the timer to start: here it would be lost
                continue
            return
    else:
        sys.__unraisablehook__(unraisable)


def ended(error: BaseException) -> int:
    """Print the one line for an error; gives the exit code."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    known = error if isinstance(error, WiderowError) else _known(error)
    if os.environ.get("WIDEROW_TRACEBACK"):
        sys.excepthook(type(error), error, error.__traceback__)
    note(f"error: {known.code}: {printable(str(known))}")
    return known.exit_code if isinstance(known, Failed) else 1


def _known(error: BaseException) -> Failed:
    """An error of Python or the system, in our words."""
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return Failed("there is too little memory", code="memory", todo="give the process more (ulimit -v, its container)")
    if isinstance(error, OSError) and error.errno is not None:
        return Failed(explained(error), code="file")
    if isinstance(error, RuntimeError) and str(error) == "can't start new thread":
        return Failed(str(error), code="memory", todo="allow more threads and memory (ulimit -u, ulimit -v, the container)")
    return Failed(
        f"{type(error).__name__}: {error}", code=INTERNAL, todo="this is a fault of Widerow: WIDEROW_TRACEBACK=1 shows where"
    )
