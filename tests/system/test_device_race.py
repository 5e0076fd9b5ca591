"""Many processes register devices of one tenant at once: never too many, and nobody is refused while there is room."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from threading import Barrier
from uuid import uuid4

import pytest

from widerow.catalog.catalog import Catalog, CatalogSettings
from widerow.catalog.devices import Devices
from widerow.catalog.registration import DEVICE_LIMIT, KNOWN, SEATS_TAKEN
from widerow.catalog.seats import Seats
from widerow.engine.open import open_engine
from widerow.model.names import Names
from widerow.model.store import is_shared
from widerow.model.tenant import Limits, Tenant
from widerow.model.times import MINUTE, SECOND, ManualClock
from widerow.schema.tables import TABLES
from widerow.service import Service

WRITERS = 20
CONNECTIONS = 4
PLACES = 60


def as_processes(service: Service, count: int) -> list[Devices]:
    """Each knows only what it reads."""
    return [Devices(service.engine, service.clock, refresh_us=SECOND, reload_us=MINUTE) for _ in range(count)]


def registered(devices: Devices, tenant: Tenant, names: Sequence[str]) -> list[int]:
    """Asks again while others have the last seats in hand, as every front does."""
    while True:
        codes: list[int] = devices.register(tenant, Names.of(names)).codes.tolist()
        if SEATS_TAKEN not in codes:
            return codes


def test_racing_processes_fill_a_limit_exactly(service: Service) -> None:
    """20 of them offer 5 names of their own and 5 that all offer, for fewer places than names."""
    tenant = service.create_tenant(Tenant(name=f"race-{uuid4().hex[:8]}", limits=Limits(devices=PLACES)))
    processes, start = as_processes(service, WRITERS), Barrier(WRITERS)
    batches = [[f"own-{t}-{i}" for i in range(5)] + [f"shared-{i}" for i in range(5)] for t in range(WRITERS)]

    def register(t: int) -> list[int]:
        start.wait()
        codes: list[int] = []
        for name in batches[t]:  # one by one, as reports come
            codes += registered(processes[t], tenant, [name])
        return codes

    with ThreadPoolExecutor(WRITERS) as pool:
        results = list(pool.map(register, range(WRITERS)))
    stored = set(service.catalog.devices.names(tenant.name))
    assert len(stored) == PLACES
    for names, codes in zip(batches, results, strict=True):
        assert set(codes) <= {KNOWN, DEVICE_LIMIT}
        assert {name for name, code in zip(names, codes, strict=True) if code == KNOWN} <= stored


def in_batches(tenant: Tenant, writers: Sequence[Devices], batches: Sequence[Sequence[str]]) -> list[list[int]]:
    """Each writer registers its batch, all at once."""
    start = Barrier(len(writers))

    def register(t: int) -> list[int]:
        start.wait()
        return registered(writers[t], tenant, batches[t])

    with ThreadPoolExecutor(len(writers)) as pool:
        return list(pool.map(register, range(len(writers))))


@contextmanager
def several(service: Service, kind: str) -> Iterator[list[Devices]]:
    """20 writers: threads of one process, or processes; on a store that is shared, with several connections."""
    if kind == "threads":
        yield [service.catalog.devices] * WRITERS
    elif not is_shared(service.config.store.url):
        yield as_processes(service, WRITERS)
    else:
        with ExitStack() as opened:
            engines = [open_engine(service.config, service.clock) for _ in range(CONNECTIONS)]
            for engine in engines:
                opened.callback(engine.close)
                engine.apply(TABLES)
            settings = CatalogSettings(refresh_us=SECOND, reload_devices_us=MINUTE)
            yield [Catalog(engines[i % CONNECTIONS], service.clock, settings).devices for i in range(WRITERS)]


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_as_many_names_as_places_are_all_registered_though_writers_offer_the_same(service: Service, kind: str) -> None:
    """Writer t offers the names 2t .. 2t + 5 of 40, round: each name comes from three of them."""
    tenant = service.create_tenant(Tenant(name=f"race-{uuid4().hex[:8]}", limits=Limits(devices=2 * WRITERS)))
    batches = [[f"d{(2 * t + i) % (2 * WRITERS)}" for i in range(6)] for t in range(WRITERS)]
    with several(service, kind) as writers:
        assert [writer.count(tenant.name) for writer in writers] == [0] * WRITERS  # what they know when they begin
        results = in_batches(tenant, writers, batches)
    assert results == [[KNOWN] * 6] * WRITERS
    assert sorted(service.catalog.devices.names(tenant.name)) == sorted({name for names in batches for name in names})


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_batches_that_overlap_fill_a_limit_exactly(service: Service, kind: str) -> None:
    """80 names, each from two writers, for 60 places: who is refused, is so for names that nobody got in by then."""
    tenant = service.create_tenant(Tenant(name=f"race-{uuid4().hex[:8]}", limits=Limits(devices=PLACES)))
    batches = [[f"d{(4 * t + i) % (4 * WRITERS)}" for i in range(8)] for t in range(WRITERS)]
    with several(service, kind) as writers:
        assert [writer.count(tenant.name) for writer in writers] == [0] * WRITERS
        results = in_batches(tenant, writers, batches)
    stored = set(service.catalog.devices.names(tenant.name))
    assert len(stored) == PLACES
    accepted = set()
    for names, codes in zip(batches, results, strict=True):
        assert set(codes) <= {KNOWN, DEVICE_LIMIT}
        accepted |= {name for name, code in zip(names, codes, strict=True) if code == KNOWN}
    assert accepted == stored


def test_a_device_that_goes_leaves_its_place_to_another_process(service: Service) -> None:
    tenant = service.create_tenant(Tenant(name=f"race-{uuid4().hex[:8]}", limits=Limits(devices=2)))
    one, two = as_processes(service, 2)
    assert one.register(tenant, Names.of(["a", "b"])).codes.tolist() == [KNOWN, KNOWN]
    assert two.register(tenant, Names.of(["c"])).codes.tolist() == [DEVICE_LIMIT]
    one.delete(tenant.name, "a")
    assert two.register(tenant, Names.of(["c"])).codes.tolist() == [KNOWN]


def test_seats_of_a_process_that_died_are_found_again(service: Service) -> None:
    tenant = service.create_tenant(Tenant(name=f"race-{uuid4().hex[:8]}", limits=Limits(devices=3)))
    clock = ManualClock(service.clock.now_us())
    seats = Seats(service.engine, clock, refresh_us=SECOND)
    assert seats.take(tenant, 2, 3, lambda: 0).seats == 2  # and it is never heard of again
    assert seats.take(tenant, 3, 3, lambda: 0).seats == 1
    clock.time_us += 2 * MINUTE
    assert seats.take(tenant, 3, 3, lambda: 0).seats == 3


def test_a_limit_that_is_new_counts_what_there_is(service: Service) -> None:
    tenant = service.create_tenant(Tenant(name=f"race-{uuid4().hex[:8]}"))
    (one,) = as_processes(service, 1)
    one.register(tenant, Names.of(["a", "b", "c"]))
    service.catalog.tenants.update(tenant.name, lambda old: old)
    limited = service.catalog.tenants.update(tenant.name, lambda old: type(old)(name=old.name, limits=Limits(devices=4)))
    assert one.register(limited, Names.of(["d", "e"])).codes.tolist() == [KNOWN, DEVICE_LIMIT]
