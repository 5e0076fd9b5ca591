"""A clock that was wrong for a while leaves nothing behind once it is right again."""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path

import pytest

from system.clock_story import JUMPS, Plot, play

ALL = [Plot(*plot) for plot in product(JUMPS, ("running", "stopped", "killed"), ("running", "stopped", "killed"))]
SOME = [Plot("90s", "running", "killed"), Plot("40d", "stopped", "running")]
MORE = [Plot("1d", "killed", "killed"), Plot("10y", "running", "running")]


def named(plots: list[Plot], *marks: pytest.MarkDecorator) -> list[object]:
    return [pytest.param(plot, marks=marks, id=f"{plot.jump}-{plot.ahead}-{plot.back}") for plot in plots]


@pytest.mark.parametrize(
    "plot", named(ALL) if os.environ.get("WIDEROW_CLOCK") == "all" else named(SOME) + named(MORE, pytest.mark.rest)
)
def test_a_clock_that_jumps_ahead_and_back_changes_no_answer(tmp_path: Path, plot: Plot) -> None:
    play(tmp_path, plot)
