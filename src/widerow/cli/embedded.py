"""A store opened in this process, for a client command: served on a private socket, and spoken to like any other.

Everything heavy hangs on this module's imports; import it when a store is really to be opened.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from widerow.cli.output import note
from widerow.config import Config
from widerow.ingest.kafka.front import to_kafka, workers_write
from widerow.model.times import SystemClock
from widerow.server.run import running
from widerow.server.sockets import SOCKET, reachable
from widerow.service import Service


@contextmanager
def opened(config: Config, *, writes: bool) -> Iterator[str]:
    """The path of the socket on which the store answers, for as long as the context lasts.

    `writes`: it takes reports. Where workers write them, that needs no lease: they go to Kafka.
    """
    clock = SystemClock()
    sink = to_kafka(config, clock) if writes and workers_write(config) else None
    with (
        Service.open(config, clock, writes=writes and sink is None, sink=sink, say=note) as service,
        tempfile.TemporaryDirectory(prefix="widerow-") as folder,
    ):
        private = Path(folder) / SOCKET
        with running(service, host=None, socket_path=private, owner="command line"), reachable(private) as path:
            yield path
