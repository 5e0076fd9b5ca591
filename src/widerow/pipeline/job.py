"""A body on its way through the pipeline, what becomes of it, and where batches go in the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from widerow.admit.pressure import Permit
from widerow.codec.decoded import Decoded
from widerow.model.batch import Batch
from widerow.model.errors import Refusal, WiderowError
from widerow.model.lane import Lane
from widerow.model.tenant import Tenant
from widerow.pipeline.origin import Origin

__all__ = ["Job", "Lane", "Outcome", "Settle", "Sink"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a job. With an error nothing of it is acknowledged."""

    accepted: int = 0
    refusals: Sequence[Refusal] = ()
    error: WiderowError | None = None

    @property
    def refused(self) -> int:
        return sum(len(r) for r in self.refusals)


@dataclass(slots=True)
class Job:
    """A body on its way. `decode` is called once, in any thread; `done` too.

    A front that knows that it is backlog says so by its lane; of others the pipeline finds out when it has decoded them.
    """

    tenant: Tenant
    size: int
    decode: Callable[[], Decoded]
    done: Callable[[Outcome], None]
    only_device: str | None = None
    lane: Lane = Lane.LIVE
    whole: bool = False
    """The sender cannot be told that a part was too much for its tenant: then all of it is."""
    origin: Origin | None = None
    """The body as it came, for what is refused of it; None: it is not kept."""
    batch: Batch | None = None
    permit: Permit | None = None
    """The pipeline's: room for it, until it is answered."""
    refusals: list[Refusal] = field(default_factory=list)
    received_bytes: int | None = None
    """As it came; None: its size."""
    counted: bool = False
    """Whether another process took its reports in, and has recorded that."""
    admitted: bool = False
    """Its limits let it pass: now, or when it was tried before and could not be stored."""
    seen_us: int = 0
    """The pipeline's: when it was decoded."""


class Settle(Protocol):
    """Told what became of a job: which of its reports were refused, in the sender's positions; or why all of it failed."""

    def __call__(self, job: Job, refused: Sequence[Refusal], error: WiderowError | None) -> None: ...


class Sink(Protocol):
    """Where checked batches are made durable: the store, or a log in front of it."""

    backlog_bytes: int
    """How much of a backlog to commit at once while live reports come: little, where it is the work that takes time and not
    the waiting."""

    def commit(self, work: Sequence[tuple[str, list[Job]]], settle: Settle) -> None:
        """Make the batches of tenants' jobs durable. Settles every job exactly once, at the latest before it returns.

        Called by one thread, a commit after the other.
        """
