"""Dead letters and the path of a report: who waits for them, and what a flood of rubbish costs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from widerow.codec.arrow import decode_arrow
from widerow.config import Config, DeadLetters, Store
from widerow.engine.rows import Rows
from widerow.model.device import Device
from widerow.model.errors import StorageFull, Unavailable
from widerow.model.tenant import Tenant
from widerow.model.times import ManualClock
from widerow.pipeline.job import Job, Outcome
from widerow.pipeline.origin import ARROW_TYPE, LINE_TYPE, Origin
from widerow.pipeline.parts import parts
from widerow.schema.table import Table
from widerow.schema.tables import DEAD_LETTERS
from widerow.service import Service

MAX_BYTES = 1 << 20


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    config = Config(store=Store(url=f"rocksdb:{tmp_path}", reserve_mib=0), dead_letters=DeadLetters(max_mib_per_day=1))
    with Service.open(config) as service:
        yield service


def send(service: Service, tenant: Tenant, body: bytes, *, durable: bool = False) -> Outcome:
    outcomes: list[Outcome] = []
    done = threading.Event()

    def finish(outcome: Outcome) -> None:
        outcomes.append(outcome)
        done.set()

    origin = Origin("kafka:t/0/1" if durable else "http", LINE_TYPE, "us", "", body, durable=durable)
    decode = service.bodies.lines(body, encoding="", precision="us", max_bytes=1 << 30)
    service.pipeline.submit(Job(tenant, len(body), decode, finish, origin=origin))
    assert done.wait(60)
    return outcomes[0]


def failing_letters(service: Service, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Writes of letters fail; gives a list with an entry for each that was tried."""
    real, tried = service.engine.write, list[int]()

    def write(changes: list[tuple[Table, Rows]]) -> None:
        if any(table == DEAD_LETTERS for table, _ in changes):
            tried.append(1)
            raise StorageFull("full")
        real(changes)

    monkeypatch.setattr(service.engine, "write", write)
    return tried


def test_a_job_whose_letters_must_be_durable_fails_with_them_and_passes_later(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant = service.catalog.tenants.create(Tenant(name="acme"))
    now = service.clock.now_us()
    body = f"m,device=d x=1 {now}\nm x=1 {now}".encode()
    with monkeypatch.context() as patch:
        assert failing_letters(service, patch) == []
        assert isinstance(send(service, tenant, body, durable=True).error, StorageFull)
    again = send(service, tenant, body, durable=True)
    assert (again.accepted, again.refused) == (1, 1)
    (filed,) = service.dead_letters.store.newest("acme")
    assert (filed.letter.code, filed.letter.source) == ("device-missing", "kafka:t/0/1")


def test_letters_that_could_not_be_written_cost_nothing_and_are_not_counted_before_they_are_given_up(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that is away for long, and those who try again all the time: a day's bytes, and a burst of letters."""
    letters, clock = service.dead_letters, ManualClock(service.clock.now_us())
    monkeypatch.setattr(letters, "_clock", clock)
    filed, dropped = service.counters.dead_letters, service.counters.dead_letters_dropped.labels("acme")._value
    origin = Origin("kafka:t/0/1", LINE_TYPE, "us", "", b"m x=1" + b" " * 30_000 + b"\nm x=2" + b" " * 60_000, durable=True)
    with monkeypatch.context() as patch:
        tried = failing_letters(service, patch)
        for positions in ([], [0], [0, 1]) * 100:
            with pytest.raises(StorageFull):
                letters.file("acme", origin, "syntax", "why", positions)
    assert len(tried) == 300, "each time it was tried, and none was over a cap"
    assert dropped.get() == 0
    for positions in ([], [0], [0, 1]):
        letters.file("acme", origin, "syntax", "why", positions)
    assert sorted(one.letter.reports for one in letters.store.newest("acme")) == [0, 1, 1, 1]
    assert filed.labels("acme", "syntax")._value.get() == 4
    budget = letters._budgets["acme"]
    assert (budget.tokens, budget.bytes) == (96, letters.store.weight_of_day("acme", clock.now_us()))
    assert dropped.get() == 0


def test_a_write_that_failed_and_was_stored_all_the_same_counts(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who tries again for ever must not fill the store that way."""
    write, letters = service.engine.write, service.dead_letters
    origin = Origin("kafka:t/0/1", LINE_TYPE, "us", "", b"rubbish " * 8_000, durable=True)

    def stores_and_says_nothing(changes: list[tuple[Table, Rows]]) -> None:
        write(changes)
        raise Unavailable("no answer")

    monkeypatch.setattr(service.engine, "write", stores_and_says_nothing)
    for _ in range(16):
        with pytest.raises(Unavailable):
            letters.file("acme", origin, "syntax", "why")
    letters.file("acme", origin, "syntax", "why")  # over the cap
    stored = letters.store.weight_of_day("acme", service.clock.now_us())
    assert MAX_BYTES - 64_500 < stored <= MAX_BYTES
    assert service.counters.dead_letters_dropped.labels("acme")._value.get() == 1


def test_a_sender_who_waits_for_an_answer_does_not_wait_for_its_letters(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant = service.catalog.tenants.create(Tenant(name="acme"))
    tried = failing_letters(service, monkeypatch)
    now = service.clock.now_us()
    outcome = send(service, tenant, f"m,device=d x=1 {now}\nm x=1 {now}".encode())
    assert (outcome.error, outcome.accepted, outcome.refused) == (None, 1, 1)
    assert service.dead_letters.settle()
    assert tried == [1]
    assert service.counters.dead_letters_dropped.labels("acme")._value.get() == 1


def test_what_was_erased_is_not_kept_as_a_letter(service: Service) -> None:
    tenant = service.catalog.tenants.create(Tenant(name="acme"))
    now = service.clock.now_us()
    old = now - 10_000_000
    assert send(service, tenant, f"m,device=d x=1 {now}".encode()).accepted == 1
    service.delete_device(tenant, "d")
    columns = {"device": ["d"], "time": pa.array([now], pa.timestamp("us")), "version_us": [old], "x": [1.0]}
    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    body = sink.getvalue().to_pybytes()
    done, outcomes = threading.Event(), list[Outcome]()

    def finish(outcome: Outcome) -> None:
        outcomes.append(outcome)
        done.set()

    decode = service.bodies.reports(body, content_type=ARROW_TYPE, encoding="", precision="us", max_bytes=1 << 20)
    service.pipeline.submit(Job(tenant, len(body), decode, finish, origin=Origin("http", ARROW_TYPE, "us", "", body)))
    assert done.wait(60)
    assert [r.code for r in outcomes[0].refusals] == ["erased"]
    assert service.dead_letters.settle()
    assert list(service.dead_letters.store.newest("acme")) == []


def test_a_flood_of_rubbish_stores_no_more_than_the_cap_and_its_neighbours_are_served(service: Service) -> None:
    rude = service.catalog.tenants.create(Tenant(name="rude"))
    good = service.catalog.tenants.create(Tenant(name="good"))
    now = service.clock.now_us()
    stop = threading.Event()
    sent: list[int] = []

    def flood() -> None:
        rubbish = b"rubbish " * 4_000
        while not stop.is_set() and len(sent) < 20_000:
            send(service, rude, rubbish)
            sent.append(1)

    flooder = threading.Thread(target=flood)
    flooder.start()
    waits = []
    try:
        for i in range(40):
            started = time.perf_counter()
            assert send(service, good, f"m,device=d x={i} {now - i}".encode()).accepted == 1
            waits.append(time.perf_counter() - started)
            time.sleep(0.005)
    finally:
        stop.set()
        flooder.join()
    assert service.dead_letters.settle()
    assert np.median(waits) < 0.1, "a commit takes milliseconds; a letter for each of these would take the disk for itself"
    stored = service.dead_letters.store.weight_of_day("rude", service.clock.now_us())
    kept = len(list(service.dead_letters.store.newest("rude")))
    dropped = service.counters.dead_letters_dropped.labels("rude")._value.get()
    assert 0 < stored <= MAX_BYTES
    assert len(sent) > kept
    assert kept + dropped == len(sent)


def test_a_message_whose_topic_names_the_device_is_that_devices_when_it_is_sent_again(service: Service) -> None:
    tenant = service.catalog.tenants.create(Tenant(name="acme", registers_devices=False))
    letters, now_ms = service.dead_letters, service.clock.now_us() // 1000
    for device, content in (("d", b'[{"time":%d,"values":{"x":7}}]'), ("d", b'{"device":"e","time":%d,"values":{"x":8}}')):
        origin = Origin(f"mqtt:acme/{device}/telemetry", "", "ms", "", content % now_ms, device)
        letters.file("acme", origin, "unknown-device", "not registered")
    assert letters.settle()
    for device in "de":
        service.catalog.devices.create(tenant, Device(name=device))
    done = list(service.replay.all(tenant, service.replay.oldest("acme")[0], within_s=60))
    assert sorted((one.outcome, one.code) for one in done) == [("refused", "wrong-device"), ("stored", "")]
    assert service.queries.latest(tenant, ["d", "e"]).number.tolist() == [7.0]


def test_a_report_of_several_rows_is_kept_with_all_of_them() -> None:
    table = pa.table({"device": ["a", "a", "b", "b", "a"], "metric": list("xyxyx"), "value": [1.0, 2.0, 3.0, 4.0, 5.0]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    body = sink.getvalue().to_pybytes()
    batch = decode_arrow(body, now_us=9, version_us=0).batch
    second = int(batch.position[1])
    (part,) = parts(Origin("http", ARROW_TYPE, "us", "", body), [second], max_bytes=1 << 16, max_unpacked=1 << 20)
    again = decode_arrow(part.origin.body, now_us=9, version_us=0).batch
    assert (again.device[0], len(again), np.nansum(again.cells.number)) == ("b", 1, 7.0)
