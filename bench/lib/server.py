"""A server of its own for a benchmark: started on a fresh store, watched from outside, stopped by its process id.

The command line of the product is used in this file only.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from widerow.simulate.wire import Connection, Target, TransportError

_TICK = os.sysconf("SC_CLK_TCK")
_START_S = 60.0
_STOP_S = 60.0
_SAMPLE_S, _CALM_CPU_S, _CALM_SAMPLES = 0.5, 0.03, 5


class Server:
    """`widerow serve` on an embedded store in a temporary folder, with the tenant `bench`. A context manager."""

    def __init__(self, layout: str = "", folder: str | None = None, settings: Mapping[str, str] | None = None) -> None:
        """`settings` are variables of the environment, such as WIDEROW_ROLLUP_ENABLED.

        Loads whose event times run faster than the clock begin in the past. They stand for live ones, so nothing is taken
        for backlog unless the settings say so.
        """
        self._environment = {**os.environ, "WIDEROW_BACKFILL_AFTER_S": "0", **(settings or {})}
        self._folder = Path(tempfile.mkdtemp(prefix="widerow-bench-", dir=folder))
        self.path = self._folder / "store"
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._store = f"rocksdb:{self.path}" + (f"?layout={layout}" if layout else "")
        self._log = (self._folder / "serve.log").open("wb")
        self._process: subprocess.Popen[bytes] | None = None
        self.write_token = ""
        self.read_token = ""
        self.operator_token = ""

    def __enter__(self) -> Self:
        try:
            self._widerow("tenant", "create", "bench")
            self.write_token = self._widerow("token", "create", "bench", "--role", "write")
            self.read_token = self._widerow("token", "create", "bench", "--role", "admin")
            self.operator_token = self._widerow("token", "create", "--operator")
            self._process = subprocess.Popen(
                [*_command("serve"), "--store", self._store, "--port", str(self.port)],
                stdout=self._log,
                stderr=self._log,
                env=self._environment,
            )
            self._await_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._log.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def stop(self) -> None:
        """Ask it to end; the store stays until the context ends. Harmless when it has ended."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise TimeoutError(f"the server did not stop within {_STOP_S:g} s of SIGTERM") from None
        finally:
            self._process = None

    def connection(self, token: str | None = None) -> Connection:
        return Connection(Target.of(self.url), {"Authorization": f"Bearer {self.read_token if token is None else token}"})

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("the server is not running")
        return self._process.pid

    def cpu_s(self) -> float:
        """User and system time of all its threads so far."""
        return cpu_s(self.pid)

    def rss_peak_mib(self) -> float:
        return self._status_mib("VmHWM")

    def rss_mib(self) -> float:
        return self._status_mib("VmRSS")

    def _status_mib(self, key: str) -> float:
        line = next(line for line in self._proc("status").splitlines() if line.startswith(key))
        return int(line.split()[1]) / 1024

    def disk_bytes(self) -> int:
        """What the store takes on disk, logs included."""
        return disk_bytes(self.path)

    def settle(self, timeout_s: float = 30.0) -> None:
        """Wait until it has caught up with itself, so that what it puts off is charged to the run that caused it."""
        settle(self.pid, timeout_s)

    def _await_ready(self) -> None:
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            if self._process is not None and self._process.poll() is not None:
                raise RuntimeError(f"the server ended with {self._process.returncode}:\n{self._log_tail()}")
            try:
                with self.connection("") as connection:
                    if connection.request("GET", "/health/ready").status == 200:
                        return
            except TransportError:
                pass  # not listening yet
            time.sleep(0.05)
        raise TimeoutError(f"the server was not ready within {_START_S:g} s:\n{self._log_tail()}")

    def _widerow(self, *arguments: str) -> str:
        """Run a command on the store; the last line it prints, which is the token where one was made."""
        command = [*_command(*arguments), "--store", self._store]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"widerow {' '.join(arguments)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
        return (done.stdout.strip().splitlines() or [""])[-1]

    def _proc(self, name: str) -> str:
        return Path(f"/proc/{self.pid}/{name}").read_text()

    def _log_tail(self) -> str:
        return (self._folder / "serve.log").read_text(errors="replace")[-3000:]


def cpu_s(pid: int) -> float:
    """User and system time of all threads of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def disk_bytes(folder: Path) -> int:
    """Bytes of all files below a folder. Blocks, not lengths: preallocated files count as what they use."""
    total = 0
    for within, _, files in os.walk(folder):
        for name in files:
            try:
                total += (Path(within) / name).stat().st_blocks * 512
            except FileNotFoundError:
                continue  # compacted away meanwhile
    return total


def settle(pid: int, timeout_s: float) -> None:
    """Wait until a process has done nothing for a while: rolling a long backlog rests for a second now and then."""
    deadline = time.monotonic() + timeout_s
    before, calm = cpu_s(pid), 0
    while time.monotonic() < deadline and calm < _CALM_SAMPLES:
        time.sleep(_SAMPLE_S)
        now = cpu_s(pid)
        calm = calm + 1 if now - before < _CALM_CPU_S else 0
        before = now


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "widerow.cli.main", *arguments]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
