"""What a replay of dead letters does to reports that came since."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import msgspec
import pytest

from widerow.config import Config, Store
from widerow.model.device import Device
from widerow.model.tenant import Tenant
from widerow.model.times import MINUTE, MS, SECOND, ManualClock
from widerow.pipeline.job import Job, Outcome
from widerow.pipeline.origin import Origin
from widerow.service import Service

_T = 1_800_000_000_000_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(_T + 10 * SECOND)


@pytest.fixture
def service(clock: ManualClock) -> Iterator[Service]:
    with Service.open(Config(store=Store(url="memory:")), clock) as service:
        service.catalog.tenants.create(Tenant(name="acme", registers_devices=False))
        yield service


def sent(service: Service, *values: float) -> Outcome:
    """Values of one device and one moment, as a request brings them; what is refused is filed ten seconds later."""
    tenant, done, outcomes = service.catalog.tenants.get("acme"), threading.Event(), list[Outcome]()
    body = msgspec.json.encode([{"device": "d", "time": _T // MS, "values": {"a": value}} for value in values])

    def finish(outcome: Outcome) -> None:
        outcomes.append(outcome)
        done.set()

    version_us = service.bodies.version_us()
    decode = service.bodies.reports(
        body, content_type="application/json", encoding="", precision="ms", max_bytes=1 << 20, version_us=version_us
    )
    origin = Origin("http", "application/json", "ms", "", body, version_us=version_us)
    service.pipeline.submit(Job(tenant, len(body), decode, finish, origin=origin))
    assert done.wait(60)
    assert service.dead_letters.settle()
    return outcomes[0]


def replayed(service: Service) -> list[str]:
    tenant = service.catalog.tenants.get("acme")
    ids, _ = service.replay.oldest("acme", conflicts=True)
    return [one.outcome for one in service.replay.all(tenant, ids, within_s=60)]


def latest(service: Service) -> list[float]:
    found: list[float] = service.queries.latest(service.catalog.tenants.get("acme"), ["d"]).number.tolist()
    return found


def test_a_replay_does_not_undo_corrections_made_since(service: Service, clock: ManualClock) -> None:
    assert sent(service, 1.0).refusals[0].code == "unknown-device"
    service.catalog.devices.create(service.catalog.tenants.get("acme"), Device(name="d"))
    clock.time_us += MINUTE
    assert sent(service, 2.0).accepted == 1
    clock.time_us += MINUTE
    assert replayed(service) == ["stored"]
    assert latest(service) == [2.0]
    assert replayed(service) == []


def test_a_letter_that_is_refused_again_keeps_the_version_of_its_receipt(service: Service, clock: ManualClock) -> None:
    received_us = clock.time_us
    sent(service, 1.0)
    clock.time_us += MINUTE
    assert replayed(service) == ["refused"]
    (filed,) = service.dead_letters.store.newest("acme")
    assert (filed.letter.replays, filed.letter.version_us) == (1, received_us)


def test_a_letter_without_a_version_has_that_of_its_filing(service: Service, clock: ManualClock) -> None:
    """As an earlier release wrote it."""
    sent(service, 1.0)
    (filed,) = service.dead_letters.store.newest("acme")
    filed = service.dead_letters.store.get("acme", filed.id)
    old = replace(filed, letter=msgspec.structs.replace(filed.letter, version_us=0), version_us=filed.version_us + MS)
    service.dead_letters.store.put([("acme", old)], MINUTE)
    service.catalog.devices.create(service.catalog.tenants.get("acme"), Device(name="d"))
    clock.time_us += 10 * SECOND
    assert sent(service, 2.0).accepted == 1
    clock.time_us += 10 * SECOND
    assert replayed(service) == ["stored"]
    assert latest(service) == [2.0]


def test_letters_refused_as_conflict_are_replayed_only_when_asked_for(service: Service) -> None:
    service.catalog.devices.create(service.catalog.tenants.get("acme"), Device(name="d"))
    assert sent(service, 1.0, 2.0).refusals[0].code == "conflict"
    (letter,) = (filed.id for filed in service.dead_letters.store.newest("acme"))
    assert service.replay.oldest("acme") == ([], [letter])
    assert service.replay.oldest("acme", code="conflict") == ([], [letter])
    assert service.replay.oldest("acme", conflicts=True) == ([letter], [])
