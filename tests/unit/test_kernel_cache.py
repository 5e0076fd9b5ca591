"""A kernel is compiled anew when anything that went into it has changed, and only then."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from widerow.model import kernel

HELPER = """
from widerow.model.kernel import inlined
@inlined
def step(x: int) -> int:
    return x + 1
"""
CONSTANT = "STRIDE = 10\n"
LOOP = """
from widerow.model.constant import STRIDE
from widerow.model.helper import step
from widerow.model.kernel import kernel
@kernel
def loop(x: int) -> int:
    return step(x) * STRIDE
"""
ASK = "from widerow.model.loop import loop; print(loop(1), sum(loop.stats.cache_hits.values()))"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package with a kernel, its helper and its constant."""
    package = tmp_path / "widerow" / "model"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    (package / "kernel.py").write_bytes(Path(kernel.__file__).read_bytes())
    (package / "helper.py").write_text(HELPER)
    (package / "constant.py").write_text(CONSTANT)
    (package / "loop.py").write_text(LOOP)
    return package


def run(package: Path, cache: Path | None = None) -> list[int]:
    """What the kernel says, and whether it was found compiled."""
    own = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    environment = own | {"PYTHONPATH": str(package.parents[1]), "XDG_CACHE_HOME": str(package.parents[1] / "user")}
    if cache:
        environment["NUMBA_CACHE_DIR"] = str(cache)
    done = subprocess.run(
        [sys.executable, "-c", ASK], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    return [int(word) for word in done.stdout.split()]


def test_a_changed_helper_or_constant_is_noticed_and_the_old_one_is_found_again(package: Path) -> None:
    assert run(package) == [20, 0]
    assert run(package) == [20, 1]
    (package / "helper.py").write_text(HELPER.replace("x + 1", "x + 2"))
    assert run(package) == [30, 0]
    (package / "constant.py").write_text("STRIDE = 11\n")
    assert run(package) == [33, 0]
    (package / "helper.py").write_text(HELPER)
    (package / "constant.py").write_text(CONSTANT)
    assert run(package) == [20, 1]


def test_kernels_are_kept_where_numba_is_told_to(package: Path, tmp_path: Path) -> None:
    assert run(package, tmp_path / "named") == [20, 0]
    assert {path.name.partition("-")[0] for path in (tmp_path / "named").iterdir()} >= {"widerow.model.helper"}
    assert not (package.parent / "__pycache__" / "kernels").exists()
    shutil.rmtree(package.parent / "__pycache__", ignore_errors=True)
    (package.parent / "__pycache__").write_text("a package that cannot be written to")
    assert run(package) == [20, 0]
    assert run(package) == [20, 1]
    assert list((tmp_path / "user" / "widerow" / "kernels").iterdir())


def test_folders_of_kernels_that_were_used_long_ago_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_root", lambda: str(tmp_path))
    for number in range(8):
        folder = Path(kernel._folder("widerow.model.loop", f"{number:016}"))
        os.utime(folder, (time.time() - 100 + number,) * 2)
    (tmp_path / "widerow.model.loop.other-0000000000000000").mkdir()
    kernel._folder("widerow.model.loop", "f" * 16)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == [
        "widerow.model.loop-0000000000000005",
        "widerow.model.loop-0000000000000006",
        "widerow.model.loop-0000000000000007",
        "widerow.model.loop-ffffffffffffffff",
        "widerow.model.loop.other-0000000000000000",
    ]
