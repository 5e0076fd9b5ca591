"""What is printed, and where.

Rule 1: standard output carries the result and nothing else; notes, progress and errors go to standard error.
Rule 2: with `--json` the result is one compact JSON text, whatever the terminal.
Rule 3: names and texts are shown as they are: never as markup, and never as commands to the terminal.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

from widerow.model.times import SECOND, about_duration, parse_rfc3339

if TYPE_CHECKING:  # rich is imported where something is drawn: it takes longer than all else in `widerow --help`
    from rich.console import Console

_PIPE_WIDTH = 500
"""Columns of a table that no terminal bounds: whoever reads it from a pipe wants whole names."""


def error_console() -> Console:
    """For progress and whatever else moves."""
    from rich.console import Console  # noqa: PLC0415

    return Console(stderr=True, highlight=False, markup=False, emoji=False)


def note(text: str) -> None:
    """A remark beside the result."""
    print(text, file=sys.stderr, flush=True)


def emit(text: str) -> None:
    """A line of the result."""
    print(text, flush=True)


def emit_json(value: Any) -> None:
    emit(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def emit_bytes(data: bytes) -> None:
    """A piece of the result as it is. Beneath the text layer, which is emptied first so that nothing changes places."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def emit_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, right: Sequence[str] = ()) -> None:
    emit_bytes(table(columns, rows, right=right).encode())


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, right: Sequence[str] = ()) -> str:
    """A table, with the named columns flush right, as wide as the terminal allows."""
    from rich import box  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        grid.add_column(Text(column), justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(Text(shown(cell)) for cell in row))
    drawn = Console(
        file=io.StringIO(), width=get_terminal_size().columns if is_terminal() else _PIPE_WIDTH, color_system=None
    )
    drawn.print(grid)
    text = drawn.file.getvalue()  # type: ignore[attr-defined]
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines() if line.strip())


def emit_facts(facts: Mapping[str, Any]) -> None:
    """One thing in full: a line for each of its properties, what is nested by dotted names."""
    flat = dict(_flat(facts))
    width = max(map(len, flat), default=0)
    for name, value in flat.items():
        emit(f"{name:<{width}}  {shown(value)}".rstrip())


def _flat(facts: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for name, value in facts.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def shown(value: Any) -> str:
    """A value for people."""
    if value is None or value in ({}, []):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return number(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list | dict):
        return printable(json.dumps(value, ensure_ascii=False))
    return printable(str(value))


def printable(text: str) -> str:
    """Control characters as escapes: a text value may hold what would move a cursor or retitle a window."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def number(value: float) -> str:
    """All the digits a float has, without `.0` where it is whole."""
    return f"{value:.0f}" if value.is_integer() and abs(value) < 1e15 else repr(value)


def size(n: float) -> str:
    """`1.5 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(n) < 1024 or unit == "TiB":
            break
        n /= 1024
    return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"


def age(time: str | None, now_us: int) -> str:
    """How long ago: `12s ago`; `-` where there is no time."""
    if not time:
        return "-"
    past_us = now_us - parse_rfc3339(time)
    if past_us < 0:
        return "ahead of this clock"
    return f"{about_duration(past_us)} ago" if past_us >= SECOND else "just now"


def limit_text(value: int) -> str:
    """A limit of 0 is none."""
    return f"{value:,}" if value else "no limit"


@contextmanager
def progress(what: str, total: float | None) -> Iterator[Callable[[float], None]]:
    """A bar on the terminal for work that takes a while; gives a function to call with each step. Not in pipes and logs."""
    if not sys.stderr.isatty():
        yield lambda _n: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=error_console(), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda n: bar.advance(task, n)


def is_terminal() -> bool:
    return sys.stdout.isatty()
