"""`widerow query`: the raw points of a device over a span."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from widerow.cli import output
from widerow.cli.failure import Misused
from widerow.cli.points import METRICS_HELP, ArrowForm, CsvForm, Form, JsonForm, TableForm, fetch
from widerow.cli.session import Session, client

DEFAULT_LIMIT = 1000


class Shape(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    ARROW = "arrow"


def add_to(app: typer.Typer) -> None:
    app.command("query")(query)


@client
def query(
    session: Session,
    device: Annotated[str, typer.Argument(metavar="DEVICE", help="Whose points.", show_default=False)],
    metrics: Annotated[
        list[str] | None,
        typer.Option("--metrics", "-m", metavar="NAME,...", help=METRICS_HELP),
    ] = None,
    start: Annotated[str, typer.Option("--start", metavar="TIME", help="From: RFC 3339, epoch ms, or relative.")] = "-1h",
    end: Annotated[str, typer.Option("--end", metavar="TIME", help="Up to, and without.")] = "now",
    limit: Annotated[int, typer.Option("--limit", min=1, help="About how many points at most.")] = DEFAULT_LIMIT,
    tags: Annotated[bool, typer.Option("--tags", help="With the tags of each report (json, csv, arrow).")] = False,
    shape: Annotated[Shape | None, typer.Option("--format", help="table by default.", show_default=False)] = None,
    file: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write there.", dir_okay=False, show_default=False)
    ] = None,
) -> None:
    """The raw points of a device, oldest first.

    Times are RFC 3339 (2026-11-15T08:00:00Z), epoch milliseconds, or relative to now: -90s, -1h, -7d, now.

    Example: widerow query press-000017 --tenant acme --metrics temperature --start -15m

    Example: widerow query "Halle 3/Presse #17" --tenant acme --start -1d --limit 1000000 --format arrow -o day.arrow
    """
    form = _form(shape, as_json=session.as_json)
    if file is None and isinstance(form, ArrowForm) and output.is_terminal():
        raise Misused("Arrow is not for terminals", todo="give -o FILE, or send it into a pipe")
    with output.sink(file) as write:
        done = fetch(
            session.api, device, metrics=metrics, start=start, end=end, limit=limit, tags=tags, form=form, write=write
        )
    if done.more:
        output.note(f"there is more: these are the first {done.points:,} points (--limit)")
    elif not done.points:
        output.note(f"no points of {output.printable(device)} from {start} to {end}")


def _form(shape: Shape | None, *, as_json: bool) -> Form:
    if as_json and shape not in (None, Shape.JSON):
        raise Misused(f"--json and --format {shape} contradict each other")
    if as_json or shape is Shape.JSON:
        return JsonForm()
    if shape is Shape.CSV:
        return CsvForm()
    return ArrowForm() if shape is Shape.ARROW else TableForm()
