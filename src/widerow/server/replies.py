"""Shapes of requests and answers that many routes share, for the route table."""

from __future__ import annotations

from typing import Any

from widerow.codec.answer import JSON
from widerow.server.call import MISSING_HEADER, NEXT_HEADER, SAMPLED_HEADER, USED_HEADER
from widerow.server.shapes import Schema, ref, table_of
from widerow.server.table import Body, Reply

ETAG = {"ETag": "The revision; send it back as If-Match."}
DONE = {204: Reply(doc="Done.")}

_NEXT = {NEXT_HEADER: "The cursor of the next page, for CSV and Arrow."}


def json_form(name: str) -> dict[str, Schema]:
    return {JSON: ref(name)}


def entity(name: str) -> dict[int, Reply]:
    """One thing that has a revision."""
    return {200: Reply(doc=f"The {name.lower()}.", forms=json_form(name), headers=ETAG)}


def tabular(doc: str, name: str) -> dict[int, Reply]:
    return {200: Reply(doc=doc, forms=table_of(ref(name)), headers=_NEXT)}


def stepped(doc: str, *names: str) -> dict[int, Reply]:
    """Raw points, or statistics over steps."""
    headers = {
        **_NEXT,
        USED_HEADER: "Over steps: how many rows of which level were read, as `hour=24, raw=12`.",
        SAMPLED_HEADER: "Spans in which part of the reports was kept, as `DEVICE START/END=0.1, ...`.",
        MISSING_HEADER: "Over steps: spans that are no longer kept finely enough to be answered, as `START/END, ...`.",
    }
    shape: Schema = {"oneOf": [ref(name) for name in names]}
    return {200: Reply(doc=doc, forms=table_of(shape), headers=headers)}


def patch(name: str, example: dict[str, Any]) -> Body:
    return Body(doc="The keys to change; the others stay as they are.", forms=json_form(name), example=example)
