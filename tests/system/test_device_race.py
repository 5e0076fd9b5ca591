"""Many processes register devices of one tenant at once: never too many, and nobody is refused while there is room."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from uuid import uuid4

from widerow.catalog.devices import DEVICE_LIMIT, KNOWN, Devices
from widerow.catalog.seats import Seats
from widerow.model.names import Names
from widerow.model.tenant import Limits, Tenant
from widerow.model.times import MINUTE, SECOND, ManualClock
from widerow.service import Service

WRITERS = 20
PLACES = 60


def as_processes(service: Service, count: int) -> list[Devices]:
    """Each knows only what it reads."""
    return [Devices(service.engine, service.clock, refresh_us=SECOND, reload_us=MINUTE) for _ in range(count)]


def test_racing_processes_fill_a_limit_exactly(service: Service) -> None:
    """20 of them offer 5 names of their own and 5 that all offer, for fewer places than names."""
    tenant = service.create_tenant(Tenant(name=f"race-{uuid4().hex[:8]}", limits=Limits(devices=PLACES)))
    processes, start = as_processes(service, WRITERS), Barrier(WRITERS)
    batches = [[f"own-{t}-{i}" for i in range(5)] + [f"shared-{i}" for i in range(5)] for t in range(WRITERS)]

    def register(t: int) -> list[int]:
        start.wait()
        codes: list[int] = []
        for name in batches[t]:  # one by one, as reports come
            codes += processes[t].register(tenant, Names.of([name])).codes.tolist()
        return codes

    with ThreadPoolExecutor(WRITERS) as pool:
        results = list(pool.map(register, range(WRITERS)))
    stored = set(service.catalog.devices.names(tenant.name))
    assert len(stored) == PLACES
    for names, codes in zip(batches, results, strict=True):
        assert set(codes) <= {KNOWN, DEVICE_LIMIT}
        assert {name for name, code in zip(names, codes, strict=True) if code == KNOWN} <= stored


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
