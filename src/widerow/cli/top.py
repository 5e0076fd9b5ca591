"""`widerow top`: the overview at a glance, in a terminal.

Rule 1: the terminal is as it was before, whatever ends the command.
Rule 2: keys work while the server does not answer: a thread asks, and the last answer stays on the screen.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, Any

import typer

from widerow.cli import output
from widerow.cli.api import Api
from widerow.cli.failure import Failed
from widerow.cli.session import Session, client

if TYPE_CHECKING:
    from widerow.cli.top_picture import Look

OVERVIEW = "/v1/overview"
EVERY_S = 2.0
_LOOK_S = 0.2
"""How soon a key, another size of the terminal and a new answer are noticed."""
_PIPE_WIDTH = 100
_HOPELESS = ("unauthorized", "forbidden")
"""Refusals that another try does not change."""
_KEYS = {
    b"\x1b[A": "up",
    b"\x1bOA": "up",
    b"\x1b[B": "down",
    b"\x1bOB": "down",
    b"\r": "enter",
    b"\n": "enter",
    b"\x1b": "back",
    b"\x7f": "back",
    b"q": "quit",
    b"Q": "quit",
}


def add_to(app: typer.Typer) -> None:
    app.command("top")(client(top))


def top(
    session: Session,
    once: Annotated[bool, typer.Option("--once", help="Print one screen and end.", show_default=False)] = False,
) -> None:
    """Watch a server: its troubles, the figures of the last hour, the busiest tenants. The screen is new every two seconds.

    The arrow keys choose a tenant, enter opens it, escape goes back, q quits. Where there is no terminal, and with --json,
    it prints one screen, as with --once.

    Example: widerow top

    Example: widerow top --once --json
    """
    answer: dict[str, Any] = session.api.get(OVERVIEW)
    if once or session.as_json or not (output.is_terminal() and sys.stdin.isatty()):
        session.show(answer, partial(_print, where=session.api.where))
        return
    with contextlib.suppress(KeyboardInterrupt):  # that is how one stops it, too
        _watch(session.api, answer)


def _print(answer: dict[str, Any], where: str) -> None:
    from rich.console import Console  # noqa: PLC0415

    from widerow.cli.top_picture import Look, picture  # noqa: PLC0415

    width = get_terminal_size().columns if output.is_terminal() else _PIPE_WIDTH
    text = picture(answer, Look(where=where, is_live=False), width)
    if output.is_terminal():
        Console(highlight=False).print(text, soft_wrap=True)
    else:
        output.emit("\n".join(line.rstrip() for line in text.plain.splitlines()))


class Asker:
    """Asks every two seconds, in a thread of its own. It keeps the last answer that it got."""

    def __init__(self, api: Api, answer: dict[str, Any]) -> None:
        self.answer, self.trouble = answer, ""
        self.hopeless: Failed | None = None
        self._api, self._tenant = api, None if api.tenant is None else str(api.tenant)
        self._home = self._tenant
        self._now, self._stopped = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._ask, name="top", daemon=True)
        self._thread.start()

    @property
    def is_inside(self) -> bool:
        return self._tenant != self._home

    def open(self, tenant: str | None) -> None:
        """Another tenant, or None for what was there first. The answer comes a little later."""
        self._tenant = tenant or self._home
        self._now.set()

    def stop(self) -> None:
        self._stopped.set()
        self._now.set()

    def _ask(self) -> None:
        while not self._stopped.is_set():
            if self._now.wait(EVERY_S):
                self._now.clear()
            if self._stopped.is_set():
                return
            tenant = self._tenant
            try:
                answer = self._api.get(OVERVIEW, tenant=tenant)
            except Failed as error:
                self.trouble = str(error)
                self.hopeless = error if error.code in _HOPELESS else None
            except Exception as error:  # noqa: BLE001 - it is shown, and the next try may do better
                self.trouble = f"{type(error).__name__}: {error}"
            else:
                if tenant == self._tenant:
                    self.answer, self.trouble = answer, ""


def _watch(api: Api, answer: dict[str, Any]) -> None:
    from rich.console import Console  # noqa: PLC0415
    from rich.live import Live  # noqa: PLC0415

    from widerow.cli.top_picture import Look, picture  # noqa: PLC0415

    asker, look, console = Asker(api, answer), Look(where=api.where), Console(highlight=False)
    drawn: object = None
    try:
        with _keyboard() as fd, Live(console=console, screen=True, auto_refresh=False) as screen:
            while not asker.hopeless:
                look = replace(look, trouble=asker.trouble, inside=asker.is_inside)
                shown = asker.answer, look, console.size
                if shown != drawn:
                    width, height = console.size
                    screen.update(picture(asker.answer, look, width, height), refresh=True)
                    drawn = shown
                if select.select([fd], [], [], _LOOK_S)[0]:
                    for key in keys(os.read(fd, 64)):
                        if key == "quit":
                            return
                        look = _pressed(asker, look, key)
            raise asker.hopeless
    finally:
        asker.stop()


def _pressed(asker: Asker, look: Look, key: str) -> Look:
    from widerow.cli.top_picture import chosen_tenant  # noqa: PLC0415

    if key == "back":
        asker.open(None)
    elif key == "enter":
        asker.open(chosen_tenant(asker.answer, look))
    elif not look.inside:
        last = max(0, len(asker.answer["tenants"]) - 1)
        return replace(look, chosen=min(last, max(0, look.chosen + (1 if key == "down" else -1))))
    return look


def keys(typed: bytes) -> Iterator[str]:
    """What of the bytes from a terminal are keys that mean something."""
    while typed:
        known = next((code for code in sorted(_KEYS, key=len, reverse=True) if typed.startswith(code)), b"")
        if known == b"\x1b" and len(typed) > 1:  # of a key that means nothing here: F1, page down
            return
        if known:
            yield _KEYS[known]
        typed = typed[max(1, len(known)) :]


@contextlib.contextmanager
def _keyboard() -> Iterator[int]:
    """Keys come one by one and are not shown. Ctrl-Z does nothing: it would leave the shell with our screen."""
    import termios  # noqa: PLC0415
    import tty  # noqa: PLC0415

    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    handlers = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        tty.setcbreak(fd)
        now = termios.tcgetattr(fd)
        now[6][termios.VSUSP] = b"\0"
        termios.tcsetattr(fd, termios.TCSANOW, now)
        yield fd
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
