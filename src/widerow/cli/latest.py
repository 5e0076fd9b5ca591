"""`widerow latest`: the newest value of each metric."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from widerow.cli import output
from widerow.cli.api import in_path
from widerow.cli.device import DEVICES, LocationOption, PrefixOption, TagOptions, TypeOption, match_params
from widerow.cli.failure import Misused
from widerow.cli.points import METRICS_HELP, names
from widerow.cli.session import Session, client
from widerow.model.times import SystemClock


def add_to(app: typer.Typer) -> None:
    app.command("latest")(latest)


@client
def latest(
    session: Session,
    devices: Annotated[
        list[str] | None, typer.Argument(metavar="[DEVICE]...", help="These devices.", show_default=False)
    ] = None,
    type_: TypeOption = None,
    location: LocationOption = None,
    tag: TagOptions = None,
    prefix: PrefixOption = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option("--metrics", "-m", metavar="NAME,...", help=METRICS_HELP),
    ] = None,
) -> None:
    """The newest value of each metric: of the devices named, of those that match, or of all.

    Example: widerow latest press-000017 --tenant acme

    Example: widerow latest --tenant acme --type press --tag line=L2
    """
    match = match_params(type_, location, tag, prefix)
    described = any(value is not None for value in match.values())
    if devices and described:
        raise Misused("devices are named and described", todo="name some, or use --type, --location, --tag, --prefix")
    answer: dict[str, Any] = {}
    if devices and len(devices) == 1:
        answer = session.api.get(f"{DEVICES}/{in_path(devices[0])}/latest", metrics=metrics)
        series = answer["series"]
    elif devices:
        answer = session.api.post("/v1/latest", {"devices": devices, "metrics": names(metrics)})
        series = answer["series"]
    else:
        series = list(session.api.pages("/v1/fleet/latest", "series", **match, metrics=metrics, limit=1000))
    silent = sorted(set(devices or ()) - {one["device"] for one in series})
    if silent:
        output.note(f"no values of {output.printable(', '.join(silent))}")
    for span in answer.get("sampled", ()):
        until = f"until {span['end']}" if span["end"] else "and still is"
        output.note(
            f"{output.printable(span['device'])} was sampled from {span['start']} {until}: "
            f"{span['rate']:.0%} of its reports are kept (see widerow hot)"
        )
    show_latest(session, series)


def show_latest(session: Session, series: list[dict[str, Any]]) -> None:
    series.sort(key=lambda one: (one["device"], one["metric"]))
    session.show([_flat(one) for one in series], _draw)


def _flat(one: dict[str, Any]) -> dict[str, Any]:
    time, value = one["points"][0][:2]
    return {"device": one["device"], "metric": one["metric"], "time": time, "value": value}


def _draw(values: list[dict[str, Any]]) -> None:
    if not values:
        output.note("no values")
        return
    now_us = SystemClock().now_us()
    output.emit_table(
        ("device", "metric", "value", "time", "age"),
        [(v["device"], v["metric"], v["value"], v["time"], output.age(v["time"], now_us)) for v in values],
        right=("value", "age"),
    )
