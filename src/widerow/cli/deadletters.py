"""`widerow deadletters`: what was refused, and sending it again after what was wrong is mended."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any

import typer

from widerow.cli import output
from widerow.cli.api import in_path
from widerow.cli.failure import Failed, Misused
from widerow.cli.session import Session, YesOption, client, confirm, writing_client

app = typer.Typer(help="Dead letters: refused reports, with the reason and the bytes.", no_args_is_help=True)

LETTERS = "/v1/deadletters"
_IDS_AT_ONCE = 100
_LISTED = 10

Id = Annotated[str, typer.Argument(metavar="ID", help="From `widerow deadletters list`.", show_default=False)]
Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="These letters.", show_default=False)]
CodeOption = Annotated[
    str | None, typer.Option("--code", metavar="CODE", help="Letters with this code.", show_default=False)
]
SinceOption = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="Letters filed since then: -1d.", show_default=False)
]
UntilOption = Annotated[
    str | None, typer.Option("--until", metavar="TIME", help="Letters filed before then.", show_default=False)
]
ConflictsOption = Annotated[
    bool, typer.Option("--conflicts", help="Those refused as conflict, too, which contradict others.", show_default=False)
]
AllOption = Annotated[bool, typer.Option("--all", help="All letters of the tenant.", show_default=False)]


@app.command("list")
@client
def list_(
    session: Session,
    code: CodeOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Letters to show at most.")] = 100,
) -> None:
    """Dead letters, the newest first.

    Example: widerow deadletters list --tenant acme --code future --since -1h
    """
    asked = {"code": code, "since": since, "until": until, "limit": min(limit + 1, 1000)}
    # One more than is shown tells whether there are more.
    found = list(islice(session.api.pages(LETTERS, "letters", **asked), limit + 1))
    if len(found) > limit:
        output.note(f"there are more; these are the newest {limit:,} (--limit)")
    session.show(found[:limit], _draw)


@app.command("show")
@client
def show(
    session: Session,
    letter: Id,
    body: Annotated[bool, typer.Option("--body", help="Only the bytes that were sent, as they are.")] = False,
) -> None:
    """One dead letter, with its bytes.

    Example: widerow deadletters show 20261115T080000123456Z-3f9a0c1d --tenant acme --body > report.json
    """
    found = session.api.get(f"{LETTERS}/{in_path(letter)}")
    if body:
        text = found["body"]
        output.emit_bytes(b64decode(text) if found["body_form"] == "base64" else text.encode())
        return
    session.show(found, output.emit_facts)


@app.command("replay")
@writing_client
def replay(
    session: Session,
    letters: Ids = None,
    code: CodeOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    every: AllOption = False,
    conflicts: ConflictsOption = False,
) -> None:
    """Send dead letters again, the oldest first. Stored ones are removed; refused ones stay, with the new reason.

    Reports keep the version of their receipt, so corrections made since stay. Letters refused as conflict are sent only by
    their ids or with --conflicts, since Widerow cannot know which of their values is right. Ends with 1
    if something was refused again, or is not there.

    Example: widerow deadletters replay --tenant acme --code unknown-device
    """
    _check_meant(letters, code, since, until, every=every)
    total: dict[str, Any] = {"stored": 0, "refused": 0, "reports": 0, "conflicts": 0, "letters": []}
    match = {"code": code, "since": since, "until": until, "all": every or None, "conflicts": conflicts or None}
    for form in _forms(letters, match):
        following: str | None = ""
        while following is not None:
            part = session.api.post(f"{LETTERS}/replay", {**form, "after": following})
            for key in total:
                total[key] += part[key]
            following = part["next"]
    left = [one for one in total["letters"] if one["outcome"] != "stored"]
    session.done(total, f"{total['stored']:,} letters are stored, with {total['reports']:,} reports in all")
    if total["conflicts"]:
        output.note(
            f"{total['conflicts']:,} letters refused as conflict are left; --conflicts, or their ids, sends them too"
        )
    for one in left[:_LISTED]:
        output.note(output.printable(f"{one['id']}: {one.get('code', one['outcome'])}: {one.get('reason', 'it is gone')}"))
    if left:
        raise Failed(f"{len(left):,} of {len(total['letters']):,} letters were not stored", code="refused")


@app.command("purge")
@client
def purge(
    session: Session,
    letters: Ids = None,
    code: CodeOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    every: AllOption = False,
    yes: YesOption = False,
) -> None:
    """Remove dead letters.

    Example: widerow deadletters purge --tenant acme --until -3d --yes
    """
    _check_meant(letters, code, since, until, every=every)
    confirm("removing dead letters", yes=yes)
    deleted = 0
    for form in _forms(letters, {"code": code, "since": since, "until": until, "all": "true" if every else None}):
        params = {"id" if name == "ids" else name: value for name, value in form.items()}
        more = True
        while more:
            part = session.api.delete(LETTERS, **params)
            deleted, more = deleted + part["deleted"], part["more"]
    session.done({"deleted": deleted}, f"{deleted:,} dead letters are removed")


def _check_meant(ids: list[str] | None, *others: str | None, every: bool) -> None:
    if ids and (every or any(others)):
        raise Misused("name letters by their ids or by --code, --since, --until and --all, not by both")
    if not ids and not every and not any(others):
        raise Misused("which dead letters?", todo="give their ids, --code, --since or --until; or --all")


def _forms(ids: list[str] | None, match: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What is meant, as the API takes it: by ids, some at a time, or by what they have in common."""
    if not ids:
        yield {name: value for name, value in match.items() if value is not None}
        return
    ordered = sorted(set(ids))
    for start in range(0, len(ordered), _IDS_AT_ONCE):
        yield {"ids": ordered[start : start + _IDS_AT_ONCE]}


def _draw(letters: list[dict[str, Any]]) -> None:
    if not letters:
        output.note("there is no such dead letter")
        return
    output.emit_table(
        ("id", "code", "reports", "bytes", "kept", "source", "reason"),
        [(x["id"], x["code"], x["reports"] or "-", x["bytes"], x["kept"], x["source"], x["reason"]) for x in letters],
        right=("reports", "bytes"),
    )
