"""Many things, some at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def handfuls(parts: Iterable[T], size: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """Parts in order, as many at a time as are not larger than that together; or one that is."""
    some: list[T] = []
    room = most
    for part in parts:
        if some and size(part) > room:
            yield some
            some, room = [], most
        some.append(part)
        room -= size(part)
    if some:
        yield some
