"""`widerow keys simulate`: where a described fleet would write and read, before anything is deployed."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from widerow.cli import output
from widerow.cli.failure import Misused, as_misuse
from widerow.cli.keys import keys
from widerow.cli.keys_lint import FleetOption, JsonOption, read_fleet_file, read_spec
from widerow.cli.output_file import written_to

if TYPE_CHECKING:
    from widerow.keylab.simulate import Simulation


class EngineName(StrEnum):
    BIGTABLE = "bigtable"
    CASSANDRA = "cassandra"


_SHADES = " ░▒▓█"
_ROWS, _COLUMNS = 16, 72
_TABLE = ("spec", "busiest node", "skew", "hottest tablet", "gini", "tablets", "splits", "bytes/row")
_QUESTIONS = ("spec", "question", "tablets", "ranges", "rows read", "rows wanted")


@keys.command("simulate")
def simulate(
    specs: Annotated[
        list[str],
        typer.Argument(
            metavar="SPEC...",
            help="Row keys to compare: templates, classic notation, CREATE TABLE, files.",
            show_default=False,
        ),
    ],
    fleet: FleetOption = None,
    nodes: Annotated[int, typer.Option("--nodes", metavar="N", min=1, max=1000, help="Nodes of the cluster.")] = 8,
    hours: Annotated[int, typer.Option("--hours", metavar="H", min=1, max=720, help="How much time is simulated.")] = 24,
    engine: Annotated[
        EngineName | None,
        typer.Option(
            "--engine", help="bigtable: tablets; cassandra: token ranges. As the SPEC is, unless given.", show_default=False
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write the picture as one HTML file.", show_default=False)
    ] = None,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="Write the picture as SVG.", show_default=False)
    ] = None,
    json: JsonOption = False,
) -> None:
    """Send a fleet through row keys: the share of each node, the hottest tablet, the cost of questions, and heat maps.

    Example: widerow keys simulate 'timestamp#sensor' 'sensor#reversed:13'

    Example: widerow keys simulate '{tenant}#{device}#{reversed:13}' --nodes 12 --hours 6 --html heat.html

    Example: widerow keys simulate 'timestamp#sensor' 'sensor#timestamp' --hours 2 --json
    """
    from widerow.keylab.design import for_engine  # noqa: PLC0415 - NumPy hangs on it
    from widerow.keylab.picture import html as page  # noqa: PLC0415
    from widerow.keylab.picture import svg as picture  # noqa: PLC0415
    from widerow.keylab.simulate import simulate as run  # noqa: PLC0415
    from widerow.model.times import DAY, SystemClock  # noqa: PLC0415

    if len(specs) > 12:
        raise Misused(f"{len(specs)} row keys are too many for one picture", todo="compare at most 12")
    described = read_fleet_file(fleet)
    with as_misuse():
        designs = [for_engine(read_spec(spec), engine.value if engine else "") for spec in specs]
    start_us = SystemClock().now_us() // DAY * DAY
    results = []
    for design in designs:
        with output.progress(design.text[:40], hours) as step:
            results.append(run(design, described, nodes=nodes, hours=hours, start_us=start_us, step=step))
    facts = [[output.shown(cell) for cell in _row(one)] for one in results]
    if svg is not None:
        _save(svg, picture(results))
    if html is not None:
        _save(html, page(results, facts, _TABLE))
    if json:
        output.emit_json({"specs": [_facts(spec, one) for spec, one in zip(specs, results, strict=True)]})
        return
    for one in results:
        _draw(one)
    output.emit_table(_TABLE, facts, right=_TABLE[1:])
    asked = [[one.design.text, name, *_answer(answer)] for one in results for name, answer in one.questions.items()]
    output.emit_table(_QUESTIONS, asked, right=_QUESTIONS[2:])


def _save(file: Path, content: str) -> None:
    with written_to(file) as write:
        write(content.encode())


def _row(one: Simulation) -> list[Any]:
    return [
        one.design.text,
        f"{one.write_share[0]:.1%}",
        f"{one.skew:.2f}",
        f"{one.hottest_share:.1%}",
        f"{one.gini:.2f}",
        one.tablets,
        one.splits,
        f"{one.bytes_per_row:.0f}",
    ]


def _answer(answer: Any) -> list[str]:
    rows = "all" if answer.is_full_scan else f"{answer.rows:,.0f}"
    return [f"{answer.tablets:,.0f}", f"{answer.ranges:,.0f}", rows, f"{answer.wanted:,.0f}"]


def _facts(spec: str, one: Simulation) -> dict[str, Any]:
    return {
        "spec": spec,
        "write_share": [round(share, 4) for share in one.write_share],
        "read_share": [round(share, 4) for share in one.read_share],
        "hottest_share": round(one.hottest_share, 4),
        "hottest_key": one.hottest_key,
        "skew": round(one.skew, 3),
        "gini": round(one.gini, 3),
        "tablets": one.tablets,
        "splits": one.splits,
        "rows_per_s": round(one.rows_per_s),
        "bytes_per_row": round(one.bytes_per_row, 1),
        "questions": {
            name: {
                "tablets": round(answer.tablets, 2),
                "ranges": round(answer.ranges, 2),
                "rows": round(answer.rows),
                "wanted": round(answer.wanted),
                "full_scan": answer.is_full_scan,
            }
            for name, answer in one.questions.items()
        },
        "diagnostics": list(one.diagnostics),
    }


def _draw(one: Simulation) -> None:
    """The heat map in shades, lowest keys first."""
    import numpy as np  # noqa: PLC0415

    from widerow.keylab.picture import headline, intensities  # noqa: PLC0415

    heat = one.heat
    rows, columns = heat.writes.shape
    down, across = np.arange(rows) * min(_ROWS, rows) // rows, np.arange(columns) * min(_COLUMNS, columns) // columns
    drawn = np.zeros((int(down[-1]) + 1, int(across[-1]) + 1))
    np.add.at(drawn, (down[:, None], across[None, :]), heat.writes)
    levels = np.where(drawn > 0, 1 + np.round(intensities(drawn) * (len(_SHADES) - 2)).astype(int), 0)
    output.emit(f"{output.printable(one.design.text)}: {headline(one)}")
    for row, shades in enumerate(levels.tolist()):
        label = output.printable(heat.first_keys[int(np.searchsorted(down, row))])[:24]
        output.emit(f"  {label:<24} {''.join(_SHADES[shade] for shade in shades)}".rstrip())
    for diagnostic in one.diagnostics:
        output.emit(f"  {output.printable(diagnostic)}")
    output.emit("")
