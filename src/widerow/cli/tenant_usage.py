"""`widerow tenant usage`: what a tenant uses and has stored, and what that costs."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from widerow.cli import output
from widerow.cli.session import Session, duration, operator_client
from widerow.model.times import DAY

_SHORT_US = 2 * DAY
"""Up to here steps are hours, unless it is said."""

Name = Annotated[str, typer.Argument(metavar="TENANT", help="Its name.", show_default=False)]


class Step(StrEnum):
    HOUR = "hour"
    DAY = "day"


@operator_client
def usage(
    session: Session,
    name: Name,
    last: Annotated[str, typer.Option("--last", metavar="TIME", help="Of how long before now: 36h, 7d.")] = "7d",
    step: Annotated[
        Step | None, typer.Option("--step", help="By hours or by days; as it fits otherwise.", show_default=False)
    ] = None,
) -> None:
    """Show the use of a tenant, its stored bytes, and their cost.

    Example: widerow tenant usage acme --last 30d --json
    """
    last_us = duration("--last", last)
    step = step or (Step.HOUR if last_us <= _SHORT_US else Step.DAY)
    session.show(session.api.get("/v1/usage", tenant=name, start=f"-{last}", step=step.value), _draw)


def _draw(usage: dict[str, Any]) -> None:
    output.emit_table(
        ("time", "offered", "accepted", "refused", "values", "written", "questions", "rows read", "read", "stored", "cost"),
        [_row(use["time"], use) for use in usage["usage"]] + [_row("total", usage["total"])],
        right=("offered", "accepted", "refused", "values", "written", "questions", "rows read", "read", "stored", "cost"),
    )
    stored, limits = usage["stored"], usage["limits"]
    levels = ", ".join(f"{level} {output.size(size)}" for level, size in stored.items() if level != "total")
    most = f" of {output.size(limits['storage_bytes'])}" if "storage_bytes" in limits else ""
    output.emit(f"stored now: {output.size(stored['total'])}{most} ({levels}); devices: {usage['devices']:,}")
    for what, counts in (("refused", usage["total"]["refused_by"]), ("over a limit", usage["total"]["limited_by"])):
        if counts:
            output.emit(f"{what}: {', '.join(f'{code} {count:,}' for code, count in sorted(counts.items()))}")
    cost = usage["total"]["cost"]
    if any(usage["prices"].values()):
        parts = ", ".join(f"{part} {value:,.4f}" for part, value in cost.items() if part != "total")
        output.emit(f"cost: {cost['total']:,.4f} ({parts})")


def _row(time: str, use: dict[str, Any]) -> tuple[Any, ...]:
    return (
        time,
        use["offered"],
        use["accepted"],
        use["refused"],
        use["values"],
        output.size(use["written_bytes"]),
        use["questions"],
        use["rows_read"],
        output.size(use["answered_bytes"]),
        output.size(use["stored_bytes"]),
        f"{use['cost']['total']:,.4f}",
    )
