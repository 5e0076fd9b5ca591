"""Requests and their answers: the wire side of the client.

Rule 1: what a server refuses is raised as the error the server raised; what never got there, or never came back, is
`Unavailable`. Nothing is tried again behind the caller's back.
Rule 2: parameters of None are left out; the tenant goes with every request.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any
from urllib.parse import quote

import httpx

from widerow.model import errors
from widerow.model.errors import Rejected, Unavailable, WiderowError

_BY_CODE = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, WiderowError) and "code" in vars(kind)
}
_BY_STATUS: dict[int, type[WiderowError]] = {
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    408: Unavailable,
    409: errors.Conflict,
    412: errors.Conflict,
    413: errors.TooLarge,
    415: errors.Unsupported,
    429: Unavailable,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
    507: errors.StorageFull,
}


class Connection:
    """A server, wherever it is. Safe to share between threads."""

    def __init__(
        self,
        http: httpx.Client,
        where: str,
        tenant: str | None,
        behind: ExitStack | None = None,
        *,
        write_timeout_s: float | None = None,
    ) -> None:
        """`behind`: what is to be closed with it. `write_timeout_s`: how long storing may take; None: as all else."""
        self._http, self.where, self.tenant = http, where, tenant
        self.write_timeout_s = write_timeout_s
        self._behind, self._closing, self.closed = behind or ExitStack(), threading.Lock(), threading.Event()

    def close(self) -> None:
        with self._closing:
            try:
                self._http.close()
                self._behind.close()
            finally:
                self.closed.set()

    def send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        also: Sequence[int] = (),
        timeout_s: float | None = None,
    ) -> httpx.Response:
        """The whole answer, if it is a good one or has one of the statuses `also`. `body` is sent as JSON. Without
        `timeout_s` it may take as long as anything else.
        """
        given = {"tenant": self.tenant, **(params or {})}
        given = {name: value for name, value in given.items() if value is not None}
        if body is not None:
            content, headers = json.dumps(body).encode(), {"Content-Type": "application/json", **(headers or {})}
        timeout = httpx.USE_CLIENT_DEFAULT if timeout_s is None else timeout_s
        if self._http.is_closed:
            raise Unavailable("the client was closed", code="unreachable")
        try:
            response = self._http.request(method, path, params=given, content=content, headers=headers, timeout=timeout)
        except UnicodeEncodeError as error:
            raise Rejected(f"{error.object[:80]!a} holds half a surrogate pair", code="name") from None
        except httpx.TimeoutException:
            raise Unavailable(f"{self.where} gave no answer in time", code="timeout") from None
        except httpx.HTTPError as error:
            raise Unavailable(f"{self.where}: {str(error) or type(error).__name__}", code="unreachable") from None
        if not response.is_success and response.status_code not in also:
            raise failure(response)
        return response

    def json(self, method: str, path: str, *, params: Mapping[str, Any] | None = None, body: Any = None) -> dict[str, Any]:
        """The answer's JSON object."""
        response = self.send(method, path, params=params, body=body, headers={"Accept": "application/json"})
        return json_object(response, self.where)


def json_object(response: httpx.Response, where: str) -> dict[str, Any]:
    try:
        found = response.json()
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise Unavailable(f"{where} answered with something other than JSON: is it a Widerow server?", code="unreachable")
    return found


def failure(response: httpx.Response) -> WiderowError:
    """What the server said, as the error it was there: its kind, code, message and whatever else it has."""
    status = response.status_code
    try:
        said = response.json()["error"]
        fields = {"code": str(said["code"]), **said}
    except (ValueError, LookupError, TypeError):  # not from a Widerow server; from something in front of one, perhaps
        fields = {"message": f"HTTP {status}: {response.text[:200].strip() or response.reason_phrase}"}
    kind = _BY_CODE.get(fields.get("code", "")) or _BY_STATUS.get(status) or (Rejected if status < 500 else WiderowError)
    error = kind.__new__(kind)  # the constructors of some compose a message; this one is composed
    error.args = (fields.pop("message", ""),)
    if isinstance(error, Unavailable):
        error.retry_after_s = 1.0
    vars(error).update(fields)
    return error


def in_path(name: str) -> str:
    """A name as one segment of a path. Dots too: what is between slashes and only dots means another path."""
    return quote(name, safe="", errors="surrogatepass").replace(".", "%2E")
