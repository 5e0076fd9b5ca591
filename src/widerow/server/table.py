"""What a route is. The table itself is in `routes`.

From one entry come the routing, who may use it, which parameters it knows, and its part of `/openapi.json`; so none of the
four can be forgotten or disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from widerow.codec.answer import JSON, MEDIA_TYPES
from widerow.model.token import Role
from widerow.server.auth import ADMINS
from widerow.server.call import Answer, Call, Param
from widerow.server.write import WriteKind

Schema = Mapping[str, Any]
Handler = Callable[[Call], Answer]

SMALL_BYTES = 1 << 20
"""What a body may have. A device with 64 tags of 256 bytes, every character escaped, has a fifth of it."""
NAMES_BYTES = 4 << 20
"""The same where it names devices: 10,000 names of 256 bytes have 2.6 MB."""

JSON_ONLY = (JSON,)
WHATEVER_IS_ACCEPTED: tuple[str, ...] = ()
"""For probes: they get the one answer that there is, whatever their `Accept` says."""
TABULAR = MEDIA_TYPES


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """What a request carries: its forms by media type."""

    doc: str
    forms: Mapping[str, Schema]
    example: Any = None
    """A body that works; a function of the time in microseconds, if a time is in it, which would soon be too old."""
    max_bytes: int | None = SMALL_BYTES
    """How large it may be, if `http.max_body_mib` allows as much; None: as large as that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a good answer carries: its forms by media type, none for an empty one."""

    doc: str
    forms: Mapping[str, Schema] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    method: str
    path: str
    """With its parameters in braces, as in OpenAPI."""
    handler: Handler | WriteKind
    roles: frozenset[Role] | None
    """Who may use it; None: everybody, without a token."""
    group: str
    summary: str
    doc: str = ""
    parameters: tuple[Param, ...] = ()
    body: Body | None = None
    replies: Mapping[int, Reply]
    errors: tuple[int, ...] = ()
    """Statuses beyond those that any route of its kind has."""
    offers: tuple[str, ...] = JSON_ONLY
    """The forms of its answer; the first is given when none is asked for. None: it does not look at `Accept`."""
    long: bool = False
    """Whether it may read much: few of those are worked on at once (`admit.question_slots`)."""
    quick: bool = False
    """Answered on the event loop: it never waits, and must answer even when all threads are busy."""

    streams: bool = False
    """Its answer goes on until the client has enough (`server.streams`); the handler gives the scope of what is sent."""
    aside: bool = False
    """Answered by one thread of its own, from memory: it waits for no question, and needs no place among them."""

    @property
    def id(self) -> str:
        """How it is named in metrics and logs."""
        return f"{self.method} {self.path}"

    @property
    def changes(self) -> bool:
        """Whether it is an action of administrators, to be written down (`server.audit`)."""
        return self.method != "GET" and self.roles is not None and self.roles <= ADMINS

    def known(self) -> dict[str, Param]:
        """Its query parameters."""
        return {p.name: p for p in self.parameters if p.place == "query"}
