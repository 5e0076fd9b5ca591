"""`GET /v1/overview`, and the same as a stream."""

from __future__ import annotations

from widerow.codec.answer import JSON
from widerow.server.call import Answer, Call
from widerow.server.overview import for_role
from widerow.server.streams import EVENTS


def scope_of(call: Call) -> str:
    """The tenant that is meant; empty: all."""
    return call.tenant().name if call.tenant_name() is not None else ""


def stream(call: Call) -> Answer:
    """The scope of what the stream is to send (`server.streams`)."""
    return Answer(200, scope_of(call).encode(), EVENTS)


def get_overview(call: Call) -> Answer:
    return Answer(200, for_role(call.front.overviews.of(scope_of(call)), call.who.role), JSON)
