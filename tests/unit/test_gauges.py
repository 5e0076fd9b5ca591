"""Metrics are there when they are needed most: while the store stands still."""

from __future__ import annotations

import threading
from pathlib import Path
from time import monotonic

import pytest

from widerow.config import Config, Store
from widerow.model.tenant import Tenant
from widerow.service import Service


def test_figures_of_a_store_that_stands_still_are_those_of_the_last_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with Service.open(Config(store=Store(url="memory:"))) as service:
        service.create_tenant(Tenant(name="acme"))
        service.gauges.refresh(10.0)
        assert _sample(service, "widerow_rollup_margin_seconds") > 0
        answers = threading.Event()
        look = service.pyramid.guard.look
        monkeypatch.setattr(service.pyramid.guard, "look", lambda: (answers.wait(30), look())[1])
        try:
            for _ in range(2):  # the second comes while the first is still being read
                began_s = monotonic()
                service.gauges.refresh(0.05)
                assert monotonic() - began_s < 5
                assert _sample(service, "widerow_rollup_margin_seconds") > 0
        finally:
            answers.set()
        service.gauges.refresh(10.0)


def _sample(service: Service, name: str) -> float:
    for line in service.counters.exposition().decode().splitlines():
        if line.startswith(f"{name} "):
            return float(line.split()[1])
    raise AssertionError(f"no {name}")


def test_a_store_at_rest_compacts_nothing_and_has_no_hot_partition(tmp_path: Path) -> None:
    with Service.open(Config(store=Store(url=f"rocksdb:{tmp_path}"))) as service:
        service.gauges.refresh(10.0)
        assert _sample(service, "widerow_store_pending_compactions") == 0
        assert _sample(service, "widerow_hot_partitions") == 0
