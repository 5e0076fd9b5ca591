"""The planner's figures: the textbook's own, what is wrong with them, and those of a design on each engine."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from widerow.cli.commands import app

TEXTBOOK = ("--textbook", "--devices", "1000000", "--interval", "10s", "--metrics", "10", "--retention", "30d", "--rf", "3")


def planned(*options: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["plan", *options, "--json"])
    assert done.exit_code == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_the_textbooks_inputs_give_the_textbooks_figures() -> None:
    answer = planned(*TEXTBOOK)
    assert answer["raw"] == {
        "device_day_bytes": 8_640_000,
        "day_bytes": 8_640_000_000_000,
        "total_bytes": 259_200_000_000_000,
    }
    assert answer["total_bytes"] == 285_120_000_000_000
    assert answer["cluster_bytes"] == 855_360_000_000_000
    rates = [level["writes_per_s"] for level in answer["levels"].values()]
    assert rates == pytest.approx([100_000, 1_667, 27.8, 1.157], rel=1e-3)
    (hour,) = answer["partitions"]
    assert (hour["rows"], hour["bytes"]) == (3_600, 360_000)


def test_the_textbook_is_corrected_with_figures() -> None:
    answer = planned(*TEXTBOOK)
    true = answer["corrected_levels"]
    windows = [true[name]["writes_per_s"] for name in ("minute", "hour", "day")]
    assert windows == pytest.approx([16_667, 277.8, 11.57], rel=1e-3)
    assert true["minute"]["rows_per_s"] == pytest.approx(166_667, rel=1e-3)
    assert true["minute"]["total_bytes"] == 129_600_000_000_000
    said = "\n".join(answer["corrections"])
    for words in ("16,700 device-minutes/s, 10 times", "167,000 rows/s", "278 device-hours/s", "11.6 device-days/s"):
        assert words in said
    assert "10% of raw is 25.92 TB. Minutes kept for 90d alone are 1.3e+12 rows, 129.6 TB." in said
