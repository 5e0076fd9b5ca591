"""A server as a process of ours: started, waited for, paused, stopped, killed, started again on the same ports.

Rule 1: only the process that was started here is ever signalled, by its id.
Rule 2: it does not outlive us: `close` ends it, and so does the kernel if we are killed (see launch.py).
Rule 3: everything it writes is in one temporary folder, which goes with `close`; stopping and killing leave it.
Rule 4: a wait that ends without success raises, with the end of the server's log.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Self

_LAUNCH = Path(__file__).with_name("launch.py")
_POLL_S = 0.05
_PAUSE_S = 5.0
_TAIL = 3000
_PORTS = range(20_000, 32_000)
"""Below those the kernel gives to connections (from 32768), so that a restart finds its port free."""


class Failed(Exception):
    """A server did not do what it was told. The message ends with its log."""


class Server(ABC):
    """Started by `start` or by entering the context; ended by `close` or by leaving it.

    `start` and `restart` belong to the main thread, because the server ends with the thread that started it. The rest may be
    called from any thread, but not from two at once.
    """

    name: ClassVar[str]
    version: ClassVar[str]
    port: int
    start_within_s: ClassVar[float]
    stop_within_s: ClassVar[float]

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"widerow-{self.name}-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._log_from = 0
        self._closed = False

    # -- what a server of a kind says about itself

    @abstractmethod
    def command(self) -> Sequence[str]:
        """The program and its arguments. Called at every start."""

    def environment(self) -> Mapping[str, str]:
        """What is added to our environment."""
        return {}

    @abstractmethod
    def answers(self) -> bool:
        """Whether it answers a question of its own protocol now. Raises nothing but OSError, which means no."""

    # -- its life

    def start(self) -> float:
        """Start it and wait until it answers; the seconds that took. An error if it runs already."""
        began_s = time.monotonic()
        self.spawn()
        try:
            self.wait(within_s=self.start_within_s)
        except BaseException:
            self.kill()
            raise
        return time.monotonic() - began_s

    def spawn(self) -> None:
        """Start it, and do not wait."""
        if self._closed:
            raise Failed(f"{self.name} is closed: its folder is gone")
        if self._process is not None:
            raise Failed(f"{self.name} runs already, as process {self._process.pid}")
        if threading.current_thread() is not threading.main_thread():
            raise Failed("start servers from the main thread: the kernel ends a server with the thread that started it")
        with self.log_path.open("ab") as log:
            self._log_from = log.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-SE", str(_LAUNCH), str(os.getpid()), *self.command()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=os.environ | dict(self.environment()),
                start_new_session=True,  # Ctrl-C is for us: we stop it in order
            )

    def wait(self, *, within_s: float) -> None:
        """Until it answers."""
        deadline_s = time.monotonic() + within_s
        while time.monotonic() < deadline_s:
            if not self.runs():
                code = self._process.returncode if self._process else "nothing"
                raise Failed(f"{self.name} ended with {code} and does not answer:\n{self.log()[-_TAIL:]}")
            try:
                if _listens(self.pid, self.port) and self.answers():
                    return
            except OSError:
                pass  # not listening yet
            time.sleep(_POLL_S)
        raise Failed(f"{self.name} does not answer after {within_s:g} s:\n{self.log()[-_TAIL:]}")

    def stop(self) -> float:
        """Ask it to end, and make it end if it does not in time; the seconds that took. Harmless when it has ended."""
        if self._process is None:
            return 0.0
        began_s = time.monotonic()
        self._process.send_signal(signal.SIGTERM)
        self._process.send_signal(signal.SIGCONT)  # a paused one would not hear it
        try:
            self._process.wait(self.stop_within_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None
        return time.monotonic() - began_s

    def kill(self) -> None:
        """Without a chance to do anything. What it gave to the operating system survives. Harmless when it has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> float:
        """Stop it if it runs, and start it with the same ports and whatever it keeps on disk."""
        self.stop()
        return self.start()

    def pause(self) -> None:
        """It keeps its connections and answers nothing, as if the network or the machine hung. In force on return."""
        self._signal(signal.SIGSTOP)
        deadline_s = time.monotonic() + _PAUSE_S
        while not _all_stopped(self.pid):  # each thread stops when it is next scheduled, and answers until then
            if time.monotonic() >= deadline_s:
                raise Failed(f"{self.name} still runs {_PAUSE_S:g} s after SIGSTOP")
            time.sleep(0.001)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """End it and remove its folder. Harmless a second time."""
        self._closed = True
        try:
            self.stop()
        finally:
            self.kill()  # left alive only if stopping was interrupted
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- looking at it

    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise Failed(f"{self.name} does not run")
        return self._process.pid

    def log(self) -> str:
        """What it printed since it was started last."""
        if not self.log_path.exists():
            return ""
        with self.log_path.open("rb") as file:
            file.seek(self._log_from)
            return file.read().decode(errors="replace")

    @property
    def log_path(self) -> Path:
        """What it printed since it was started first."""
        return self.folder / "server.log"

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None or not self.runs():
            raise Failed(f"{self.name} does not run")
        self._process.send_signal(number)


def free_ports(count: int, hosts: Sequence[str] = ("127.0.0.1",)) -> list[int]:
    """Different ports that nobody listens on, at any of the hosts."""
    found: list[int] = []
    # Not by the generator that a test may have seeded: two runs at once would try the same ports.
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        if all(_is_free(host, port) for host in hosts):
            found.append(port)
            if len(found) == count:
                return found
    raise Failed(f"no {count} free ports on {', '.join(hosts)}")


def _listens(pid: int, port: int) -> bool:
    """Whether it is this process that does: another one may have taken the port since it was found free, and answer."""
    sockets = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *rest = line.split()
            if state == "0A" and int(local.rpartition(":")[2], 16) == port:
                sockets.add(f"socket:[{rest[5]}]")
    return bool(sockets) and any(str(path.readlink()) in sockets for path in Path(f"/proc/{pid}/fd").iterdir())


def _all_stopped(pid: int) -> bool:
    for thread in Path(f"/proc/{pid}/task").iterdir():
        try:
            if (thread / "stat").read_text().rpartition(")")[2].split()[0] not in "Tt":
                return False
        except (FileNotFoundError, ProcessLookupError):
            continue  # ended
    return True


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
