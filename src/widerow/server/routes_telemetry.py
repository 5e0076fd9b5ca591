"""The routes that write and read telemetry."""

from __future__ import annotations

from widerow.codec.answer import ARROW, JSON
from widerow.model.times import format_time
from widerow.server import questions, readings
from widerow.server.auth import READERS, WRITERS
from widerow.server.call import Param
from widerow.server.parameters import (
    AFTER,
    AGG,
    DEVICE,
    END,
    EPOCH,
    FILL,
    FLEET_AGG,
    FLEET_STEP,
    GROUP_BY,
    GROUP_BY_LABELS,
    MATCH,
    METRICS,
    PAGE,
    POINTS,
    START,
    STEP,
    TAGS,
    TENANT,
    TZ,
    precision,
)
from widerow.server.replies import json_form, stepped, tabular
from widerow.server.shapes import BINARY, TEXT, array, ref
from widerow.server.table import NAMES_BYTES, TABULAR, Body, Reply, Route
from widerow.server.write import LINES_V1, LINES_V2, REPORTS

_LINES = Body(
    doc="Line protocol, plain or with Content-Encoding gzip or zstd.",
    forms={"text/plain": TEXT},
    example=lambda now_us: f"weather,device=station-7 temperature=21.5,humidity=0.4 {now_us * 1_000}",
    max_bytes=None,
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
    example=lambda now_us: {
        "device": "press-7",
        "time": format_time(now_us),
        "values": {"temperature": 21.5, "state": "run"},
    },
    max_bytes=None,
)

WRITING: tuple[Route, ...] = (
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
            207: Reply(doc="Some is kept.", forms=json_form("Refused")),
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
        doc="Good lines are stored. If some lines were refused, the answer is 400 `partial write ... dropped=N`.",
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
        doc="Good lines are stored. If some lines were refused, the answer is 400 `partial write ... dropped=N`.",
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
)

READING: tuple[Route, ...] = (
    Route(
        method="GET",
        path="/v1/devices/{device}/series",
        handler=readings.series,
        roles=READERS,
        group="Reading",
        summary="Points of a device, raw or over steps",
        doc="Oldest first. Raw points are cut between reports, never within one. Statistics over steps come whole, from "
        "rollups and raw reports as the step allows.",
        parameters=(DEVICE, METRICS, START, END, STEP, AGG, FILL, TZ, GROUP_BY_LABELS, POINTS, AFTER, EPOCH, TAGS, TENANT),
        replies=stepped("The points, by metric.", "Series", "Steps"),
        errors=(404,),
        offers=TABULAR,
    ),
    Route(
        method="POST",
        path="/v1/query",
        handler=questions.query,
        long=True,
        roles=READERS,
        group="Reading",
        summary="A question about many devices",
        doc="Series of each device, of groups, or of those at the top; raw points or statistics over steps. An answer is "
        "whole, or refused by a limit.",
        parameters=(EPOCH, TENANT),
        body=Body(
            doc="Which devices, what of them, and how.",
            forms=json_form("QueryRequest"),
            example={
                "match": {"type": "press"},
                "metrics": ["temperature"],
                "start": "-1d",
                "step": "1h",
                "agg": ["avg", "max"],
                "group_by": ["location"],
            },
            max_bytes=NAMES_BYTES,
        ),
        replies=stepped("The series.", "Series", "Steps"),
        errors=(413, 415),
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
        replies=tabular("One point for each metric.", "Series"),
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
        doc="Unknown and silent devices have none.",
        parameters=(EPOCH, TENANT),
        body=Body(
            doc="Which devices, and which metrics (all, if left out).",
            forms=json_form("LatestRequest"),
            example={"devices": ["press-7", "press-9"], "metrics": ["temperature"]},
            max_bytes=NAMES_BYTES,
        ),
        replies=tabular("One point for each metric of each device.", "Series"),
        errors=(413, 415),
        offers=TABULAR,
    ),
    Route(
        method="GET",
        path="/v1/fleet/series",
        handler=readings.fleet_series,
        long=True,
        roles=READERS,
        group="Reading",
        summary="Statistics of all devices that match, together, over steps",
        doc="In steps of whole hours the fleet's hours answer for all devices, or those of a type; otherwise the "
        "devices that match are asked. An answer is whole, or refused by a limit.",
        parameters=(*MATCH, METRICS, START, END, FLEET_STEP, FLEET_AGG, FILL, TZ, GROUP_BY, EPOCH, TENANT),
        replies=stepped("The series, by metric.", "Steps"),
        offers=TABULAR,
    ),
    Route(
        method="GET",
        path="/v1/fleet/latest",
        handler=readings.fleet_latest,
        long=True,
        roles=READERS,
        group="Reading",
        summary="The latest values of the devices that match",
        parameters=(*MATCH, METRICS, PAGE, AFTER, EPOCH, TENANT),
        replies=tabular("One point for each metric of each device of the page.", "Series"),
        offers=TABULAR,
    ),
)
