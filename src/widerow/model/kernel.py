"""How a loop over values is compiled: without the GIL, cached on disk, typed for mypy as the function it was.

Rule 1: compiled code is kept in a folder named by a hash of everything that went into it: the text of the kernel's file and
the helpers and constants that the file imports, with their files. After an edit it is another folder: nothing stale is used.
Rule 2: the folders lie in NUMBA_CACHE_DIR, else beside the sources, else in the user's cache: the first that can be written.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any, Final, ParamSpec, TypeVar, cast

import numba as nb
import numpy as np

P = ParamSpec("P")
R = TypeVar("R")

_PACKAGE: Final = __name__.partition(".")[0]
_KEPT: Final = 4
"""Folders of a module: its present one, and a few that processes of before an update, or other branches, may still use."""
_hashes: dict[str, str] = {}
"""By module with kernels."""


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """A compiled loop. Warmed up at set-up (`widerow.service.warm_up`), never by the first request."""
    return _compiled(function)


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """A small piece of kernels, compiled into each of its callers."""
    return _compiled(function)


def pasted(function: Callable[P, R]) -> Callable[P, R]:
    """The same for pieces that LLVM would leave as a call of ten times their cost, left to itself."""
    return _compiled(function, forceinline=True)


def _compiled(function: Callable[P, R], **options: Any) -> Callable[P, R]:
    others = nb.config.CACHE_DIR  # of whoever uses Numba besides us in this process
    nb.config.CACHE_DIR = _folder(function.__module__, _hash(function))
    try:
        return cast("Callable[P, R]", nb.njit(nogil=True, cache=True, **options)(function))
    finally:
        nb.config.CACHE_DIR = others


def _hash(function: Callable[..., Any]) -> str:
    """Of a function's file and what it imports. Taken at the first kernel of a file, whose imports are done by then."""
    name = function.__module__
    if name not in _hashes:
        known = sorted(function.__globals__.items())
        imported = [f"{key}={_token(value)}" for key, value in known if not key.startswith("__")]
        _hashes[name] = sha256("\n".join([_text(name), *imported]).encode()).hexdigest()
    return _hashes[name]


def _token(value: Any) -> str:
    """What a change of an imported thing shows in. What is not ours comes with Numba's version, or not at all."""
    if isinstance(value, bool | int | float | str | bytes | np.generic):
        return repr(value)
    if isinstance(value, tuple):
        return ",".join(map(_token, value))
    if isinstance(value, np.ndarray):
        return value.tobytes().hex()
    home = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    if not isinstance(home, str) or home.partition(".")[0] != _PACKAGE:
        return ""
    return _hashes.get(home) or _text(home)


@cache
def _text(module: str) -> str:
    """A hash of a module's file."""
    path = getattr(sys.modules.get(module), "__file__", None)
    return sha256(Path(path).read_bytes()).hexdigest() if path else ""


@cache
def _folder(module: str, stamp: str) -> str:
    """Where a module's kernels are kept. If it is not there, it is made, and those used longest ago are removed."""
    root = _root()
    if not root:
        return ""
    folder = Path(root, f"{module}-{stamp[:16]}")
    with suppress(OSError):  # another process makes or removes the same, or it is not ours to write to
        if folder.exists():
            os.utime(folder)
        else:
            folder.mkdir()
            used = sorted(Path(root).glob(f"{module}-????????????????"), key=lambda path: path.stat().st_mtime, reverse=True)
            for old in used[_KEPT:]:
                shutil.rmtree(old, ignore_errors=True)
    return str(folder)


@cache
def _root() -> str:
    """The first folder that can be written; none: Numba looks for one, and says so if it finds none either."""
    named = nb.config.CACHE_DIR
    users = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    ours = [Path(__file__).parents[1] / "__pycache__" / "kernels", Path(users, "widerow", "kernels")]
    for root in [Path(named)] if named else ours:
        with suppress(OSError):
            root.mkdir(parents=True, exist_ok=True)
            if os.access(root, os.W_OK | os.X_OK):
                return str(root)
    return ""
