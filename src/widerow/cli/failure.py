"""What a command says when it cannot go on: one line, what to do about it, and an exit code.

Rule: whoever uses the command line never sees a traceback for something they can change.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from widerow.model.errors import ConfigError, Rejected, WiderowError

USAGE = 2
"""The exit code for a command that was put wrongly; 1 is for one that was understood and failed."""

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
