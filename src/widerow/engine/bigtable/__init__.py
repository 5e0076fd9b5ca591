"""The engine on Google Bigtable. What is stored is described in docs/format/bigtable.md."""

from widerow.engine.bigtable.connection import BigtableSettings
from widerow.engine.bigtable.engine import BigtableEngine

__all__ = ["BigtableEngine", "BigtableSettings"]
