"""The Bigtable emulator of Google's Go client: in memory, so that stopping it empties it.

Rule 1: it is found through `BIGTABLE_EMULATOR_HOST`, as every client finds it; this module sets that for nobody.
Rule 2: it takes any project and instance; each has its own tables.
It differs from production in places: no latency, no limits, no garbage collection to speak of.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final

from .cache import Say, say
from .process import Server, free_ports
from .toolchain import go_program

VERSION: Final = "v1.57.0"
"""Newer ones need Go 1.26 and have the same emulator."""
PROJECT: Final = "test-project"
INSTANCE: Final = "test-instance"

_HTTP2_HELLO: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_SETTINGS: Final = 4


def fetch(tell: Say = say) -> Path:
    """The program, built if it must be. Raises Missing."""
    return go_program("cloud.google.com/go/bigtable/cmd/emulator", VERSION, tell=tell)


class Bigtable(Server):
    """One emulator. `address` is what BIGTABLE_EMULATOR_HOST wants."""

    name: ClassVar = "bigtable"
    version: ClassVar = VERSION
    start_within_s: ClassVar = 30.0
    stop_within_s: ClassVar = 5.0

    def __init__(self) -> None:
        self._program = fetch()
        super().__init__()
        self.host = "127.0.0.1"
        (self.port,) = free_ports(1)

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def store_url(self, prefix: str = "widerow") -> str:
        return f"bigtable://{PROJECT}/{INSTANCE}/{prefix}"

    def command(self) -> Sequence[str]:
        return [str(self._program), "-host", self.host, "-port", str(self.port)]

    def answers(self) -> bool:
        """It speaks HTTP/2, which gRPC is."""
        with socket.create_connection((self.host, self.port), timeout=2) as connection:
            connection.sendall(_HTTP2_HELLO)
            head = connection.recv(9)
        return len(head) > 3 and head[3] == _SETTINGS
