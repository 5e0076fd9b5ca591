"""What tests of devices and of their places share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from widerow.catalog.devices import Devices
from widerow.catalog.registration import Registered
from widerow.engine.memory import MemoryEngine
from widerow.engine.port import Engine
from widerow.engine.rocksdb import RocksEngine
from widerow.model.names import Names
from widerow.model.tenant import Limits, Tenant
from widerow.model.times import ManualClock
from widerow.schema.tables import TABLES

NOW_US = 1_800_000_000_000_000
ACME = Tenant(name="acme")
KINDS = ["memory", "rocksdb"]


def limited(devices: int) -> Tenant:
    return Tenant(name="acme", limits=Limits(devices=devices))


@contextmanager
def store(kind: str, clock: ManualClock, folder: Path) -> Iterator[Engine]:
    """Of its own: `memory` or `rocksdb`."""
    engine: Engine = MemoryEngine(clock) if kind == "memory" else RocksEngine(folder / "db", clock=clock)
    engine.apply(TABLES)
    yield engine
    engine.close()


def register(devices: Devices, tenant: Tenant, *names: str) -> list[int]:
    return codes_of(devices.register(tenant, Names.of(names)))


def codes_of(registered: Registered) -> list[int]:
    codes: list[int] = registered.codes.tolist()
    return codes
