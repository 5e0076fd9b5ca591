"""`widerow hot`: devices that send far too much, and the steps taken. `widerow device control`: deciding oneself."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from widerow.cli import output
from widerow.cli.api import in_path
from widerow.cli.device import DEVICES, Id
from widerow.cli.device import app as device_app
from widerow.cli.failure import Misused
from widerow.cli.session import Session, client, pairs
from widerow.model.figures import figure

_STEPS = ("limit", "spread", "sample")
_MODES = {1.0: "pinned", -1.0: "forbidden", 0.0: "as is seen"}


def add_to(app: typer.Typer) -> None:
    app.command("hot")(hot)


@client
def hot(
    session: Session,
    device: Annotated[str | None, typer.Option("--device", metavar="DEVICE", help="Only this one.")] = None,
) -> None:
    """Show devices that send far too much: their rate, since when, the steps taken, and the whole story.

    Example: widerow hot --tenant acme --device press-000017
    """
    session.show(session.api.get("/v1/hot", device=device), _draw)


@device_app.command("control")
@client
def control(
    session: Session,
    device: Id,
    pin: Annotated[
        list[str] | None,
        typer.Option(
            "--pin",
            metavar="STEP=VALUE",
            help="Do this now, hot or not: limit (reports/s), spread (sub-buckets), sample (part kept, 0.1). "
            "Can be given several times.",
        ),
    ] = None,
    forbid: Annotated[
        list[str] | None,
        typer.Option("--forbid", metavar="STEP", help="Never do this. Can be given several times.", show_default=False),
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Leave the other steps to Widerow.", show_default=False)] = False,
) -> None:
    """Pin or forbid the steps against a device that sends far too much: limit, spread, sample. Without options, show them.

    Example: widerow device control press-000017 --tenant acme --pin limit=5 --forbid sample
    """
    form: dict[str, Any] = dict.fromkeys(_STEPS, "auto") if clear else {}
    form |= dict.fromkeys(forbid or (), "forbid")
    form |= {step: _number(step, text) for step, text in pairs(pin, "--pin").items()}
    path = f"{DEVICES}/{in_path(device)}/controls"
    session.show(session.api.patch(path, form) if form else session.api.get(path), _draw_controls)


def _number(step: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise Misused(f"--pin {step}={text}: give a number") from None


def _draw(answer: dict[str, Any]) -> None:
    if answer["hot"]:
        output.emit_table(
            ("device", "reports/s", "share", "hot since", *_STEPS, "why"),
            [
                (
                    f"{one['tenant']}/{one['device']}",
                    figure(one["reports_per_s"]),
                    f"{one['share']:.0%}" if one["share"] else "-",
                    one["since"] or "-",
                    *(_step(one, step) for step in _STEPS),
                    one["reason"],
                )
                for one in answer["hot"]
            ],
            right=("reports/s", "share"),
        )
    else:
        output.note("no device is hot")
    if answer["story"]:
        output.emit_table(
            ("time", "device", "what", "why"),
            [(fact["time"], f"{fact['tenant']}/{fact['device']}", _what(fact), fact["reason"]) for fact in answer["story"]],
        )


def _step(one: dict[str, Any], step: str) -> str:
    mode, value = one["modes"][step], one["steps"].get(step)
    shown = "-" if value is None else _amount(step, value)
    return f"{shown} ({mode})" if mode != "auto" else shown


def _amount(step: str, value: float) -> str:
    if step == "sample":
        return f"{value:.0%} kept"
    return f"{figure(value)}/s" if step == "limit" else f"{value:g} sub-buckets"


def _what(fact: dict[str, Any]) -> str:
    """A fact in words."""
    what, value = fact["what"], fact["value"]
    if what.endswith("-mode"):
        return f"{what.removesuffix('-mode')} is {_MODES.get(value, value)}"
    said = {
        "hot": (f"hot: {figure(value)} reports/s", "cooled"),
        "hot-rate": (f"limited to {figure(value)} reports/s", "no longer limited"),
        "spread": (f"spread over {value:g} sub-buckets from {fact['from']} on", f"no longer spread from {fact['from']} on"),
        "sample": (f"sampled: {value:.0%} kept from {fact['from']} on", f"no longer sampled from {fact['from']} on"),
    }
    return said[what][0 if value else 1] if what in said else f"{what} {figure(value)}"


def _draw_controls(controls: dict[str, Any]) -> None:
    output.emit_table(
        ("step", "mode", "value"),
        [
            (step, one["mode"], "-" if one["value"] is None else _amount(step, one["value"]))
            for step, one in controls.items()
        ],
    )
