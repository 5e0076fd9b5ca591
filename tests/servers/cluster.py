"""A few Cassandra nodes on this machine: 127.0.0.1, 127.0.0.2, ..., with the same port numbers, as drivers expect them.

Rule 1: each node is a process of its own: `cluster.nodes[1].kill()` takes one away, `.start()` brings it back with its data.
Rule 2: nodes learn about each other by gossip: seconds after a start, ten or so after one is gone. `settle` waits for that.
Until then a coordinator may ask the dead and time out, as it does in production.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Self

from .cassandra import Cassandra
from .process import Failed, free_ports

_POLL_S = 0.1


class Cluster:
    """Started by `start` or by entering the context; ended by `close` or by leaving it."""

    def __init__(self, size: int = 3, **node: Any) -> None:
        """`node` goes to each Cassandra. Raises Missing."""
        hosts = [f"127.0.0.{number}" for number in range(1, size + 1)]
        self.port, storage_port = free_ports(2, hosts)
        self.nodes = [Cassandra(host=host, ports=(self.port, storage_port), seed=hosts[0], **node) for host in hosts]

    @property
    def hosts(self) -> list[str]:
        return [node.host for node in self.nodes]

    def store_url(self, keyspace: str = "widerow") -> str:
        """Names the first node, which knows the others."""
        return self.nodes[0].store_url(keyspace)

    def start(self) -> None:
        """Start all, one after the other: two that choose their tokens at once may not see each other. Then settle."""
        for node in self.nodes:
            node.start()
        self.settle()

    def settle(self, *, within_s: float = 60.0) -> None:
        """Wait until every node that runs knows which of the others do. Not while one is paused: it runs, and seems down."""
        deadline_s = time.monotonic() + within_s
        running = [node for node in self.nodes if node.runs()]
        want = {node.host for node in running}
        while True:
            wrong = {node.host: seen for node in running if (seen := _seen_up(node)) != want - {node.host}}
            if not wrong:
                return
            if time.monotonic() >= deadline_s:
                raise Failed(f"after {within_s:g} s {sorted(want)} run, but up are, as seen by each: {wrong}")
            time.sleep(_POLL_S)

    def close(self) -> None:
        with ExitStack() as stack:
            for node in self.nodes:
                stack.callback(node.close)

    def __iter__(self) -> Iterator[Cassandra]:
        return iter(self.nodes)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _seen_up(node: Cassandra) -> set[str]:
    """What it said last about each of the others since it was started. No table has it, and JMX would need a Java client."""
    said = re.findall(rf"InetAddress /([\d.]+):{node.storage_port} is now (UP|DOWN)", node.log())
    return {host for host, state in dict(said).items() if state == "UP"}
