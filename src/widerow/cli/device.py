"""`widerow device`: what the catalog knows about those who report."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from widerow.cli import output
from widerow.cli.api import in_path
from widerow.cli.failure import STATES, USAGE, Failed, Misused
from widerow.cli.inventory import read_inventory
from widerow.cli.session import Session, YesOption, client, confirm, pairs
from widerow.model.figures import figure

app = typer.Typer(help="Devices: their description, placement and history.", no_args_is_help=True)

DEVICES = "/v1/devices"
BULK = 1000
"""Devices of one request of an import."""

_KNOBS = {
    "profile.reports_per_s": "--rate",
    "profile.max_reports_per_s": "--max-rate",
    "profile.metrics_per_report": "--metrics-per-report",
}

Id = Annotated[str, typer.Argument(metavar="DEVICE", help="Its name, as it reports itself.", show_default=False)]
TypeOption = Annotated[str | None, typer.Option("--type", metavar="TEXT", help="Devices of this type.")]
LocationOption = Annotated[str | None, typer.Option("--location", metavar="TEXT", help="Devices at this place.")]
TagOptions = Annotated[
    list[str] | None,
    typer.Option("--tag", metavar="NAME=VALUE", help="Devices with this tag. Can be given several times."),
]
PrefixOption = Annotated[str | None, typer.Option("--prefix", metavar="TEXT", help="Devices whose name begins so.")]


def match_params(type_: str | None, location: str | None, tags: list[str] | None, prefix: str | None) -> dict[str, Any]:
    """Which devices, as the API is asked."""
    named = pairs(tags, "--tag")
    for name in named:
        if ":" in name:
            raise Misused(f"--tag {name}: devices cannot be looked for by a tag with a colon in its name")
    return {
        "type": type_,
        "location": location,
        "prefix": prefix,
        "tag": [f"{name}:{value}" for name, value in named.items()] or None,
    }


@app.command("list")
@client
def list_(
    session: Session,
    type_: TypeOption = None,
    location: LocationOption = None,
    tag: TagOptions = None,
    prefix: PrefixOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Devices to show at most.")] = 1000,
) -> None:
    """Devices that match all options; without options, all.

    Example: widerow device list --tenant acme --type press --tag line=L2
    """
    asked = match_params(type_, location, tag, prefix)
    # One more than is shown tells whether there are more.
    found = list(islice(session.api.pages(DEVICES, "devices", **asked, limit=min(limit + 1, 1000)), limit + 1))
    if len(found) > limit:
        output.note(f"there are more; these are the first {limit:,} (--limit)")
    # The server's order is that of its shards, which says nothing to people.
    session.show(sorted(found[:limit], key=lambda device: str(device["name"])), _draw)


@app.command("show")
@client
def show(session: Session, device: Id) -> None:
    """Show one device: its description, its buckets and their reasons, and its observed rate.

    Example: widerow device show press-000017 --tenant acme
    """
    path = f"{DEVICES}/{in_path(device)}"
    described = session.api.get(path)
    session.show(described | {"observed": session.api.get(f"{path}/placement")["observed"]}, _draw_one)


@app.command("history")
@client
def history(session: Session, device: Id) -> None:
    """Show the description of a device and up to ten former ones, newest first.

    Example: widerow device history press-000017 --tenant acme
    """
    session.show(session.api.get(f"{DEVICES}/{in_path(device)}/history")["states"], _draw_history)


@app.command("set")
@client
def set_(
    session: Session,
    device: Id,
    display_name: Annotated[str | None, typer.Option("--display-name", metavar="TEXT", help="The name for people.")] = None,
    type_: Annotated[str | None, typer.Option("--type", metavar="TEXT", help="The type, such as press.")] = None,
    location: Annotated[str | None, typer.Option("--location", metavar="TEXT", help="Where it is.")] = None,
    tag: Annotated[
        list[str] | None, typer.Option("--tag", metavar="NAME=VALUE", help="Set a tag. Can be given several times.")
    ] = None,
    untag: Annotated[
        list[str] | None, typer.Option("--untag", metavar="NAME", help="Remove a tag. Can be given several times.")
    ] = None,
    rate: Annotated[float | None, typer.Option("--rate", min=0, help="Reports per second it usually sends.")] = None,
    max_rate: Annotated[
        float | None, typer.Option("--max-rate", min=0, help="Reports per second it may send; 0: any.")
    ] = None,
    metrics: Annotated[
        int | None, typer.Option("--metrics-per-report", min=0, help="Values a report has; 0: not known.")
    ] = None,
    create: Annotated[
        bool, typer.Option("--create", help="Register the device if it is not known.", show_default=False)
    ] = False,
) -> None:
    """Describe a device. Only the named attributes change.

    Example: widerow device set press-000017 --tenant acme --location "Hall 3" --tag line=L2
    """
    form: dict[str, Any] = {"display_name": display_name, "type": type_, "location": location}
    form = {name: value for name, value in form.items() if value is not None}
    tags: dict[str, str | None] = {**pairs(tag, "--tag"), **dict.fromkeys(untag or ())}
    if tags:
        form["tags"] = tags
    profile = {"reports_per_s": rate, "max_reports_per_s": max_rate, "metrics_per_report": metrics}
    profile = {name: value for name, value in profile.items() if value is not None}
    if profile:
        form["profile"] = profile
    if not form and not create:
        raise Misused("nothing to change is given", todo="see widerow device set --help")
    session.api.knobs = _KNOBS
    path = f"{DEVICES}/{in_path(device)}"
    try:
        changed = session.api.patch(path, form)
    except Failed as error:
        if error.code != "not-found" or not create:
            raise
        (made,) = _send_bulk(session, [{"name": device, **form}])
        if made["outcome"] == "refused":
            wrong = USAGE if made["code"] not in STATES else 1
            raise Failed(made["reason"], code=made["code"], exit_code=wrong) from None
        changed = session.api.get(path)
    session.done(changed, f"device {device} is set")


@app.command("swap")
@client
def swap(
    session: Session,
    device: Id,
    hardware: Annotated[
        str, typer.Option("--hardware", metavar="ID", help="The new piece's serial number, or another name.")
    ],
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="A note, such as the reason.")] = "",
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="The time of the swap, if it was earlier: -2h.")
    ] = None,
) -> None:
    """Record that other hardware stands in a device's place. Its name, its data and its history stay.

    Example: widerow device swap press-000017 --hardware SN-20931 --note "spindle burnt out" --tenant acme
    """
    form = {"hardware": hardware, "note": note} | ({"since": since} if since is not None else {})
    changed = session.api.post(f"{DEVICES}/{in_path(device)}/swap", form)
    session.done(changed, f"device {device} is {hardware} now")


@app.command("delete")
@client
def delete(session: Session, device: Id, yes: YesOption = False) -> None:
    """Delete a device and all its data.

    Example: widerow device delete press-000017 --tenant acme --yes
    """
    path = f"{DEVICES}/{in_path(device)}"
    session.api.get(path)
    confirm(f"deleting device {device} and all its data", yes=yes)
    session.api.delete(path)
    session.done({"deleted": device}, f"device {device} is deleted")


@app.command("import")
@client
def import_(
    session: Session,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="JSON, NDJSON or CSV, by its ending.", exists=True, dir_okay=False)
    ],
) -> None:
    """Register and describe many devices at once. Existing devices named in the file get its descriptions; others stay.

    JSON: an array of objects, as `device list --json` gives them; NDJSON: one on each line. CSV: a column `name`, and any of
    display_name, type, location, reports_per_s, max_reports_per_s, metrics_per_report and tag:NAME.

    Example: widerow device import fleet.csv --tenant acme
    """
    forms = read_inventory(file)
    outcomes: list[dict[str, Any]] = []
    with output.progress("devices", len(forms)) as advance:
        for start in range(0, len(forms), BULK):
            outcomes += _send_bulk(session, forms[start : start + BULK])
            advance(min(BULK, len(forms) - start))
    refused = [o for o in outcomes if o["outcome"] == "refused"]
    counts = {what: sum(o["outcome"] == what for o in outcomes) for what in ("created", "updated", "refused")}
    session.done({**counts, "refusals": refused}, ", ".join(f"{n:,} {what}" for what, n in counts.items()))
    _check_bulk(outcomes)


def _send_bulk(session: Session, forms: list[dict[str, Any]]) -> list[dict[str, Any]]:
    # 422 is the answer when every one of them was refused, with the same list of reasons.
    answer = session.api.send("POST", f"{DEVICES}/batch", body={"devices": forms}, also=(422,)).json()
    if "results" not in answer:
        raise Failed(answer["error"]["message"], code=answer["error"]["code"])
    # A form that could not be read has no name in its answer.
    return [{"name": forms[result["index"]]["name"], **result} for result in answer["results"]]


def _check_bulk(outcomes: list[dict[str, Any]]) -> None:
    """Say what was refused: the first few one by one, as a rule they have the same reason."""
    refused = [o for o in outcomes if o["outcome"] == "refused"]
    if not refused:
        return
    if len(refused) > 1:
        for one in refused[:10]:
            output.note(output.printable(f"refused: {one['name']}: {one['code']}: {one['reason']}"))
        raise Failed(f"{len(refused)} of {len(outcomes)} devices were refused", code="refused")
    raise Failed(f"{refused[0]['name']}: {refused[0]['reason']}", code=refused[0]["code"])


def _draw(devices: list[dict[str, Any]]) -> None:
    if not devices:
        output.note("no device matches")
        return
    output.emit_table(
        ("device", "name", "type", "location", "tags", "reports/s"),
        [(d["name"], *_described(d)) for d in devices],
        right=("reports/s",),
    )


def _draw_one(device: dict[str, Any]) -> None:
    seen, epochs = device["observed"], device["placement"]
    rate = f"{figure(seen['reports_per_s'])} reports/s of {figure(seen['values_per_report'])} values, over {seen['over']}"
    facts = {name: value for name, value in device.items() if name not in ("placement", "observed", "hardware")}
    output.emit_facts(facts | {"observed": rate})
    output.emit("")
    if device["hardware"]:
        output.emit_table(
            ("hardware since", "id", "note"), [(h["since"], h["id"], h["note"] or "-") for h in device["hardware"]]
        )
        output.emit("")
    output.emit_table(
        ("buckets since", "width", "spread", "why"),
        [
            ("the beginning", "1h", 1, "no rate was known"),
            *((e["from"], e["bucket"], e["sub_buckets"], e["reason"]) for e in epochs),
        ],
        right=("width", "spread"),
    )


def _draw_history(states: list[dict[str, Any]]) -> None:
    output.emit_table(
        ("revision", "from", "until", "name", "type", "location", "tags", "reports/s", "max", "hardware"),
        [
            (s["revision"], s["from"], s["until"] or "now", *_described(s), _rate(s, "max_reports_per_s"), _hardware(s))
            for s in states
        ],
        right=("revision", "reports/s", "max"),
    )


def _described(device: dict[str, Any]) -> tuple[str, ...]:
    return (
        device["display_name"] or "-",
        device["type"] or "-",
        device["location"] or "-",
        " ".join(f"{name}={value}" for name, value in device["tags"].items()) or "-",
        _rate(device, "reports_per_s"),
    )


def _hardware(device: dict[str, Any]) -> str:
    return str(device["hardware"][0]["id"]) if device["hardware"] else "-"


def _rate(device: dict[str, Any], which: str) -> str:
    rate = device["profile"][which]
    return figure(rate) if rate else "-"
