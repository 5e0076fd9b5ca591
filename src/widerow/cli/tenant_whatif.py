"""`widerow tenant whatif`: what proposed limits would have done to what was recorded."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

from widerow.cli import output
from widerow.cli.api import in_path
from widerow.cli.failure import Misused
from widerow.cli.session import Session, operator_client
from widerow.model.system import explained

Name = Annotated[str, typer.Argument(metavar="TENANT", help="Its name.", show_default=False)]
_SECTIONS = ("limits", "retention")


@operator_client
def whatif(
    session: Session,
    name: Name,
    limits: Annotated[
        Path,
        typer.Option(
            "--limits",
            metavar="FILE",
            help="TOML or JSON with sections limits and retention, as tenant show --json has them, and nothing else.",
        ),
    ],
    last: Annotated[str, typer.Option("--last", metavar="TIME", help="Of how long before now: 36h, 7d.")] = "7d",
) -> None:
    """Show which reports proposed limits would have refused, and which data a retention would take. Changes nothing.

    Example: widerow tenant whatif acme --limits proposed.toml --last 7d
    """
    form = {**_read(limits), "last": last}
    session.show(session.api.post(f"/v1/admin/tenants/{in_path(name)}/whatif", form), _draw)


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text()
        form = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise Misused(f"--limits {explained(error, path)}") from None
    except (json.JSONDecodeError, tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Misused(f"--limits {path}: {error}", todo="give TOML, or JSON in a file whose name ends in .json") from None
    given = form if isinstance(form, dict) else {}
    if unknown := [key for key in given if key not in _SECTIONS]:
        raise Misused(f"--limits {path}: unknown section {unknown[0]!r}", todo=f"known are {' and '.join(_SECTIONS)}")
    if not given:
        raise Misused(f"--limits {path} proposes nothing", todo=f"give sections {' and '.join(_SECTIONS)}, or one of them")
    return given


def _draw(found: dict[str, Any]) -> None:
    writes = found["writes"]
    share = 100 * writes["refused"] / writes["offered"] if writes["offered"] else 0.0
    output.emit(
        f"{found['start']} to {found['end']}: of {writes['offered']:,} reports {writes['refused']:,} ({share:.2f}%) "
        f"would have been refused, in {writes['hours_over']:,} hours"
    )
    if writes["hours"]:
        columns = ("hour", "offered", "refused", "seconds over", "worst/s")
        rows = [(h["time"], h["offered"], h["refused"], h["seconds"], h["worst_per_s"]) for h in writes["hours"]]
        output.emit_table(columns, rows, right=columns[1:])
    reads = found["reads"]
    if reads["hours"]:
        output.emit(
            f"of {reads['rows']:,} rows that questions read, {reads['over']:,} or more would not have been, "
            f"in {reads['hours_over']:,} hours"
        )
        counts = ("rows read", "too many")
        output.emit_table(("hour", *counts), [(h["time"], h["rows"], h["over"]) for h in reads["hours"]], right=counts)
    for level in found["retention"]:
        gone = "nobody knows how many rows" if level["rows"] is None else f"about {level['rows']:,} rows"
        output.emit(
            f"{level['level']}: kept {level['becomes']} instead of {level['retention']}, {gone} from "
            f"{level['reaches_back_to']} to {level['would_reach_back_to']} would go"
        )
    for limit in found["now"]:
        over = f"{limit['over']:,} over it: new ones would be refused" if limit["over"] else "within it"
        output.emit(f"{limit['limit']}: {limit['seen']:,} now, {limit['allowed']:,} allowed: {over}")
