"""Shapes of requests and answers that many routes share, for the route table."""

from __future__ import annotations

from widerow.codec.answer import JSON
from widerow.server.call import NEXT_HEADER
from widerow.server.schemas import Schema, ref, table_of
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


def patch(name: str) -> Body:
    return Body(doc="What changes; keys that are left out stay as they are.", forms=json_form(name))
