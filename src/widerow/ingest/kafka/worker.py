"""A worker: a stream for live reports and one for backlog, each with a consumer group of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from widerow.catalog.known import KnownTenants
from widerow.config import Config
from widerow.ingest.kafka.consume import Letters, Stream
from widerow.ingest.kafka.receive import Receiver
from widerow.model.errors import WiderowError
from widerow.model.times import Clock
from widerow.ops.counters import Counters
from widerow.pipeline.job import Lane
from widerow.pipeline.pipeline import Pipeline


class Worker:
    """Both lanes. Threads are running from `start` to `close`."""

    def __init__(
        self,
        config: Config,
        pipeline: Pipeline,
        tenants: KnownTenants,
        receiver: Receiver,
        letters: Letters,
        clock: Clock,
        counters: Counters,
    ) -> None:
        self.streams = [
            Stream(config, lane, pipeline, tenants, receiver, letters, clock, counters)
            for lane in (Lane.LIVE, Lane.BACKFILL)
        ]

    def start(self) -> None:
        for stream in self.streams:
            stream.start()

    def tell(self, assigned: Callable[[Sequence[int], int], None]) -> None:
        """`assigned` is told which partitions of the live topic are ours, and of how many, soon after that changes. To be
        called before `start`.
        """
        self.streams[0].assigned = assigned

    def close(self) -> None:
        """Finish what was begun, commit, and leave the group. Before the pipeline is closed."""
        for stream in self.streams:
            stream.stop()
        for stream in self.streams:
            stream.join()

    def failed(self) -> WiderowError | None:
        """Why the worker works no more."""
        return next((stream.failure for stream in self.streams if stream.failure), None)

    def trouble(self) -> str:
        """What is wrong; empty if nothing is."""
        return str(self.failed() or "")

    def strain(self) -> str:
        """Why it does not keep up with live reports; empty if it does. Backlog may wait."""
        live = self.streams[0]
        return f"as much as may be in flight is: {live.topic} is paused" if live.full else ""
