"""Two processes have a store open: one writes and rolls, the other erases, of which the first knows nothing by heart."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from widerow import service as services
from widerow.catalog.match import Match
from widerow.config import Config, Rollup, Store, Time
from widerow.engine.memory import MemoryEngine
from widerow.model.series import Reply
from widerow.model.tenant import Tenant
from widerow.model.times import HOUR, MINUTE, SECOND, SystemClock, TimeSpan
from widerow.pipeline.job import Job
from widerow.query.fleet import ask, fleet_question
from widerow.rollup import others
from widerow.service import Service

REFRESH_S = 1
CONFIG = Config(store=Store(url="memory:"), time=Time(refresh_s=REFRESH_S), rollup=Rollup(lateness_s=0, settle_s=0))
HOUR_US = (SystemClock().now_us() // HOUR - 3) * HOUR
WITHIN = TimeSpan(HOUR_US, HOUR_US + HOUR)


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    engine = MemoryEngine(SystemClock())
    monkeypatch.setattr(services, "open_engine", lambda _config, _clock: engine)
    monkeypatch.setattr(services, "is_shared", lambda _url: True)
    monkeypatch.setattr(others, "_SETTLE_EVERY_US", SECOND // 2)  # the tests wait for it
    with Service.open(CONFIG, rolls=True) as service:
        yield service


@pytest.fixture
def api(serve: Service) -> Iterator[Service]:
    with Service.open(serve.config, writes=False) as service:
        yield service


@pytest.fixture
def tenant(serve: Service) -> Tenant:
    """Of two devices: x is 1 and 2 in the first half of an hour, 10 and 20 in the second; y is 5. All of it is rolled."""
    tenant = serve.create_tenant(Tenant(name="acme"))
    first, second = HOUR_US + 10 * MINUTE, HOUR_US + 40 * MINUTE
    body = f"m,device=a x=1,y=5 {first}\nm,device=a x=10 {second}\nm,device=b x=2 {first}\nm,device=b x=20 {second}".encode()
    written = threading.Event()
    decode = serve.bodies.lines(body, encoding="", precision="us", max_bytes=1 << 20)
    serve.pipeline.submit(Job(tenant, len(body), decode, lambda _outcome: written.set()))
    assert written.wait(30)
    wait_for(lambda: is_rolled(serve, tenant))
    assert sums(fleet(serve, tenant)) == {"m_x": 33.0, "m_y": 5.0}
    return tenant


def wait_for(true: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def is_rolled(service: Service, tenant: Tenant) -> bool:
    """Whether the fleet's hour is all that an answer comes from."""
    return fleet(service, tenant).used.keys() == {"fleet"}


def fleet(service: Service, tenant: Tenant) -> Reply:
    question = fleet_question(Match(), WITHIN, step="1h", aggregates=["sum"])
    return ask(service.fleet, tenant, question, service.queries.budget(tenant))


def sums(reply: Reply) -> dict[str, float]:
    return dict(zip(reply.series.labels["metric"].to_list(), reply.series.number.tolist(), strict=True))


def follow_erasures() -> None:
    time.sleep(REFRESH_S + 0.1)


def check(serve: Service, tenant: Tenant, want: dict[str, float]) -> None:
    """At once, and all the time until the fleet's hour is rolled again."""
    assert sums(fleet(serve, tenant)) == want

    def right_and_rolled() -> bool:
        reply = fleet(serve, tenant)
        assert sums(reply) == want
        return reply.used.keys() == {"fleet"}

    wait_for(right_and_rolled)


def test_a_device_that_another_process_deleted_leaves_the_fleet(serve: Service, api: Service, tenant: Tenant) -> None:
    api.delete_device(tenant, "a")
    follow_erasures()
    check(serve, tenant, {"m_x": 22.0})


def test_a_metric_that_another_process_erased_leaves_the_fleet(serve: Service, api: Service, tenant: Tenant) -> None:
    api.erase(tenant, metric="m_x")
    follow_erasures()
    check(serve, tenant, {"m_y": 5.0})


def test_what_is_left_of_an_hour_is_rolled_again(serve: Service, api: Service, tenant: Tenant) -> None:
    api.erase(tenant, metric="m_x", span=TimeSpan(HOUR_US - HOUR, HOUR_US + 30 * MINUTE))
    follow_erasures()
    check(serve, tenant, {"m_x": 30.0, "m_y": 5.0})


def test_a_process_that_stops_before_it_has_purged_is_noticed(serve: Service, api: Service, tenant: Tenant) -> None:
    for service in (serve, api):
        service.house.stop()
    api.erase(tenant, device="b", metric="m_x", span=TimeSpan(HOUR_US, HOUR_US + 30 * MINUTE))
    api.delete_device(tenant, "a")
    follow_erasures()
    assert sums(fleet(serve, tenant)) == {"m_x": 20.0}
    time.sleep(2)  # it has looked
    assert not is_rolled(serve, tenant), "nobody has marked it yet"
    serve.house.purge()
    check(serve, tenant, {"m_x": 20.0})


def test_another_process_that_answers_doubts_what_is_not_purged(serve: Service, api: Service, tenant: Tenant) -> None:
    serve.house.stop()
    serve.delete_device(tenant, "a")
    follow_erasures()
    assert sums(fleet(api, tenant)) == {"m_x": 22.0}
    serve.house.purge()
    check(api, tenant, {"m_x": 22.0})
