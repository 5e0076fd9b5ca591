"""The demo's alert rules: one for a device that falls silent, one for presses that run warm, one for a limit that is near.

Rule: a tenant that has rules keeps them, and gets none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from widerow.cli.actors import Actor
from widerow.cli.api import Api, in_path

RULES = "/v1/alerts/rules"
_WARM = "oil_temperature"


def set_rules(api: Api, actors: Sequence[Actor]) -> None:
    for actor, rules in zip(actors, rules_of(*actors), strict=True):
        if not api.get(RULES, tenant=actor.tenant)["rules"]:
            for rule in rules:
                api.ask("PUT", f"{RULES}/{in_path(rule['name'])}", body=rule, params={"tenant": actor.tenant})


def rules_of(first: Actor, second: Actor, third: Actor) -> list[list[dict[str, Any]]]:
    """By tenant. A rule stands where there is something for it to watch."""
    has_presses = any(metric.name == _WARM for metric in first.present.metric_records())
    every_us = second.present.interval_us
    warm = {
        "name": "oil-too-warm",
        "kind": "threshold",
        "metric": _WARM,
        "above": 55.5,
        "clear": 55.0,
        "match": {"type": "press"},
        "severity": "warning",
        "summary": "the oil of a press is warmer than 55.5 °C",
    }
    silent = {
        "name": "silent",
        "kind": "offline",
        "after": f"{max(60, 3 * every_us // 1_000_000)}s",
        "fleet": True,
        "severity": "critical",
        "summary": "a device has fallen silent",
    }
    near = {
        "name": "writes-near-the-limit",
        "kind": "quota",
        "limit": "writes_per_s",
        "percent": 80,
        "severity": "warning",
        "summary": "the tenant uses most of its writes_per_s",
    }
    return [[warm] if has_presses else [], [silent], [near] if third.limits else []]
