"""The parts of schemas: plain types, objects, arrays, references."""

from __future__ import annotations

from typing import Any

from widerow.codec.answer import ARROW, CSV, JSON

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer", "minimum": 0}
MAYBE_WHOLE: Schema = {"type": ["integer", "null"], "minimum": 0}
NUMBER: Schema = {"type": "number"}
MAYBE_NUMBER: Schema = {"type": ["number", "null"]}
FLAG: Schema = {"type": "boolean"}
TIME: Schema = {"type": "string", "format": "date-time"}
MAYBE_TIME: Schema = {"type": ["string", "null"], "format": "date-time"}
CURSOR: Schema = {"type": ["string", "null"], "description": "Ask again with `after` set to this; null: that was all."}
BINARY: Schema = {"type": "string", "format": "binary"}


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def array(items: Schema, **limits: int) -> Schema:
    return {"type": "array", "items": items, **limits}


def of(properties: dict[str, Schema], required: tuple[str, ...] | None = None) -> Schema:
    """An object with these properties, all of them required unless said otherwise."""
    needed = list(properties) if required is None else list(required)
    return {"type": "object", "properties": properties, **({"required": needed} if needed else {})}


def without_step(properties: dict[str, Schema], required: tuple[str, ...]) -> Schema:
    """Raw points: an answer over steps has a `step`, be it null, so that an empty one is of one shape alone as well."""
    return {**of(properties, required), "not": {"required": ["step"]}}


def table_of(shape: Schema) -> dict[str, Schema]:
    """A tabular answer in each of its forms."""
    return {JSON: shape, CSV: TEXT, ARROW: BINARY}
