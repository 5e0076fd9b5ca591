"""The routes about what tenants use."""

from __future__ import annotations

from widerow.server import usage, whatif
from widerow.server.auth import OPERATORS, READERS
from widerow.server.call import Param
from widerow.server.parameters import END, TENANT, TENANT_PATH
from widerow.server.replies import json_form, patch, tabular
from widerow.server.shapes import TEXT
from widerow.server.table import TABULAR, Reply, Route
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
        summary="A tenant's use, its stored bytes, and their cost",
        parameters=(_START, END, _STEP, TENANT),
        replies=tabular("Step by step, with the sum.", "Usage"),
        offers=TABULAR,
    ),
    Route(
        method="POST",
        path="/v1/admin/tenants/{tenant}/whatif",
        handler=whatif.whatif,
        long=True,
        roles=OPERATORS,
        group="Usage",
        summary="The reports and data that proposed limits and retentions would have refused or taken away",
        doc="Applies them to the recorded use, second by second. Changes nothing.",
        parameters=(TENANT_PATH, TENANT),
        body=patch("WhatIf", {"limits": {"writes_per_s": 500}, "retention": {"raw": "7d"}, "last": "7d"}),
        replies={200: Reply(doc="The effect, by hour and limit.", forms=json_form("WouldHave"))},
        errors=(404, 413, 415),
    ),
)
