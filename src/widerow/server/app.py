"""The ASGI application: from a request to its route, its caller, its handler and back.

Rule 1: write routes go straight to their own code, before anything is allocated for the others.
Rule 2: names in paths are taken from the path as it was sent, so an encoded slash is part of a name.
Rule 3: handlers block, so they run in threads, when there is a place for them (`admit.question_slots`).
Rule 4: a body is read only where the table says that there is one, which is never before the caller is known. What else is
sent with a request is not kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import NoReturn
from urllib.parse import unquote

from starlette.responses import Response
from starlette.routing import Route as StarletteRoute
from starlette.routing import Router
from starlette.types import Receive, Scope, Send

from widerow.admit.question_slots import Slot
from widerow.codec.answer import JSON
from widerow.model.errors import NotFound, Overloaded, QuotaExceeded, Rejected
from widerow.server.audit import answered
from widerow.server.auth import Auth, Caller, allow
from widerow.server.call import Answer, Call, Front, Query, negotiate
from widerow.server.failures import MethodNotAllowed, failure
from widerow.server.intake import Intake, Limit
from widerow.server.routes import ROUTES
from widerow.server.streams import EVENTS
from widerow.server.table import Handler, Route
from widerow.server.tally import Tally, timing
from widerow.server.write import Write, WriteKind

_NO_ROUTE = "none"
_STOPPING = "the server is stopping: send this again to another, or later"
_KEPT_HEADERS = (
    "accept",
    "accept-encoding",
    "authorization",
    "content-encoding",
    "content-length",
    "content-type",
    "if-match",
    "if-none-match",
    "widerow-command",
)


class App:
    """The HTTP API of a service. `local`: for a socket that only the owner of the process can open.

    `routes`: what there is of it, for processes that do not answer questions.
    """

    def __init__(self, front: Front, *, local: bool = False, routes: Sequence[Route] = ROUTES) -> None:
        service, http = front.service, front.service.config.http
        self._front = front
        self._auth = Auth(service, local=local)
        self._intake = Intake(
            max_bytes=http.max_body_mib << 20,
            max_bytes_in_all=service.config.pipeline.max_in_flight_mib << 20,
            max_bytes_of_one=service.config.pipeline.max_tenant_in_flight_mib << 20,
            pause_s=http.body_timeout_s,
        )
        self._tally = Tally(service.counters)
        self._slots, self._open = service.slots, set[Slot]()
        self._threads = ThreadPoolExecutor(self._slots.settings.at_once, thread_name_prefix="http")
        self._aside = ThreadPoolExecutor(1, thread_name_prefix="http-aside")
        self._writes: dict[bytes, Write] = {}
        paths: dict[str, dict[str, Route]] = {}
        for route in routes:
            paths.setdefault(route.path, {})[route.method] = route
            if isinstance(route.handler, WriteKind):
                write = Write(route.handler, service, self._auth, self._intake, self._tally)
                self._writes[route.path.encode()] = write
        # Fixed paths come before those with parameters: POST /v1/devices/batch is no device, GET is the one of that name.
        ordered = sorted(paths, key=lambda path: "{" in path)
        self._router = Router(
            [_PathRoute(path, _Path(self, paths[path]), methods=list(paths[path])) for path in ordered],
            redirect_slashes=False,
            default=_Path(self, {}),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if scope["method"] == "POST":
            write = self._writes.get(scope["raw_path"])
            if write is not None:
                await write(scope, receive, send)
                return
        scope["path"] = scope["raw_path"].decode("latin-1")
        await self._router(scope, receive, send)

    def close(self) -> None:
        for slot in list(self._open):
            slot.give_up()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._aside.shutdown(wait=False, cancel_futures=True)
        self._auth.close()

    async def serve(self, routes: Mapping[str, Route], scope: Scope, receive: Receive, send: Send) -> None:
        """One request for a path that has these routes, by method."""
        started = perf_counter()
        method = scope["method"]
        route = routes.get("GET" if method == "HEAD" else method)
        if route and route.streams and method == "GET":
            await self._stream(route, scope, receive, send)
            return
        response: Response
        try:
            answer = await self._answer(route or _no_route(routes, method), scope, receive)
            response = Response(answer.body, answer.status, dict(answer.headers), answer.media_type)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - every error has its answer
            failed = failure(error)
            response = Response(failed.body, failed.status)
            response.raw_headers = list(failed.headers)
        seconds = perf_counter() - started
        self._tally.answered(route.id if route else _NO_ROUTE, response.status_code, seconds)
        response.raw_headers.append(timing(seconds))
        if "cache-control" not in response.headers:
            response.raw_headers.append((b"cache-control", b"no-store"))
        await response(scope, receive, send)

    async def _stream(self, route: Route, scope: Scope, receive: Receive, send: Send) -> None:
        """An answer without an end. Refusals are those of any other route."""
        started, opened = perf_counter(), False
        try:
            with ExitStack() as place:
                asked = await self._answer(route, scope, receive)
                named = asked.body.decode()
                caller = await self._caller(route, _headers(scope))
                place.enter_context(self._front.streams.place(caller.tenant if caller else ""))
                self._tally.answered(route.id, asked.status, perf_counter() - started)
                head = [(b"content-type", EVENTS.encode()), (b"cache-control", b"no-store"), (b"x-accel-buffering", b"no")]
                await send({"type": "http.response.start", "status": asked.status, "headers": head})
                opened = True
                check = partial(self._still_allowed, route, _headers(scope), named)
                await self._front.streams.run(named, caller.role if caller else "", check, receive, send)
        except (Exception, asyncio.CancelledError) as error:
            if opened:  # the connection is closed, which the client sees
                raise
            await self._refuse(route, error, started, scope, receive, send)

    async def _refuse(
        self, route: Route, error: BaseException, started: float, scope: Scope, receive: Receive, send: Send
    ) -> None:
        failed = failure(error)
        response = Response(failed.body, failed.status)
        seconds = perf_counter() - started
        response.raw_headers = [*failed.headers, timing(seconds), (b"cache-control", b"no-store")]
        self._tally.answered(route.id, failed.status, seconds)
        await response(scope, receive, send)

    async def _still_allowed(self, route: Route, headers: Mapping[str, str], tenant: str) -> None:
        """Raises when a stream of this tenant (empty: of all) may no longer be read."""
        await self._caller(route, headers)
        if tenant:
            await self._look_up(headers, tenant)
            await asyncio.get_running_loop().run_in_executor(self._aside, self._auth.existing, tenant)

    async def _caller(self, route: Route, headers: Mapping[str, str]) -> Caller | None:
        """The caller of a request; None: the route is for all. Raises unless its role may use the route."""
        if route.roles is None:
            return None
        await self._look_up(headers, None)
        caller = self._auth.caller(_authorization(headers))
        allow(caller, route.roles)
        return caller

    async def _look_up(self, headers: Mapping[str, str], tenant: str | None) -> None:
        """Afterwards neither the caller nor this tenant needs the store to be known, which might not answer."""
        header = _authorization(headers)
        if not self._auth.at_hand(header, None, tenant):
            await self._auth.fetch(header, None, tenant)

    async def _answer(self, route: Route, scope: Scope, receive: Receive) -> Answer:
        headers = _headers(scope)
        caller = await self._caller(route, headers)
        query = Query(scope["query_string"], route.known())
        tenant = self._auth.tenant_name(caller, query.text("tenant")) if caller is not None else None
        media_type = negotiate(headers.get("accept", ""), route.offers) if route.offers else JSON
        limit, body = self._limit(route), b""
        if route.body is not None:
            if "content-length" in headers:
                self._intake.announced(headers["content-length"].encode("latin-1"), limit)
            body = await self._intake.read(receive, tenant or "", limit)
        path = {name: _decoded(value) for name, value in scope.get("path_params", {}).items()}
        call = Call(self._front, self._auth, caller, path, query, headers, body, limit, media_type)
        assert not isinstance(route.handler, WriteKind)
        if route.quick:
            return route.handler(call)
        if route.aside and tenant:
            await self._look_up(headers, tenant)
        if route.roles is None or route.aside:  # asks nothing of the store: not to wait behind what does
            return await asyncio.get_running_loop().run_in_executor(self._aside, route.handler, call)
        handler = partial(answered, route, route.handler)
        is_question = route.group == "Reading"
        if is_question:
            self._turn_away(tenant)
        asked = partial(_asked, handler) if is_question else handler
        with self._intake.waiting(tenant or "", body):
            slot = self._slots.ask(tenant or "", long=route.long)
            self._open.add(slot)
            try:
                return await self._in_thread(slot, asked, call)
            finally:
                self._open.discard(slot)

    async def _in_thread(self, slot: Slot, handler: Handler, call: Call) -> Answer:
        """The slot ends with the thread's work, also if nobody waits for that any more."""
        try:
            async with asyncio.timeout(self._slots.settings.max_wait_s):
                await asyncio.wrap_future(slot.begun)
            answering = self._threads.submit(handler, replace(call, slot=slot))
        except TimeoutError:
            slot.end()
            raise self._slots.too_long(slot) from None
        except RuntimeError:  # the threads are gone
            slot.end()
            raise Overloaded(_STOPPING) from None
        except BaseException:
            slot.end()
            raise
        answering.add_done_callback(lambda _: slot.end())
        try:
            return await asyncio.wrap_future(answering)
        except asyncio.CancelledError:
            slot.give_up()
            raise

    def _turn_away(self, name: str | None) -> None:
        """A tenant that has nothing left of what it may read is told at once, without waiting for a place."""
        service = self._front.service
        tenant = service.catalog.tenants.at_hand(name, service.clock.now_us()) if name else None
        if tenant is None:
            return
        try:
            service.queries.turn_away(tenant)
        except QuotaExceeded:
            service.usage.asked(tenant.name, 0, 0, 0.0)
            raise

    def _limit(self, route: Route) -> Limit:
        """What a body of this route may have: what the route says, and never more than any may."""
        most = route.body.max_bytes if route.body is not None else None
        return self._intake.limit if most is None or most >= self._intake.limit.max_bytes else Limit(most, route.id)


def _asked(handler: Handler, call: Call) -> Answer:
    """Answer a question about telemetry, and record what it came to, also if it was refused."""
    started, answer = perf_counter(), None
    try:
        answer = handler(call)
        return answer
    finally:
        tenant, service = call.tenant_name(), call.service
        if tenant is not None and service.catalog.tenants.at_hand(tenant, service.clock.now_us()):
            rows, size = (answer.rows, len(answer.body)) if answer else (0, 0)
            service.usage.asked(tenant, rows, size, perf_counter() - started)


class _Path:
    """A path with all its methods, as Starlette wants it."""

    def __init__(self, app: App, routes: Mapping[str, Route]) -> None:
        self._app, self._routes = app, routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app.serve(self._routes, scope, receive, send)


class _PathRoute(StarletteRoute):
    """A route whose path answers methods it does not have by itself, in our words."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)


def _no_route(routes: Mapping[str, Route], method: str) -> NoReturn:
    if routes:
        raise MethodNotAllowed(method, sorted(routes))
    raise NotFound("no route has this path; /openapi.json lists all routes", code="route")


def _headers(scope: Scope) -> dict[str, str]:
    """The headers that matter. One that was sent twice counts as the list it stands for."""
    out: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name = raw_name.decode("latin-1")
        if name in _KEPT_HEADERS:
            value = raw_value.decode("latin-1")
            out[name] = f"{out[name]}, {value}" if name in out else value
    return out


def _authorization(headers: Mapping[str, str]) -> bytes | None:
    return headers["authorization"].encode("latin-1") if "authorization" in headers else None


def _decoded(segment: str) -> str:
    try:
        return unquote(segment, errors="strict")
    except UnicodeDecodeError:
        raise Rejected("the path is not percent-encoded UTF-8", code="name") from None
