"""A damaged store loses nothing silently: the short version of `make foul`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from system import foul
from widerow.engine.rocksdb import database
from widerow.engine.rocksdb.database import Database


def test_damage_of_any_file_is_detected_or_harmless(tmp_path: Path) -> None:
    found = foul.run(tmp_path, tables=8, logs=8, files=8, seed=22, reports=600)
    assert not found.violations
    total = sum(found.outcomes.values(), start=Counter[str]())
    assert total[foul.REFUSED]
    assert total[foul.UNREADABLE]
    assert total[foul.HARMLESS]


def test_the_foul_run_notices_a_store_that_answers_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Database, "check_read", lambda _self, _at: None)
    monkeypatch.setattr(database, "check_files", lambda _folder, _claim: None)
    found = foul.run(tmp_path, tables=6, logs=6, files=0, seed=22, reports=600)
    assert found.outcomes["bits of table files"][foul.SHORT]
    assert found.outcomes["bits of logs"][foul.SHORT]
