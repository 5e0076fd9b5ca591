"""Figures: a line each on standard output, and the same as JSON with the machine and the commit they belong to."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.lib.pace import Pace

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench" / "results"


@dataclass
class Figures:
    """What one benchmark found out. `options` are what it was run with."""

    name: str
    options: dict[str, Any]
    found: dict[str, tuple[float, str]] = field(default_factory=dict)
    _pace: Pace = field(default_factory=Pace)

    def add(self, name: str, value: float, unit: str) -> None:
        self.found[name] = (value, unit)
        print(f"figure {name} {short(value)} {unit}", flush=True)

    def save(self) -> Path:
        RESULTS.mkdir(exist_ok=True)
        path = RESULTS / f"{self.name}.json"
        pace = self._pace.said()
        print(
            f"machine: a loop took {pace['loop_ms_before']:.1f} ms before and {pace['loop_ms_after']:.1f} ms after; "
            f"{pace['stolen']:.1%} of the processors' time was taken away",
            flush=True,
        )
        content = {
            "benchmark": self.name,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "commit": commit(),
            "machine": machine() | pace,
            "options": self.options,
            "figures": [{"name": n, "value": v, "unit": u} for n, (v, u) in self.found.items()],
        }
        path.write_text(json.dumps(content, indent=2) + "\n")
        return path


def short(value: float) -> str:
    """Four digits are more than any of this repeats to."""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def machine() -> dict[str, Any]:
    return {
        "cpu": _after("/proc/cpuinfo", "model name") or platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_kib": int((_after("/proc/meminfo", "MemTotal") or "0").split()[0]),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def commit() -> str:
    """The commit that is checked out, with `+` if something differs from it; empty outside of a checkout."""
    git = ["git", "-C", str(ROOT)]
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    if head.returncode:
        return ""
    changes = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=False)
    return head.stdout.strip() + ("+" if changes.stdout.strip() else "")


def _after(path: str, key: str) -> str:
    """The value of the first `key: value` line of a file of the kernel."""
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), "")
