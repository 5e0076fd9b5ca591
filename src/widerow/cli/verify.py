"""`widerow verify` and `widerow repair`: whether rollups say what their reports say, and mending those that do not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from widerow.cli import output
from widerow.cli.failure import Failed
from widerow.cli.session import Session, client

StartOption = Annotated[
    str | None,
    typer.Option(
        "--start",
        metavar="TIME",
        help="From: RFC 3339, epoch ms, or relative. As far back as raw reports are kept, by default.",
        show_default=False,
    ),
]
EndOption = Annotated[str, typer.Option("--end", metavar="TIME", help="Up to, and without.")]
DeviceOption = Annotated[
    str | None, typer.Option("--device", metavar="DEVICE", help="This device alone.", show_default=False)
]

_SUMS = ("behind", "wrong", "cannot_tell", "unreadable", "repaired", "unlisted", "device_days")
_COLUMNS = ("finding", "tenant", "device", "level", "window", "metric", "frozen", "repaired", "note")


def add_to(app: typer.Typer) -> None:
    app.command("verify")(verify)
    app.command("repair")(repair)


@client
def verify(session: Session, start: StartOption = None, end: EndOption = "now", device: DeviceOption = None) -> None:
    """Compute rollups again and compare them with the stored ones, bit for bit. Ends with 1 if one is wrong.

    Minutes are computed from raw reports, hours from these minutes, days from these hours; and the fleet's hours from those
    of its devices, unless --device is given. Windows whose raw reports are gone are frozen: they are compared with the
    level beneath them. Windows that wait to be rolled are behind, which is no error. The command checks whole days
    (UTC), without --tenant of all tenants, and changes nothing.

    Example: widerow verify --tenant acme --start -7d

    Example: widerow verify --tenant acme --device press-000017 --start 2026-11-01T00:00:00Z --end now --json
    """
    report = _run(session, start, end, device, repair=False)
    if report.sums["wrong"]:
        stay = report.sums["cannot_tell"] + report.sums["unreadable"] == report.sums["wrong"]
        raise Failed(
            f"{report.sums['wrong']:,} records are wrong",
            code="rollups",
            todo="see the notes" if stay else "`widerow repair` with the same options mends what can be mended",
        )


@client
def repair(session: Session, start: StartOption = None, end: EndOption = "now", device: DeviceOption = None) -> None:
    """Verify rollups, and mend those that are wrong: each record by itself, and nothing beside it.

    Records are computed from raw reports, or from the level beneath. If reports are gone or cannot be read, their record
    stays as it is and is listed (cannot tell, unreadable); the command then ends with 1. You may interrupt it and run it
    again, also beside a running server.

    Example: widerow repair --tenant acme --start -7d
    """
    report = _run(session, start, end, device, repair=True)
    left = report.sums["wrong"] - report.sums["repaired"]
    if left:
        raise Failed(
            f"{left:,} of {report.sums['wrong']:,} records that are wrong cannot be mended",
            code="rollups",
            todo="see the notes",
        )


@dataclass(slots=True)
class _Report:
    """All slices together."""

    checked: dict[str, int] = field(default_factory=dict)
    frozen: dict[str, int] = field(default_factory=dict)
    sums: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_SUMS, 0))
    findings: list[dict[str, Any]] = field(default_factory=list)

    def add(self, part: dict[str, Any]) -> None:
        for mine, more in ((self.checked, part["checked"]), (self.frozen, part["frozen"]), (self.sums, part)):
            for key in _SUMS if mine is self.sums else more:
                mine[key] = mine.get(key, 0) + more[key]
        self.findings += part["findings"]

    def plain(self) -> dict[str, Any]:
        return {"checked": self.checked, "frozen": self.frozen, **self.sums, "findings": self.findings}


def _run(session: Session, start: str | None, end: str, device: str | None, *, repair: bool) -> _Report:
    report = _Report()
    form = {"start": start, "end": end, "device": device, "repair": repair}
    for tenant in _tenants(session):
        for part in _slices(session, tenant, {key: value for key, value in form.items() if value is not None}):
            report.add(part)
    session.show(report.plain(), lambda _: _draw(report))
    return report


def _slices(session: Session, tenant: str | None, form: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The answers one after the other, with progress."""
    part = session.api.post("/v1/admin/verify", form, tenant=tenant)
    with output.progress(f"days of devices of {tenant}" if tenant else "days of devices", part["of"]) as advance:
        while True:
            advance(part["device_days"])
            yield part
            if part["next"] is None:
                return
            part = session.api.post("/v1/admin/verify", form | {"after": part["next"]}, tenant=tenant)


def _tenants(session: Session) -> list[str | None]:
    """Those that are meant; None: the token's."""
    if session.api.tenant is not None:
        return [session.api.tenant]
    try:
        return [tenant["name"] for tenant in session.api.pages("/v1/admin/tenants", "tenants")]
    except Failed as error:
        if error.code != "forbidden":
            raise
        return [None]


def _draw(report: _Report) -> None:
    if report.findings:
        output.emit_table(
            _COLUMNS,
            [
                (
                    f["kind"],
                    f["tenant"],
                    f["device"] if not f.get("type") else f"* of {f['type']}",
                    f["level"],
                    f["start"],
                    f["metric"],
                    f["frozen"],
                    f["repaired"],
                    f["note"],
                )
                for f in report.findings
            ],
        )
    if report.sums["unlisted"]:
        output.note(f"{report.sums['unlisted']:,} more are not listed")
    checked = ", ".join(
        f"{count:,} of {'the fleet' if level == 'fleet' else f'{level}s'}" for level, count in report.checked.items()
    )
    output.note(f"checked records: {checked or 'none'}")
    if any(report.frozen.values()):
        frozen = ", ".join(f"{count:,} of {level}s" for level, count in report.frozen.items() if count)
        output.note(f"frozen, for their raw reports are gone: {frozen}; held against the level beneath them")
    if report.sums["behind"]:
        output.note(f"behind: {report.sums['behind']:,} windows wait to be rolled")
    if report.sums["cannot_tell"]:
        output.note(
            f"cannot tell: {report.sums['cannot_tell']:,} records say more than what is left beneath them; they stay"
        )
    if report.sums["unreadable"]:
        output.note(f"unreadable: {report.sums['unreadable']:,} windows were not looked at; nothing of them was changed")
    if report.sums["repaired"]:
        output.note(f"repaired: {report.sums['repaired']:,} records")
