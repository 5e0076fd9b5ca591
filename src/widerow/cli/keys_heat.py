"""`widerow keys heat`: where in the key space a running system writes and reads, minute by minute."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from enum import StrEnum
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, Any

import typer

from widerow.cli import output
from widerow.cli.keys import keys
from widerow.cli.session import Session, client
from widerow.model.figures import figure

if TYPE_CHECKING:
    from rich.text import Text

KEY_SPACE = "/v1/admin/keyspace"
_EVERY_S = 2.0
_SHADES = (
    ("·", 0.0, "grey42"),
    ("░", 0.03, "dark_red"),
    ("▒", 0.12, "red3"),
    ("▓", 0.3, "orange1"),
    ("█", 0.6, "bright_yellow"),
)
"""From which share of the hottest cell on each is drawn."""
_FEW, _MOST_ROWS, _OTHER_ROWS = 24, 64, 14
"""Ranges in a pipe, and on a high terminal; lines beside the ranges."""
_HOTTEST = 5


class Axis(StrEnum):
    WRITES = "writes"
    READS = "reads"


@keys.command("heat")
@client
def heat(
    session: Session,
    live: Annotated[bool, typer.Option("--live", help="Draw it again every two seconds, until Ctrl-C.")] = False,
    what: Annotated[Axis, typer.Option("--what", help="Which of both the shades show.")] = Axis.WRITES,
    minutes: Annotated[int, typer.Option("--minutes", min=1, max=60, help="So many of the last minutes.")] = 60,
    start: Annotated[str | None, typer.Option("--start", metavar="KEY", help="From this key on: TENANT/DEVICE.")] = None,
    stop: Annotated[str | None, typer.Option("--stop", metavar="KEY", help="To before this key.")] = None,
    ranges: Annotated[
        int | None, typer.Option("--ranges", min=1, max=512, help="Ranges at most; as many as fit, if left out.")
    ] = None,
) -> None:
    """Draw the heat map of the keys that a server writes and reads: a line for each range of keys, a column for each minute.

    Example: widerow keys heat --minutes 30

    Example: widerow keys heat --live

    Example: widerow keys heat --tenant acme --start acme/press --stop acme/pump --what reads
    """

    def view() -> dict[str, Any]:
        most = ranges or (min(_MOST_ROWS, max(8, get_terminal_size().lines - _OTHER_ROWS)) if output.is_terminal() else _FEW)
        found: dict[str, Any] = session.api.get(KEY_SPACE, minutes=minutes, start=start, stop=stop, ranges=most)
        return found

    if not live:
        session.show(view(), lambda answer: _draw(answer, what))
        return
    with suppress(KeyboardInterrupt):  # that is how one stops it
        if session.as_json or not output.is_terminal():
            while True:
                session.show(view(), lambda answer: _draw(answer, what))
                time.sleep(_EVERY_S)
        _draw_live(view, what)


def _draw_live(view: Any, what: Axis) -> None:
    from rich.console import Console  # noqa: PLC0415
    from rich.live import Live  # noqa: PLC0415

    with Live(_picture(view(), what), console=Console(highlight=False), screen=True, auto_refresh=False) as screen:
        while True:
            time.sleep(_EVERY_S)
            screen.update(_picture(view(), what), refresh=True)


def _draw(answer: dict[str, Any], what: Axis) -> None:
    from rich.console import Console  # noqa: PLC0415

    if not answer["ranges"]:
        output.note(f"nothing was written or read there since {answer['since']}, as far as the process that answers knows")
        return
    picture = _picture(answer, what)
    if output.is_terminal():
        Console(highlight=False).print(picture, soft_wrap=True)
    else:
        output.emit(picture.plain)


def _picture(answer: dict[str, Any], what: Axis) -> Text:
    """The whole picture, in lines."""
    from rich.text import Text  # noqa: PLC0415

    text, rows = Text(), answer["ranges"]
    sums = [sum(one[what]) for one in rows]
    hottest = max((count for one in rows for count in one[what]), default=0.0)
    names = [_name(one) for one in rows]
    tails = [f"{figure(round(n))} ± {figure(round(one[f'{what}_error']))}" for one, n in zip(rows, sums, strict=True)]
    width = min(max(map(len, names), default=0), 48)
    minutes = answer["minutes"]
    if minutes:
        text.append(f"{what} from {minutes[0][11:16]} to {minutes[-1][11:16]} UTC, a column a minute\n")
    for name, one, tail in zip(names, rows, tails, strict=True):
        text.append(f"{name if len(name) <= width else name[: width - 1] + '…':<{width}} ")
        for count in one[what]:
            text.append(*_shade(count, hottest))
        text.append(f" {tail}\n")
    for line in _facts(answer):
        text.append(f"{line}\n")
    text.rstrip()
    return text


def _shade(count: float, hottest: float) -> tuple[str, str]:
    if count <= 0 or hottest <= 0:
        return " ", ""
    return next((shade, style) for shade, least, style in reversed(_SHADES) if count / hottest >= least)


def _name(one: dict[str, Any]) -> str:
    """A range by its first key, and whether there are more."""
    start = one["start"]
    if start.endswith("\0"):
        return output.printable(f"after {start[:-1]}")
    return output.printable(start or "(first)") + (" …" if one["keys"] != 1 else "")


def _facts(answer: dict[str, Any]) -> Iterator[str]:
    for axis in Axis:
        use: dict[str, Any] = answer[axis]
        if not use["count"]:
            yield f"{axis}: none"
            continue
        yield f"{axis}: {use['count']:,}; hottest key {use['skew']:,.1f} times the mean, Gini {use['gini']:.2f}"
        yield from _hottest(use["hottest"][:_HOTTEST])


def _hottest(keys: Sequence[dict[str, Any]]) -> Iterator[str]:
    for one in keys:
        counted = f"{figure(round(one['count']))} ± {figure(round(one['error']))}"
        yield f"  {one['share']:>6.1%}  {counted}  {output.printable(one['key'])}"
