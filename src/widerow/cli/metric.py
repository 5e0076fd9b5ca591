"""`widerow metric`: what is measured: kind, unit, description."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from widerow.cli import output
from widerow.cli.api import in_path
from widerow.cli.failure import Misused
from widerow.cli.session import Session, YesOption, client, confirm

app = typer.Typer(help="Metrics: their kind, unit and description.", no_args_is_help=True)

METRICS = "/v1/metrics"

Name = Annotated[str, typer.Argument(metavar="METRIC", help="Its name, as devices report it.", show_default=False)]


class Kind(StrEnum):
    GAUGE = "gauge"
    COUNTER = "counter"
    TEXT = "text"


@app.command("list")
@client
def list_(session: Session) -> None:
    """The metrics of a tenant.

    Example: widerow metric list --tenant acme
    """
    session.show(session.api.get(METRICS)["metrics"], _draw)


@app.command("show")
@client
def show(session: Session, metric: Name) -> None:
    """One metric in full.

    Example: widerow metric show temperature --tenant acme
    """
    session.show(session.api.get(f"{METRICS}/{in_path(metric)}"), output.emit_facts)


@app.command("set")
@client
def set_(
    session: Session,
    metric: Name,
    kind: Annotated[
        Kind | None, typer.Option("--kind", help="gauge: goes up and down. counter: only up. text: words.")
    ] = None,
    unit: Annotated[str | None, typer.Option("--unit", metavar="TEXT", help="Such as °C or kWh.")] = None,
    description: Annotated[
        str | None, typer.Option("--description", metavar="TEXT", help="The meaning, for people.")
    ] = None,
) -> None:
    """Describe a metric. Only the named attributes change.

    Example: widerow metric set energy --tenant acme --kind counter --unit kWh
    """
    form = {"kind": kind.value if kind else None, "unit": unit, "description": description}
    form = {name: value for name, value in form.items() if value is not None}
    if not form:
        raise Misused("nothing to change is given", todo="see widerow metric set --help")
    session.done(session.api.patch(f"{METRICS}/{in_path(metric)}", form), f"metric {metric} is set")


@app.command("delete")
@client
def delete(
    session: Session,
    metric: Name,
    erase: Annotated[
        bool, typer.Option("--erase", help="Erase its values, too, of every device.", show_default=False)
    ] = False,
    yes: YesOption = False,
) -> None:
    """Forget the kind, unit and description of a metric; with --erase also all its values.

    Example: widerow metric delete temprature --tenant acme --erase --yes
    """
    path = f"{METRICS}/{in_path(metric)}"
    session.api.get(path)
    confirm(f"deleting metric {metric}" + (" with all its values" if erase else ""), yes=yes)
    if erase:
        session.api.post("/v1/admin/erase", {"metric": metric})
    session.api.delete(path)
    session.done({"deleted": metric, "erased": erase}, f"metric {metric} is deleted")


def _draw(metrics: list[dict[str, Any]]) -> None:
    if not metrics:
        output.note("there is no metric yet; the first report brings some")
        return
    output.emit_table(
        ("metric", "kind", "unit", "description"),
        [(m["name"], m["kind"], m["unit"] or "-", m["description"] or "-") for m in metrics],
    )
