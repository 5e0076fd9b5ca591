"""A worker's thread while the store does not answer: it goes by what it knows, files each letter once, and is never late.

There is no Kafka: what is tested is what the thread does between two looks at it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import cast

import numpy as np
import pytest

from widerow.catalog.known import AWAY_US, KnownTenants
from widerow.catalog.recent import GRACE_US
from widerow.catalog.tenants import Tenants
from widerow.codec.json import JsonDecoder
from widerow.config import Config, Kafka
from widerow.engine.memory import MemoryEngine
from widerow.engine.rows import Rows
from widerow.ingest.kafka.consume import Stream
from widerow.ingest.kafka.letters import letters_to
from widerow.ingest.kafka.message import JSON
from widerow.ingest.kafka.offsets import Line
from widerow.ingest.kafka.receive import Incoming, Pack, Receiver
from widerow.model.errors import NotFound, Refusal, Unavailable
from widerow.model.tenant import Tenant
from widerow.model.times import MINUTE, ManualClock
from widerow.ops.counters import Counters
from widerow.pipeline.dead_letters import DeadLetters
from widerow.pipeline.job import Job, Lane, Outcome
from widerow.pipeline.pipeline import Pipeline
from widerow.schema.table import Table
from widerow.schema.tables import TABLES

NOW_US = 1_800_000_000_000_000
HANGS_S = 0.2


class Hanging(Tenants):
    """A store that can be told to hang: then an answer takes its time, and is none."""

    hangs = False
    asked = 0

    def get(self, name: str) -> Tenant:
        self.asked += 1
        if self.hangs:
            time.sleep(HANGS_S)  # what is tested is that it is not waited for
            raise Unavailable("no answer")
        return super().get(name)


class Taking:
    """A pipeline that takes everything and finishes nothing."""

    def __init__(self) -> None:
        self.taken: list[str] = []

    def submit(self, job: Job, *, wake: bool = True) -> None:
        del wake
        self.taken.append(job.tenant.name)

    def wake(self) -> None:
        pass


class Site:
    def __init__(self) -> None:
        self.clock, self.counters, self.pipeline = ManualClock(NOW_US), Counters(), Taking()
        self.engine = MemoryEngine(self.clock)
        self.engine.apply(TABLES)
        self.tenants = Hanging(self.engine, self.clock)
        self.known = KnownTenants(self.tenants, self.clock)
        self.letters = DeadLetters(self.engine, self.clock, self.counters)
        self.line = Line("t", 0)
        self.stream = Stream(
            Config(kafka=Kafka(brokers="127.0.0.1:1", revoke_timeout_s=1)),
            Lane.LIVE,
            cast("Pipeline", self.pipeline),
            self.known,
            Receiver(JsonDecoder(), self.clock),
            letters_to(self.letters),
            self.clock,
            self.counters,
        )

    def pack(self, tenant: str, count: int = 1, value: bytes = b"rubbish") -> Pack:
        places = [self.line.take(k, len(value)) for k in range(count)]
        messages = [Incoming(place, value, JSON, tenant, "d", NOW_US, 0, NOW_US) for place in places]
        return Pack(Lane.LIVE, messages, 1, starts=np.arange(count), unread=frozenset(range(count)))


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.letters.close()
    site.stream._consumer.close()


def test_a_store_that_hangs_is_asked_once_in_a_while_and_tenants_that_were_known_lately_count(site: Site) -> None:
    site.tenants.create(Tenant(name="acme"))
    site.tenants.create(Tenant(name="other"))
    assert site.known.get("acme").name == "acme"
    site.clock.time_us += MINUTE
    site.tenants.hangs, site.tenants.asked = True, 0
    for _ in range(3):
        assert site.known.get("acme").name == "acme"
        with pytest.raises(Unavailable):
            site.known.get("other")
    assert site.tenants.asked == 1
    site.clock.time_us += AWAY_US
    assert site.known.get("acme").name == "acme"
    assert site.tenants.asked == 2
    site.clock.time_us = NOW_US + GRACE_US
    with pytest.raises(Unavailable):
        site.known.get("acme")
    site.tenants.hangs = False
    site.clock.time_us += AWAY_US
    assert site.known.get("other").name == "other"
    with pytest.raises(NotFound):
        site.known.get("nobody")


def test_packs_that_are_due_again_do_not_each_wait_for_a_store_that_hangs(site: Site) -> None:
    site.tenants.create(Tenant(name="acme"))
    assert site.known.get("acme").name == "acme"
    site.clock.time_us += MINUTE
    site.tenants.hangs, site.tenants.asked = True, 0
    for k in range(50):
        site.stream._later(site.pack(f"t{k}"), 0)
    site.stream._later(site.pack("acme"), 0)
    began_s = time.monotonic()
    site.stream._retry()
    assert time.monotonic() - began_s < 10 * HANGS_S
    assert site.tenants.asked == 1
    assert site.pipeline.taken == ["acme"]
    assert len(site.stream._again) == 50


def test_partitions_are_handed_over_in_time_while_the_store_hangs(site: Site) -> None:
    site.tenants.hangs = True
    for k in range(50):
        site.stream._later(site.pack(f"t{k}"), 0)
    began_s = time.monotonic()
    site.stream._hand_over([site.line])
    assert 1 <= time.monotonic() - began_s < 3
    assert (site.tenants.asked, site.line.gone) == (0, True)


def test_of_a_pack_that_is_tried_again_each_letter_is_filed_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    pack = site.pack("acme", 4)
    pack.unread = frozenset({1, 2, 3})  # the first is a document of several reports
    pack.messages[0] = Incoming(site.line.take(9, 9), b'[{"a":1},{"b":2}]', JSON, "acme", "d", NOW_US, 0, NOW_US)
    pack.starts = np.array([0, 2, 3, 4])
    write, writes = site.engine.write, list[int]()

    def fails_at_the_third(changes: list[tuple[Table, Rows]]) -> None:
        writes.append(1)
        if len(writes) in (3, 4):
            raise Unavailable("away")
        write(changes)

    monkeypatch.setattr(site.engine, "write", fails_at_the_third)
    whole = Refusal("syntax", "why", [2, 3, 4])
    site.stream._end(pack, Outcome(refusals=[Refusal("future", "why", [0]), whole]))
    site.stream._file_s = 0  # as if it were later
    site.stream._end(pack, Outcome(refusals=[Refusal("future", "why", [0]), whole]))
    site.stream._file_s = 0
    assert (len(writes), site.line.idle) == (4, False)
    # By now more of the first is refused than before.
    site.stream._end(pack, Outcome(refusals=[Refusal("future", "why", [0, 1]), whole]))
    filed = [(one.letter.source, one.letter.code, one.letter.positions) for one in site.letters.store.newest("acme")]
    assert sorted(filed) == [
        ("kafka:t/0/1", "syntax", ()),
        ("kafka:t/0/2", "syntax", ()),
        ("kafka:t/0/3", "syntax", ()),
        ("kafka:t/0/9", "future", (0,)),
        ("kafka:t/0/9", "future", (1,)),
    ]
    assert all(message.place.done for message in pack.messages)


def test_letters_wait_for_a_store_that_hangs_as_long_as_the_last_one_did(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def hangs(_changes: list[tuple[Table, Rows]]) -> None:
        tried.append(1)
        time.sleep(5 * HANGS_S)
        raise Unavailable("no answer")

    monkeypatch.setattr(site.engine, "write", hangs)
    began_s = time.monotonic()
    for k in range(50):
        site.stream._end(site.pack(f"t{k}"), Outcome(refusals=[Refusal("syntax", "why", [0])]))
    assert time.monotonic() - began_s < 10 * HANGS_S
    assert len(tried) == 1
    assert len(site.stream._again) == 50
    assert site.counters.dead_letters_dropped.labels("t0")._value.get() == 0
    assert site.stream._file_s - began_s >= 10 * HANGS_S
