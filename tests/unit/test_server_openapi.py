"""The description of the API is whole, and is a valid one as far as a structural check can say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from widerow.server.openapi import ERRORS, document
from widerow.server.routes import ROUTES
from widerow.server.schemas import SCHEMAS
from widerow.server.table import Route
from widerow.server.write import WriteKind

DOCUMENT = document(ROUTES, 1_794_729_600_000_000)
OPERATIONS = [(route, DOCUMENT["paths"][route.path][route.method.lower()]) for route in ROUTES]


def nodes(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for content in value.values():
            yield from nodes(content)
    elif isinstance(value, (list, tuple)):
        for content in value:
            yield from nodes(content)


def test_every_route_is_described_and_nothing_else() -> None:
    described = {(path, method) for path, item in DOCUMENT["paths"].items() for method in item}
    assert described == {(route.path, route.method.lower()) for route in ROUTES}
    assert len({route.id for route in ROUTES}) == len(ROUTES)


def test_operation_ids_are_unique_words() -> None:
    names = [operation["operationId"] for _, operation in OPERATIONS]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9_]+", name) for name in names)


def test_references_lead_somewhere_and_every_schema_is_used() -> None:
    used = {node["$ref"].removeprefix("#/components/schemas/") for node in nodes(DOCUMENT) if "$ref" in node}
    assert used == set(SCHEMAS)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.id)
def test_a_route_documents_its_parameters_bodies_and_answers(route: Route) -> None:
    operation = DOCUMENT["paths"][route.path][route.method.lower()]
    parameters = operation.get("parameters", [])
    in_path = [p["name"] for p in parameters if p["in"] == "path"]
    assert sorted(in_path) == sorted(re.findall(r"{(\w+)}", route.path))
    assert all(p.get("required") for p in parameters if p["in"] == "path")
    assert len({(p["in"], p["name"]) for p in parameters}) == len(parameters)
    assert all(p["description"] and p["schema"] and p["in"] in ("query", "path", "header") for p in parameters)
    assert ("requestBody" in operation) == (route.body is not None)
    assert operation["summary"]
    assert operation["description"]
    statuses = {int(status) for status in operation["responses"]}
    assert statuses & {200, 201, 202, 204}
    assert 500 in statuses
    assert statuses - set(route.replies) <= set(ERRORS)
    assert all(answer["description"] for answer in operation["responses"].values())
    if route.roles is None:
        assert operation["security"] == []
    else:
        assert "security" not in operation
        assert {400, 401, 403, 404, 503} <= statuses


def test_what_a_write_route_takes_is_what_it_documents() -> None:
    for route in ROUTES:
        if isinstance(route.handler, WriteKind):
            assert route.handler.path == route.path
            if not route.handler.lines:
                assert route.handler.parameters == set(route.known())


def test_schemas_are_of_known_types() -> None:
    known = {"object", "array", "string", "number", "integer", "boolean", "null"}
    for node in nodes(SCHEMAS):
        kind = node.get("type")
        if isinstance(kind, (str, list)):
            assert set([kind] if isinstance(kind, str) else kind) <= known
        if isinstance(node.get("required"), list) and "properties" in node:
            assert set(node["required"]) <= set(node["properties"])


def test_it_is_plain_json_of_version_3_1() -> None:
    read = msgspec.json.decode(msgspec.json.encode(DOCUMENT))
    assert read["openapi"] == "3.1.0"
    assert {"title", "version"} <= set(read["info"])
