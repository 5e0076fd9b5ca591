"""Heat maps as pictures: SVG, and one HTML file that needs nothing else.

A shade tells how many times its even share a range of keys takes, on a log scale. It is the same for all designs: an even
one is pale all over, and a hot spot is dark.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise

import numpy as np

from widerow.keylab.simulate import Simulation
from widerow.model.arrays import Floats, Ints
from widerow.model.times import DAY, HOUR, MINUTE

_SHADES = ("#f4f1ea", "#f7ddb0", "#f3c17d", "#ee9f5c", "#e27a4f", "#cd5650", "#ad3a58", "#85285f", "#5b1d5c", "#351449")
_CELL_W, _CELL_H = 4, 3
_LABELS_W, _BARS_W, _TOP, _BOTTOM = 210, 150, 58, 40
_GAP = 28
_LEGEND_X = 460
_LETTERS = 110
_FONT = "ui-sans-serif, system-ui, 'Segoe UI', Helvetica, Arial, sans-serif"


def intensities(heat: Floats) -> Floats:
    """0 to 1 for each cell: 0 up to its even share of what its column holds, 1 where it takes all of it."""
    totals = heat.sum(axis=0)
    shares = np.divide(heat, totals, out=np.zeros_like(heat), where=totals > 0)
    rows = max(2, len(heat))
    return np.asarray(np.log(np.maximum(shares * rows, 1.0)) / np.log(rows))


def svg(simulations: Sequence[Simulation]) -> str:
    """All designs, one below the other."""
    panels, y = [], 0
    widest = max(len(one.heat.times_us) for one in simulations)
    width = max(_LABELS_W + _CELL_W * widest + _BARS_W, _LEGEND_X + 26 * (len(_SHADES) + 1))
    for one in simulations:
        panels.append(f'<g transform="translate(0 {y})">{"".join(_panel(one))}</g>')
        y += _TOP + _height(one) + _BOTTOM + _GAP
    legend = "".join(_legend(y))
    box = f'viewBox="0 0 {width} {y + 40}" role="img" font-family="{_FONT}" font-size="11"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {box}'
        f' aria-label="Heat maps of {len(simulations)} row keys">'
        f'<rect width="{width}" height="{y + 40}" fill="#ffffff"/>{"".join(panels)}{legend}</svg>'
    )


def _height(simulation: Simulation) -> int:
    return max(96, _CELL_H * len(simulation.heat.writes))


def _panel(simulation: Simulation) -> Iterator[str]:
    heat, height = simulation.heat, _height(simulation)
    rows, columns = heat.writes.shape
    step, width = height / rows, columns * _CELL_W
    yield f'<text x="0" y="16" font-size="15" font-weight="600" fill="#1c1b22">{escape(simulation.design.text[:110])}</text>'
    yield f'<text x="0" y="36" fill="#55525e">{escape(headline(simulation))}</text>'
    yield f'<g transform="translate({_LABELS_W} {_TOP})" shape-rendering="crispEdges">'
    yield f'<rect width="{width}" height="{height}" fill="{_SHADES[0]}"/>'
    for row, shades in enumerate(_levels(heat.writes)):
        for start, stop, shade in _runs(shades):
            x, w = start * _CELL_W, (stop - start) * _CELL_W
            yield f'<rect x="{x}" y="{row * step:.1f}" width="{w}" height="{step + 0.2:.1f}" fill="{_SHADES[shade]}"/>'
    yield "</g>"
    for row in sorted({0, rows // 4, rows // 2, 3 * rows // 4, rows - 1}):
        y = _TOP + row * step + 9
        yield (
            f'<text x="{_LABELS_W - 8}" y="{y:.0f}" text-anchor="end" font-size="9" fill="#55525e"'
            f' font-family="ui-monospace, monospace">{escape(heat.first_keys[row][:34])}</text>'
        )
    for column in _ticks(heat.times_us):
        x = _LABELS_W + column * _CELL_W
        yield f'<text x="{x}" y="{_TOP + height + 14}" fill="#55525e">{_clock(int(heat.times_us[column]))}</text>'
    yield from _bars(simulation, _LABELS_W + width + 16, height)
    for i, told in enumerate(simulation.diagnostics[:2]):
        yield f'<text x="0" y="{_TOP + height + 32 + 15 * i}" fill="#a33a2a">{escape(shortened(told))}</text>'


def shortened(told: str) -> str:
    """As much as fits below the picture of an hour."""
    return told if len(told) <= _LETTERS else f"{told[: _LETTERS - 1]}…"


def headline(simulation: Simulation) -> str:
    """One sentence about where the writes go."""
    busiest, even = simulation.write_share[0], 1 / simulation.nodes
    return f"the busiest of {simulation.nodes} nodes takes {busiest:.0%} of all writes; an even share is {even:.0%}"


def _levels(heat: Floats) -> Ints:
    levels = 1 + np.round(intensities(heat) * (len(_SHADES) - 2)).astype(np.int64)
    return np.where(heat > 0, levels, 0)


def _runs(shades: Ints) -> Iterator[tuple[int, int, int]]:
    """Neighbours of one shade as one; nothing where nothing is written."""
    cuts = [0, *(np.flatnonzero(np.diff(shades)) + 1).tolist(), len(shades)]
    for start, stop in pairwise(cuts):
        if shades[start]:
            yield start, stop, int(shades[start])


def _ticks(times_us: Ints) -> list[int]:
    span = int(times_us[-1] - times_us[0]) if len(times_us) > 1 else HOUR
    every = next((width for width in (HOUR, 2 * HOUR, 6 * HOUR, DAY, 7 * DAY) if span / width <= 8), 30 * DAY)
    return [column for column, time in enumerate(times_us.tolist()) if time % every == 0]


def _clock(time_us: int) -> str:
    minutes = time_us % DAY // MINUTE
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def _bars(simulation: Simulation, x: int, height: int) -> Iterator[str]:
    """The share of each node, busiest first."""
    shares = simulation.write_share[:16]
    each = min(18.0, height / len(shares))
    yield f'<text x="{x}" y="{_TOP - 8}" fill="#55525e">writes by node</text>'
    for i, share in enumerate(shares):
        y = _TOP + i * each
        shade = "#c2410c" if share > 1.5 / simulation.nodes else "#64748b"
        yield f'<rect x="{x}" y="{y:.1f}" width="{max(1.0, share * 90):.1f}" height="{each * 0.7:.1f}" fill="{shade}"/>'
        label = f'<text x="{x + share * 90 + 4:.0f}" y="{y + each * 0.6:.1f}" font-size="9" fill="#55525e">'
        yield f"{label}{share:.0%}</text>"


def _legend(y: int) -> Iterator[str]:
    told = "keys from top to bottom, time (UTC) from left to right; writes of a range of keys:"
    yield f'<text x="0" y="{y + 16}" fill="#55525e">{told}</text>'
    for i, shade in enumerate(_SHADES):
        yield f'<rect x="{_LEGEND_X + i * 26}" y="{y + 6}" width="26" height="12" fill="{shade}"/>'
    for i, label in ((0, "none"), (1, "even"), (5, "8 times"), (9, "all")):
        yield f'<text x="{_LEGEND_X + i * 26}" y="{y + 32}" font-size="9" fill="#55525e">{label}</text>'


_STYLE = """
:root { color-scheme: light; --ink: #1c1b22; --soft: #55525e; --line: #e4e1da; }
body { font: 15px/1.5 ui-sans-serif, system-ui, "Segoe UI", Helvetica, Arial, sans-serif; color: var(--ink);
       background: #fff; margin: 32px auto; max-width: 1000px; padding: 0 16px; }
h1 { font-size: 20px; font-weight: 600; } svg { width: 100%; height: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; width: 100%; margin: 16px 0; }
th, td { text-align: right; padding: 4px 12px; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 500; }
th:first-child, td:first-child { text-align: left; overflow-wrap: anywhere; }
td:first-child { font-family: ui-monospace, monospace; font-size: 13px; }
.wide { overflow-x: auto; } li { overflow-wrap: anywhere; }
#at { color: var(--soft); min-height: 1.5em; font-family: ui-monospace, monospace; font-size: 13px; }
"""

_SCRIPT = """
const maps = JSON.parse(document.getElementById("maps").textContent);
const picture = document.querySelector("svg"), at = document.getElementById("at");
picture.addEventListener("mousemove", (event) => {
  const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(picture.getScreenCTM().inverse());
  at.textContent = "";
  for (const map of maps) {
    const column = Math.floor((point.x - map.x) / map.w), row = Math.floor((point.y - map.y) / map.h);
    if (column < 0 || row < 0 || column >= map.times.length || row >= map.keys.length) continue;
    at.textContent = map.times[column] + " UTC  from " + map.keys[row] + "  " + map.shares[row][column] + "% of all writes";
  }
});
"""


def html(simulations: Sequence[Simulation], facts: Sequence[Sequence[str]], columns: Sequence[str]) -> str:
    """One page with the picture, a table of `facts`, and the key range and share under the pointer."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in facts)
    told = "".join(
        f"<li><code>{escape(one.design.text)}</code>: {escape(diagnostic)}</li>"
        for one in simulations
        for diagnostic in one.diagnostics
    )
    maps = json.dumps(list(_maps(simulations))).replace("<", "\\u003c")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f'<title>Row keys compared</title><link rel="icon" href="data:,"><style>{_STYLE}</style></head><body>'
        f'<h1>Where the writes of a fleet go</h1>{svg(simulations)}<p id="at"></p>'
        f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div><ul>{told}</ul>'
        f'<script type="application/json" id="maps">{maps}</script><script>{_SCRIPT}</script></body></html>\n'
    )


def _maps(simulations: Sequence[Simulation]) -> Iterator[dict[str, object]]:
    y = 0
    for one in simulations:
        height, heat = _height(one), one.heat
        totals = heat.writes.sum(axis=0)
        shares = np.divide(heat.writes * 100, totals, out=np.zeros_like(heat.writes), where=totals > 0)
        yield {
            "x": _LABELS_W,
            "y": y + _TOP,
            "w": _CELL_W,
            "h": height / len(heat.writes),
            "keys": list(heat.first_keys),
            "times": [_clock(time) for time in heat.times_us.tolist()],
            "shares": [[float(f"{share:.2g}") for share in row] for row in shares.tolist()],
        }
        y += _TOP + height + _BOTTOM + _GAP
