"""When an alert fires and when it is over. Pure: columns and a time in, columns out.

Rule 1: a figure that is bad makes an alert pending, and firing when it has been bad for `for_us` without a pause.
Rule 2: an alert that fires is over when its figure is clear. Between bad and clear nothing changes (hysteresis).
Rule 3: an alert that is pending is over as soon as its figure is no longer bad.
Rule 4: `since_us` is when the state that holds began.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from widerow.model.arrays import Bytes, Flags, Ints


class State(IntEnum):
    OK = 0
    PENDING = 1
    FIRING = 2


class States(NamedTuple):
    """Of many alerts of one rule."""

    state: Bytes
    since_us: Ints


def step(before: States, bad: Flags, clear: Flags, now_us: Ints | int, for_us: int) -> States:
    """The states after a figure of each was seen at `now_us`, a time for all or one for each."""
    state, since_us = before
    firing, pending = state == State.FIRING, state == State.PENDING
    holds = np.where(firing, ~clear, bad)
    waited_us = np.where(pending, now_us - since_us, 0)
    fires = firing | (holds & (waited_us >= for_us))
    after = np.where(holds, np.where(fires, State.FIRING, State.PENDING), State.OK).astype(np.uint8)
    return States(after, np.where(after == state, since_us, now_us))


def step_one(state: State, since_us: int, *, bad: bool, clear: bool, now_us: int, for_us: int) -> tuple[State, int]:
    """The same of one."""
    before = States(np.array([state], np.uint8), np.array([since_us]))
    after = step(before, np.array([bad]), np.array([clear]), now_us, for_us)
    return State(int(after.state[0])), int(after.since_us[0])
