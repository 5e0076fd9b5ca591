"""What of a partition is done: the offset up to which everything is, which is what may be committed.

Messages are finished in any order; a line knows the first that is not. Pure, and of one thread.

What Kafka deleted before it was taken leaves a gap in the offsets. So do transactions of others, whose ends have offsets,
too: only what is below the first offset that Kafka still has (`low`) was deleted.
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


_MOST_GAPS = 1_000


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
    gaps: list[tuple[int, int]] = field(default_factory=list)
    """Where offsets were expected and did not come: the first of them, and the one that came."""
    _waiting: deque[Place] = field(default_factory=deque)
    _first: int | None = None
    _expected: int | None = None

    def begin(self, offset: int) -> None:
        """Where the last owner left it; known before anything of ours is committed, perhaps after something was taken."""
        if self.next is None:
            self.next = self.committed = offset
        if self._first is None:
            self._expected = offset
        elif offset < self._first:
            self.gaps.append((offset, self._first))

    def take(self, offset: int, size: int) -> Place:
        """A message was taken; they are in the order of their offsets."""
        place = Place(self, offset, size)
        if self.next is None:
            self.next = self.committed = offset
        if self._expected is not None and offset > self._expected and len(self.gaps) < _MOST_GAPS:
            self.gaps.append((self._expected, offset))
        if self._first is None:
            self._first = offset
        self._expected = offset + 1
        self._waiting.append(place)
        return place

    def missed(self, low: int) -> int:
        """How many of the gaps' messages were deleted, if `low` is the first that is there. Each is told once."""
        gaps, self.gaps = self.gaps, []
        return sum(max(0, min(low, came) - expected) for expected, came in gaps)

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
