"""Answers over steps of time: one request, the answer as it comes or as a table.

Rule: answers over steps are whole, so there are no pages to follow.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from widerow.cli import output
from widerow.cli.api import Api, in_path
from widerow.cli.points import SAMPLED_HEADER, ArrowForm, CsvForm, Form, TableForm

Write = Callable[[bytes], None]


@dataclass(frozen=True, slots=True)
class Told:
    """What an answer says of itself."""

    points: int
    used: str
    missing: str
    sampled: str = ""


def ask_device(api: Api, device: str, form: Form, write: Write, params: dict[str, Any]) -> Told:
    """The steps of one device."""
    answer = api.send("GET", f"/v1/devices/{in_path(device)}/series", params=params, accept=form.accept)
    return _told(answer.content, answer.headers, form, write)


def ask_many(api: Api, form: Form, write: Write, question: dict[str, Any]) -> Told:
    """A question about many devices."""
    answer = api.send("POST", "/v1/query", body=question, accept=form.accept)
    return _told(answer.content, answer.headers, form, write)


def _told(body: bytes, headers: Any, form: Form, write: Write) -> Told:
    used, missing = headers.get("widerow-used", ""), headers.get("widerow-missing", "")
    sampled = headers.get(SAMPLED_HEADER, "")
    if isinstance(form, CsvForm | ArrowForm):
        points = form.page(body, write)
        form.end(write)
        return Told(points, used, missing, sampled)
    series = json.loads(body)["series"]
    if isinstance(form, TableForm):
        write(_table(series).encode())
    else:
        write(body + b"\n")
    return Told(sum(len(one["points"]) for one in series), used, missing, sampled)


def _table(series: list[dict[str, Any]]) -> str:
    """A line for each step, a column for each metric and aggregate; whose it is, where there are several."""
    owners = [_owner(one) for one in series]
    names = list(dict.fromkeys(name for owner in owners for name in owner))
    if names == ["device"] and len({owner["device"] for owner in owners}) == 1:
        names = []
    named = _columns(series)
    columns = list(dict.fromkeys(named))
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    for one, owner, column in zip(series, owners, named, strict=True):
        for time, value in one["points"]:
            rows.setdefault((*(owner.get(name, "") for name in names), time), {})[column] = value
    if not rows:
        return ""
    lines = [(*key, *(_shown(found.get(column, "")) for column in columns)) for key, found in rows.items()]
    return output.table((*names, "time", *columns), lines, right=columns)


def _owner(one: dict[str, Any]) -> dict[str, str]:
    group: dict[str, str] | None = one.get("group")
    return {"device": one.get("device", "")} if group is None else group


def _columns(series: list[dict[str, Any]]) -> list[str]:
    """The column of each series, with its kind where a metric has numbers and texts."""
    named = [f"{one['metric']} {one['agg']}" if "agg" in one else str(one["metric"]) for one in series]
    kinds: dict[str, set[str]] = {}
    for name, one in zip(named, series, strict=True):
        kinds.setdefault(name, set()).add(one.get("kind", ""))
    return [f"{name} {one['kind']}" if len(kinds[name]) > 1 else name for name, one in zip(named, series, strict=True)]


def _shown(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value
