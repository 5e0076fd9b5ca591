"""The overview as lines of a terminal. Pure: an answer of `GET /v1/overview` in, a text of so many columns and lines out.

Rule 1: the first lines say what is wrong. What a small screen has no room for is left out from the end of the sections.
Rule 2: colour is for state alone, and no state is told by colour alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from widerow.cli.output import printable
from widerow.model.figures import figure
from widerow.model.times import SECOND, about_duration, parse_rfc3339

_BARS = "▁▂▃▄▅▆▇█"
_NAMES = {
    "ingestion_rate": "Reports",
    "metrics_rate": "Values",
    "ingestion_latency_p99": "Latency p99",
    "batch_size_avg": "Batch size",
    "devices_online": "Devices online",
    "refused_rate": "Refused",
    "quota_rejections": "Over a limit",
    "hot_partitions": "Hot devices",
    "backpressure_events": "Backpressure",
    "pending_compactions": "Compactions",
}
"""Of figures, in the order that they stand in."""
_PARTS = frozenset({"quota_rejections"})
"""Figures from 0 to 1."""
_AT_LEAST = frozenset({"batch_size_avg"})
"""Figures that should not be below their limit; the others should not be above it."""
_STYLES = {"critical": "bold red", "warning": "yellow", "firing": "yellow", "failed": "bold red", "slow": "yellow"}
_MOST_MINUTES = 60
_NOTE = 15
"""Columns behind the bars, for a limit that a figure is past."""
_KEYS_OF_ALL = "up/down choose a tenant   enter opens it   q quits"
_KEYS_OF_ONE = "escape goes back   q quits"
_KEYS = "q quits"


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What the user chose, and what else stands on the screen."""

    chosen: int = 0
    """Which of the tenants."""
    inside: bool = False
    """One of them is open."""
    where: str = ""
    trouble: str = ""
    """Why there is no newer answer."""
    is_live: bool = True
    """Keys do something."""


def picture(answer: Mapping[str, Any], look: Look, width: int, height: int = 0) -> Text:
    """`height`: 0: as many lines as it takes."""
    above = [*_head(answer, look), *_headline(answer), Text()]
    below = [Text(), Text(_keys(answer, look), style="dim")] if look.is_live else []
    room = height - len(above) - len(below) - len(answer["figures"]) - 2 if height else len(answer["tenants"])
    sections = [section for section in _sections(answer, look, width, room) if section]
    lines = [line for section in sections for line in [*section, Text()]][:-1]
    if height:
        lines = lines[: max(0, height - len(above) - len(below))]
    out = (above + lines + below)[: height or None]
    for line in out:
        line.truncate(width, overflow="ellipsis")
    return Text("\n").join(out)


def _sections(answer: Mapping[str, Any], look: Look, width: int, room: int) -> Iterator[list[Text]]:
    yield list(_figures(answer, width))
    yield list(_tenants(answer, look, width, room))
    yield list(_alerts(answer))
    yield list(_stages(answer))
    yield list(_refusals(answer, width))


def _keys(answer: Mapping[str, Any], look: Look) -> str:
    if look.inside:
        return _KEYS_OF_ONE
    return _KEYS_OF_ALL if _choices(answer) else _KEYS


def _choices(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The tenants that can be opened: one that is open, or sees itself alone, has none."""
    tenants: list[dict[str, Any]] = answer["tenants"] if answer["scope"] == "all" else []
    return tenants


def chosen_tenant(answer: Mapping[str, Any], look: Look) -> str | None:
    tenants = _choices(answer)
    return tenants[min(look.chosen, len(tenants) - 1)]["name"] if tenants else None


def _head(answer: Mapping[str, Any], look: Look) -> Iterator[Text]:
    scope = "all tenants" if answer["scope"] == "all" else f"tenant {printable(answer['scope'])}"
    up_us = parse_rfc3339(answer["time"]) - parse_rfc3339(answer["started"])
    line = Text(f"widerow {answer['version']}", style="bold")
    line.append(f"   {scope}   {answer['time'][11:19]} UTC   up {about_duration(up_us)}   {look.where}", style="not bold")
    yield line
    if look.trouble:
        yield Text(f"no answer since {answer['time'][11:19]}, trying again: {printable(look.trouble)}", style="bold red")


def _headline(answer: Mapping[str, Any]) -> Iterator[Text]:
    if not answer["headline"]:
        yield Text("Nothing is wrong.", style="bold")
    for one in answer["headline"]:
        line = Text(f"{one['severity']:<9}", style=_STYLES.get(one["severity"], ""))
        line.append(printable(one["text"]), style="bold")
        if one["since"]:
            line.append(f"  since {one['since'][11:16]}", style="not bold dim")
        yield line


def _figures(answer: Mapping[str, Any], width: int) -> Iterator[Text]:
    found = answer["figures"]
    for name, label in _NAMES.items():
        if name not in found:
            continue
        one = found[name]
        said = amount(name, one["now"], one["unit"])
        if name == "devices_online" and answer["devices"]["total"] is not None:
            said = f"{said} of {figure(answer['devices']['total'])}"
        line = Text(f"{label:<15}{said:>16}", style=_STYLES["warning"] if is_past(name, one["now"], one["limit"]) else "")
        line.append("  ")
        line.append(spark(one["minutes"], width - 33 - _NOTE), style="cyan")
        if one["limit"] is not None and is_past(name, one["now"], one["limit"]):
            word = "below" if name in _AT_LEAST else "above"
            unit = one["unit"] if one["unit"] == "s" else ""
            line.append(f"  {word} {amount(name, one['limit'], unit)}")
        yield line


def _tenants(answer: Mapping[str, Any], look: Look, width: int, room: int) -> Iterator[Text]:
    """As many as there is room for, the chosen one among them."""
    tenants = _choices(answer)
    if not tenants:
        return
    chosen = min(look.chosen, len(tenants) - 1)
    first = max(0, chosen - max(1, room) + 1)
    names = [printable(one["name"]) for one in tenants]
    wide = min(24, max(6, *map(len, names)))
    yield Text(f"  {'tenant':<{wide}} {'reports/s':>10} {'refused/s':>10} {'devices':>9} {'of limit':>9}", style="dim")
    for place, one in list(enumerate(tenants))[first:]:
        is_chosen = look.is_live and not look.inside and place == chosen
        share = "-" if one["share"] is None else f"{one['share']:.0%}"
        row = (
            f"{'>' if is_chosen else ' '} {names[place][:wide]:<{wide}} {_rounded(one['reports_per_s']):>10} "
            f"{_rounded(one['refused_per_s']):>10} {_rounded(one['devices']):>9} {share:>9}  "
        )
        line = Text(row, style="reverse" if is_chosen else "")
        line.append(spark(one["minutes"], width - len(row)), style="cyan")
        yield line


def _alerts(answer: Mapping[str, Any]) -> Iterator[Text]:
    for one in answer["alerts"]:
        line = Text(f"{one['state']:<9}", style=_STYLES.get(one["state"], "dim"))
        about = "/".join(printable(part) for part in (one["tenant"], one["device"]) if part)
        line.append(
            f"{printable(one['name'])}{f' of {about}' if about else ''}: {printable(one['summary'])}", style="default"
        )
        line.append(f"  since {one['since'][11:16]}", style="dim")
        yield line


def _stages(answer: Mapping[str, Any]) -> Iterator[Text]:
    """Those that do well share a line; each of the others has its own, the worst in sight."""
    used = [one for one in answer["stages"] if one["state"] != "unused"]
    for one in used:
        if one["state"] != "ok":
            yield Text(f"{one['state']:<9}{one['name']}: {printable(one['detail'])}", style=_STYLES.get(one["state"], ""))
    well = [one["name"] for one in used if one["state"] == "ok"]
    if well:
        yield Text(f"ok       {', '.join(well)}")


def _refusals(answer: Mapping[str, Any], width: int) -> Iterator[Text]:
    for one in answer["refusals"]:
        line = Text(f"{printable(one['code']):<15}{_rounded(one['count']):>9} in 1 h", style="")
        line.append("  ")
        line.append(spark(one["minutes"], width - 33), style="cyan")
        yield line


def amount(name: str, value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    if name in _PARTS:
        return f"{figure(round(100 * value, 1))} %"
    if unit == "s":
        return about_duration(value * SECOND)
    return f"{_rounded(value)} {unit}".rstrip()


def is_past(name: str, value: float | None, limit: float | None) -> bool:
    if value is None or limit is None:
        return False
    return value < limit if name in _AT_LEAST else value > limit


def spark(minutes: Sequence[float | None], width: int) -> str:
    """A bar a minute, the newest at the right, from 0 to the highest. Minutes that nothing is known of are empty."""
    shown = minutes[-max(0, min(width, _MOST_MINUTES)) :] if width > 0 else []
    most = max((value for value in shown if value is not None), default=0.0)
    return "".join(" " if value is None else _bar(value, most) for value in shown)


def _bar(value: float, most: float) -> str:
    return _BARS[min(len(_BARS) - 1, int(value / most * len(_BARS)))] if most > 0 and value > 0 else _BARS[0]


def _rounded(value: float) -> str:
    return figure(round(value, 1) if value < 100 else round(value))
