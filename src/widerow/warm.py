"""Compile every kernel by sending a few reports the whole way, so that no request waits for a compiler.

`python -m widerow.warm` at set-up fills the cache on disk (about a minute, on two cores); a server then starts in 3 s.
Kernels are compiled per kind of argument, so this must be the real path on the real engine, not a call of each function.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from widerow.admit.controls import What
from widerow.blocks.arrange import of_batch
from widerow.blocks.block import Block
from widerow.blocks.merge import merge
from widerow.blocks.pack import pack
from widerow.catalog.match import Match
from widerow.codec import json as json_codec
from widerow.codec import line as line_codec
from widerow.codec import mqtt as mqtt_codec
from widerow.codec.answer import JSON, encode_points
from widerow.codec.arrow import encode_arrow
from widerow.codec.decoded import Decoded
from widerow.codec.series import encode_reply
from widerow.config import Config, Store
from widerow.ingest.kafka.partition import partitions_of
from widerow.model.batch import Report, batch_of
from widerow.model.device import Profile
from widerow.model.errors import WiderowError
from widerow.model.names import Names
from widerow.model.system import check_address_space, explained
from widerow.model.tenant import Limits, Tenant
from widerow.model.times import DAY, HOUR, MINUTE, MS, SECOND, TimeSpan
from widerow.pipeline.job import Job, Outcome
from widerow.pipeline.pipeline import INLINE_BYTES
from widerow.query.fleet import ask, fleet_question
from widerow.query.question import question_of
from widerow.rollup.aggregate import (
    combined,
    combined_states,
    states_of_raw,
    states_of_rollups,
    summary_of_raw,
    summary_of_rollups,
)
from widerow.schema.rollups import LEVELS
from widerow.service import Service
from widerow.telemetry.observed import Rate, observed_epoch
from widerow.telemetry.placement import Epoch


def warm_up() -> None:
    """Compile, or load from the cache, everything that the path of a report and the questions about it need."""
    _without_a_store()
    _with_a_store()


def _without_a_store() -> None:
    line_codec.warm_up()
    json_codec.warm_up()
    partitions_of("warm", Names.of(("d1", "d2")), 2)
    mqtt_codec.warm_up()
    _pack_blocks()


def _with_a_store() -> None:
    log = logging.getLogger("widerow")
    level = log.level
    log.setLevel(logging.ERROR)  # a device that is made hot here is no news
    try:
        _go_the_whole_way()
    finally:
        log.setLevel(level)


def _go_the_whole_way() -> None:
    with tempfile.TemporaryDirectory(prefix="widerow-warm-") as folder:
        config = Config(
            store=Store(url=f"rocksdb:{Path(folder) / 'store'}", cache_mib=8, write_buffer_mib=16, reserve_mib=0)
        )
        with Service.open(config, rolls=True) as service:
            tenant = service.catalog.tenants.create(
                Tenant(name="warm", limits=Limits(series=1 << 20), attribute_tags=("site",))
            )
            _write_columns(service, tenant)
            _ask(service, tenant)
            service.catalog.directories.of(tenant.name).matching(Match(text="d1"))
            _roll(service, tenant)
            _ask_steps(service, tenant)
            _ask_fleet(service, tenant)
            _ask_usage(service, tenant)
            _write_texts(service, tenant)  # last: another process may compile these decoders meanwhile
            service.delete_device(tenant, "d1")
            service.house.purge()


def _pack_blocks() -> None:
    """So many devices that their names are ordered by a kernel, one of them with times in disorder."""
    reports = [Report(f"d{i % 300}", -i, {"x": float(i), "s": "text"}, {"site": "a"}, 1000) for i in range(301)]
    columns = of_batch(batch_of(reports))
    for dense in (False, True):
        list(merge([columns, *[Block(block) for block in pack(columns, dense=dense)]]))


def _write_columns(service: Service, tenant: Tenant) -> None:
    now_us = service.clock.now_us()
    reports = [
        Report(f"d{d % 5}", now_us - d * SECOND, {"m_x": 1.5, "m_on": True, "m_s": "text"}, {"site": "a"}, now_us)
        for d in range(10)
    ]
    for some in (reports, [replace(reports[1], time_us=now_us - HOUR)]):
        body = encode_arrow(batch_of(some))
        _send(service, tenant, body, _decoder(service, body, "application/vnd.apache.arrow.stream"))


def _decoder(service: Service, body: bytes, media_type: str) -> Callable[[], Decoded]:
    return service.bodies.reports(body, content_type=media_type, encoding="", precision="ms", max_bytes=1 << 30)


def _write_texts(service: Service, tenant: Tenant) -> None:
    """What devices send most: line protocol and JSON, small and large, of hot devices and of others."""
    now_us = service.clock.now_us()
    places = service.telemetry.places
    places.add_epoch(tenant.name, "d1", Epoch(places.earliest_epoch_us() + SECOND, sub_buckets=4))
    observed_epoch([], Profile(), Rate(3.0, 30.0), now_us)
    for what in (What.SAMPLE, What.HOT_RATE):
        service.controls.add(tenant.name, "hot", what, 0.5, "to have all kernels")
    line = 'm,device=d{d},site=a x=1.5,y=2i,on=true,s="text" {t}\n'
    small = "".join(line.format(d=d, t=(now_us - d * SECOND) * 1000) for d in range(5)).encode()
    repeated = small + small + b"broken\n"
    large = repeated * (INLINE_BYTES // len(repeated) + 1)
    many = "".join(
        line.format(d=d % 5, t=(now_us - d * MS) * 1000) for d in range(200)
    ).encode()  # so many are counted by device
    reports = b'[{"device": "d1", "time": %d, "values": {"x": 1.5, "s": "text"}, "tags": {"a": "b"}}]' % (now_us // 1000)
    for body in (small, repeated, large, many, small):
        decode = service.bodies.lines(body, encoding="", precision="ns", max_bytes=1 << 30, tenant=tenant)
        _send(service, tenant, body, decode)
    _send(service, tenant, reports, _decoder(service, reports, "application/json"))


def _send(service: Service, tenant: Tenant, body: bytes, decode: Callable[[], Decoded]) -> None:
    done = threading.Event()
    outcomes: list[Outcome] = []

    def finish(outcome: Outcome) -> None:
        outcomes.append(outcome)
        done.set()

    # Twice at once, so that batches are merged, too.
    service.pipeline.submit(Job(tenant, len(body), decode, lambda _: None))
    service.pipeline.submit(Job(tenant, len(body), decode, finish))
    done.wait()
    if outcomes[0].error:
        raise outcomes[0].error


def _ask(service: Service, tenant: Tenant) -> None:
    now_us = service.clock.now_us()
    for metrics in (None, ["m_x"]):
        for tags in (False, True):
            span = TimeSpan(now_us - 2 * HOUR, now_us + SECOND)
            answer = service.queries.series(tenant, "d1", span=span, limit=3, metrics=metrics, tags=tags)
            for epoch in (None, "ms"):
                encode_points(answer.points, JSON, epoch=epoch)
        encode_points(service.queries.latest(tenant, ["d1", "d2"], metrics=metrics), JSON)


def _ask_steps(service: Service, tenant: Tenant) -> None:
    """From raw reports, then from rollups, then from both."""
    queries, roller, now_us = service.queries, service.pyramid.roller, service.clock.now_us()
    span = TimeSpan(now_us - 2 * HOUR - SECOND, now_us + SECOND)
    units = sorted(set(service.pyramid.marks.units()))
    for unit in (None, *units[:1], *units[1:]):
        if unit is not None:
            roller.roll(tenant, unit)
        for names in (["avg"], ["p95", "last", "states"]):
            for step in ("1h", "90m", None):
                question = question_of(span, step=step, aggregates=names, fill="linear")
                encode_reply(queries.steps(tenant, "d1", question, queries.budget(tenant)), JSON)
            if names == ["avg"]:
                devices = queries.chosen(tenant, ["d1", "d2"], None)
                encode_reply(queries.ask(tenant, devices, question, queries.budget(tenant), group_by=[]), JSON)


def _roll(service: Service, tenant: Tenant) -> None:
    """What the thread that rolls does when hours and days are over, and what questions do with the rollups."""
    pyramid, now_us = service.pyramid, service.clock.now_us()
    pyramid.stop()
    roller, span = pyramid.roller, TimeSpan(now_us - now_us % DAY - DAY, now_us + DAY)
    roller.close(tenant, before_us=now_us + HOUR)
    for unit in list(pyramid.marks.pending()):
        roller.roll(tenant, unit)
    for unit in list(roller.days.pending()):
        roller.roll_day(tenant, unit)
    raw = service.telemetry.read_many(tenant, ["d1", "d2"], span)
    parts = [states_of_raw(raw, MINUTE)]
    for quantiles in (True, False):
        found = [summary_of_raw(raw, MINUTE, quantiles=quantiles)]
        for level in LEVELS:
            rows = pyramid.rollups.read(tenant, ["d1", "d2"], level, span)
            found.append(summary_of_rollups(rows, DAY, quantiles=quantiles))
            parts.append(states_of_rollups(rows, DAY))
        combined(found)
    combined_states(parts)


def _ask_fleet(service: Service, tenant: Tenant) -> None:
    """Before and after it is rolled."""
    now_us, pyramid = service.clock.now_us(), service.pyramid
    service.catalog.devices.update(tenant.name, "d1", lambda device: replace(device, type="warm"))
    span = TimeSpan(now_us - 4 * HOUR, now_us + HOUR)
    question = fleet_question(Match(), span, step="1h", aggregates=["avg", "p95", "devices"], fill="linear")
    for _ in range(2):
        reply = ask(service.fleet, tenant, question, service.queries.budget(tenant))
        encode_reply(reply, JSON)
        for unit in sorted(pyramid.marks.pending()):
            pyramid.roller.roll(tenant, unit)
        for unit in sorted(pyramid.roller.fleet.pending()):
            pyramid.fleet.roll(tenant, unit)


def _ask_usage(service: Service, tenant: Tenant) -> None:
    now_us = service.clock.now_us()
    span = TimeSpan(now_us - 4 * HOUR, now_us + HOUR)
    service.house.learn_series()
    service.ledger.statement(tenant, span, "hour")
    list(service.recorded.seconds(tenant.name, span))


_APART = "without-a-store"


def _main(arguments: list[str]) -> None:
    check_address_space()
    if arguments == [_APART]:
        _without_a_store()
        return
    with subprocess.Popen([sys.executable, "-m", __spec__.name, _APART]) as other:  # noqa: S603
        _with_a_store()
    if other.returncode:
        raise SystemExit(other.returncode)
    warm_up()  # of what both needed, one may have replaced what the other kept


if __name__ == "__main__":
    try:
        _main(sys.argv[1:])
    except (WiderowError, OSError, MemoryError) as error:
        said = explained(error) if isinstance(error, OSError) else str(error) or "there is too little memory"
        raise SystemExit(f"warming up failed: {said}") from None
