"""`widerow fleet`: what many devices say together."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from widerow.cli import output
from widerow.cli.device import LocationOption, PrefixOption, TagOptions, TypeOption, match_params
from widerow.cli.failure import Misused
from widerow.cli.latest import show_latest
from widerow.cli.output_file import written_to
from widerow.cli.points import METRICS_HELP, SAMPLED_HEADER, note_sampled
from widerow.cli.session import Session, client

app = typer.Typer(help="The fleet: many devices together.", no_args_is_help=True)

SERIES = "/v1/fleet/series"

MetricsOption = Annotated[list[str] | None, typer.Option("--metrics", "-m", metavar="NAME,...", help=METRICS_HELP)]


class Shape(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    ARROW = "arrow"


_ACCEPT = {Shape.CSV: "text/csv", Shape.ARROW: "application/vnd.apache.arrow.stream"}


@app.command("series")
@client
def series(
    session: Session,
    metrics: MetricsOption = None,
    start: Annotated[str, typer.Option("--start", metavar="TIME", help="From: RFC 3339, epoch ms, or relative.")] = "-1d",
    end: Annotated[str, typer.Option("--end", metavar="TIME", help="Up to, and without.")] = "now",
    step: Annotated[str, typer.Option("--step", metavar="WIDTH", help="10m, 1h, 1d, 1w, 1mo; all: one step.")] = "1h",
    agg: Annotated[
        str, typer.Option("--agg", metavar="NAME,...", help="avg, min, max, sum, count, stddev, p50, p95, p99, devices.")
    ] = "avg",
    tz: Annotated[
        str | None, typer.Option("--tz", metavar="ZONE", help="The time zone of days, such as Europe/Berlin.")
    ] = None,
    fill: Annotated[
        str | None, typer.Option("--fill", metavar="HOW", help="Steps without values: none, null, previous, linear.")
    ] = None,
    group_by: Annotated[
        str | None,
        typer.Option("--group-by", metavar="WHAT", help="type, location, tag:NAME or a label: a series for each."),
    ] = None,
    type_: TypeOption = None,
    location: LocationOption = None,
    tag: TagOptions = None,
    prefix: PrefixOption = None,
    shape: Annotated[Shape | None, typer.Option("--format", help="table by default.", show_default=False)] = None,
    file: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="The file to write to.", dir_okay=False, show_default=False),
    ] = None,
) -> None:
    """Statistics of all devices that match, together, over steps of time.

    Example: widerow fleet series --tenant acme --metrics temperature --start -7d --step 1d --agg avg,p95,devices

    Example: widerow fleet series --tenant acme --type press --group-by location --step 1h
    """
    if session.as_json and shape not in (None, Shape.JSON):
        raise Misused(f"--json and --format {shape} contradict each other")
    shape = Shape.JSON if session.as_json else shape or Shape.TABLE
    if file is None and shape is Shape.ARROW and output.is_terminal():
        raise Misused("Arrow is not for terminals", todo="give -o FILE, or send it into a pipe")
    asked = {
        **match_params(type_, location, tag, prefix),
        "metrics": metrics,
        "start": start,
        "end": end,
        "step": None if step == "all" else step,
        "agg": agg,
        "tz": tz,
        "fill": fill,
        "group_by": group_by,
    }
    answer = session.api.send("GET", SERIES, params=asked, accept=_ACCEPT.get(shape, "application/json"))
    with written_to(file) as write:
        if shape in _ACCEPT:
            write(answer.content)
        elif shape is Shape.JSON:
            write(answer.content + b"\n")
        else:
            write(_table(answer.json()))
    if shape is Shape.TABLE:
        _remark(answer.json(), start, end)
    note_sampled(answer.headers.get(SAMPLED_HEADER, ""))


@app.command("latest")
@client
def latest(
    session: Session,
    type_: TypeOption = None,
    location: LocationOption = None,
    tag: TagOptions = None,
    prefix: PrefixOption = None,
    metrics: MetricsOption = None,
) -> None:
    """The newest value of each metric of the devices that match; without options, of all.

    Example: widerow fleet latest --tenant acme --type press --metrics temperature
    """
    match = match_params(type_, location, tag, prefix)
    show_latest(session, list(session.api.pages("/v1/fleet/latest", "series", **match, metrics=metrics, limit=1000)))


def _table(answer: dict[str, Any]) -> bytes:
    """A line for each step, a column for each series."""
    rows: dict[str, dict[str, Any]] = {}
    columns: dict[str, None] = {}
    for one in answer["series"]:
        name = " ".join([*one.get("group", {}).values(), one["metric"], one["agg"]])
        columns[name] = None
        for time, value in one["points"]:
            rows.setdefault(time, {})[name] = value
    if not rows:
        return b""
    lines = [(time, *(found.get(name, "") for name in columns)) for time, found in sorted(rows.items())]
    return output.table(("time", *columns), lines, right=list(columns)).encode()


def _remark(answer: dict[str, Any], start: str, end: str) -> None:
    """What a table has no room for."""
    if not answer["series"]:
        output.note(f"no values of any device that matches, from {start} to {end}")
    for gone in answer.get("missing", ()):
        output.note(f"from {gone['start']} to {gone['end']} nothing is kept that could answer this")
