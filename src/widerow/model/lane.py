"""The two ways through the pipeline."""

from __future__ import annotations

from enum import Enum


class Lane(Enum):
    """Live reports, and the backlog of devices that were away: each has a line and a budget of its own."""

    LIVE = "live"
    BACKFILL = "backfill"
