"""The embedded engine: RocksDB in the process, through rocksdict."""

from widerow.engine.rocksdb.database import RocksSettings
from widerow.engine.rocksdb.engine import RocksEngine

__all__ = ["RocksEngine", "RocksSettings"]
