"""Errors as HTTP answers.

Rule 1: one table says which error has which status. What is not in it is a fault of ours: 500, a traceback in the log, and
no internals in the answer. Nor has it the words of a store's driver: the log has them, with the id that the caller is given.
Rule 2: every error has the same body, `{"error": {"code", "message", ...}}`; a spent limit adds its name, value, use and
when to try again. On the routes of InfluxDB the body is the one its clients read.
Rule 3: nothing that helps when it is sent again is answered to them with 408: Telegraf drops what got a 4xx other than 413
and 429. They get 503.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from widerow.model.errors import (
    ConfirmationNeeded,
    Conflict,
    Corrupt,
    Forbidden,
    NotFound,
    Overloaded,
    QueryLimit,
    QuotaExceeded,
    Rejected,
    Spent,
    Stalled,
    StorageFull,
    StoreUnavailable,
    TenantBusy,
    TooLarge,
    Unauthorized,
    Unavailable,
    Unsupported,
    WiderowError,
)

log = logging.getLogger(__name__)

JSON_TYPE = b"application/json"
TOO_MUCH = 429
"""A limit of the tenant's or the device's is spent: this is the sender's own doing."""
Header = tuple[bytes, bytes]


class MethodNotAllowed(Rejected):
    """The path is known, the method is not."""

    code = "method-not-allowed"

    def __init__(self, method: str, allowed: list[str]) -> None:
        super().__init__(f"{method[:20]} is not possible here: use {', '.join(allowed)}")
        self.allowed = allowed


class NotAcceptable(Rejected):
    """None of the forms that `Accept` names can be given."""

    code = "not-acceptable"


class HeadTooLarge(Rejected):
    """The head of a request, or the trailers behind its body, are larger than any need be."""

    code = "headers-too-large"

    @classmethod
    def of(cls, max_bytes: int, max_lines: int) -> HeadTooLarge:
        return cls(f"URL and headers, or trailers, may have {max_bytes >> 10} KiB and {max_lines} lines: send fewer")


class HeadTimeout(Stalled):
    """The head of a request did not come in time."""

    code = "header-timeout"


class PreconditionFailed(Conflict):
    """`If-Match` names another revision than the one that is stored."""


STATUSES: tuple[tuple[type[WiderowError], int], ...] = (
    (Unauthorized, 401),
    (Forbidden, 403),
    (NotFound, 404),
    (MethodNotAllowed, 405),
    (NotAcceptable, 406),
    (PreconditionFailed, 412),
    (Conflict, 409),
    (TooLarge, 413),
    (Unsupported, 415),
    (HeadTooLarge, 431),
    (QuotaExceeded, TOO_MUCH),
    (Rejected, 400),
    (Stalled, 408),
    (TenantBusy, TOO_MUCH),
    (StorageFull, 507),
    (Overloaded, 503),
    (Unavailable, 503),
    (Corrupt, 500),
)
"""The first that fits counts."""

_INFLUX_CODES = {
    400: "invalid",
    401: "unauthorized",
    403: "forbidden",
    404: "not found",
    413: "request too large",
    415: "invalid",
    429: "too many requests",
    503: "unavailable",
    507: "unavailable",
}


@dataclass(frozen=True, slots=True)
class Failure:
    """An error, ready to be sent."""

    status: int
    headers: list[Header]
    body: bytes


Shape = Callable[[int, WiderowError], Any]


def ours(_status: int, error: WiderowError) -> Any:
    """The body of an error on our own routes."""
    fields: dict[str, Any] = {"code": error.code, "message": str(error)}
    if isinstance(error, QuotaExceeded):
        fields |= {"tenant": error.tenant, "limit": error.limit, "allowed": error.allowed, "seen": error.seen}
    if isinstance(error, QueryLimit):
        fields |= {"limit": error.limit, "allowed": error.allowed, "seen": error.seen}
    if isinstance(error, ConfirmationNeeded):
        fields["goes"] = error.goes
    if isinstance(error, StoreUnavailable):
        fields["request_id"] = error.request_id
    if isinstance(error, (QuotaExceeded, Unavailable)):
        fields["retry_after_s"] = error.retry_after_s
    return {"error": fields}


def spent_fields(spent: Spent) -> dict[str, Any]:
    """What the sender of a report is told of a limit that is spent."""
    fields: dict[str, Any] = {"limit": spent.limit, "allowed": spent.allowed, "seen": round(spent.seen, 3)}
    if spent.retry_after_s is not None:
        fields["retry_after_s"] = round(spent.retry_after_s, 3)
    return fields


def retry_after(seconds: float) -> Header:
    return b"retry-after", b"%d" % max(1, math.ceil(seconds))


def influx(status: int, error: WiderowError) -> Any:
    """The same for clients of InfluxDB: 2.x reads `code` and `message`, 1.x reads `error`."""
    return {"code": _INFLUX_CODES.get(status, "internal error"), "message": str(error), "error": str(error)}


def told(error: WiderowError) -> WiderowError:
    """What a caller may read of an error. Requests that fail of the same error share its id, and one line of the log."""
    if isinstance(error, Corrupt):
        log.error("a request met damage: %s", str(error))
        return Corrupt("stored bytes have changed; the server's log names them")
    if not isinstance(error, StoreUnavailable):
        return error
    request_id = secrets.token_hex(8)
    if vars(error).setdefault("request_id", request_id) == request_id:
        log.warning("request %s: %s: %s", request_id, error.code, error)
    public = type(error)(
        f"{error.public}; the server's log says more of request {error.request_id}", retry_after_s=error.retry_after_s
    )
    public.request_id = error.request_id
    return public


def failure(error: BaseException, shape: Shape = ours) -> Failure:
    """What to answer when that was raised. A request is cancelled when the server stops and will not wait for it."""
    if isinstance(error, asyncio.CancelledError):
        error = Unavailable("the server is stopping: send this again to another, or later")
    known = next((status for kind, status in STATUSES if isinstance(error, kind)), None)
    if known is None or not isinstance(error, WiderowError):
        log.error("a request failed", exc_info=error)
        error = WiderowError("an internal error; the server's log has the details")
        error.code = "internal"
    error = told(error)
    status = 503 if known == 408 and shape is influx else known or 500
    body = msgspec.json.encode(shape(status, error))
    headers = [(b"content-type", JSON_TYPE), (b"content-length", b"%d" % len(body))]
    if status == 401:
        headers.append((b"www-authenticate", b'Bearer realm="widerow", Basic realm="widerow"'))
    if isinstance(error, Stalled):  # what else it sends is the rest of that body
        headers.append((b"connection", b"close"))
    if isinstance(error, MethodNotAllowed):
        headers.append((b"allow", ", ".join(error.allowed).encode()))
    if isinstance(error, (QuotaExceeded, Unavailable)):
        headers.append(retry_after(error.retry_after_s))
    return Failure(status, headers, body)
