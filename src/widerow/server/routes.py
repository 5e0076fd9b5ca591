"""The route table: every route of the HTTP API.

Whatever is not here does not exist, and whatever is here is routed, authorised, documented and walked by the security test.
"""

from __future__ import annotations

from widerow.codec.answer import JSON
from widerow.server import live, status
from widerow.server.auth import READERS, SCRAPERS
from widerow.server.call import Answer, Call, Param, json_answer
from widerow.server.openapi import document
from widerow.server.page import page, page_file
from widerow.server.parameters import TENANT
from widerow.server.replies import json_form
from widerow.server.routes_alerts import ALERTS
from widerow.server.routes_catalog import ADMINISTRATION, DESCRIPTIONS
from widerow.server.routes_letters import LETTERS
from widerow.server.routes_telemetry import READING, WRITING
from widerow.server.routes_usage import USAGE
from widerow.server.shapes import TEXT
from widerow.server.streams import EVENTS
from widerow.server.table import WHATEVER_IS_ACCEPTED, Reply, Route


def openapi(call: Call) -> Answer:
    return json_answer(document(ROUTES, call.service.clock.now_us()))


PROCESS: tuple[Route, ...] = (
    Route(
        method="GET",
        path="/ping",
        handler=status.ping,
        roles=None,
        group="Process",
        summary="Answer that a server for line protocol is here",
        replies={204: Reply(doc="There is.", headers={"X-Influxdb-Version": "The dialect that is spoken."})},
        offers=WHATEVER_IS_ACCEPTED,
        quick=True,
    ),
    Route(
        method="GET",
        path="/v1/status",
        handler=status.status,
        roles=READERS,
        group="Process",
        summary="Rates and counts: of the token's tenant, or of all",
        parameters=(TENANT,),
        replies={200: Reply(doc="The figures.", forms=json_form("Status"))},
    ),
    Route(
        method="GET",
        path="/v1/overview",
        handler=live.get_overview,
        roles=READERS,
        group="Process",
        summary="Present troubles and the last hour in figures: of the token's tenant, or of all",
        doc="Answered from memory.",
        parameters=(TENANT,),
        replies={200: Reply(doc="The overview.", forms=json_form("Overview"))},
        aside=True,
    ),
    Route(
        method="GET",
        path="/v1/live",
        handler=live.stream,
        roles=READERS,
        group="Process",
        summary="The overview every two seconds, as server-sent events",
        doc="`event: overview` carries an overview. `event: bye` carries a reason, and is the last one: the token is no "
        "longer good, or the server stops. A line `: ping` comes when there is no news.",
        parameters=(TENANT,),
        replies={200: Reply(doc="Events, until the client closes the connection.", forms={EVENTS: TEXT})},
        errors=(503,),
        offers=(EVENTS,),
        aside=True,
        streams=True,
    ),
    Route(
        method="GET",
        path="/metrics",
        handler=status.exposition,
        roles=SCRAPERS,
        group="Process",
        summary="The process's metrics, for Prometheus",
        doc="For operators and for tokens of role scrape, since it names tenants.",
        replies={200: Reply(doc="Text exposition.", forms={"text/plain": TEXT})},
        offers=("text/plain",),
    ),
    Route(
        method="GET",
        path="/health/live",
        handler=status.live,
        roles=None,
        group="Process",
        summary="Answer while the process runs",
        replies={200: Reply(doc="It does.", forms=json_form("Health"))},
        offers=WHATEVER_IS_ACCEPTED,
        quick=True,
    ),
    Route(
        method="GET",
        path="/health/ready",
        handler=status.ready,
        roles=None,
        group="Process",
        summary="Say whether to send requests here",
        replies={
            200: Reply(doc="Yes; `degraded` if part of the store is damaged.", forms=json_form("Health")),
            503: Reply(doc="No, and why.", forms=json_form("Health")),
        },
        offers=WHATEVER_IS_ACCEPTED,
    ),
    Route(
        method="GET",
        path="/openapi.json",
        handler=openapi,
        roles=None,
        group="Process",
        summary="This description",
        replies={200: Reply(doc="OpenAPI 3.1.", forms={JSON: {"type": "object"}})},
    ),
    Route(
        method="GET",
        path="/",
        handler=page,
        roles=None,
        group="Process",
        summary="The dashboard",
        replies={200: Reply(doc="A page for people.", forms={"text/html": TEXT})},
        offers=("text/html",),
        quick=True,
    ),
    Route(
        method="GET",
        path="/ui/{file}",
        handler=page_file,
        roles=None,
        group="Process",
        summary="A script or style of the dashboard",
        parameters=(Param(name="file", doc="Its name.", place="path"),),
        replies={200: Reply(doc="The file.", forms={"text/javascript": TEXT, "text/css": TEXT})},
        errors=(404,),
        offers=WHATEVER_IS_ACCEPTED,
        quick=True,
    ),
)

_ABOUT_ITSELF = ("/health/live", "/health/ready", "/metrics", "/v1/admin/keyspace")
HEALTH: tuple[Route, ...] = tuple(r for r in (*ADMINISTRATION, *PROCESS) if r.path in _ABOUT_ITSELF)
"""What a process has that takes no requests: how it is, and what it writes."""

ROUTES: tuple[Route, ...] = (*WRITING, *READING, *DESCRIPTIONS, *USAGE, *LETTERS, *ALERTS, *ADMINISTRATION, *PROCESS)
