"""The client: requests to a server, its answers as plain data, its refusals as `Failed`.

Rule 1: the same requests whether the server is far away, beside us (a Unix socket) or inside this process.
Rule 2: an operator names the tenant with each request; a tenant's token implies it. The session's tenant is
sent wherever a tenant's things are asked for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

from widerow.cli.failure import STATES, USAGE, Failed, Misused
from widerow.model.address import server_url
from widerow.model.errors import Rejected

if TYPE_CHECKING:  # httpx takes a quarter of a second, which `--help` need not spend
    import httpx

TIMEOUT_S = 60.0


class Api:
    """A connection to a server. Close it, or use it as a context."""

    def __init__(
        self, client: httpx.Client, *, target: str, where: str, tenant: str | None, token: str | None = None
    ) -> None:
        self._client, self.tenant, self.token = client, tenant, token
        self.target, self.where = target, where
        """The address for programs (a URL or the path of a socket), and for people."""
        self.command = ""
        """What is being run, for the server's audit log."""
        self.knobs: Mapping[str, str] = {}
        """What the API calls a thing, and which option of the command it is."""

    @classmethod
    def of_url(cls, given: str, token: str | None, tenant: str | None) -> Self:
        import httpx  # noqa: PLC0415

        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            url = server_url(given)
            client = httpx.Client(base_url=url, headers=headers, timeout=TIMEOUT_S)
        except Rejected as error:
            raise Misused(str(error)) from None
        except (httpx.InvalidURL, UnicodeError) as error:
            raise Misused(f"server {given!r}: {error}") from None
        return cls(client, target=url, where=url, tenant=tenant, token=token)

    @classmethod
    def of_socket(cls, path: str, tenant: str | None, where: str) -> Self:
        import httpx  # noqa: PLC0415

        # No proxy and no .netrc of the environment has a say in what happens on this machine.
        # There is no TLS on it either: reading all certificates of this machine would take longer than most questions.
        transport = httpx.HTTPTransport(uds=path, verify=False)
        client = httpx.Client(base_url="http://localhost", transport=transport, timeout=TIMEOUT_S, trust_env=False)
        return cls(client, target=path, where=where, tenant=tenant)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None) -> None:
        self._client.close()

    # -- requests

    def get(self, path: str, **params: Any) -> Any:
        return self.ask("GET", path, params=params)

    def post(self, path: str, body: Any = None, **params: Any) -> Any:
        return self.ask("POST", path, body=body, params=params)

    def patch(self, path: str, body: Any, **params: Any) -> Any:
        return self.ask("PATCH", path, body=body, params=params)

    def delete(self, path: str, **params: Any) -> Any:
        return self.ask("DELETE", path, params=params)

    def ask(self, method: str, path: str, *, body: Any = None, params: Mapping[str, Any] | None = None) -> Any:
        """The answer's JSON; None where it has no body."""
        answer = self.send(method, path, body=body, params=params)
        if not answer.content:
            return None
        try:
            return answer.json()
        except ValueError:
            raise Failed(
                f"{self.where} answered {method} {path} with something other than JSON: {answer.text[:80]!r}",
                todo="is it a Widerow server?",
            ) from None

    def send(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: Mapping[str, Any] | None = None,
        accept: str = "application/json",
        also: tuple[int, ...] = (),
    ) -> httpx.Response:
        """The whole answer, if it is a good one or one of the statuses `also`. Parameters of None are left out."""
        import httpx  # noqa: PLC0415

        given = {name: value for name, value in (params or {}).items() if value is not None}
        if self.tenant is not None and path.startswith("/v1/"):
            given.setdefault("tenant", self.tenant)
        headers, content = {"Accept": accept}, None
        if self.command:
            headers["Widerow-Command"] = self.command
        if body is not None:
            headers["Content-Type"] = "application/json"
            try:
                content = json.dumps(body, ensure_ascii=False, allow_nan=False).encode(errors="surrogatepass")
            except ValueError:
                raise Misused("numbers are finite: give neither nan nor inf") from None
        try:
            answer = self._client.request(method, path, params=given, content=content, headers=headers)
        except httpx.ConnectError as error:
            raise Failed(
                f"cannot reach {self.where}: {error}", code="unreachable", todo="is `widerow serve` running there?"
            ) from None
        except httpx.TimeoutException:
            raise Failed(f"{self.where} gave no answer within {TIMEOUT_S:g}s", code="timeout") from None
        except httpx.HTTPError as error:
            raise Failed(f"{self.where}: {str(error) or type(error).__name__}", code="unreachable") from None
        if not answer.is_success and answer.status_code not in also:
            raise failure(answer, self.knobs)
        return answer

    def pages(self, path: str, key: str, **params: Any) -> Iterator[Any]:
        """The entries of a list that comes in pages, one after the other."""
        cursor: str | None = None
        while True:
            page = self.get(path, **params, after=cursor)
            yield from page[key]
            cursor = page.get("next")
            if cursor is None:
                return


def in_path(name: str) -> str:
    """A name as one segment of a path, whatever it holds."""
    return quote(name, safe="")


_KNOBS = {
    "?tenant=NAME": "--tenant NAME, or WIDEROW_TENANT",
    " (epoch= is the unit of the times in answers)": "",
}
"""What the API's messages call things that have another name on the command line."""

_TODO = {
    "unauthorized": "give a good one with --token or WIDEROW_TOKEN",
    "forbidden": "use a token of another role (see `widerow token create --help`)",
}


def failure(answer: httpx.Response, knobs: Mapping[str, str] | None = None) -> Failed:
    """What the server said, as an error, in the words of the command line. What no request may say (400) was put wrongly."""
    try:
        said = answer.json()
    except ValueError:
        said = {}
    if isinstance(said, dict) and isinstance(said.get("error"), dict):
        said = said["error"]
    if not isinstance(said, dict):
        said = {}
    code = str(said.get("code") or f"http-{answer.status_code}")
    message = said.get("message") or said.get("reason") or answer.text[:200].strip() or answer.reason_phrase
    text = str(message)
    for theirs, ours in {**_KNOBS, **(knobs or {})}.items():
        text = text.replace(theirs, ours)
    exit_code = USAGE if answer.status_code == 400 and code not in STATES else 1
    return Failed(text, code=code, todo=_TODO.get(code, ""), exit_code=exit_code)
