"""What may be done about a device that sends far too much, and whether it may be."""

from __future__ import annotations

from enum import StrEnum


class Step(StrEnum):
    """In the order in which they are taken. Stored, and part of the interface: a name never changes its meaning."""

    LIMIT = "limit"
    """It may send so many reports a second; who sends more is told when to come again."""
    SPREAD = "spread"
    """Its partitions are divided into so many."""
    SAMPLE = "sample"
    """This part of its reports is kept, and the others are dropped for good."""


class StepMode(StrEnum):
    """Whether a step is taken."""

    AUTO = "auto"
    """While the device is hot."""
    PIN = "pin"
    """And then left as it is, until somebody says otherwise."""
    FORBID = "forbid"
    """Never."""


DEFAULT_MODES = {Step.LIMIT: StepMode.AUTO, Step.SPREAD: StepMode.AUTO, Step.SAMPLE: StepMode.FORBID}
"""Of a tenant that says nothing: what is dropped for good is dropped only where its owner agreed."""
