"""How a loop over values is compiled: without the GIL, cached on disk, typed for mypy as the function it was."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numba as nb

P = ParamSpec("P")
R = TypeVar("R")


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """A compiled loop. Warmed up at set-up (`widerow.service.warm_up`), never by the first request."""
    return cast("Callable[P, R]", nb.njit(nogil=True, cache=True)(function))


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """A small piece of kernels, compiled into each of its callers."""
    return cast("Callable[P, R]", nb.njit(nogil=True, cache=True)(function))


def pasted(function: Callable[P, R]) -> Callable[P, R]:
    """The same for pieces that LLVM would leave as a call of ten times their cost, left to itself."""
    return cast("Callable[P, R]", nb.njit(nogil=True, cache=True, forceinline=True)(function))
