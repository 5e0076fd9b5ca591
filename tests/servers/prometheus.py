"""Prometheus, the system's package: scrapes a server with a token and evaluates rules. promtool comes with it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote
from urllib.request import urlopen

from .cache import Say, say
from .mosquitto import program
from .process import Server, free_ports


def fetch(_tell: Say = say) -> Path:
    """The program. It is the system's to install. Raises Missing."""
    return program("prometheus", package="prometheus")


def promtool() -> Path:
    """The checker. Raises Missing."""
    return program("promtool", package="prometheus")


class Prometheus(Server):
    """One server. It scrapes `target` (HOST:PORT) every second, with `token`, and has the rules of the files given."""

    name: ClassVar = "prometheus"
    version: ClassVar = "2"
    start_within_s: ClassVar = 30.0
    stop_within_s: ClassVar = 20.0

    def __init__(self, target: str, token: str, rules: Sequence[Path] = ()) -> None:
        """Raises Missing."""
        self._program = fetch()
        super().__init__()
        (self.port,) = free_ports(1)
        (self.folder / "token").write_text(token)
        job = {
            "job_name": "widerow",
            "authorization": {"credentials_file": str(self.folder / "token")},
            "static_configs": [{"targets": [target]}],
        }
        self._settings = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(file.absolute()) for file in rules],
            "scrape_configs": [job],
        }

    def command(self) -> Sequence[str]:
        file = self.folder / "prometheus.yml"
        file.write_text(json.dumps(self._settings))  # JSON is YAML
        storage, address = f"--storage.tsdb.path={self.folder / 'data'}", f"--web.listen-address=127.0.0.1:{self.port}"
        return [str(self._program), f"--config.file={file}", storage, address]

    def answers(self) -> bool:
        with urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=2) as answer:
            return bool(answer.status == 200)

    def ask(self, path: str) -> Any:
        """The data of an answer of its API."""
        with urlopen(f"http://127.0.0.1:{self.port}/api/v1/{path}", timeout=10) as answer:
            return json.load(answer)["data"]

    def values(self, expression: str) -> list[float]:
        """What an expression gives now."""
        return [float(one["value"][1]) for one in self.ask(f"query?query={quote(expression)}")["result"]]
