"""One of our processes, started again and again; and what its log says of it.

Rule 1: only processes that were started here are signalled, by their ids.
Rule 2: a process is *up* when it does its work: a gateway that the broker has let in, a worker that has partitions. That it
answers is less.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

Part = tuple[str, int]
"""A topic and one of its partitions."""

_START_S = 120.0
_READY = re.compile(r"^widerow \S+ .* at (http://\S+)$", re.MULTILINE)
_BROKER = re.compile(r"MQTT broker \S+: (connected|.*again in)")
_PARTITIONS = re.compile(r" (\S+): partitions ([\d, ]+|none) (are ours now|are handed over|were lost)$", re.MULTILINE)


class Unexpected(AssertionError):
    """Something did what it should not."""


class Process:
    """One of ours: `widerow gateway`, `worker`, ...; started again and again."""

    def __init__(self, name: str, arguments: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
        self.name, self._arguments, self._environment = name, list(arguments), dict(environment)
        self._log = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._from = 0
        self.url = self.token = ""

    def start(self, *, wait: bool = True) -> None:
        assert self._process is None, "it runs already"
        self._from = self._log.stat().st_size if self._log.exists() else 0
        own = {name: value for name, value in os.environ.items() if not name.startswith("WIDEROW_")}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "widerow.cli.main", *self._arguments, "--port", "0"],
                stdout=log,
                stderr=log,
                env=own | self._environment,
            )
        if wait:
            self.wait()

    def wait(self) -> None:
        """Until it says that it is there."""
        until_s = time.monotonic() + _START_S
        while time.monotonic() < until_s:
            if self.answers():
                return
            if self._process is None or self._process.poll() is not None:
                break
            time.sleep(0.05)
        raise Unexpected(f"{self.name} did not start:\n{self.log()[-3000:]}")

    def answers(self) -> bool:
        """Whether it has said where."""
        found = _READY.search(self.log())
        self.url = found[1] if found else ""
        return bool(found)

    def is_up(self) -> bool:
        """Whether it runs and does its work, by what it said last."""
        if not self.runs() or not self.answers():
            return False
        said = _BROKER.findall(self.log())
        return bool(self.partitions() or (said and said[-1] == "connected"))

    def partitions(self) -> set[Part]:
        """Those that a worker has, by its log."""
        ours: set[Part] = set()
        for some, event in self.moves():
            ours = ours | some if event == "are ours now" else ours - some
        return ours

    def moves(self, *, ever: bool = False) -> list[tuple[set[Part], str]]:
        """What partitions came to a worker, and went, since it was started last, or first."""
        found = _PARTITIONS.findall(self.whole_log() if ever else self.log())
        return [({(topic, int(n)) for n in re.findall(r"\d+", numbers)}, event) for topic, numbers, event in found]

    def log(self) -> str:
        """What it said since it was started last."""
        with self._log.open("rb") as log:
            log.seek(self._from)
            return log.read().decode(errors="replace")

    def whole_log(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Without a chance to do anything."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self, within_s: float = 40.0) -> None:
        """In order."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise Unexpected(
                f"{self.name} still runs {within_s:g} s after it was told to stop:\n{self.log()[-3000:]}"
            ) from None
        self._process = None
        if code:
            raise Unexpected(f"{self.name} ended with {code}:\n{self.log()[-3000:]}")

    def get(self, path: str) -> tuple[int, str]:
        request = urllib.request.Request(self.url + path, headers={"Authorization": f"Bearer {self.token}"})
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            return error.code, error.read().decode()

    def post(self, path: str, form: Mapping[str, Any]) -> Any:
        request = urllib.request.Request(
            self.url + path,
            json.dumps(form).encode(),
            {"Content-Type": "application/json", "Authorization": f"Bearer {self.token}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except HTTPError as error:
            raise Unexpected(f"{path}: {error.code} {error.read().decode()}") from None

    def metric(self, name: str, label: str = "") -> float:
        """The sum over its labels, or over those that contain one: `topic="some"`."""
        status, text = self.get("/metrics")
        if status != 200 or f"# TYPE {name.removesuffix('_total')}" not in text:
            raise Unexpected(f"{self.name} has no metric {name}: {status} {text[:200]}")
        found = re.findall(rf"^{name}(\{{[^}}]*\}})? (\S+)$", text, re.MULTILINE)
        return sum(float(value) for labels, value in found if label in labels)

    def ready(self) -> tuple[str, list[str]]:
        """What it says of itself, and why."""
        status, text = self.get("/health/ready")
        said = json.loads(text)
        if (status == 200) != (said["status"] == "ready"):
            raise Unexpected(f"{self.name} says {text} with {status}")
        return said["status"], said.get("reasons", [])

    def resident_mib(self) -> float:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise Unexpected("no VmRSS")
