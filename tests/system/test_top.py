"""`widerow top` in a terminal: a real server, a pseudo-terminal, and a terminal that is as it was afterwards."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from system.conftest import config_at
from widerow.cli.api import Api
from widerow.model.tenant import Tenant
from widerow.server.run import running
from widerow.service import Service

pytestmark = pytest.mark.rest

TOP = [sys.executable, "-m", "widerow.cli.main", "top"]
LONG_S = 10.0
ALTERNATE, BACK = b"\x1b[?1049h", b"\x1b[?1049l"
SHOWN = b"\x1b[?25h"


@contextmanager
def served(folder: Path) -> Iterator[None]:
    """A server with two tenants, of which each has sent a report: the overview names those that send."""
    socket = folder / "serve.sock"
    with (
        Service.open(config_at(folder)) as service,
        running(service, socket_path=socket),
        Api.of_socket(str(socket), None, "served") as api,
    ):
        known = [one.name for one in service.catalog.tenants.list()]
        for tenant in ("acme", "globex"):
            if tenant not in known:
                service.catalog.tenants.create(Tenant(name=tenant))
            api.post("/v1/write", [{"device": "press-7", "values": {"force": 850}}], tenant=tenant)
        yield


class Terminal:
    """A pseudo-terminal with `widerow top` in it."""

    def __init__(self, folder: Path) -> None:
        self.master, self.slave = pty.openpty()
        self.resize(100, 30)
        self.before = termios.tcgetattr(self.slave)
        self.shown = b""
        command = ["setsid", "--ctty", *TOP, "--store", f"rocksdb:{folder}"]
        # A size in the environment, as some CI sets it, stands above the terminal's own.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("WIDEROW_") and k not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            command,
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            env=environment | {"TERM": "xterm"},
        )

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def type(self, keys: bytes) -> None:
        self.shown = b""
        os.write(self.master, keys)

    def await_text(self, *wanted: str) -> None:
        """Until the terminal was told all of that, since the last key."""
        self.until(lambda: all(text.encode() in self.shown for text in wanted))

    def ended(self) -> int:
        self.until(lambda: self.process.poll() is not None)
        self.until(lambda: not self.read(0.1))
        return self.process.returncode

    def until(self, is_so: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + LONG_S
        while not is_so():
            assert time.monotonic() < deadline_s, self.shown[:6000].decode(errors="replace")
            self.read(0.1)

    def read(self, wait_s: float) -> bool:
        if not select.select([self.master], [], [], wait_s)[0]:
            return False
        self.shown += os.read(self.master, 65536)
        return True

    def picture(self) -> bytes:
        """The last one that was drawn, perhaps in part."""
        return self.shown.rpartition(b"\x1b[H")[2]

    def is_restored(self) -> bool:
        left = self.shown.rfind(BACK) > self.shown.rfind(ALTERNATE) and SHOWN in self.shown
        return left and termios.tcgetattr(self.slave) == self.before


@contextmanager
def top(folder: Path) -> Iterator[Terminal]:
    terminal = Terminal(folder)
    try:
        terminal.await_text("q quits", "globex")
        yield terminal
    finally:
        if terminal.process.poll() is None:
            terminal.process.kill()
        terminal.process.wait()
        os.close(terminal.master)
        os.close(terminal.slave)


def test_arrows_choose_a_tenant_enter_opens_it_and_q_leaves_the_terminal_as_it_was(tmp_path: Path) -> None:
    with served(tmp_path), top(tmp_path) as terminal:
        terminal.type(b"\x1b[B")
        terminal.await_text("> globex")
        terminal.type(b"\r")
        terminal.await_text("tenant globex", "escape goes back")
        terminal.type(b"\x1b")
        terminal.await_text("all tenants", "> globex")
        terminal.type(b"q")
        assert terminal.ended() == 0
        assert terminal.is_restored()


@pytest.mark.parametrize("end", ["Ctrl-C", "SIGTERM", "SIGHUP"])
def test_the_terminal_is_as_it_was_however_top_ends(tmp_path: Path, end: str) -> None:
    with served(tmp_path), top(tmp_path) as terminal:
        if end == "Ctrl-C":
            terminal.type(b"\x03")
        else:
            terminal.process.send_signal(signal.Signals[end])
        assert terminal.ended() == 0
        assert terminal.is_restored()


def test_top_goes_on_when_the_server_comes_back_and_fits_another_size(tmp_path: Path) -> None:
    with served(tmp_path):
        context = top(tmp_path)
        terminal = context.__enter__()
    try:
        terminal.type(b"\x1b[B")
        terminal.await_text("trying again", "> globex")
        with served(tmp_path):
            terminal.type(b"\x1b[A")
            terminal.until(
                lambda: b"trying again" not in terminal.shown.rpartition(b"widerow 0")[2] and b"Reports" in terminal.shown
            )
            terminal.shown = b""
            terminal.resize(50, 12)
            # A picture of the former size may be on its way.
            terminal.until(lambda: b"q quits" in (last := terminal.picture()) and len(last.splitlines()) <= 12)
            terminal.type(b"q")
            assert terminal.ended() == 0
            assert terminal.is_restored()
    finally:
        context.__exit__(None, None, None)


def test_once_prints_one_plain_screen_and_json_the_answer(tmp_path: Path) -> None:
    def run(*options: str) -> str:
        command = [*TOP, "--store", f"rocksdb:{tmp_path}", *options]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout

    with served(tmp_path):
        plain = run("--once")
        assert plain.startswith("widerow ")
        assert "\x1b" not in plain
        assert "Nothing is wrong." in plain
        assert run().startswith("widerow ")
        assert json.loads(run("--once", "--json"))["scope"] == "all"
        assert "tenant acme" in run("--once", "--tenant", "acme")
