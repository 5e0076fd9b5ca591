"""What of a partition is done: the offset up to which everything is, which is what may be committed.

Messages are finished in any order; a line knows the first that is not. Pure, and of one thread.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Place:
    """A message on its way: where it was in its partition, and how much memory it takes."""

    line: Line
    offset: int
    size: int
    done: bool = False


@dataclass(slots=True, eq=False)
class Line:
    """A partition that is ours. Once `gone` nothing of it is committed any more."""

    topic: str
    partition: int
    next: int | None = None
    """The offset behind the last of those that are done without a gap; None as long as nothing is known."""
    committed: int | None = None
    """What Kafka has been told."""
    gone: bool = False
    _waiting: deque[Place] = field(default_factory=deque)

    def take(self, offset: int, size: int) -> Place:
        """A message was taken; they are in the order of their offsets."""
        place = Place(self, offset, size)
        if self.next is None:
            self.next = self.committed = offset
        self._waiting.append(place)
        return place

    def finish(self, place: Place) -> None:
        """It is durable, or refused for good."""
        place.done = True
        waiting = self._waiting
        while waiting and waiting[0].done:
            self.next = waiting.popleft().offset + 1

    @property
    def idle(self) -> bool:
        return not self._waiting

    def to_commit(self) -> int | None:
        """What Kafka has not been told yet."""
        return self.next if self.next != self.committed and not self.gone else None
