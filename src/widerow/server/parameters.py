"""The parameters of the routes, each described once."""

from __future__ import annotations

from widerow.query.fill import FILLS
from widerow.query.fleet import FLEET_AGGREGATES
from widerow.query.listing import SORTS
from widerow.query.listing import STATES as DEVICE_STATES
from widerow.query.question import DEFAULT_AGGREGATE
from widerow.query.stepped import AGGREGATES
from widerow.query.texts import STATES, TEXT_AGGREGATES
from widerow.server.call import NEXT_HEADER, Param
from widerow.server.devices import MOST_ON_A_PAGE, PAGE_SIZE
from widerow.server.shapes import TEXT

TENANT = Param(name="tenant", doc="Which tenant; for operators, whose tokens are for all. Others may only name their own.")
DEVICE = Param(name="device", doc="The device, percent-encoded (`/` is `%2F`).", place="path")
METRIC = Param(name="metric", doc="The metric, percent-encoded.", place="path")
IF_MATCH = Param(name="If-Match", doc="The ETag that was read: the change is made only if it still holds.", place="header")
CONFIRM = Param(
    name="confirm",
    doc="That data may go which a shorter retention takes away; or `confirm` in the body.",
    schema={"type": "string", "enum": ["true", "false"]},
)
METRICS = Param(
    name="metrics",
    doc="Metrics, separated by commas outside braces; or given once for each, for names with commas. All, if left out. "
    "`disk_used` means all its variants, `disk_used{path=/}` those with that label.",
    repeats=True,
)
EPOCH = Param(
    name="epoch",
    doc="Times as numbers in this unit instead of RFC 3339 (JSON and CSV).",
    schema={"type": "string", "enum": ["s", "ms", "us", "ns"]},
)
TAGS = Param(
    name="tags",
    doc="Whether each point comes with the tags of its report: a third member in JSON, a column in CSV and Arrow.",
    schema={"type": "string", "enum": ["true", "false"], "default": "false"},
)
AFTER = Param(name="after", doc=f"The cursor of the page before (`next`, or the header `{NEXT_HEADER}`).")
START = Param(
    name="start", doc="RFC 3339, epoch milliseconds, or relative: `-1h`. Inclusive.", schema={**TEXT, "default": "-1h"}
)
END = Param(name="end", doc="The same. Exclusive.", schema={**TEXT, "default": "now"})
STEP = Param(
    name="step",
    doc="Statistics over steps of this width instead of raw points: `10s`, `5m`, `1h`, `1d`, `1w`, `1mo`. "
    "With `agg` alone, the whole span is one step.",
)
AGG = Param(
    name="agg",
    doc=f"The statistics of each step, separated by commas: {', '.join(AGGREGATES)}; of texts "
    f"{', '.join((*TEXT_AGGREGATES, STATES))}.",
    schema={**TEXT, "default": DEFAULT_AGGREGATE},
    repeats=True,
)
FILL = Param(
    name="fill",
    doc="Steps without values: `none` are left out, `null` have no value, `previous` have the value before, `linear` lie "
    "on the line between their neighbours.",
    schema={"type": "string", "enum": list(FILLS), "default": "none"},
)
FLEET_STEP = Param(
    name="step", doc="The width of steps: `10m`, `1h`, `1d`, `1w`, `1mo`. The whole span is one step, if it is left out."
)
FLEET_AGG = Param(
    name="agg",
    doc=f"The statistics of each step, separated by commas: {', '.join(FLEET_AGGREGATES)}.",
    schema={**TEXT, "default": DEFAULT_AGGREGATE},
    repeats=True,
)
GROUP_BY = Param(
    name="group_by",
    doc="Series apart for each `type`, `location`, value of a tag (`tag:NAME`) or of a label (`label:NAME`, or the label's "
    "name alone). Devices and metrics that have none are left out.",
)
GROUP_BY_LABELS = Param(
    name="group_by",
    doc="Labels, separated by commas: variants of a metric that have the same values of these are merged, and others left "
    "out. `label:NAME`, or the label's name alone if it is not `device`, `type`, `location` or `metric`. Without a step the "
    "whole span is one.",
    repeats=True,
)
TZ = Param(name="tz", doc="The time zone that days, weeks and months follow, such as `Europe/Berlin`; UTC otherwise.")
PAGE = Param(
    name="limit",
    doc="Devices on a page.",
    schema={"type": "integer", "minimum": 1, "maximum": MOST_ON_A_PAGE, "default": PAGE_SIZE},
)
TENANT_PATH = Param(name="tenant", doc="The tenant.", place="path")
TOKEN_ID = Param(name="id", doc="The token's id, as listed.", place="path")
POINTS = Param(name="limit", doc="Most points, at most `http.max_points`.", schema={"type": "integer", "minimum": 1})
MATCH = (
    Param(name="type", doc="Devices of this type."),
    Param(name="location", doc="Devices at this location."),
    Param(name="tag", doc="Devices with this tag, as `NAME:VALUE`; several must all hold.", repeats=True),
    Param(name="prefix", doc="Devices whose name begins so."),
    Param(name="q", doc="Words: devices that have each of them in their name, display name, type, location or tags."),
)

ORDER = (
    Param(
        name="sort",
        doc="The order: by name, by the time of the last report, or by rate; with `-` the other way round. Devices that "
        "never reported come last. A cursor belongs to its order.",
        schema={"type": "string", "enum": list(SORTS)},
    ),
    Param(
        name="state",
        doc="Devices that reported within `devices.online_s`, the others, or those that are hot.",
        schema={"type": "string", "enum": list(DEVICE_STATES)},
    ),
    Param(
        name="activity",
        doc="Whether each device comes with its `activity`: when it reported last, how fast it reports, and its state.",
        schema={"type": "string", "enum": ["true", "false"], "default": "false"},
    ),
)


def precision(default: str, units: list[str]) -> Param:
    return Param(
        name="precision", doc="The unit of epoch times.", schema={"type": "string", "enum": units, "default": default}
    )
