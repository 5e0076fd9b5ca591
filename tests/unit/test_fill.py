"""Steps without values: nothing is invented unless somebody asked for it."""

from __future__ import annotations

import numpy as np
import pytest

from widerow.model.times import HOUR, TimeSpan
from widerow.query.fill import filled, grid
from widerow.query.steps import steps_of

SPAN = TimeSpan(0, 5 * HOUR)
STARTS = np.arange(5) * HOUR
NONE = float("nan")


def test_what_each_fill_puts_between() -> None:
    # One series with values in the hours 1 and 3, another with one in hour 0.
    series, start_us = np.array([0, 0, 1]), np.array([1, 3, 0]) * HOUR
    known = np.array([10.0, 30.0, 5.0])

    def check(fill: str, want: list[float]) -> None:
        full = filled(series, start_us, STARTS)
        assert full.values(known, fill).tolist() == pytest.approx(want, nan_ok=True)
        assert full.time_us.tolist() == [*STARTS.tolist()] * 2
        assert full.row.tolist() == [0] * 5 + [2] * 5

    check("null", [NONE, 10, NONE, 30, NONE, 5, NONE, NONE, NONE, NONE])
    check("previous", [NONE, 10, 10, 30, 30, 5, 5, 5, 5, 5])
    check("linear", [NONE, 10, 20, 30, NONE, 5, NONE, NONE, NONE, NONE])


def test_series_do_not_reach_into_each_other() -> None:
    full = filled(np.array([0, 1]), np.array([4, 4]) * HOUR, STARTS)
    assert full.values(np.array([1.0, 2.0]), "previous").tolist() == pytest.approx(
        [NONE] * 4 + [1] + [NONE] * 4 + [2], nan_ok=True
    )
    full = filled(np.array([0, 1]), np.array([0, 4]) * HOUR, STARTS)
    assert full.values(np.array([1.0, 2.0]), "linear").tolist() == pytest.approx([1] + [NONE] * 8 + [2], nan_ok=True)


def test_what_is_missing_is_not_filled() -> None:
    steps = steps_of("1h", SPAN)
    assert grid(steps, SPAN, []).tolist() == STARTS.tolist()
    assert grid(steps, SPAN, [TimeSpan(0, HOUR), TimeSpan(3 * HOUR, 4 * HOUR)]).tolist() == [HOUR, 2 * HOUR, 4 * HOUR]
    late = TimeSpan(HOUR // 2, 5 * HOUR)
    assert grid(steps_of("1h", late), late, [TimeSpan(HOUR // 2, HOUR)]).tolist() == STARTS[1:].tolist()
