"""`widerow query`: the points of a device over a span, raw or over steps; statistics of many devices."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from widerow.cli import output
from widerow.cli.device import LocationOption, PrefixOption, TagOptions, TypeOption
from widerow.cli.failure import Misused
from widerow.cli.output_file import written_to
from widerow.cli.points import METRICS_HELP, ArrowForm, CsvForm, Form, JsonForm, TableForm, fetch, names, note_sampled
from widerow.cli.session import Session, client, pairs
from widerow.cli.steps import Told, ask_device, ask_many

DEFAULT_LIMIT = 1000


class Shape(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    ARROW = "arrow"


class Fill(StrEnum):
    NONE = "none"
    NULL = "null"
    PREVIOUS = "previous"
    LINEAR = "linear"


class Order(StrEnum):
    DESC = "desc"
    ASC = "asc"


_STEPS, _MANY = "Steps", "Many devices"


def add_to(app: typer.Typer) -> None:
    app.command("query")(query)


@client
def query(
    session: Session,
    devices: Annotated[
        list[str] | None, typer.Argument(metavar="[DEVICE]...", help="The devices, by name.", show_default=False)
    ] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option("--metrics", "-m", metavar="NAME,...", help=METRICS_HELP),
    ] = None,
    start: Annotated[str, typer.Option("--start", metavar="TIME", help="From: RFC 3339, epoch ms, or relative.")] = "-1h",
    end: Annotated[str, typer.Option("--end", metavar="TIME", help="Up to, and without.")] = "now",
    step: Annotated[
        str | None,
        typer.Option(
            "--step", metavar="WIDTH", help="10s, 5m, 1h, 1d, 1w, 1mo; raw points without.", rich_help_panel=_STEPS
        ),
    ] = None,
    agg: Annotated[
        list[str] | None,
        typer.Option(
            "--agg",
            metavar="NAME,...",
            help="avg (default), min, max, sum, count, stddev, p50, p95, p99, first, last, rate, increase; of texts last, "
            "count, states. Without --step of the whole span.",
            rich_help_panel=_STEPS,
        ),
    ] = None,
    fill: Annotated[
        Fill | None,
        typer.Option("--fill", help="Steps without values; none by default.", show_default=False, rich_help_panel=_STEPS),
    ] = None,
    tz: Annotated[
        str | None,
        typer.Option("--tz", metavar="ZONE", help="Days of this zone, such as Europe/Berlin.", rich_help_panel=_STEPS),
    ] = None,
    type_: TypeOption = None,
    location: LocationOption = None,
    tag: TagOptions = None,
    prefix: PrefixOption = None,
    everything: Annotated[bool, typer.Option("--all", help="All devices.", rich_help_panel=_MANY)] = False,
    group_by: Annotated[
        list[str] | None,
        typer.Option(
            "--group-by",
            metavar="NAME,...",
            help="Together, by type, location, tag:NAME, device, or a label of metrics; all: all in one.",
            rich_help_panel=_MANY,
        ),
    ] = None,
    top: Annotated[
        int | None, typer.Option("--top", min=1, help="Only the devices with the greatest value.", rich_help_panel=_MANY)
    ] = None,
    by: Annotated[
        str | None,
        typer.Option("--by", metavar="AGG", help="The aggregate for --top, over the whole span.", rich_help_panel=_MANY),
    ] = None,
    order: Annotated[
        Order | None,
        typer.Option("--order", help="asc: the smallest.", show_default=False, rich_help_panel=_MANY),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="About how many raw points at most; 1000.", show_default=False)
    ] = None,
    tags: Annotated[bool, typer.Option("--tags", help="With the tags of each report (json, csv, arrow).")] = False,
    shape: Annotated[Shape | None, typer.Option("--format", help="table by default.", show_default=False)] = None,
    file: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="The file to write to.", dir_okay=False, show_default=False),
    ] = None,
) -> None:
    """The points of a device, oldest first: raw, or statistics over steps. With several devices or a description of them,
    statistics of each, of groups, or of those at the top.

    Times are RFC 3339 (2026-11-15T08:00:00Z), epoch milliseconds, or relative to now: -90s, -1h, -7d, now.

    Example: widerow query press-000017 --tenant acme --metrics temperature --start -15m

    Example: widerow query press-000017 --tenant acme --start -7d --step 1h --agg avg,max

    Example: widerow query --type press --tenant acme -m temperature --start -30d --step 1d --group-by location

    Example: widerow query --all --tenant acme -m temperature --start -1d --top 10 --by max
    """
    form = _form(shape, as_json=session.as_json)
    if file is None and isinstance(form, ArrowForm) and output.is_terminal():
        raise Misused("Arrow is not for terminals", todo="give -o FILE, or send it into a pipe")
    match: dict[str, Any] = {"type": type_, "location": location, "tags": pairs(tag, "--tag") or None, "prefix": prefix}
    match = {name: value for name, value in match.items() if value is not None}
    if bool(devices) + bool(match) + everything != 1:
        raise Misused("say which devices", todo="name some, or use --type, --location, --tag, --prefix, or --all")
    over = {"step": step, "agg": ",".join(agg) if agg else None, "fill": fill and fill.value, "tz": tz}
    many = {"group_by": _groups(group_by), "top": top, "by": by, "order": order and order.value}
    about = {"start": start, "end": end, "metrics": metrics}
    single = devices is not None and len(devices) == 1 and not any(value is not None for value in many.values())
    if single and devices and all(value is None for value in over.values()):
        _raw(session, devices[0], form, file, about, limit=limit or DEFAULT_LIMIT, tags=tags)
        return
    if tags or (single and limit):
        raise Misused("--tags and --limit are for raw points of one device")
    with written_to(file) as write:
        if single and devices:
            told = ask_device(session.api, devices[0], form, write, {**about, **over})
        else:
            question: dict[str, Any] = {**about, "metrics": names(metrics), **over, **many, "limit": limit}
            question["devices" if devices else "match"] = devices or match
            told = ask_many(session.api, form, write, {key: value for key, value in question.items() if value is not None})
    _remark(told, about)


def _raw(
    session: Session, device: str, form: Form, file: Path | None, about: dict[str, Any], *, limit: int, tags: bool
) -> None:
    with written_to(file) as write:
        done = fetch(session.api, device, **about, limit=limit, tags=tags, form=form, write=write)
    if done.more:
        output.note(f"there is more: these are the first {done.points:,} points (--limit)")
    elif not done.points:
        output.note(f"no points of {output.printable(device)} from {about['start']} to {about['end']}")
    note_sampled(done.sampled)


def _remark(told: Told, about: dict[str, Any]) -> None:
    if not told.points:
        output.note(f"no values from {about['start']} to {about['end']}")
    if told.missing:
        output.note(f"no longer kept finely enough for this step: {told.missing}")
    if told.used:
        output.note(f"read: {told.used}")
    note_sampled(told.sampled)


def _groups(group_by: list[str] | None) -> list[str] | None:
    """`all` is a group of all devices."""
    chosen = names(group_by)
    return [name for name in chosen if name != "all"] if chosen is not None else None


def _form(shape: Shape | None, *, as_json: bool) -> Form:
    if as_json and shape not in (None, Shape.JSON):
        raise Misused(f"--json and --format {shape} contradict each other")
    if as_json or shape is Shape.JSON:
        return JsonForm()
    if shape is Shape.CSV:
        return CsvForm()
    return ArrowForm() if shape is Shape.ARROW else TableForm()
