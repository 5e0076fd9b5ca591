"""`/openapi.json`: OpenAPI 3.1, made of the route table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from widerow import __version__
from widerow.server.call import Param
from widerow.server.schemas import SCHEMAS
from widerow.server.shapes import TEXT, ref
from widerow.server.table import Reply, Route
from widerow.server.write import WriteKind

ERRORS = {
    400: "The request cannot be accepted as it is.",
    401: "No token, or none that is known.",
    403: "The token's role does not allow this, or it is for another tenant.",
    404: "There is no such tenant, device, metric or token.",
    406: "None of the forms that `Accept` names can be given.",
    408: "The body did not go on for `http.body_timeout_s`, or came too slowly.",
    409: "It exists already.",
    412: "It has changed since the revision that `If-Match` names.",
    413: "The body is larger than `http.max_body_mib`, or than it may be here.",
    415: "The content type or encoding is not known.",
    422: "Nothing was kept; the reasons are in the answer.",
    429: "A limit of the tenant is spent; `Retry-After` says when to try again.",
    500: "A fault of the server; its log has the details.",
    503: "Not now; `Retry-After` says when to try again.",
    507: "The disk is full; writing resumes by itself when it is not.",
}
_RETRY = {"Retry-After": {"description": "Seconds until it is worth trying again.", "schema": {"type": "integer"}}}


def document(routes: Iterable[Route], now_us: int) -> dict[str, Any]:
    """The description of all routes, with examples that work at that time."""
    routes = list(routes)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, now_us)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Widerow",
            "version": __version__,
            "summary": "Fleet telemetry on wide-column stores.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": group} for group in dict.fromkeys(route.group for route in routes)],
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "A token of Widerow."},
                "basic": {"type": "http", "scheme": "basic", "description": "Any user; the token as password."},
            },
        },
        "security": [{"bearer": []}, {"basic": []}],
    }


def _operation(route: Route, now_us: int) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": _operation_id(route),
        "tags": [route.group],
        "summary": route.summary,
        "description": _description(route),
        "responses": {str(status): _reply(reply) for status, reply in route.replies.items()} | _errors(route),
    }
    if route.roles is None:
        operation["security"] = []
    if route.parameters:
        operation["parameters"] = [_parameter(p) for p in route.parameters]
    if route.body is not None:
        content = {media: {"schema": shape} for media, shape in route.body.forms.items()}
        if (example := route.body.example) is not None:
            first = next(iter(content.values()))
            first["example"] = example(now_us) if callable(example) else example
        most = "" if route.body.max_bytes is None else f" At most {route.body.max_bytes >> 20} MiB."
        operation["requestBody"] = {"description": route.body.doc + most, "required": True, "content": content}
    return operation


def _operation_id(route: Route) -> str:
    words = [part.strip("{}") for part in route.path.split("/") if part]
    return "_".join([route.method.lower(), *words]).replace(".", "_") if words else f"{route.method.lower()}_page"


def _description(route: Route) -> str:
    who = "Needs no token." if route.roles is None else f"For tokens of role {', '.join(sorted(route.roles))}."
    return f"{route.doc} {who}".strip()


def _parameter(p: Param) -> dict[str, Any]:
    schema: Mapping[str, Any] = {"type": "array", "items": p.schema} if p.repeats else p.schema
    shown: dict[str, Any] = {"name": p.name, "in": p.place, "description": p.doc, "schema": schema}
    if p.place == "path":
        shown["required"] = True
    if p.repeats:
        shown |= {"style": "form", "explode": True}
    return shown


def _reply(reply: Reply) -> dict[str, Any]:
    shown: dict[str, Any] = {"description": reply.doc}
    if reply.forms:
        shown["content"] = {media: {"schema": shape} for media, shape in reply.forms.items()}
    if reply.headers:
        shown["headers"] = {name: {"description": doc, "schema": TEXT} for name, doc in reply.headers.items()}
    return shown


def _errors(route: Route) -> dict[str, Any]:
    """Those that any route of its kind may give, and its own."""
    statuses = {500, *route.errors}
    if route.roles is not None:
        # A token whose tenant was deleted a moment ago finds it gone, and so does an operator who names none that exists.
        statuses |= {400, 401, 403, 404, 503}
        if not isinstance(route.handler, WriteKind):
            statuses |= {406, 429}
        if route.body is not None and not _is_influx(route):
            statuses.add(408)
    shown = {}
    for status in sorted(statuses - set(route.replies)):
        shape = "InfluxError" if _is_influx(route) else "Error"
        if status == 422:
            shape = "DeviceResults" if route.path.startswith("/v1/devices") else "Refused"
        shown[str(status)] = {
            "description": ERRORS[status],
            "content": {"application/json": {"schema": ref(shape)}},
            **({"headers": _RETRY} if status in (408, 429, 503, 507) else {}),
        }
    return shown


def _is_influx(route: Route) -> bool:
    return isinstance(route.handler, WriteKind) and route.handler.lines
