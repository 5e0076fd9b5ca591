"""What many of these tests are about."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from widerow.config import Config, Store
from widerow.service import Service


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """A service on a store of its own, on this disk."""
    with Service.open(Config(store=Store(url=f"rocksdb:{tmp_path}", reserve_mib=0))) as service:
        yield service
