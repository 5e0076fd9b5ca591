"""Each rule at length: why it is one, a design that breaks it, and one that does not. The texts stand in `rules.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Rule:
    title: str
    reason: str
    bad: str
    good: str


def rules() -> Mapping[str, Rule]:
    """All rules by code."""
    told = tomllib.loads(files("widerow.keylab").joinpath("rules.toml").read_text(encoding="utf-8"))
    return {code: Rule(**{name: text.strip() for name, text in rule.items()}) for code, rule in told.items()}
