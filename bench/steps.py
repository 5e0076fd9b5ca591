"""How long questions over steps of time take, embedded: no server, no socket.

    python -m bench.steps [--quick] [--devices 10000]

A store of hours of a few devices over three months, written as the roller would: one metric over 90 days at 1 h. And one of
an hour of a fleet, each device reporting every 10 s. That is asked when the hour is nearly over, with its minutes closed as
they are while reports come in; then by a process that has just started and has only raw reports to rely on; then rolled, and
asked again.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from bench.lib.figures import Figures

from widerow.catalog.match import Match
from widerow.codec.answer import JSON
from widerow.codec.record import encode_stats
from widerow.codec.series import encode_reply
from widerow.codec.stats import Stats
from widerow.config import Config, Query, Store
from widerow.engine.rows import NEVER, Column, Rows
from widerow.model.batch import Batch, CellKind, Cells
from widerow.model.names import Coded, Names
from widerow.model.tenant import Tenant
from widerow.model.times import DAY, HOUR, MINUTE, SECOND, TimeSpan, whole_ms
from widerow.query.fleet import ask, fleet_question
from widerow.query.question import question_of
from widerow.schema.rollups import HOURS
from widerow.service import Service

METRICS = Names.of([f"metric_{n}" for n in range(10)])
PACE_US = 10 * SECOND
FEW = 50
QUARTER = 90 * DAY


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.steps", description="How long questions over steps take.")
    parser.add_argument("--devices", type=int, default=10_000, help="of the fleet")
    parser.add_argument("--questions", type=int, default=500, help="how often each is asked")
    parser.add_argument("--quick", action="store_true", help="a small fleet: to see that it works")
    options = parser.parse_args()
    if options.quick:
        options.devices, options.questions = 200, 20
    figures = Figures("steps", vars(options))
    with tempfile.TemporaryDirectory() as folder:
        with opened(Path(folder)) as service:
            end_us = write_quarter(service)
        # Opened again, what was written is in files, as it would be after three months. It rolls, as `serve` does: what is
        # not rolled it knows by heart.
        with opened(Path(folder), rolls=True) as service:
            quarter(figures, service, end_us, options.questions)
    with tempfile.TemporaryDirectory() as folder:
        with opened(Path(folder), rolls=True) as service:
            hour = open_hour(figures, service, options.devices)
        with opened(Path(folder)) as service:
            fleet(figures, service, hour, options.devices, options.questions)
    print(f"written to {figures.save()}")


def opened(folder: Path, *, rolls: bool = False) -> Service:
    store = Store(url=f"rocksdb:{folder}", reserve_mib=0)
    # The question that reads 36 million values is asked on purpose.
    # Reports of two hours ago stand for those of now: they are not to be taken for backlog.
    config = replace(
        Config(),
        store=store,
        query=Query(max_rows=100_000_000, timeout_s=600),
        backfill=replace(Config().backfill, after_s=0),
    )
    service = Service.open(config, rolls=rolls)
    service.pyramid.stop()  # minutes are closed, and hours rolled, when it is their turn here
    return service


def write_quarter(service: Service) -> int:
    tenant = service.create_tenant(Tenant(name="bench"))
    now_us = service.clock.now_us()
    for n in range(FEW):
        service.engine.write(service.pyramid.rollups.changes(tenant, HOURS, hours(f"device-{n}", now_us, n)))
    return now_us


def quarter(figures: Figures, service: Service, now_us: int, questions: int) -> None:
    tenant = service.catalog.tenants.get("bench")
    names = [f"device-{n}" for n in range(FEW)]

    def of_device(n: int, aggregates: list[str]) -> int:
        question = question_of(
            TimeSpan(now_us - QUARTER, now_us), step="1h", aggregates=aggregates, metrics=[METRICS[n % len(METRICS)]]
        )
        queries = service.queries
        reply = queries.steps(tenant, names[n % FEW], question, queries.budget(tenant))
        encode_reply(reply, JSON)
        return len(reply.series)

    asked(figures, "quarter_of_hours_avg", questions, lambda n: of_device(n, ["avg"]))
    asked(figures, "quarter_of_hours_p95", questions, lambda n: of_device(n, ["p95"]))


def hours(device: str, now_us: int, seed: int) -> Rows:
    """Three months of hours of a device, each of 360 reports."""
    count, many, per_hour = QUARTER // HOUR + 1, len(METRICS), HOUR // PACE_US
    start_us = now_us - now_us % HOUR - np.arange(count)[::-1] * HOUR
    values = np.random.default_rng(seed).normal(50, 10, count * many * per_hour).round(2)
    time_us = (np.repeat(start_us, many)[:, None] + np.arange(per_hour) * PACE_US).reshape(-1)
    stats = Stats.of(time_us, values, np.arange(0, len(values) + 1, per_hour))
    n = count * many
    cells = Cells(
        np.arange(0, n + 1, many),
        METRICS,
        np.tile(np.arange(many, dtype=np.int32), count),
        np.full(n, CellKind.RECORD, np.uint8),
        np.full(n, np.nan),
        encode_stats(np.repeat(start_us, many), stats),
        np.arange(n, dtype=np.int32),
    )
    keys: dict[str, Column] = {
        "tenant_id": Coded.constant("bench", count),
        "device_id": Coded.constant(device, count),
        "period": start_us - start_us % HOURS.period_us,
        "start_us": start_us,
    }
    return Rows(keys, np.full(count, whole_ms(now_us)), np.full(count, NEVER), cells)


def open_hour(figures: Figures, service: Service, devices: int) -> TimeSpan:
    """The hour, which is not rolled. Only its last minutes are open."""
    tenant = service.create_tenant(Tenant(name="bench"))
    now_us = service.clock.now_us()
    hour = TimeSpan(now_us - now_us % HOUR - 2 * HOUR, now_us - now_us % HOUR - HOUR)
    report_an_hour(service, tenant, devices, hour)
    asked(figures, "fleet_hour_of_minutes", 3, lambda _: of_fleet(service, tenant, hour))
    return hour


def of_fleet(service: Service, tenant: Tenant, hour: TimeSpan) -> int:
    question = fleet_question(Match(), hour, step="1h", aggregates=["avg", "p95", "devices"], metrics=[METRICS[0]])
    reply = ask(service.fleet, tenant, question, service.queries.budget(tenant))
    encode_reply(reply, JSON)
    return len(reply.series)


def fleet(figures: Figures, service: Service, hour: TimeSpan, devices: int, questions: int) -> None:
    tenant = service.catalog.tenants.current("bench", service.clock.now_us())
    asked(figures, "fleet_hour_of_raw", 1, lambda _: of_fleet(service, tenant, hour))
    pyramid = service.pyramid
    began_s = time.process_time()
    pyramid.roller.recover()
    pyramid.roller.roll(tenant, *sorted(pyramid.marks.pending()))
    figures.add("roll_hour_from_raw_core_us_per_metric", 1e6 * (time.process_time() - began_s) / (devices * 3600), "us")
    began_s = time.process_time()
    pyramid.fleet.roll(tenant, *sorted(pyramid.roller.fleet.pending()))
    figures.add("roll_fleet_hour_core_s", time.process_time() - began_s, "s")
    asked(figures, "fleet_hour_rolled", questions, lambda _: of_fleet(service, tenant, hour))


def report_an_hour(service: Service, tenant: Tenant, devices: int, hour: TimeSpan) -> None:
    """Minutes are closed on the way, when their reports have had the time to arrive that is set."""
    late_us = service.config.rollup.lateness_s * SECOND
    names = Names.of([f"device-{n:06d}" for n in range(devices)])
    service.catalog.devices.register(tenant, names)
    random = np.random.default_rng(7)
    values = random.normal(50, 10, (devices, len(METRICS))).round(2)
    many = len(METRICS)
    for at in range(hour.start_us, hour.stop_us, PACE_US):
        values = (values + random.normal(0, 0.3, values.shape)).round(2)
        cells = Cells.numbers(
            np.arange(0, devices * many + 1, many),
            METRICS,
            np.tile(np.arange(many, dtype=np.int32), devices),
            values.reshape(-1),
        )
        version_us = np.full(devices, whole_ms(service.clock.now_us()))
        every = np.arange(devices, dtype=np.int32)
        batch = Batch(Coded(names, every), np.full(devices, at), version_us, every, cells)
        plan, marks = service.telemetry.plan(tenant, batch), service.pyramid.plan(tenant.name, batch)
        service.engine.write([*marks.changes, *plan.changes])
        service.pyramid.settle(marks, plan, fresh=names, written=True)
        if at % MINUTE == 0:
            service.pyramid.roller.close(tenant, before_us=at - late_us)


def asked(figures: Figures, name: str, times: int, question: Callable[[int], int]) -> None:
    if not question(0):
        raise RuntimeError(f"{name}: the answer is empty")
    taken = []
    for n in range(times):
        began_s = time.perf_counter()
        question(n)
        taken.append(1e3 * (time.perf_counter() - began_s))
    figures.add(f"{name}_p50_ms", float(np.percentile(taken, 50)), "ms")
    if times > 1:
        figures.add(f"{name}_p99_ms", float(np.percentile(taken, 99)), "ms")


if __name__ == "__main__":
    main()
