"""Who may look into folders with data."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from widerow.config import Config, Store
from widerow.engine.open import open_engine
from widerow.model.times import SystemClock
from widerow.ops.folders import make_private


@pytest.fixture(params=[0o000, 0o022, 0o777], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("umask")
def test_a_folder_with_data_is_its_owners_alone_whatever_the_umask(tmp_path: Path) -> None:
    make_private(tmp_path / "a" / "b")
    assert [mode(tmp_path / "a"), mode(tmp_path / "a" / "b")] == [0o700] * 2


def test_a_folder_that_exists_keeps_its_mode(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o750)
    make_private(folder / "store")
    assert [mode(folder), mode(folder / "store")] == [0o750, 0o700]


def test_a_store_makes_its_folder_for_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        open_engine(Config(store=Store(url=f"rocksdb:{tmp_path / 'data' / 'store'}")), SystemClock()).close()
    finally:
        os.umask(before)
    assert [mode(tmp_path / "data"), mode(tmp_path / "data" / "store")] == [0o700] * 2
