"""`widerow tenant`: who owns devices, limits, retention and tokens."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from widerow.cli import output
from widerow.cli.api import failure, in_path
from widerow.cli.failure import Misused
from widerow.cli.session import Session, YesOption, confirm, creating_client, operator_client, pairs
from widerow.cli.tenant_usage import usage
from widerow.cli.tenant_whatif import whatif

app = typer.Typer(help="Tenants, with their devices, limits, retention and tokens.", no_args_is_help=True)

TENANTS = "/v1/admin/tenants"
_KNOBS = {
    "limits.": "--limit ",
    "limit_modes.": "--mode ",
    "hot_steps.": "--hot ",
    "retention.": "--retention ",
    "row_attributes": "--row-attributes",
    "device_tags": "--device-tags",
    "attribute_tags": "--attribute-tags",
    "display_name": "--display-name",
}

Name = Annotated[str, typer.Argument(metavar="TENANT", help="Its name: a-z, 0-9 and -.", show_default=False)]
DisplayName = Annotated[str | None, typer.Option("--display-name", metavar="TEXT", help="The name for people.")]
LimitOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        metavar="NAME=N",
        help="Any limit by its name, as show gives them; 0 for no limit. Can be given several times.",
    ),
]
WritesPerS = Annotated[
    int | None, typer.Option("--writes-per-s", min=0, metavar="N", help="Reports a second; 0: any number.")
]
Burst = Annotated[
    int | None,
    typer.Option("--writes-burst", min=0, metavar="N", help="Reports at once; 0: ten seconds' worth of --writes-per-s."),
]
StorageBytes = Annotated[int | None, typer.Option("--storage-bytes", min=0, metavar="N", help="Bytes kept; 0: any number.")]
DeviceCount = Annotated[int | None, typer.Option("--devices", min=0, metavar="N", help="Devices registered; 0: any number.")]
SeriesCount = Annotated[
    int | None, typer.Option("--series", min=0, metavar="N", help="Pairs of a device and a metric; 0: any number.")
]
QueryCost = Annotated[
    int | None,
    typer.Option(
        "--query-cost-per-s",
        min=0,
        metavar="N",
        help="Rows a second that all its questions together may read, in each process that answers; 0: any number.",
    ),
]
QueryBurst = Annotated[
    int | None,
    typer.Option(
        "--query-cost-burst",
        min=0,
        metavar="N",
        help="Rows that they may read at once; 0: ten seconds' worth of --query-cost-per-s.",
    ),
]
ModeOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--mode",
        metavar="LIMIT=MODE",
        help="enforce; shadow, to count what would be refused; or off. Can be given several times.",
    ),
]
HotOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--hot",
        metavar="STEP=MODE",
        help="Steps against devices that send far too much: limit, spread or sample; auto, pin or forbid. "
        "Can be given several times.",
    ),
]
RetentionOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--retention",
        metavar="LEVEL=TIME",
        help="How long raw, minute, hour or day is kept: 30d, forever. Can be given several times.",
    ),
]
Registers = Annotated[
    bool | None,
    typer.Option(
        "--register-devices/--no-register-devices",
        help="Whether an unknown device is registered by its first report, or refused.",
        show_default=False,
    ),
]
RowAttributes = Annotated[
    str | None,
    typer.Option(
        "--row-attributes",
        metavar="NAME,...",
        help="Attributes of devices to store with each report, as tags: type, location, both, or none.",
        show_default=False,
    ),
]
DeviceTags = Annotated[
    str | None,
    typer.Option(
        "--device-tags",
        metavar="TAG,...",
        help="Line protocol: the first of these tags that is there names the device; none: as the server is configured.",
        show_default=False,
    ),
]
AttributeTags = Annotated[
    str | None,
    typer.Option(
        "--attribute-tags",
        metavar="TAG,...",
        help="Line protocol: tags that are attributes of a report, not labels; none: as the server is configured.",
        show_default=False,
    ),
]


@app.command("create")
@creating_client
def create(
    session: Session,
    name: Name,
    display_name: DisplayName = None,
    limit: LimitOptions = None,
    writes_per_s: WritesPerS = None,
    writes_burst: Burst = None,
    storage_bytes: StorageBytes = None,
    devices: DeviceCount = None,
    series: SeriesCount = None,
    query_cost_per_s: QueryCost = None,
    query_cost_burst: QueryBurst = None,
    mode: ModeOptions = None,
    hot: HotOptions = None,
    retention: RetentionOptions = None,
    registers_devices: Registers = None,
    row_attributes: RowAttributes = None,
    device_tags: DeviceTags = None,
    attribute_tags: AttributeTags = None,
) -> None:
    """Make a tenant.

    Example: widerow tenant create acme --retention raw=90d --devices 1000
    """
    named = {
        "writes_per_s": writes_per_s,
        "writes_burst": writes_burst,
        "storage_bytes": storage_bytes,
        "devices": devices,
        "series": series,
        "query_cost_per_s": query_cost_per_s,
        "query_cost_burst": query_cost_burst,
    }
    lists = {"row_attributes": row_attributes, "device_tags": device_tags, "attribute_tags": attribute_tags}
    form = {"name": name, **_form(display_name, limit, named, mode, hot, retention, registers_devices, lists)}
    session.api.knobs = _KNOBS
    made = session.api.post(TENANTS, form)
    session.done(made, f"tenant {name} is made; next: widerow token create {name} --role write")


@app.command("list")
@operator_client
def list_(session: Session) -> None:
    """All tenants.

    Example: widerow tenant list
    """
    session.show(session.api.get(TENANTS)["tenants"], _draw)


@app.command("show")
@operator_client
def show(session: Session, name: Name) -> None:
    """One tenant in full.

    Example: widerow tenant show acme --json
    """
    session.show(session.api.get(f"{TENANTS}/{in_path(name)}"), output.emit_facts)


@app.command("set")
@operator_client
def set_(
    session: Session,
    name: Name,
    display_name: DisplayName = None,
    limit: LimitOptions = None,
    writes_per_s: WritesPerS = None,
    writes_burst: Burst = None,
    storage_bytes: StorageBytes = None,
    devices: DeviceCount = None,
    series: SeriesCount = None,
    query_cost_per_s: QueryCost = None,
    query_cost_burst: QueryBurst = None,
    mode: ModeOptions = None,
    hot: HotOptions = None,
    retention: RetentionOptions = None,
    registers_devices: Registers = None,
    row_attributes: RowAttributes = None,
    device_tags: DeviceTags = None,
    attribute_tags: AttributeTags = None,
    yes: YesOption = False,
) -> None:
    """Change a tenant. Only the named settings change. For a shorter retention it shows the data that goes, and asks.

    Example: widerow tenant set acme --writes-per-s 5000 --mode writes_per_s=shadow
    """
    named = {
        "writes_per_s": writes_per_s,
        "writes_burst": writes_burst,
        "storage_bytes": storage_bytes,
        "devices": devices,
        "series": series,
        "query_cost_per_s": query_cost_per_s,
        "query_cost_burst": query_cost_burst,
    }
    lists = {"row_attributes": row_attributes, "device_tags": device_tags, "attribute_tags": attribute_tags}
    form = _form(display_name, limit, named, mode, hot, retention, registers_devices, lists)
    if not form:
        raise Misused("nothing to change is given", todo="see widerow tenant set --help")
    session.api.knobs = _KNOBS
    path = f"{TENANTS}/{in_path(name)}"
    answer = session.api.send("PATCH", path, body=form, params={"confirm": "true"} if yes else None, also=(409,))
    if answer.status_code == 409:
        said = failure(answer, _KNOBS)
        if said.code != "confirmation-needed":
            raise said
        _draw_goes(answer.json()["error"]["goes"])
        confirm(f"keeping data of tenant {name} for a shorter time", yes=yes)
        answer = session.api.send("PATCH", path, body=form, params={"confirm": "true"})
    session.done(answer.json(), f"tenant {name} is changed")


@app.command("delete")
@operator_client
def delete(session: Session, name: Name, yes: YesOption = False) -> None:
    """Delete a tenant with its devices, tokens and all its data.

    Example: widerow tenant delete acme --yes
    """
    path = f"{TENANTS}/{in_path(name)}"
    session.api.get(path)
    confirm(f"deleting tenant {name} and all its data", yes=yes)
    session.api.delete(path)
    session.done({"deleted": name}, f"tenant {name} is deleted")


app.command("usage")(usage)
app.command("whatif")(whatif)


def _form(
    display_name: str | None,
    limit: list[str] | None,
    named: dict[str, int | None],
    mode: list[str] | None,
    hot: list[str] | None,
    retention: list[str] | None,
    registers_devices: bool | None,
    lists: dict[str, str | None],
) -> dict[str, Any]:
    """What the options say, as the API takes it. The server knows the names there are, and says so."""
    form: dict[str, Any] = {}
    if display_name is not None:
        form["display_name"] = display_name
    limits = {name: _whole(name, text) for name, text in pairs(limit or [], "--limit").items()}
    limits |= {name: value for name, value in named.items() if value is not None}
    if limits:
        form["limits"] = limits
    if mode:
        form["limit_modes"] = pairs(mode, "--mode")
    if hot:
        form["hot_steps"] = pairs(hot, "--hot")
    if retention:
        kept = pairs(retention, "--retention")
        form["retention"] = {level: "forever" if text == "0" else text for level, text in kept.items()}
    if registers_devices is not None:
        form["registers_devices"] = registers_devices
    for key, text in lists.items():
        if text is not None:
            form[key] = [name.strip() for name in text.split(",") if name.strip() and name != "none"]
    return form


def _whole(name: str, text: str) -> int:
    try:
        return int(text.replace("_", "").replace(",", ""))
    except ValueError:
        raise Misused(f"--limit {name}={text}: give a whole number") from None


def _draw_goes(goes: list[dict[str, Any]]) -> None:
    """What a shorter retention takes away: beside the result, which is not there yet."""
    output.note(
        output.table(
            ("level", "kept", "then", "reaches back to", "would reach back to", "days", "devices, about", "rows, about"),
            [
                (
                    g["level"],
                    g["retention"],
                    g["becomes"],
                    g["reaches_back_to"],
                    g["would_reach_back_to"],
                    *("not known" if g[key] is None else g[key] for key in ("days", "devices", "rows")),
                )
                for g in goes
            ],
            right=("days", "devices, about", "rows, about"),
        ).rstrip()
    )


def _draw(tenants: list[dict[str, Any]]) -> None:
    if not tenants:
        output.note("there is no tenant yet; make one with: widerow tenant create NAME")
        return
    output.emit_table(
        ("tenant", "name", "raw", "minute", "hour", "day", "devices at most", "writes/s at most", "created"),
        [
            (
                t["name"],
                t["display_name"] or "-",
                *(t["retention"][level] for level in ("raw", "minute", "hour", "day")),
                output.limit_text(t["limits"]["devices"]),
                output.limit_text(t["limits"]["writes_per_s"]),
                t["created"],
            )
            for t in tenants
        ],
        right=("devices at most", "writes/s at most"),
    )
