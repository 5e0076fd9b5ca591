"""Who reads a little of many partitions gives way as often as who reads much of a few, and keeps nobody from the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from widerow.config import Config, Store
from widerow.engine.rocksdb import RocksEngine
from widerow.engine.rows import Rows
from widerow.model.batch import Report, batch_of
from widerow.model.tenant import Tenant
from widerow.model.times import MINUTE, SECOND, TimeSpan
from widerow.ops.courtesy import undisturbed, yielding
from widerow.service import Service

DEVICES = [f"device-{n}" for n in range(600)]
EACH = 5
FEW = 32
"""Partitions that are looked into in about `courtesy.STEP_S`."""


class Site:
    """A fleet whose devices have a few reports each."""

    def __init__(self, service: Service) -> None:
        assert isinstance(service.engine, RocksEngine)
        self.service, self.db = service, service.engine.db
        self.tenant = service.create_tenant(Tenant(name="acme"))
        self.now_us = service.clock.now_us() // MINUTE * MINUTE
        service.catalog.devices.register(self.tenant, batch_of(self.reports()).device.names)
        service.telemetry.write(self.tenant, batch_of(self.reports()))

    def reports(self) -> list[Report]:
        return [Report(d, self.now_us - i * SECOND, {"x": float(i)}, {}) for d in DEVICES for i in range(EACH)]

    def hour(self) -> Sequence[Rows]:
        return self.service.telemetry.read_many(self.tenant, DEVICES, TimeSpan(self.now_us - MINUTE, self.now_us + 1))

    def latest(self) -> Sequence[Rows]:
        return self.service.telemetry.latest(self.tenant, DEVICES)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Service.open(Config(store=Store(url=f"rocksdb:{tmp_path}", reserve_mib=0))) as service:
        yield Site(service)


@pytest.mark.parametrize(("read", "rows"), [(Site.hour, EACH * len(DEVICES)), (Site.latest, len(DEVICES))])
def test_between_a_few_partitions_others_have_their_turn(
    site: Site, read: Callable[[Site], Sequence[Rows]], rows: int
) -> None:
    inside: list[int] = []
    with yielding(lambda: inside.append(site.db._readers)):
        assert sum(map(len, read(site))) == rows
    assert len(inside) >= len(DEVICES) // FEW
    assert not any(inside), "who rests holds no iterator"


def test_what_is_written_while_a_reader_rests_harms_nothing(site: Site) -> None:
    """Iterators are made anew after a rest: what was there before is read once, whatever is written meanwhile."""

    def write() -> None:
        with undisturbed():
            site.service.telemetry.write(site.tenant, batch_of(site.reports()))

    with yielding(write):
        assert sum(map(len, site.hour())) == EACH * len(DEVICES)
        assert sum(map(len, site.latest())) == len(DEVICES)
