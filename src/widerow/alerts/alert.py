"""An alert, as it is stored, shown and told: a rule's word on one thing that it watches."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec

from widerow.model.times import format_time

PENDING, FIRING, RESOLVED = "pending", "firing", "resolved"
STATES = (PENDING, FIRING, RESOLVED)
SEVERITIES = ("info", "warning", "critical")

OPERATOR = ""
"""The tenant under whose name the operator's alerts, webhooks and silences are."""


class Acknowledged(msgspec.Struct, frozen=True, kw_only=True):
    by: str
    at_us: int
    note: str = ""


class Alert(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    tenant: str
    rule: str
    """The rule's name, or that of a built-in alert."""
    state: str
    since_us: int
    """When this state began."""
    device: str = ""
    metric: str = ""
    process: str = ""
    """Of built-in alerts, on a store that processes share."""
    value: float | None = None
    threshold: float | None = None
    unit: str = ""
    severity: str = "warning"
    summary: str = ""
    source: str = "builtin"
    webhooks: tuple[str, ...] = ()
    acknowledged: Acknowledged | None = None
    announced: bool = False
    """A notice of its firing was given to its webhooks, or waits to be."""
    owed_us: int = 0
    """When it was taken to give its webhooks a notice that they do not have yet; 0: they have it."""

    @property
    def id(self) -> str:
        return alert_id(self.tenant, self.rule, self.device, self.metric, self.process)


def alert_id(tenant: str, rule: str, device: str = "", metric: str = "", process: str = "") -> str:
    """The name of an alert: 16 hex digits."""
    return sha256(f"{tenant}\0{rule}\0{device}\0{metric}\0{process}".encode()).hexdigest()[:16]


def shown(alert: Alert, *, silenced: bool) -> dict[str, Any]:
    """As the API gives it."""
    seen = alert.acknowledged
    return {
        "id": alert.id,
        "name": alert.rule,
        "state": alert.state,
        "since": format_time(alert.since_us),
        "value": alert.value,
        "threshold": alert.threshold,
        "unit": alert.unit,
        "tenant": alert.tenant,
        "device": alert.device,
        "metric": alert.metric,
        "process": alert.process,
        "severity": alert.severity,
        "summary": alert.summary,
        "acknowledged": {"by": seen.by, "at": format_time(seen.at_us), "note": seen.note} if seen else None,
        "silenced": silenced,
        "source": alert.source,
    }
