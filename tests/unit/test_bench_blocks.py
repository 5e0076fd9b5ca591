"""The benchmark of blocks runs, and has the figures that others read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.rest
def test_the_benchmark_of_blocks_prints_its_figures() -> None:
    run = [sys.executable, "-m", "bench.blocks", "--quick"]
    printed = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    figures = {line.split()[1]: float(line.split()[2]) for line in printed.splitlines() if line.startswith("figure ")}
    names = ("dense_bytes_per_metric", "parquet_bytes_per_metric", "one_device_ms", "parquet_one_device_ms", "threads_ratio")
    assert {f"blocks_{prefix}{name}" for prefix in ("", "trucks_") for name in names} <= figures.keys()
    assert figures["blocks_dense_bytes_per_metric"] <= 1.5 < figures["blocks_parquet_bytes_per_metric"]
