"""`widerow audit`: who changed what, and when."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any

import typer

from widerow.cli import output
from widerow.cli.session import Session, client, duration

AUDIT = "/v1/admin/audit"


def add_to(app: typer.Typer) -> None:
    app.command("audit")(audit)


@client
def audit(
    session: Session,
    last: Annotated[str, typer.Option("--last", metavar="DURATION", help="How far back: 12h, 7d.")] = "7d",
    limit: Annotated[int, typer.Option("--limit", min=1, help="Actions to show at most.")] = 1000,
) -> None:
    """Show changes by admins and operators, newest first: of one tenant, or, for an operator without --tenant, of all.

    Example: widerow audit --tenant acme --last 30d
    """
    duration("--last", last)
    pages = session.api.pages(AUDIT, "actions", start=f"-{last}", limit=min(limit + 1, 1000))
    # One more than is shown tells whether there are more.
    found = list(islice(pages, limit + 1))
    if len(found) > limit:
        output.note(f"there are more; these are the newest {limit:,} (--limit)")
    session.show(found[:limit], _draw)


def _draw(actions: list[dict[str, Any]]) -> None:
    if not actions:
        output.note("nothing was changed in this time")
        return
    output.emit_table(
        ("time", "tenant", "by", "what", "about", "changes", "outcome"),
        [
            (
                a["time"],
                a["tenant"] or "-",
                f"{a['by']} ({a['role']})",
                a["command"] or a["what"],
                a["about"] or "-",
                "; ".join(a["changes"]) or "-",
                a["outcome"] if a["outcome"] == "done" else f"{a['outcome']}: {a['reason']}",
            )
            for a in actions
        ],
    )
