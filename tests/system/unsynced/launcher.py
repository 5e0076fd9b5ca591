"""`widerow`, spoilt on purpose: acknowledges what is written, without waiting for the disk.

    python launcher.py serve --store ...

Shows that the proof of durability can fail. Nothing in the product knows of it.
"""

from __future__ import annotations

from widerow.cli.main import main
from widerow.engine.rocksdb.database import Database


def _at_once(_self: Database, _ticket: int) -> None:
    """Instead of `Database.wait_durable`."""


if __name__ == "__main__":
    Database.wait_durable = _at_once  # type: ignore[method-assign, assignment]
    main()
