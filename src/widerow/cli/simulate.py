"""`widerow simulate`: a fleet that does not exist sends to a server that does.

Event times keep step with real time when a rate is set. As fast as possible, they would run into the future, which servers
refuse; so such a run lies in the past, and ends now if the number of reports is known. A run with chaos does, too: what
comes days late must have been made days ago.
"""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from widerow.cli import output
from widerow.cli.api import Api
from widerow.cli.failure import Failed, Misused, as_misuse
from widerow.cli.session import Session, duration, writing_client
from widerow.model.times import (
    MS,
    SECOND,
    SystemClock,
    about_duration,
    bucket_start,
    format_time,
    parse_duration,
    parse_time,
)

if TYPE_CHECKING:  # NumPy and Arrow are behind these
    from widerow.simulate.drive import DriveReport
    from widerow.simulate.fleet import Fleet

FLAT_OUT_INTERVAL_US = 10 * SECOND
FLAT_OUT_START = "-7d"
"""Where a run of unknown length begins: even a million reports a second of 1,000 devices takes an hour to get to now."""
_HOPELESS = (401, 403, 404)
"""Answers that will be the same for the next request."""


class BodyFormat(StrEnum):
    LINE = "line"
    JSON = "json"
    NDJSON = "ndjson"
    ARROW = "arrow"


class FleetKind(StrEnum):
    FACTORY = "factory"
    TRUCKS = "trucks"


Kind = Annotated[FleetKind, typer.Option("--kind", help="The fleet: the machines of a factory, or trucks on the road.")]


def add_to(app: typer.Typer) -> None:
    app.command("simulate")(simulate)


@writing_client
def simulate(
    session: Session,
    devices: Annotated[int, typer.Option("--devices", min=1, help="How many devices.")] = 1000,
    rate: Annotated[float, typer.Option("--rate", min=0, help="Reports per second; 0: as fast as possible.")] = 1000,
    seconds: Annotated[
        float | None,
        typer.Option("--seconds", min=0, help="Seconds to send for; 10 unless --count is given.", show_default=False),
    ] = None,
    count: Annotated[int | None, typer.Option("--count", min=1, help="About how many reports.", show_default=False)] = None,
    body: Annotated[BodyFormat, typer.Option("--format", help="The format of the requests.")] = BodyFormat.LINE,
    lines: Annotated[
        int | None, typer.Option("--lines", min=1, help="Reports in a request; about a tenth of a second's by default.")
    ] = None,
    connections: Annotated[int, typer.Option("--connections", min=1, max=256, help="Connections at a time.")] = 2,
    kind: Kind = FleetKind.FACTORY,
    seed: Annotated[int, typer.Option("--seed", help="Another seed, other values.")] = 1,
    interval: Annotated[
        str | None, typer.Option("--interval", metavar="TIME", help="Between two reports of a device; devices / rate.")
    ] = None,
    start: Annotated[
        str | None, typer.Option("--start", metavar="TIME", help="Time of the first report: now, at a rate.")
    ] = None,
    gaps: Annotated[float, typer.Option("--gaps", min=0, max=1, help="Share of reports that get lost.")] = 0.01,
    duplicates: Annotated[float, typer.Option("--duplicates", min=0, max=1, help="Share that comes twice.")] = 0.005,
    out_of_order: Annotated[float, typer.Option("--out-of-order", min=0, max=1, help="Share that comes late.")] = 0.02,
    troubled: Annotated[
        bool,
        typer.Option(
            "--chaos", help="Late, doubled, reordered, corrected, in backlogs, in odd batches.", show_default=False
        ),
    ] = False,
) -> None:
    """Send the reports of a simulated fleet, and print rates and latencies.

    At a rate, latency counts from when a request was due, so a server that stalls is charged for the requests that
    waited.
    Reports of presses have a tag tool, those of trucks a tag trailer. In line protocol these are labels of the metrics,
    unless the tenant lists them as attributes: widerow tenant set acme --attribute-tags tool,trailer

    Example: widerow simulate --tenant acme --devices 1000 --rate 500 --seconds 60

    Example: widerow simulate --tenant acme --rate 0 --count 1000000 --format arrow --connections 4

    Example: widerow simulate --tenant acme --kind trucks --devices 50 --interval 1m --rate 0 --count 100000 --chaos
    """
    from widerow.simulate.chaos import ChaosSettings  # noqa: PLC0415
    from widerow.simulate.fleet import Fleet  # noqa: PLC0415
    from widerow.simulate.kinds import FLEETS  # noqa: PLC0415

    for option, value in (("--rate", rate), ("--seconds", seconds)):
        if value is not None and not math.isfinite(value):
            raise Misused(f"{option} {value}: give a number")
    if seconds is None and count is None:
        seconds = 10.0
    if interval is not None:
        interval_us = duration("--interval", interval)
        if interval_us < MS:
            raise Misused(f"--interval {interval}: give 1ms or more")
    else:
        interval_us = max(MS, round(SECOND * devices / rate)) if rate else FLAT_OUT_INTERVAL_US
    known = count if count is not None or not (rate and seconds) else math.ceil(rate * seconds)
    start_us = _start_us(start, 0 if troubled else rate, known if troubled else count, devices, interval_us)
    fleet = Fleet(
        seed,
        devices,
        start_us=start_us,
        kinds=FLEETS[kind.value],
        interval_us=interval_us,
        gaps=gaps,
        duplicates=duplicates,
        out_of_order=out_of_order,
    )
    # Small requests at a small rate: whoever waits for a hundred reports at ten a second waits ten seconds.
    sized = lines or (min(1000, max(1, math.ceil(rate / 10))) if rate else 1000)
    plan: dict[str, Any] = {"rate": rate or None, "seconds": seconds, "reports": count, "format": body.value, "lines": sized}
    plan |= {"connections": connections, "trouble": ChaosSettings() if troubled else None}
    with write_token(session) as token:
        report, interrupted = _run(session, fleet, token, plan)
    session.show(summary(report), lambda _: _draw(report))
    if interrupted:
        raise KeyboardInterrupt
    if not report.acknowledged or report.failed:
        raise Failed(
            f"{report.acknowledged:,} reports were acknowledged, {report.refused:,} refused, {report.failed:,} failed; "
            f"answers by status: {_statuses(report) or 'none'}",
            code="incomplete",
        )


def _start_us(start: str | None, rate: float, count: int | None, devices: int, interval_us: int) -> int:
    now_us = SystemClock().now_us()
    if start is not None:
        with as_misuse("--start"):
            return parse_time(start, now_us)
    now_us = bucket_start(now_us, SECOND)
    if rate:
        return now_us
    if count is None:
        return parse_time(FLAT_OUT_START, now_us)
    return now_us - math.ceil(count / devices) * interval_us


@contextmanager
def write_token(session: Session) -> Iterator[str]:
    """A token to write with. An operator makes one for the tenant, and revokes it afterwards; a writer has one."""
    api = session.api
    if api.tenant is None:
        if api.token is None or _is_operator(api):
            raise Misused("whose reports shall these be?", todo="give --tenant NAME")
        yield api.token
        return
    form = {"role": "write", "tenant": api.tenant, "description": "widerow simulate", "expires": _tomorrow()}
    try:
        made = api.post("/v1/admin/tokens", form)
    except Failed as error:
        if error.code != "forbidden" or api.token is None:
            raise
        yield api.token
        return
    try:
        yield made["token"]
    finally:
        api.delete(f"/v1/admin/tokens/{made['id']}")


def _is_operator(api: Api) -> bool:
    try:
        api.get("/v1/admin/tenants")
    except Failed as error:
        if error.code != "forbidden":
            raise
        return False
    return True


def _tomorrow() -> str:
    """So that a token outlives no run that was killed by more than a day."""
    return format_time(SystemClock().now_us() + parse_duration("1d"))


def _run(session: Session, fleet: Fleet, token: str, plan: dict[str, Any]) -> tuple[DriveReport, bool]:
    """The report, and whether an interrupt ended it. What was in flight is waited for, so that the counts are whole."""
    from widerow.simulate.drive import drive  # noqa: PLC0415

    stop, interrupted = threading.Event(), threading.Event()

    def interrupt(*_: object) -> None:
        if interrupted.is_set():
            raise KeyboardInterrupt
        interrupted.set()
        stop.set()

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        with output.progress(*_extent(plan)) as advance:
            shown = 0.0

            def progress(report: DriveReport) -> None:
                nonlocal shown
                now = float(report.acknowledged) if plan["reports"] is not None else report.wall_s
                advance(now - shown)
                shown = now
                if not report.acknowledged and any(status in report.statuses for status in _HOPELESS):
                    stop.set()

            report = drive(session.api.target, fleet, token=token, progress=progress, stop=stop, **plan)
    except ValueError as error:
        raise Misused(str(error)) from None
    finally:
        signal.signal(signal.SIGINT, before)
    return report, interrupted.is_set()


def _extent(plan: dict[str, Any]) -> tuple[str, float]:
    return ("reports", plan["reports"]) if plan["reports"] is not None else ("seconds", plan["seconds"])


def summary(report: DriveReport) -> dict[str, Any]:
    """The report as plain data."""
    return {
        "acknowledged": report.acknowledged,
        "metrics": report.metrics,
        "refused": report.refused,
        "failed": report.failed,
        "requests": report.requests,
        "retries": report.retries,
        "transport_failures": report.transport_failures,
        "statuses": {str(status): n for status, n in sorted(report.statuses.items())},
        "sent_bytes": report.sent_bytes,
        "wall_s": round(report.wall_s, 3),
        "reports_per_s": round(report.reports_per_s, 1),
        "metrics_per_s": round(report.metrics_per_s, 1),
        "latency_ms": {
            **{f"p{100 * q:g}": round(1e3 * report.latency_s(q), 3) for q in (0.5, 0.95, 0.99)},
            "max": round(1e3 * report.latencies.max_s, 3),
        },
    }


def _draw(report: DriveReport) -> None:
    latency = summary(report)["latency_ms"]
    took = about_duration(report.wall_s * SECOND)
    output.emit(f"acknowledged  {report.acknowledged:,} reports, {report.metrics:,} values in {took}")
    output.emit(f"rate          {report.reports_per_s:,.0f} reports/s, {report.metrics_per_s:,.0f} values/s")
    output.emit("latency       " + ", ".join(f"{name} {about_duration(ms * MS)}" for name, ms in latency.items()))
    output.emit(f"requests      {report.requests:,} ({output.size(report.sent_bytes)}), {report.retries:,} retries")
    output.emit(f"not kept      {report.refused:,} refused, {report.failed:,} failed")
    if set(report.statuses) - {200, 204}:
        output.emit(f"answers       {_statuses(report)}")


def _statuses(report: DriveReport) -> str:
    return ", ".join(f"{status}: {n:,}" for status, n in sorted(report.statuses.items()))
