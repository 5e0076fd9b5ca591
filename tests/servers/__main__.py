"""Servers to try things on.

    python -m tests.servers [NAME ...]          cassandra, bigtable, kafka, mosquitto: all if none is named; until Ctrl-C
    python -m tests.servers --fetch [NAME ...]  only fetch what is not there; silent if nothing is to do

Exit code 1: a server ended by itself, or cannot be had. With --fetch the latter is only said, unless `CI=true`: the tests
that need it skip.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from . import bigtable, cassandra, kafka, mosquitto
from .bigtable import Bigtable
from .cache import Missing, Say, say
from .cassandra import Cassandra
from .kafka import Kafka
from .mosquitto import Mosquitto
from .process import Failed, Server


@dataclass(frozen=True, slots=True)
class Kind:
    fetch: Callable[[Say], Path]
    make: Callable[[], Server]


SERVERS = {
    "cassandra": Kind(cassandra.fetch, Cassandra),
    "bigtable": Kind(bigtable.fetch, Bigtable),
    "kafka": Kind(kafka.fetch, Kafka),
    "mosquitto": Kind(mosquitto.fetch, Mosquitto),
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.servers", description="Real servers to try things on.")
    parser.add_argument("server", nargs="*", help=f"{' or '.join(SERVERS)}; all if none is named")
    parser.add_argument("--fetch", action="store_true", help="only fetch what is not there")
    options = parser.parse_args(arguments)
    names: list[str] = options.server or list(SERVERS)
    for name in names:
        if name not in SERVERS:
            parser.error(f"no server is called {name!r}: there are {' and '.join(SERVERS)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # an exit, so that servers are closed on the way out
    try:
        return fetch(names) if options.fetch else serve(names)
    except KeyboardInterrupt:
        return 130 if options.fetch else 0


def fetch(names: Sequence[str]) -> int:
    missing = False
    for name in names:
        try:
            SERVERS[name].fetch(say)
        except Missing as reason:
            say(f"note: no {name}: {reason}")
            missing = True
    return int(missing and os.environ.get("CI") == "true")


def serve(names: Sequence[str]) -> int:
    with ExitStack() as stack:
        servers: list[Server] = []
        try:
            for name in names:
                servers.append(server := SERVERS[name].make())
                stack.callback(server.close)
                say(f"{name}: up after {server.start():.0f} s")
        except (Missing, Failed) as reason:
            say(f"{name}: {reason}")
            return 1
        for server in servers:
            print(about(server))
        print("\nCtrl-C stops and empties them.", flush=True)
        stack.callback(say, "stopping")
        while all(server.runs() for server in servers):
            time.sleep(0.5)
        for server in servers:
            if not server.runs():
                say(f"{server.name} ended by itself:\n{server.log()[-3000:]}")
    return 1


def about(server: Server) -> str:
    """Where it is, and what names it to Widerow."""
    lines = [f"\n{server.name} {server.version}, process {server.pid}, log {server.log_path}"]
    match server:
        case Cassandra():
            lines.append(f"  store        {server.store_url()}")
        case Bigtable():
            lines.append(f"  store        {server.store_url()}")
            lines.append(f"  environment  BIGTABLE_EMULATOR_HOST={server.address}")
        case Kafka():
            lines.append(f"  environment  WIDEROW_KAFKA_BROKERS={server.address}")
        case Mosquitto():
            lines.append(f"  environment  WIDEROW_MQTT_URL={server.url()}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
