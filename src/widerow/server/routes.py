"""The route table: every route of the HTTP API, in one place.

Whatever is not here does not exist, and whatever is here is routed, authorised, documented and walked by the security test.
"""

from __future__ import annotations

from widerow.codec.answer import ARROW, JSON
from widerow.server import admin, devices, readings, status
from widerow.server.auth import ADMINS, OPERATORS, READERS, WRITERS
from widerow.server.call import NEXT_HEADER, Answer, Call, json_answer
from widerow.server.openapi import document
from widerow.server.page import page
from widerow.server.parameters import (
    AFTER,
    DEVICE,
    END,
    EPOCH,
    IF_MATCH,
    MATCH,
    METRIC,
    METRICS,
    PAGE,
    POINTS,
    START,
    TENANT,
    TENANT_PATH,
    TOKEN_ID,
    precision,
)
from widerow.server.schemas import BINARY, TEXT, array, ref, table_of
from widerow.server.table import TABULAR, Body, Param, Reply, Route
from widerow.server.write import LINES_V1, LINES_V2, REPORTS

_ETAG = {"ETag": "The revision; send it back as If-Match."}
_NEXT = {NEXT_HEADER: "The cursor of the next page, for CSV and Arrow."}
_GONE = {204: Reply(doc="Done.")}


def _json(name: str) -> dict[str, dict[str, object]]:
    return {JSON: ref(name)}


def _one(name: str) -> dict[int, Reply]:
    return {200: Reply(doc=f"The {name.lower()}.", forms=_json(name), headers=_ETAG)}


def _table(doc: str, name: str) -> dict[int, Reply]:
    return {200: Reply(doc=doc, forms=table_of(ref(name)), headers=_NEXT)}


def _patch(name: str) -> Body:
    return Body(doc="What changes; keys that are left out stay as they are.", forms=_json(name))


_LINES = Body(
    doc="Line protocol, plain or with Content-Encoding gzip or zstd.",
    forms={"text/plain": TEXT},
    example="weather,device=station-7 temperature=21.5,humidity=0.4 1700000000000000000",
)
_LINE_REPLIES = {204: Reply(doc="Every line is durable.")}
_REPORTS = Body(
    doc="One report or many; plain or with Content-Encoding gzip or zstd. Arrow is wide (device, time, a column for each "
    "metric) or long (device, time, metric, value).",
    forms={
        JSON: {"oneOf": [ref("Report"), array(ref("Report"))]},
        "application/x-ndjson": TEXT,
        ARROW: BINARY,
    },
    example={"device": "press-7", "time": "2026-01-31T08:00:00Z", "values": {"temperature": 21.5, "state": "run"}},
)


def openapi(_call: Call) -> Answer:
    return json_answer(document(ROUTES))


ROUTES: tuple[Route, ...] = (
    # -- writing
    Route(
        method="POST",
        path="/v1/write",
        handler=REPORTS,
        roles=WRITERS,
        group="Writing",
        summary="Write reports",
        doc="Acknowledged means durable. A bad report is refused with a reason; its neighbours are kept.",
        parameters=(precision("ms", ["s", "ms", "us", "ns"]), TENANT),
        body=_REPORTS,
        replies={
            204: Reply(doc="All is kept."),
            207: Reply(doc="Some is kept.", forms=_json("Refused")),
        },
        errors=(413, 415, 422, 429, 503, 507),
    ),
    Route(
        method="POST",
        path="/write",
        handler=LINES_V1,
        roles=WRITERS,
        group="Writing",
        summary="Write line protocol, as to InfluxDB 1.x",
        doc="Good lines are kept; 400 `partial write ... dropped=N` when some were not.",
        parameters=(
            precision("ns", ["ns", "n", "us", "u", "ms", "s", "m", "h"]),
            Param(name="u", doc="Any user name."),
            Param(name="p", doc="The token, where no Authorization header can be sent."),
            Param(name="db", doc="Ignored: the token decides where data goes."),
            Param(name="rp", doc="Ignored."),
            TENANT,
        ),
        body=_LINES,
        replies=_LINE_REPLIES,
        errors=(413, 429, 503, 507),
    ),
    Route(
        method="POST",
        path="/api/v2/write",
        handler=LINES_V2,
        roles=WRITERS,
        group="Writing",
        summary="Write line protocol, as to InfluxDB 2.x",
        doc="Good lines are kept; 400 `partial write ... dropped=N` when some were not.",
        parameters=(
            precision("ns", ["ns", "us", "ms", "s"]),
            Param(name="org", doc="Ignored: the token decides where data goes."),
            Param(name="bucket", doc="Ignored."),
            TENANT,
        ),
        body=_LINES,
        replies=_LINE_REPLIES,
        errors=(413, 429, 503, 507),
    ),
    Route(
        method="GET",
        path="/ping",
        handler=status.ping,
        roles=None,
        group="Process",
        summary="Say that there is a server that takes line protocol",
        replies={204: Reply(doc="There is.", headers={"X-Influxdb-Version": "The dialect that is spoken."})},
        quick=True,
    ),
    # -- reading
    Route(
        method="GET",
        path="/v1/devices/{device}/series",
        handler=readings.series,
        roles=READERS,
        group="Reading",
        summary="Raw points of a device",
        doc="Oldest first. An answer is cut between reports, never within one.",
        parameters=(DEVICE, METRICS, START, END, POINTS, AFTER, EPOCH, TENANT),
        replies=_table("The points, by metric.", "Series"),
        errors=(404,),
        offers=TABULAR,
    ),
    Route(
        method="GET",
        path="/v1/devices/{device}/latest",
        handler=readings.device_latest,
        roles=READERS,
        group="Reading",
        summary="The latest value of each metric of a device",
        parameters=(DEVICE, METRICS, EPOCH, TENANT),
        replies=_table("One point for each metric.", "Series"),
        errors=(404,),
        offers=TABULAR,
    ),
    Route(
        method="POST",
        path="/v1/latest",
        handler=readings.many_latest,
        roles=READERS,
        group="Reading",
        summary="The latest values of many devices",
        doc="Devices that are unknown or silent have none.",
        parameters=(EPOCH, TENANT),
        body=Body(doc="Which devices, and which metrics (all, if left out).", forms=_json("LatestRequest")),
        replies=_table("One point for each metric of each device.", "Series"),
        errors=(413, 415),
        offers=TABULAR,
    ),
    Route(
        method="GET",
        path="/v1/fleet/latest",
        handler=readings.fleet_latest,
        roles=READERS,
        group="Reading",
        summary="The latest values of the devices that match",
        parameters=(*MATCH, METRICS, PAGE, AFTER, EPOCH, TENANT),
        replies=_table("One point for each metric of each device of the page.", "Series"),
        offers=TABULAR,
    ),
    # -- devices and metrics
    Route(
        method="GET",
        path="/v1/devices",
        handler=devices.list_devices,
        roles=READERS,
        group="Devices",
        summary="List devices",
        parameters=(*MATCH, PAGE, AFTER, TENANT),
        replies=_table("A page of devices.", "Devices"),
        offers=TABULAR,
    ),
    Route(
        method="POST",
        path="/v1/devices/batch",
        handler=devices.batch_devices,
        roles=ADMINS,
        group="Devices",
        summary="Create or replace many devices",
        parameters=(TENANT,),
        body=Body(doc="The devices.", forms=_json("DeviceBatch")),
        replies={
            200: Reply(doc="All are stored.", forms=_json("DeviceResults")),
            207: Reply(doc="Some are stored.", forms=_json("DeviceResults")),
        },
        errors=(413, 415, 422),
    ),
    Route(
        method="GET",
        path="/v1/devices/{device}",
        handler=devices.get_device,
        roles=READERS,
        group="Devices",
        summary="Describe a device",
        parameters=(DEVICE, TENANT),
        replies=_one("Device"),
        errors=(404,),
    ),
    Route(
        method="PATCH",
        path="/v1/devices/{device}",
        handler=devices.patch_device,
        roles=ADMINS,
        group="Devices",
        summary="Change a device's description",
        parameters=(DEVICE, IF_MATCH, TENANT),
        body=_patch("DevicePatch"),
        replies=_one("Device"),
        errors=(404, 412, 413, 415),
    ),
    Route(
        method="DELETE",
        path="/v1/devices/{device}",
        handler=devices.delete_device,
        roles=ADMINS,
        group="Devices",
        summary="Delete a device and its data",
        doc="Unreadable on return, for ever; off the disk soon after.",
        parameters=(DEVICE, IF_MATCH, TENANT),
        replies=_GONE,
        errors=(404, 412),
    ),
    Route(
        method="GET",
        path="/v1/metrics",
        handler=devices.list_metrics,
        roles=READERS,
        group="Metrics",
        summary="List metrics",
        parameters=(TENANT,),
        replies=_table("All metrics of the tenant.", "Metrics"),
        offers=TABULAR,
    ),
    Route(
        method="GET",
        path="/v1/metrics/{metric}",
        handler=devices.get_metric,
        roles=READERS,
        group="Metrics",
        summary="Describe a metric",
        parameters=(METRIC, TENANT),
        replies=_one("Metric"),
        errors=(404,),
    ),
    Route(
        method="PATCH",
        path="/v1/metrics/{metric}",
        handler=devices.patch_metric,
        roles=ADMINS,
        group="Metrics",
        summary="Change a metric's kind, unit or description",
        parameters=(METRIC, IF_MATCH, TENANT),
        body=_patch("MetricPatch"),
        replies=_one("Metric"),
        errors=(404, 412, 413, 415),
    ),
    Route(
        method="DELETE",
        path="/v1/metrics/{metric}",
        handler=devices.delete_metric,
        roles=ADMINS,
        group="Metrics",
        summary="Forget a metric's description",
        doc="Its values stay; the next report that names it describes it anew.",
        parameters=(METRIC, IF_MATCH, TENANT),
        replies=_GONE,
        errors=(404, 412),
    ),
    # -- administration
    Route(
        method="GET",
        path="/v1/admin/tenants",
        handler=admin.list_tenants,
        roles=OPERATORS,
        group="Administration",
        summary="List tenants",
        parameters=(TENANT,),
        replies=_table("All tenants.", "Tenants"),
        offers=TABULAR,
    ),
    Route(
        method="POST",
        path="/v1/admin/tenants",
        handler=admin.create_tenant,
        roles=OPERATORS,
        group="Administration",
        summary="Create a tenant",
        parameters=(TENANT,),
        body=Body(doc="The tenant.", forms=_json("NewTenant"), example={"name": "acme", "retention": {"raw": "30d"}}),
        replies={201: Reply(doc="The tenant.", forms=_json("Tenant"), headers=_ETAG)},
        errors=(409, 413, 415),
    ),
    Route(
        method="GET",
        path="/v1/admin/tenants/{tenant}",
        handler=admin.get_tenant,
        roles=ADMINS,
        group="Administration",
        summary="Describe a tenant",
        doc="An admin may read its own.",
        parameters=(TENANT_PATH, TENANT),
        replies=_one("Tenant"),
        errors=(404,),
    ),
    Route(
        method="PATCH",
        path="/v1/admin/tenants/{tenant}",
        handler=admin.patch_tenant,
        roles=OPERATORS,
        group="Administration",
        summary="Change a tenant's limits, retention or name for people",
        parameters=(TENANT_PATH, IF_MATCH, TENANT),
        body=_patch("TenantPatch"),
        replies=_one("Tenant"),
        errors=(404, 412, 413, 415),
    ),
    Route(
        method="DELETE",
        path="/v1/admin/tenants/{tenant}",
        handler=admin.delete_tenant,
        roles=OPERATORS,
        group="Administration",
        summary="Delete a tenant with its tokens, devices and data",
        doc="Unreadable on return, for ever; off the disk soon after.",
        parameters=(TENANT_PATH, TENANT),
        replies=_GONE,
        errors=(404,),
    ),
    Route(
        method="GET",
        path="/v1/admin/tokens",
        handler=admin.list_tokens,
        roles=ADMINS,
        group="Administration",
        summary="List tokens, without their secrets",
        parameters=(TENANT,),
        replies=_table("The tokens; of all tenants, for an operator who names none.", "Tokens"),
        offers=TABULAR,
    ),
    Route(
        method="POST",
        path="/v1/admin/tokens",
        handler=admin.create_token,
        roles=ADMINS,
        group="Administration",
        summary="Make a token",
        doc="The secret is in this answer, and nowhere else.",
        parameters=(TENANT,),
        body=Body(doc="What it may do.", forms=_json("NewToken"), example={"role": "write", "description": "line 3"}),
        replies={201: Reply(doc="The token, with its secret.", forms=_json("MadeToken"))},
        errors=(404, 413, 415),
    ),
    Route(
        method="DELETE",
        path="/v1/admin/tokens/{id}",
        handler=admin.delete_token,
        roles=ADMINS,
        group="Administration",
        summary="Revoke a token",
        parameters=(TOKEN_ID, TENANT),
        replies=_GONE,
        errors=(404,),
    ),
    Route(
        method="POST",
        path="/v1/admin/erase",
        handler=admin.erase,
        roles=ADMINS,
        group="Administration",
        summary="Erase a metric over a span, of one device or of all",
        doc="Unreadable on return, for ever; off the disk soon after.",
        parameters=(TENANT,),
        body=Body(doc="What to erase.", forms=_json("Erasure")),
        replies=_GONE,
        errors=(404, 413, 415),
    ),
    # -- the process
    Route(
        method="GET",
        path="/v1/status",
        handler=status.status,
        roles=READERS,
        group="Process",
        summary="Rates and counts: of the token's tenant, or of all",
        parameters=(TENANT,),
        replies={200: Reply(doc="The figures.", forms=_json("Status"))},
    ),
    Route(
        method="GET",
        path="/metrics",
        handler=status.exposition,
        roles=OPERATORS,
        group="Process",
        summary="The process's metrics, for Prometheus",
        doc="For operators, since it names tenants.",
        replies={200: Reply(doc="Text exposition.", forms={"text/plain": TEXT})},
        offers=("text/plain",),
    ),
    Route(
        method="GET",
        path="/health/live",
        handler=status.live,
        roles=None,
        group="Process",
        summary="Whether the process answers",
        replies={200: Reply(doc="It does.", forms=_json("Health"))},
        quick=True,
    ),
    Route(
        method="GET",
        path="/health/ready",
        handler=status.ready,
        roles=None,
        group="Process",
        summary="Whether requests should be sent here",
        replies={
            200: Reply(doc="Yes.", forms=_json("Health")),
            503: Reply(doc="No, and why.", forms=_json("Health")),
        },
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
        summary="The live page",
        replies={200: Reply(doc="A page for people.", forms={"text/html": TEXT})},
        offers=("text/html",),
        quick=True,
    ),
)
