"""The shapes of requests and answers, as JSON Schema for `/openapi.json`."""

from __future__ import annotations

from dataclasses import fields

from widerow.admit.controls import IN_FORCE
from widerow.model.device import MAX_METRICS_PER_REPORT, MetricKind
from widerow.model.hot import Step, StepMode
from widerow.model.series import NUMBER as OF_NUMBERS
from widerow.model.series import TEXT as OF_TEXTS
from widerow.model.tenant import MODED, ROW_ATTRIBUTES, LimitMode, Limits
from widerow.model.token import Role
from widerow.server.schemas_alerts import ALERT_SCHEMAS
from widerow.server.schemas_live import ACTIVITY, LIVE_SCHEMAS
from widerow.server.shapes import (
    CURSOR,
    FLAG,
    MAYBE_NUMBER,
    MAYBE_TIME,
    MAYBE_WHOLE,
    NUMBER,
    TEXT,
    TIME,
    WHOLE,
    Schema,
    array,
    of,
    ref,
    without_step,
)
from widerow.usage.ledger import LEVEL_NAMES, Cost, Prices, Use

_GOES = of(
    {
        "level": TEXT,
        "retention": TEXT,
        "becomes": TEXT,
        "reaches_back_to": TIME,
        "would_reach_back_to": TIME,
        "days": MAYBE_WHOLE,
        "devices": MAYBE_WHOLE,
        "rows": MAYBE_WHOLE,
    }
)
_ERROR = of(
    {
        "code": {**TEXT, "description": "Stable: it never changes its meaning."},
        "message": TEXT,
        "tenant": TEXT,
        "limit": {**TEXT, "description": "The limit that is spent."},
        "allowed": NUMBER,
        "seen": NUMBER,
        "retry_after_s": NUMBER,
        "goes": {
            **array(_GOES),
            "description": "Estimates of the data that a shorter retention would take away.",
        },
        "request_id": {**TEXT, "description": "The server's log has the store's own words under this id."},
    },
    ("code", "message"),
)
_LETTER_FIELDS: dict[str, Schema] = {
    "id": TEXT,
    "filed": TIME,
    "code": TEXT,
    "reason": TEXT,
    "source": {**TEXT, "description": "`http`, `mqtt:TOPIC` or `kafka:TOPIC/PARTITION/OFFSET`."},
    "media_type": TEXT,
    "precision": TEXT,
    "encoding": TEXT,
    "device": {**TEXT, "description": "The only device it may be of, by its token or topic."},
    "reports": {**WHOLE, "description": "How many reports it is of; 0: a body is kept as a whole."},
    "kept": {"type": "string", "enum": ["whole", "cut", "nothing"]},
    "bytes": {**WHOLE, "description": "How many are kept."},
    "replays": WHOLE,
    "replayed": MAYBE_TIME,
}
_DEVICE_FIELDS: dict[str, Schema] = {
    "display_name": TEXT,
    "type": TEXT,
    "location": TEXT,
    "tags": {"type": "object", "additionalProperties": {"type": ["string", "null"]}},
    "profile": of(
        {
            "reports_per_s": NUMBER,
            "max_reports_per_s": NUMBER,
            "metrics_per_report": {**WHOLE, "maximum": MAX_METRICS_PER_REPORT},
        },
        (),
    ),
}
_KEY_USE = of(
    {
        "count": {**WHOLE, "description": "In these minutes, of all keys; exact."},
        "skew": {**NUMBER, "description": "The most of a key by the mean of those that were seen."},
        "gini": {**NUMBER, "description": "0: all keys have the same; towards 1: one has all."},
        "hottest": array(
            of(
                {
                    "key": TEXT,
                    "tenant": TEXT,
                    "device": TEXT,
                    "count": NUMBER,
                    "error": {**NUMBER, "description": "Give or take."},
                    "share": NUMBER,
                }
            )
        ),
    }
)
_HARDWARE = array(of({"id": TEXT, "since": TIME, "note": TEXT}))
_EPOCH = of({"from": TIME, "bucket": TEXT, "sub_buckets": WHOLE, "reason": TEXT})
_METRIC_FIELDS: dict[str, Schema] = {
    "kind": {"type": "string", "enum": list(MetricKind)},
    "unit": TEXT,
    "description": TEXT,
}
_TENANT_FIELDS: dict[str, Schema] = {
    "display_name": TEXT,
    "limits": of(dict.fromkeys([field.name for field in fields(Limits)], WHOLE), ()),
    "limit_modes": of({name: {"type": "string", "enum": list(LimitMode)} for name in MODED}, ()),
    "hot_steps": of({step.value: {"type": "string", "enum": list(StepMode)} for step in Step}, ()),
    "retention": of({"raw": TEXT, "minute": TEXT, "hour": TEXT, "day": TEXT}, ()),
    "registers_devices": FLAG,
    "row_attributes": {"type": "array", "items": {"type": "string", "enum": list(ROW_ATTRIBUTES)}},
    "device_tags": {"type": "array", "items": TEXT},
    "attribute_tags": {"type": "array", "items": TEXT},
}
_COUNTS: Schema = {"type": "object", "additionalProperties": {"type": "integer"}}
_USE_FIELDS: dict[str, Schema] = {
    **{field.name: {"type": "integer"} for field in fields(Use) if field.name != "time_us"},
    "question_seconds": NUMBER,
    "refused_by": {**_COUNTS, "description": "Refused reports by code, ..."},
    "limited_by": {**_COUNTS, "description": "... and those among them that were over a limit, by its name."},
    "stored_reports": {**WHOLE, "description": "By their event times, each once, however often they were sent."},
    "stored_bytes": {**WHOLE, "description": "On disk, of all levels, at the end of the step."},
    "cost": of({field.name: NUMBER for field in fields(Cost)}),
}
_STEP_MODE: Schema = {"type": "string", "enum": list(StepMode)}
_LISTED: Schema = {"oneOf": [TEXT, array(TEXT)], "description": "One text has names with commas between them."}
_SAMPLED = array(
    of(
        {
            "device": TEXT,
            "start": TIME,
            "end": {**MAYBE_TIME, "description": "Null: it is still sampled."},
            "rate": {**NUMBER, "description": "Which part of its reports was kept."},
        }
    )
)
_SPENT: dict[str, Schema] = {
    "limit": {**TEXT, "description": "If a limit refused the report: its name."},
    "allowed": {**NUMBER, "description": "The rate or number that the limit allows."},
    "seen": {**NUMBER, "description": "The rate or number that was seen."},
    "retry_after_s": {**NUMBER, "description": "When to send the report again, if waiting helps."},
}
_STORED: dict[str, Schema] = {"created": MAYBE_TIME, "revision": WHOLE}
_TOKEN_FIELDS: dict[str, Schema] = {
    "id": {**TEXT, "description": "Names the token without giving it away."},
    "role": {"type": "string", "enum": list(Role)},
    "tenant": TEXT,
    "device": TEXT,
    "description": TEXT,
    "created": MAYBE_TIME,
    "expires": MAYBE_TIME,
}
_BY_LEVEL = of({"minute": WHOLE, "hour": WHOLE, "day": WHOLE})
_BACKUP_FIELDS: dict[str, Schema] = {
    "number": WHOLE,
    "mark": {**TIME, "description": "Everything acknowledged before this moment is in it."},
    "finished": TIME,
    "bytes": WHOLE,
    "copied_bytes": {**WHOLE, "description": "How much of it no earlier backup had."},
}
_FINDING = of(
    {
        "kind": {"type": "string", "enum": ["wrong", "missing", "extra", "cannot tell", "unreadable"]},
        "tenant": TEXT,
        "device": TEXT,
        "level": {"type": "string", "enum": ["minute", "hour", "day"]},
        "start": {**TIME, "description": "Where its window begins."},
        "metric": TEXT,
        "frozen": {**FLAG, "description": "The raw reports of its window are gone."},
        "mendable": {**FLAG, "description": "Whether it can be computed from what is left."},
        "note": TEXT,
        "repaired": FLAG,
    }
)
_LAG: dict[str, Schema] = {
    "behind_s": {**NUMBER, "description": "How long ago the oldest window that is not rolled was due."},
    "margin_s": {**NUMBER, "description": "How long what it is rolled from is still on disk; a week at most."},
    "pending": {**WHOLE, "description": "Windows, of a shard of devices each, that are marked and not rolled."},
}
_FIGURES: dict[str, Schema] = {
    "reports_per_s": NUMBER,
    "values_per_s": NUMBER,
    "reports": WHOLE,
    "values": WHOLE,
    "refused": WHOLE,
}

SCHEMAS: dict[str, Schema] = {
    "Error": of({"error": _ERROR}),
    "InfluxError": of({"code": TEXT, "message": TEXT, "error": TEXT}),
    "Report": of(
        {
            "device": TEXT,
            "time": {
                "description": "RFC 3339, or an epoch in the request's precision; the time of receipt if it is left out.",
                "type": ["string", "number"],
            },
            "values": {"type": "object", "additionalProperties": {"type": ["number", "string", "boolean"]}},
            "tags": {"type": "object", "additionalProperties": TEXT},
        },
        ("device", "values"),
    ),
    "Refused": of(
        {
            "accepted": WHOLE,
            "refused": WHOLE,
            "refusals": array(of({"index": WHOLE, "code": TEXT, "reason": TEXT, **_SPENT}, ("index", "code", "reason"))),
            "more": {**WHOLE, "description": "How many further refusals are not listed."},
        },
        ("accepted", "refused", "refusals"),
    ),
    "Device": of(
        {
            "name": TEXT,
            **_DEVICE_FIELDS,
            **_STORED,
            "hardware": {**_HARDWARE, "description": "The current piece and those before it, newest first."},
            "placement": array(_EPOCH),
            "online": {
                **of({"is": {"type": "boolean"}, "told": TIME}),
                "type": ["object", "null"],
                "description": "The last status that the device, or its last will, gave to an MQTT broker.",
            },
            "activity": ACTIVITY,
        },
        ("name", "revision"),
    ),
    "DeviceHistory": of(
        {
            "states": array(
                of(
                    {
                        "name": TEXT,
                        **_DEVICE_FIELDS,
                        **_STORED,
                        "hardware": _HARDWARE,
                        "from": {**MAYBE_TIME, "description": "Null: not known."},
                        "until": {**MAYBE_TIME, "description": "Null: it is so now."},
                    }
                )
            ),
            "next": CURSOR,
        }
    ),
    "Actions": of(
        {
            "actions": array(
                of(
                    {
                        "id": TEXT,
                        "time": TIME,
                        "tenant": TEXT,
                        "by": {**TEXT, "description": "`token ID`, `local socket`, `command line` or `in process`."},
                        "role": {"type": "string", "enum": list(Role)},
                        "what": {**TEXT, "description": "The route, or a command that uses none."},
                        "about": TEXT,
                        "command": {**TEXT, "description": "The command that asked for it, as it says itself."},
                        "changes": array(TEXT),
                        "before": {"type": ["integer", "null"], "description": "The revision that was changed."},
                        "after": {"type": ["integer", "null"]},
                        "outcome": {**TEXT, "description": "`done`, or the code of an error."},
                        "reason": TEXT,
                    }
                )
            ),
            "next": CURSOR,
        }
    ),
    "HardwareSwap": of({"hardware": TEXT, "note": TEXT, "since": {"type": ["string", "integer"]}}, ("hardware",)),
    "DevicePlacement": of(
        {
            "device": TEXT,
            "bucket": {**TEXT, "description": "The width of its buckets now."},
            "sub_buckets": WHOLE,
            "epochs": array(_EPOCH),
            "observed": of(
                {
                    "reports_per_s": NUMBER,
                    "values_per_report": NUMBER,
                    "over": TEXT,
                    "by": {
                        "type": "string",
                        "enum": ["writer", "store"],
                        "description": "Measured by this process as it wrote, or counted in the store.",
                    },
                }
            ),
        }
    ),
    "HotControls": of({step.value: of({"mode": _STEP_MODE, "value": MAYBE_NUMBER}) for step in Step}),
    "HotControlsPatch": of({step.value: {"type": ["number", "string", "null"]} for step in Step}, ()),
    "Hot": of(
        {
            "hot": array(
                of(
                    {
                        "tenant": TEXT,
                        "device": TEXT,
                        "since": {**MAYBE_TIME, "description": "Null: it is not hot, but something is pinned or forbidden."},
                        "reports_per_s": {**NUMBER, "description": "In the last interval, or as it was last told."},
                        "share": {**NUMBER, "description": "Of all that this process takes."},
                        "reason": TEXT,
                        "steps": of({step.value: NUMBER for step in Step}, ()),
                        "modes": of({step.value: _STEP_MODE for step in Step}),
                    }
                )
            ),
            "story": array(
                of(
                    {
                        "time": TIME,
                        "tenant": TEXT,
                        "device": TEXT,
                        "what": {"type": "string", "enum": sorted(IN_FORCE)},
                        "value": NUMBER,
                        "from": {**TIME, "description": "The event time from which on it holds."},
                        "reason": TEXT,
                    }
                )
            ),
        }
    ),
    "KeySpace": of(
        {
            "since": {**TIME, "description": "When this process began to count."},
            "interval_s": {**WHOLE, "description": "A hot key has a range of its own after this time."},
            "minutes": {**array(TIME), "description": "When each minute begins; the last one is not over."},
            "ranges": array(
                of(
                    {
                        "start": {**TEXT, "description": "The first key that may be in it, `TENANT/DEVICE`."},
                        "stop": {"type": ["string", "null"], "description": "The first key behind it; null: there is none."},
                        "since": {**TIME, "description": "Before, it has its share of a wider range's figures."},
                        "keys": {**WHOLE, "description": "Seen in one interval, at least."},
                        "writes": {**array(NUMBER), "description": "Reports, by minute."},
                        "reads": {**array(NUMBER), "description": "Questions about a device, by minute."},
                        "writes_error": {**NUMBER, "description": "Give or take, of the sum."},
                        "reads_error": {**NUMBER, "description": "Give or take, of the sum."},
                        "bytes": {**NUMBER, "description": "Written, before compression."},
                    }
                )
            ),
            "writes": _KEY_USE,
            "reads": _KEY_USE,
        }
    ),
    "DevicePatch": of(_DEVICE_FIELDS, ()),
    "Devices": of({"devices": array(ref("Device")), "next": CURSOR}),
    "DeviceBatch": of({"devices": array(of({"name": TEXT, **_DEVICE_FIELDS}, ("name",)), minItems=1, maxItems=10_000)}),
    "DeviceResults": of(
        {
            "created": WHOLE,
            "updated": WHOLE,
            "refused": WHOLE,
            "results": array(
                of(
                    {
                        "index": WHOLE,
                        "name": TEXT,
                        "outcome": {"type": "string", "enum": ["created", "updated", "refused"]},
                        "revision": WHOLE,
                        "code": TEXT,
                        "reason": TEXT,
                    },
                    ("index", "outcome"),
                )
            ),
        }
    ),
    "Series": without_step(
        {
            "series": array(
                of(
                    {
                        "device": TEXT,
                        "metric": TEXT,
                        "points": array(
                            {
                                "type": "array",
                                "prefixItems": [{"type": ["string", "number"]}, {"type": ["number", "string"]}],
                                "description": "Time and value.",
                            }
                        ),
                    }
                )
            ),
            "next": CURSOR,
            "sampled": _SAMPLED,
        },
        ("series", "next"),
    ),
    "Steps": of(
        {
            "series": array(
                of(
                    {
                        "device": TEXT,
                        "group": {
                            "type": "object",
                            "additionalProperties": TEXT,
                            "description": "Instead of the device: the properties that define the group.",
                        },
                        "metric": TEXT,
                        "agg": TEXT,
                        "kind": {
                            "type": "string",
                            "enum": [OF_NUMBERS, OF_TEXTS],
                            "description": "A metric that holds numbers and texts has a series of each.",
                        },
                        "points": array(
                            {
                                "type": "array",
                                "prefixItems": [{"type": ["string", "number"]}, {"type": ["number", "string", "null"]}],
                                "description": "The begin of the step, and its value.",
                            }
                        ),
                    },
                    ("metric", "agg", "kind", "points"),
                )
            ),
            "step": {"type": ["string", "null"], "description": "Null: the whole span is one step."},
            "tz": TEXT,
            "used": {
                "type": "object",
                "additionalProperties": WHOLE,
                "description": "How many rows of which level were read.",
            },
            "missing": array(
                of({"start": {"type": ["string", "number"]}, "end": {"type": ["string", "number"]}}),
            ),
            "top": array(of({"device": TEXT, "value": NUMBER})),
            "next": CURSOR,
            "sampled": _SAMPLED,
        },
        ("series", "step", "used", "next"),
    ),
    "QueryRequest": of(
        {
            "devices": array(TEXT, minItems=1, maxItems=10_000),
            "match": of(
                {
                    "type": TEXT,
                    "location": TEXT,
                    "tags": {"type": "object", "additionalProperties": TEXT},
                    "prefix": TEXT,
                    "q": TEXT,
                },
                (),
            ),
            "metrics": _LISTED,
            "start": {"type": ["string", "integer"], "default": "-1h"},
            "end": {"type": ["string", "integer"], "default": "now"},
            "step": TEXT,
            "agg": _LISTED,
            "group_by": array({**TEXT, "description": "device, type, location, tag:NAME, label:NAME; none: all devices."}),
            "tz": TEXT,
            "fill": TEXT,
            "limit": {**WHOLE, "description": "Most points; a larger answer is refused."},
            "top": {**WHOLE, "description": "Only so many devices, those with the greatest value."},
            "by": {**TEXT, "description": "Of which aggregate over the whole span."},
            "order": {"type": "string", "enum": ["desc", "asc"]},
        },
        (),
    ),
    "LatestRequest": of({"devices": array(TEXT, minItems=1, maxItems=10_000), "metrics": _LISTED}, ("devices",)),
    "Metric": of({"name": TEXT, **_METRIC_FIELDS, **_STORED}),
    "MetricPatch": of(_METRIC_FIELDS, ()),
    "Metrics": of({"metrics": array(ref("Metric")), "next": CURSOR}),
    "Usage": of(
        {
            "tenant": TEXT,
            "step": TEXT,
            "stored": of({**dict.fromkeys(LEVEL_NAMES, WHOLE), "total": WHOLE}),
            "devices": WHOLE,
            "series": {"type": ["integer", "null"], "description": "Where they are limited: how many there are."},
            "limits": {"type": "object", "additionalProperties": WHOLE},
            "prices": of({field.name: NUMBER for field in fields(Prices)}),
            "total": of(_USE_FIELDS),
            "usage": array(of({"time": TIME, **_USE_FIELDS})),
        }
    ),
    "WhatIf": of(
        {
            "limits": _TENANT_FIELDS["limits"],
            "retention": _TENANT_FIELDS["retention"],
            "last": {**TEXT, "default": "7d", "description": "Of how long before now."},
        },
        (),
    ),
    "WouldHave": of(
        {
            "tenant": TEXT,
            "start": TIME,
            "end": TIME,
            "limits": {"type": "object", "additionalProperties": WHOLE},
            "writes": of(
                {
                    "offered": WHOLE,
                    "refused": WHOLE,
                    "hours_over": WHOLE,
                    "hours": array(
                        of({"time": TIME, **dict.fromkeys(("offered", "refused", "seconds", "worst_per_s"), WHOLE)})
                    ),
                }
            ),
            "reads": of(
                {
                    **dict.fromkeys(("rows", "over", "hours_over"), WHOLE),
                    "hours": array(of({"time": TIME, "rows": WHOLE, "over": WHOLE})),
                }
            ),
            "now": array(of({"limit": TEXT, "allowed": WHOLE, "seen": WHOLE, "over": WHOLE})),
            "retention": {**array(_GOES), "description": "The data that would go, by level."},
        }
    ),
    "Tenant": of(
        {"name": TEXT, **_TENANT_FIELDS, "raw_epochs": array(of({"from": TIME, "raw": TEXT})), **_STORED},
        ("name", "revision"),
    ),
    "TenantPatch": of({**_TENANT_FIELDS, "confirm": FLAG}, ()),
    "NewTenant": of({"name": {"type": "string", "pattern": "^[a-z0-9-]{1,64}$"}, **_TENANT_FIELDS}, ("name",)),
    "Tenants": of({"tenants": array(ref("Tenant")), "next": CURSOR}),
    "Token": of(_TOKEN_FIELDS),
    "NewToken": of(
        {key: _TOKEN_FIELDS[key] for key in ("role", "tenant", "device", "description")}
        | {"expires": {**TEXT, "description": "RFC 3339, epoch milliseconds, or relative such as +90d."}},
        ("role",),
    ),
    "MadeToken": of({"token": {**TEXT, "description": "The secret, shown this once."}, **_TOKEN_FIELDS}),
    "Tokens": of({"tokens": array(ref("Token")), "next": CURSOR}),
    "Erasure": of(
        {
            "device": {**TEXT, "description": "One device; all, if it is left out."},
            "metric": TEXT,
            "start": {"type": ["string", "integer"]},
            "end": {"type": ["string", "integer"]},
        },
        ("metric", "start", "end"),
    ),
    "Letters": of({"letters": array(ref("Letter")), "next": CURSOR}),
    "Letter": of(_LETTER_FIELDS),
    "FullLetter": of(
        {
            **_LETTER_FIELDS,
            "positions": array({**WHOLE, "description": "Where the first reports stood in the body they came in."}),
            "body": {**TEXT, "description": "The bytes that are kept."},
            "body_form": {"type": "string", "enum": ["text", "base64"]},
        }
    ),
    "LetterReplay": of(
        {
            "ids": array(TEXT, minItems=1, maxItems=1000),
            "code": TEXT,
            "since": {"type": ["string", "integer"]},
            "until": {"type": ["string", "integer"]},
            "all": {**FLAG, "description": "All letters are meant."},
            "conflicts": {**FLAG, "description": "Those refused as `conflict` are meant, too; else only by their ids."},
            "after": {**TEXT, "description": "The `next` of the answer before."},
        },
        (),
    ),
    "LettersReplayed": of(
        {
            "stored": {**WHOLE, "description": "Letters whose reports are stored, and which are gone."},
            "refused": {**WHOLE, "description": "Letters that were refused again, and stay."},
            "reports": {**WHOLE, "description": "Reports that were stored."},
            "conflicts": {**WHOLE, "description": "Letters that match and were left: refused as `conflict`."},
            "letters": array(
                of(
                    {
                        "id": TEXT,
                        "outcome": {"type": "string", "enum": ["stored", "refused", "not-found"]},
                        "accepted": WHOLE,
                        "code": TEXT,
                        "reason": TEXT,
                    },
                    ("id", "outcome", "accepted"),
                )
            ),
            "next": CURSOR,
        }
    ),
    "LettersDeleted": of({"deleted": WHOLE, "more": FLAG}),
    "Verification": of(
        {
            "start": {"type": ["string", "integer"], "description": "As far back as raw reports are kept, if left out."},
            "end": {"type": ["string", "integer"], "description": "Now, if left out."},
            "device": {**TEXT, "description": "One device; all, if it is left out."},
            "repair": {**FLAG, "description": "Mend what is found."},
            "after": {**TEXT, "description": "The `next` of the answer before."},
        },
        (),
    ),
    "BackupStart": of({"to": {**TEXT, "description": "The folder of backups, an absolute path on the server's machine."}}),
    "BackupState": of(
        {
            "state": {"type": "string", "enum": ["idle", "running"]},
            "run": {
                "oneOf": [
                    {"type": "null"},
                    of(
                        {
                            "to": TEXT,
                            "started": TIME,
                            "phase": {"type": "string", "enum": ["flushing", "copying"]},
                            "done_bytes": WHOLE,
                            "of_bytes": WHOLE,
                        }
                    ),
                ]
            },
            "last_success": {"oneOf": [{"type": "null"}, of({**_BACKUP_FIELDS, "to": TEXT})]},
            "last_error": {"oneOf": [{"type": "null"}, of({"to": TEXT, "time": TIME, "code": TEXT, "message": TEXT})]},
            "ledgers": array(of({"folder": TEXT, "trouble": {"type": ["string", "null"]}})),
        }
    ),
    "Verified": of(
        {
            "checked": {**_BY_LEVEL, "description": "Records that were looked at."},
            "frozen": {**_BY_LEVEL, "description": "Those of them whose raw reports are gone."},
            "behind": {**WHOLE, "description": "Windows that differ because they are still to be rolled."},
            "wrong": {**WHOLE, "description": "Findings: records that are not as they should be, and the two that follow."},
            "cannot_tell": {**WHOLE, "description": "Records that say more than what is left beneath them. They stay."},
            "unreadable": {
                **WHOLE,
                "description": "Windows that were not looked at, since bytes cannot be read. They stay.",
            },
            "repaired": WHOLE,
            "findings": array(_FINDING),
            "unlisted": {**WHOLE, "description": "How many findings are not listed."},
            "device_days": {**WHOLE, "description": "Days of devices that this answer is of."},
            "of": {**WHOLE, "description": "How many there are in all."},
            "next": CURSOR,
        }
    ),
    "Status": of(
        {
            "version": TEXT,
            "time": TIME,
            "started": TIME,
            "total": of({**_FIGURES, "tenants": WHOLE, "devices": WHOLE}),
            "tenants": array(
                of(
                    {
                        "name": TEXT,
                        "display_name": TEXT,
                        **_FIGURES,
                        "devices": WHOLE,
                        "memory_bytes": {
                            "type": "object",
                            "description": "The memory that the process holds for it, by purpose.",
                            "additionalProperties": WHOLE,
                        },
                    }
                )
            ),
            "store": of(
                {
                    "disk_bytes": {**MAYBE_WHOLE, "description": "Null: only the store's own tools know."},
                    "memory_bytes": MAYBE_WHOLE,
                    "windows": WHOLE,
                    "syncs": WHOLE,
                    "in_flight_bytes": WHOLE,
                    "detail": {"type": "object", "additionalProperties": {"type": "number"}},
                    "damage": array(TEXT),
                }
            ),
            "clock": of(
                {
                    "trusted": {"type": "boolean", "description": "Whether data expires by it."},
                    "reason": TEXT,
                    "ahead_s": {**WHOLE, "description": "How far the versions of the store are ahead of it."},
                }
            ),
            "rollups": of({**_LAG, "levels": {"type": "object", "additionalProperties": of(_LAG)}}),
        },
        ("version", "time", "started", "total", "tenants"),
    ),
    "Health": of({"status": TEXT, "reasons": array(TEXT)}, ("status",)),
    **ALERT_SCHEMAS,
    **LIVE_SCHEMAS,
}


def columns_of(answer: str, key: str) -> list[str]:
    """The columns of a tabular answer: the properties of what it lists."""
    listed: Schema = SCHEMAS[answer]["properties"][key]["items"]
    return list((SCHEMAS[listed["$ref"].rpartition("/")[2]] if "$ref" in listed else listed)["properties"])
