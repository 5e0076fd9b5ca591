"""Everything that can go wrong, and whose turn it is to act.

    WiderowError
    +-- Rejected        the caller's: what was sent or asked cannot be accepted as it is
    |   +-- Unauthorized, Forbidden, NotFound, Conflict, TooLarge, Unsupported
    |   +-- ConfirmationNeeded  data would be gone: say that this is meant
    |   +-- QuotaExceeded     a limit is spent: raise it or wait
    |   +-- QueryLimit        a question is larger than is allowed: ask for less
    +-- Unavailable     nobody's fault: try again
    |   +-- Overloaded        too much is in flight in all
    |   +-- TenantBusy        too much of this tenant is in flight; others are served
    |   |   +-- QueryBusy     the same of its questions
    |   +-- Stalled           the body of a request did not go on
    |   +-- StoreUnavailable  the store, or Kafka before it, did not do what was asked
    |   |   +-- StorageFull     the disk is full
    |   +-- NotTheWriter      the store is another process's to write to
    +-- Corrupt         stored bytes are not what was written
    +-- ConfigError     a setting is wrong; the process does not start

Codes are part of the interface: they never change. Each is explained in docs/reference/errors.md (a test checks that).
A `Refusal` is not an exception: it says why some reports of a batch were left out while their neighbours were kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from widerow.model.figures import figure


class WiderowError(Exception):
    """Base of all errors of this package."""

    code = "error"

    def forget_where(self) -> None:
        """For an error that is handed on as a value. What it was raised through holds whatever was at hand there, often the
        error itself: a ring that only the garbage collector opens, and nothing else runs while it does.
        """
        error: BaseException | None = self
        while error is not None:
            error.__traceback__ = None
            error = error.__cause__ or error.__context__


class Rejected(WiderowError):
    """What was sent or asked cannot be accepted as it is. `code` says why; retrying unchanged does not help."""

    code = "invalid"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class Unauthorized(Rejected):
    """No token, or none that we know."""

    code = "unauthorized"


class Forbidden(Rejected):
    """The token is good, its role is not."""

    code = "forbidden"


class NotFound(Rejected):
    """No such tenant, device, metric, token or route."""

    code = "not-found"


class Conflict(Rejected):
    """Somebody else changed it first, or it exists already."""

    code = "conflict"


class ConfirmationNeeded(Conflict):
    """What is asked for takes data away for good: `goes` says what. Asking again with a confirmation does it."""

    code = "confirmation-needed"

    def __init__(self, message: str, goes: Sequence[Mapping[str, object]]) -> None:
        super().__init__(message)
        self.goes = goes


class TooLarge(Rejected):
    """The body is larger than `http.max_body_mib`, or than its route takes."""

    code = "too-large"


class Unsupported(Rejected):
    """A content type or encoding that is not understood."""

    code = "unsupported"


class QuotaExceeded(Rejected):
    """A tenant's limit is spent. Raising the limit or waiting helps; retrying at once does not."""

    code = "quota-exceeded"

    def __init__(self, tenant: str, limit: str, allowed: float, seen: float, retry_after_s: float) -> None:
        super().__init__(
            f"{tenant}: limits.{limit} allows {figure(allowed)}, saw {figure(seen)}; "
            f"retry in {figure(round(retry_after_s, 1))}s or raise the limit"
        )
        self.tenant, self.limit, self.allowed, self.seen, self.retry_after_s = (
            tenant,
            limit,
            allowed,
            seen,
            retry_after_s,
        )

    @property
    def reports_code(self) -> str:
        """With which reports are refused one by one for the same reason."""
        return _CODES_OF_LIMITS.get(self.limit, self.code)


_CODES_OF_LIMITS = {"writes_per_s": "writes-limit", "storage_bytes": "storage-limit", "series": "series-limit"}


class QueryLimit(Rejected):
    """A question would read, take or answer more than it may. Asking for less helps; asking again does not."""

    code = "query-limit"

    def __init__(self, what: str, limit: str, allowed: float, seen: float, todo: str) -> None:
        super().__init__(f"{what}, and {limit} allows {figure(allowed)}: {todo}")
        self.limit, self.allowed, self.seen = limit, allowed, seen


class Unavailable(WiderowError):
    """Not now. Nothing was acknowledged; trying again is safe."""

    code = "unavailable"

    def __init__(self, message: str, *, retry_after_s: float = 1.0, code: str | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        if code is not None:
            self.code = code


class Overloaded(Unavailable):
    """The process has taken in as much as it may."""

    code = "overloaded"


class TenantBusy(Unavailable):
    """The tenant's own line is full, or others are registering its devices; other tenants are served."""

    code = "tenant-busy"


class QueryBusy(TenantBusy):
    """The tenant asks more than it has turns for; others are answered."""

    code = "query-busy"


class Stalled(Unavailable):
    """The body of a request did not go on, or came too slowly, and what had come of it was let go."""

    code = "body-timeout"


class StoreUnavailable(Unavailable):
    """The store, or Kafka before it, did not do what was asked. The text may be the driver's and name addresses.

    It is for the log: callers read `public` and the id of their request.
    """

    code = "store-unavailable"
    public = "the store does not answer"
    request_id = ""


class StorageFull(StoreUnavailable):
    """The disk has no room. Writing resumes by itself when there is."""

    code = "storage-full"
    public = "the store has no room"


class NotTheWriter(Unavailable):
    """The process does not have the lease to write to a store that others share. It goes on when it has."""

    code = "no-lease"


class Corrupt(WiderowError):
    """Stored bytes are not what was written."""

    code = "corrupt"


class ConfigError(WiderowError):
    """A setting is wrong. The message names it and what it may be."""

    code = "config"


@dataclass(frozen=True, slots=True)
class Spent:
    """A limit that has nothing left: what a sender needs to know of it."""

    limit: str
    allowed: float
    seen: float
    retry_after_s: float | None = None
    """None: waiting alone does not help."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why some reports of a batch were refused: one code and reason, and the positions it holds for."""

    code: str
    reason: str
    positions: Sequence[int]
    spent: Spent | None = None
    """The limit that is spent, where that is why."""

    def __len__(self) -> int:
        return len(self.positions)


REFUSAL_CODES = {
    "syntax": "The report cannot be read: the text breaks the rules of its format.",
    "name": "A device, metric or tag name is empty, too long (256 bytes; a metric with its labels 1,024), or holds control "
    "characters.",
    "device-missing": "The report names no device.",
    "no-values": "The report has no value.",
    "too-many-values": "The report has more values and tags than `limits.values_per_report` allows.",
    "not-finite": "A value is NaN or infinite.",
    "integer-range": "An integer lies beyond 2^53 and would be bent by a 64-bit float.",
    "value-type": "A value is neither a number, a boolean nor a text.",
    "text-too-long": "A text value is longer than 32 KiB.",
    "time": "The time cannot be read or lies outside what can be stored.",
    "future": "The event time is further ahead of the server's clock than `time.max_future_s` allows.",
    "too-old": "The event time is older than the tenant's raw retention.",
    "conflict": "The batch gives two different values for one device, time and name.",
    "unknown-device": "The tenant does not register devices on their first report, and this one is not registered.",
    "device-limit": "The tenant has as many devices as `limits.devices` allows.",
    "writes-limit": "The tenant has sent more than `limits.writes_per_s` allows. Waiting helps: the refusal says how long.",
    "storage-limit": "The tenant has stored as many bytes as `limits.storage_bytes` allows.",
    "series-limit": "The report has a metric that its device never had, and `limits.series` allows no more of these.",
    "device-rate": "The device has sent more than its profile's `max_reports_per_s`, or what was set for it, allows.",
    "hot-rate": "The device sends far too much, and may send less until it has cooled. The refusal says how long to wait.",
    "sampled": "The device sends far too much, and part of its reports is kept; this one is not. Do not send it again.",
    "wrong-device": "The token or the topic is of one device only, and this is another.",
    "too-large": "The report is larger, or its message holds more reports, than one message may.",
    "topic": "No tenant and device can be read from the topic.",
    "unknown-tenant": "The topic names a tenant that does not exist.",
    "erased": "The report is older than the erasure of its device, tenant or metric.",
}
"""The codes of refused reports, each with its meaning."""


def unexpected(error: Exception) -> WiderowError:
    """What a sender is told of a failure that nobody foresaw. The log has it."""
    return Unavailable(internal_error(error))


INTERNAL = "internal"
"""The code of what failed by a fault of ours."""


def internal_error(error: Exception) -> str:
    return f"internal error: {type(error).__name__}; the server's log has the details"
