"""The routes about what tenants use."""

from __future__ import annotations

from widerow.server import usage
from widerow.server.auth import READERS
from widerow.server.call import Param
from widerow.server.parameters import END, TENANT
from widerow.server.replies import tabular
from widerow.server.schemas import TEXT
from widerow.server.table import TABULAR, Route
from widerow.usage.ledger import STEPS_US

_START = Param(
    name="start", doc="RFC 3339, epoch milliseconds, or relative: `-7d`. Inclusive.", schema={**TEXT, "default": "-1d"}
)
_STEP = Param(
    name="step", doc="The width of steps, in UTC.", schema={"type": "string", "enum": list(STEPS_US), "default": "hour"}
)

USAGE: tuple[Route, ...] = (
    Route(
        method="GET",
        path="/v1/usage",
        handler=usage.usage,
        roles=READERS,
        group="Usage",
        summary="What a tenant uses and has stored, and what that costs",
        parameters=(_START, END, _STEP, TENANT),
        replies=tabular("Step by step, with the sum.", "Usage"),
        offers=TABULAR,
    ),
)
