"""Which devices are online, as they, or their last wills, told the broker.

Rule: what was told last counts, by when it was received. A device that never told anything is neither online nor offline.
It is what a connection to a broker says, not what reports say: a device that sends over HTTP has no such state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from widerow.engine.port import Engine, Span
from widerow.engine.rows import Key, Row, rows_of
from widerow.model.check import check_name
from widerow.schema.shards import SHARDS, shard_of
from widerow.schema.tables import ONLINE


@dataclass(frozen=True, slots=True)
class Status:
    """A device of a tenant came online, or went offline."""

    tenant: str
    device: str
    online: bool
    at_us: int
    """When that was received, ..."""
    version_us: int
    """... by the clock of the store."""


@dataclass(frozen=True, slots=True)
class Told:
    online: bool
    at_us: int
    """When that was received."""


class Online:
    """Safe to share between threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def tell(self, statuses: Sequence[Status]) -> None:
        """Durable on return. Raises `Rejected` for a name that no device can have, and `Unavailable`."""
        by_version: dict[int, list[tuple[Key, Row]]] = {}
        for said in statuses:
            check_name("device", said.device)
            row: Row = {"online": float(said.online), "at_us": float(said.at_us)}
            by_version.setdefault(said.version_us, []).append(((said.tenant, shard_of(said.device), said.device), row))
        self._engine.write([(ONLINE, rows_of(ONLINE, rows, version_us=at)) for at, rows in by_version.items()])

    def of(self, tenant: str, device: str) -> Told | None:
        row = self._engine.get(ONLINE, (tenant, shard_of(device), device))
        return None if row is None else Told(bool(row["online"]), int(float(row["at_us"])))

    def forget(self, tenant: str, devices: Iterable[str], version_us: int) -> None:
        """What devices that are gone told."""
        for device in devices:
            self._engine.delete(ONLINE, [(tenant, shard_of(device))], Span(device, device + "\0"), version_us=version_us)

    def forget_all(self, tenant: str, version_us: int) -> None:
        self._engine.delete(ONLINE, [(tenant, shard) for shard in range(SHARDS)], version_us=version_us)
