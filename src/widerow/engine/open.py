"""From a store URL to an engine."""

from __future__ import annotations

from pathlib import Path

from widerow.engine.memory import MemoryEngine
from widerow.engine.port import Engine
from widerow.engine.rocksdb import RocksEngine, RocksSettings
from widerow.model.errors import ConfigError
from widerow.model.times import Clock


def rocksdb_path(url: str) -> Path | None:
    """The folder of an embedded store, or None if the URL names something else."""
    scheme, _, rest = url.partition(":")
    if scheme != "rocksdb":
        return None
    path, _, query = rest.partition("?")
    if not path:
        raise ConfigError(f"store {url!r} names no folder: rocksdb:PATH")
    for option in filter(None, query.split("&")):
        if option != "layout=rows":
            raise ConfigError(f"store option {option!r} is not known: rocksdb:PATH takes layout=rows")
    return Path(path)


def open_engine(url: str, clock: Clock, settings: RocksSettings) -> Engine:
    """The engine of `rocksdb:PATH` or `memory:`."""
    path = rocksdb_path(url)
    if path is not None:
        return RocksEngine(path, clock=clock, settings=settings)
    if url == "memory:":
        return MemoryEngine(clock)
    raise ConfigError(f"store {url!r} is not known: give rocksdb:PATH or memory:")
