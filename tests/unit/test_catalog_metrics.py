"""The metric catalogue: inference from batches, its cap, its bounded memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from widerow.catalog.metrics import Metrics
from widerow.engine.memory import MemoryEngine
from widerow.engine.rows import Rows
from widerow.model.arrays import Flags
from widerow.model.batch import Cells, Report, Value, batch_of
from widerow.model.device import Metric, MetricKind
from widerow.model.errors import Conflict, NotFound, Rejected, Unavailable
from widerow.model.times import ManualClock
from widerow.schema.table import Table
from widerow.schema.tables import TABLES

NOW_US = 1_800_000_000_000_000


class CountingEngine(MemoryEngine):
    """Counts how often it is asked, and fails when told to."""

    asked = 0
    failing = False

    def insert(self, table: Table, rows: Rows) -> Flags:
        self.asked += 1
        if self.failing:
            raise Unavailable("not now")
        return super().insert(table, rows)

    def scan(self, table: Table, *args: Any, **options: Any) -> Iterator[Rows]:
        self.asked += 1
        return super().scan(table, *args, **options)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_US)


@pytest.fixture
def engine(clock: ManualClock) -> CountingEngine:
    engine = CountingEngine(clock)
    engine.apply(TABLES)
    return engine


@pytest.fixture
def metrics(engine: CountingEngine, clock: ManualClock) -> Metrics:
    return Metrics(engine, clock)


def cells(values: Mapping[str, Value], tags: dict[str, str] | None = None) -> Cells:
    return batch_of([Report("d", NOW_US, dict(values), tags or {})]).cells


def kinds(metrics: Metrics) -> dict[str, str]:
    return {m.name: m.kind.value for m in metrics.list("acme")}


def test_kinds_are_inferred_from_values_and_names(metrics: Metrics) -> None:
    batch = cells({"temp": 20.5, "parts_total": 3, "error_count": 0, "state": "on", "text_total": "x"}, {"line": "7"})
    assert metrics.observe("acme", batch, NOW_US) == 5
    assert kinds(metrics) == {
        "error_count": "counter",
        "parts_total": "counter",
        "state": "text",
        "temp": "gauge",
        "text_total": "text",
    }
    assert metrics.get("acme", "temp") == Metric(name="temp", created_us=NOW_US, revision=1)
    with pytest.raises(NotFound):
        metrics.get("acme", "line")


def test_a_metric_with_labels_has_the_kind_of_its_plain_name_and_is_found_by_its_long_name(metrics: Metrics) -> None:
    long = "m{path=" + "x" * 1000 + "}"
    metrics.observe("acme", cells({"parts_total{line=7}": 3, "temp{unit=_total}": 1, long: 1}), NOW_US)
    assert kinds(metrics) == {"parts_total{line=7}": "counter", "temp{unit=_total}": "gauge", long: "gauge"}
    assert metrics.get("acme", long).name == long


def test_a_name_that_is_number_and_text_counts_as_number(metrics: Metrics) -> None:
    metrics.observe("acme", batch_of([Report("d", 1, {"m": "x"}, {}), Report("d", 2, {"m": 1.0}, {})]).cells, NOW_US)
    assert kinds(metrics) == {"m": "gauge"}


def test_names_no_cell_uses_are_not_catalogued(metrics: Metrics) -> None:
    both = batch_of([Report("d", 1, {"a": 1.0}, {}), Report("d", 2, {"b": 1.0}, {})])
    metrics.observe("acme", both.take(np.array([1])).cells, NOW_US)
    assert kinds(metrics) == {"b": "gauge"}


def test_known_names_do_not_ask_the_store(metrics: Metrics, engine: CountingEngine) -> None:
    batch = cells({"a": 1.0, "b": "x"}, {"tag": "y"})
    metrics.observe("acme", batch, NOW_US)
    engine.asked = 0
    assert metrics.observe("acme", batch, NOW_US) == 0
    assert engine.asked == 0


def test_a_name_first_seen_as_a_tag_is_still_found_as_a_metric(metrics: Metrics) -> None:
    assert metrics.observe("acme", cells({"a": 1.0}, {"line": "7"}), NOW_US) == 1
    assert metrics.observe("acme", cells({"line": 7.0}), NOW_US) == 1


def test_what_somebody_set_is_not_inferred_over(metrics: Metrics, engine: CountingEngine, clock: ManualClock) -> None:
    metrics.observe("acme", cells({"a": 1.0}), NOW_US)
    metrics.update("acme", "a", lambda m: replace(m, kind=MetricKind.COUNTER, unit="kWh"))
    assert Metrics(engine, clock).observe("acme", cells({"a": 1.0, "b": 1.0}), NOW_US) == 1
    assert metrics.get("acme", "a") == Metric(name="a", kind=MetricKind.COUNTER, unit="kWh", created_us=NOW_US, revision=2)


def test_an_update_names_the_revision_it_saw(metrics: Metrics) -> None:
    metrics.observe("acme", cells({"a": 1.0}), NOW_US)
    metrics.update("acme", "a", lambda m: replace(m, description="line 1\nline 2"), expected=1)
    with pytest.raises(Conflict):
        metrics.update("acme", "a", lambda m: replace(m, unit="V"), expected=1)
    with pytest.raises(Conflict):
        metrics.delete("acme", "a", expected=1)
    with pytest.raises(Rejected):
        metrics.update("acme", "a", lambda m: replace(m, unit="V" * 257))
    with pytest.raises(NotFound):
        metrics.update("acme", "b", lambda m: m)


def test_a_deleted_metric_that_is_still_reported_comes_back(metrics: Metrics) -> None:
    metrics.observe("acme", cells({"a": 1.0}), NOW_US)
    metrics.delete("acme", "a")
    assert metrics.list("acme") == []
    assert metrics.observe("acme", cells({"a": 1.0}), NOW_US) == 1


def test_a_broken_sender_cannot_grow_the_catalogue_without_end(engine: CountingEngine, clock: ManualClock) -> None:
    metrics = Metrics(engine, clock, most=10)
    for i in range(5):
        metrics.observe("acme", cells({f"m{i}-{k}": 1.0 for k in range(4)}), NOW_US)
    assert len(metrics.list("acme")) == 10
    assert metrics.uncatalogued == {"acme": 10}
    metrics.observe("other", cells({"a": 1.0}), NOW_US)
    assert [m.name for m in metrics.list("other")] == ["a"]
    again = Metrics(engine, clock, most=10)
    assert again.observe("acme", cells({"new": 1.0}), NOW_US) == 0
    assert again.uncatalogued == {"acme": 1}
    metrics.delete("acme", "m0-0")
    assert metrics.observe("acme", cells({"new": 1.0}), NOW_US) == 1


def test_what_is_remembered_is_bounded(engine: CountingEngine, clock: ManualClock) -> None:
    metrics = Metrics(engine, clock, capacity=8)
    for t in range(10):
        metrics.observe(f"t{t}", cells({f"m{k}": 1.0 for k in range(3)}), NOW_US)
    assert sum(len(seen.names or ()) for seen in metrics._seen.values()) <= 8
    assert metrics.observe("t0", cells({"m0": 1.0}), NOW_US) == 0
    assert len(metrics.list("t0")) == 3


def test_an_insert_that_failed_is_tried_again(metrics: Metrics, engine: CountingEngine) -> None:
    engine.failing = True
    with pytest.raises(Unavailable):
        metrics.observe("acme", cells({"a": 1.0}), NOW_US)
    engine.failing = False
    assert metrics.observe("acme", cells({"a": 1.0}), NOW_US) == 1


def test_racing_observers_keep_the_cap(engine: CountingEngine, clock: ManualClock) -> None:
    metrics = Metrics(engine, clock, most=50)
    added: list[int] = []

    def run(t: int) -> None:
        batch = cells({f"shared-{k}": 1.0 for k in range(10)} | {f"own-{t}-{k}": 1.0 for k in range(5)})
        added.append(metrics.observe("acme", batch, NOW_US))

    threads = [threading.Thread(target=run, args=(t,)) for t in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(added) == len(metrics.list("acme")) == 50


def test_deleting_all_leaves_nothing(metrics: Metrics) -> None:
    metrics.observe("acme", cells({"a": 1.0, "b": 1.0}), NOW_US)
    metrics.delete_all("acme")
    assert metrics.list("acme") == []
    assert metrics.observe("acme", cells({"a": 1.0}), NOW_US) == 1
