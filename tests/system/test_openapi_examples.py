"""What /openapi.json says holds today: its examples are taken, and answers, empty ones too, have the one shape it gives."""

from __future__ import annotations

from typing import Any

import httpx
import jsonschema
import pyarrow as pa
import pytest

from system.conftest import Site
from widerow.alerts.alert import Alert
from widerow.alerts.state import State
from widerow.model.token import Role

Operation = tuple[str, str, dict[str, Any]]
"""Method, path and description."""

THE_FIRST = ("/v1/write", "/v1/devices/batch", "/v1/admin/tenants")
"""What others ask for."""
NAMES = {"device": "press-7", "metric": "temperature"}
LOCAL_ONLY = "/v1/admin/backup"
"""Its body names a folder of the server, and is taken over the local socket alone."""

ENDLESS = "/v1/live"
"""Its answer is a stream."""


@pytest.fixture(scope="module")
def document(site: Site) -> dict[str, Any]:
    described: dict[str, Any] = site.client(None).get("/openapi.json").json()
    return described


def operations(document: dict[str, Any]) -> list[Operation]:
    each = [(method, path, one) for path, item in document["paths"].items() for method, one in item.items()]
    return sorted(each, key=lambda operation: operation[1] not in THE_FIRST)


def check(document: dict[str, Any], schema: dict[str, Any], value: Any) -> None:
    jsonschema.validate(value, {**schema, "components": document["components"]}, jsonschema.Draft202012Validator)


def check_answer(document: dict[str, Any], one: dict[str, Any], answer: httpx.Response) -> None:
    described = one["responses"][str(answer.status_code)]
    if "content" in described:
        check(document, described["content"]["application/json"]["schema"], answer.json())
    else:
        assert not answer.content


def body_of(one: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The first form of a body."""
    media, form = next(iter(one["requestBody"]["content"].items()))
    return media, form


def test_every_body_has_an_example_of_its_shape(document: dict[str, Any]) -> None:
    for method, path, one in operations(document):
        if "requestBody" in one and (method, path) != ("post", LOCAL_ONLY):
            _, form = body_of(one)
            assert "example" in form, (method, path)
            check(document, form["schema"], form["example"])


def test_every_example_is_taken_and_answered_as_described(site: Site, document: dict[str, Any]) -> None:
    sent, now_us = 0, site.service.clock.now_us()
    alert = Alert(tenant="acme", rule="hot", state="pending", since_us=now_us, source="builtin")
    site.service.alerts.board.saw(alert, State.FIRING, now_us)
    for method, path, one in operations(document):
        if "requestBody" not in one or path == LOCAL_ONLY:
            continue
        media, form = body_of(one)
        names = {**NAMES, "tenant": "plant-2", "name": "hot", "id": alert.id}
        answer = site.client(Role.OPERATOR).request(
            method,
            path.format(**names),
            params={} if path.startswith("/v1/admin/tenants") else {"tenant": "acme"},
            headers={"Content-Type": media},
            **({"json": form["example"]} if media == "application/json" else {"content": form["example"]}),
        )
        assert answer.status_code in (200, 201, 204), (method, path, answer.status_code, answer.text)
        check_answer(document, one, answer)
        sent += 1
    assert sent > 10
    series = site.client(Role.READ).get("/v1/devices/press-7/series").json()["series"]
    assert {one["metric"] for one in series} == {"temperature", "state"}, "what was written is in the last hour"


ASKED: tuple[dict[str, str], ...] = (
    {},
    {"step": "1h", "agg": "avg"},
    {"agg": "avg"},
    {"fill": "null", "step": "10m"},
    {"group_by": "type"},
    {"epoch": "ms"},
    {"metrics": "nosuch"},
)
BODIES: tuple[dict[str, Any], ...] = (
    {},
    {"step": "1h"},
    {"agg": "avg"},
    {"group_by": []},
    {"top": 3, "metrics": ["nosuch"]},
)


def test_empty_answers_have_the_shape_that_is_described(site: Site, document: dict[str, Any]) -> None:
    """Of a tenant that has one device, which never reported. `oneOf` is kept by exactly one shape."""
    reader, paths = site.client(Role.OPERATOR), document["paths"]
    assert reader.post("/v1/devices/batch?tenant=umbra", json={"devices": [{"name": "silent"}]}).status_code == 200
    asked = 0
    for method, path, one in operations(document):
        known = {parameter["name"]: parameter["schema"] for parameter in one.get("parameters", [])}
        if method != "get" or "tenant" not in known or "{id}" in path or "{metric}" in path or path == ENDLESS:
            continue
        for given in ASKED:
            if all(name in known and value in known[name].get("enum", [value]) for name, value in given.items()):
                answer = reader.get(path.format(device="silent", tenant="umbra"), params={"tenant": "umbra", **given})
                assert answer.status_code == 200, (path, given, answer.text)
                check_answer(document, one, answer)
                asked += 1
    assert asked > 30
    for body in BODIES:
        for which in ({"devices": ["silent"]}, {"match": {"type": "nosuch"}}):
            answer = reader.post("/v1/query?tenant=umbra", json={**which, **body})
            assert answer.status_code == 200, (body, answer.text)
            check_answer(document, paths["/v1/query"]["post"], answer)
    check_answer(document, paths["/v1/latest"]["post"], reader.post("/v1/latest?tenant=umbra", json={"devices": ["silent"]}))


TABLES = (
    "devices/{device}/series",
    "devices/{device}/series?step=1h",
    "devices/{device}/series?group_by=line",
    "devices/{device}/latest",
    "fleet/latest",
    "fleet/series",
    "fleet/series?group_by=type",
)


def columns(answer: httpx.Response) -> Any:
    """Of a table in CSV or Arrow: names, and types where there are any."""
    assert answer.status_code == 200, answer.text
    if answer.headers["Content-Type"].startswith("text/csv"):
        return answer.text.splitlines()[0]
    return pa.ipc.open_stream(answer.content).schema


def test_empty_tables_have_the_columns_of_full_ones(site: Site) -> None:
    reader = site.client(Role.OPERATOR)
    for tenant, name in (("acme", "told"), ("umbra", "silent")):
        devices = [{"name": name, "type": "press"}]
        assert reader.post("/v1/devices/batch", params={"tenant": tenant}, json={"devices": devices}).status_code == 200
    site.write("told", {"v{line=3}": 1.0})
    for path in TABLES:
        for form in ("text/csv", "application/vnd.apache.arrow.stream"):
            full, empty = (
                reader.get(
                    f"/v1/{path.format(device=name)}",
                    headers={"Accept": form},
                    params={**httpx.URL(path).params, "tenant": tenant},
                )
                for tenant, name in (("acme", "told"), ("umbra", "silent"))
            )
            assert columns(empty) == columns(full), (path, form)


def test_empty_lists_have_the_columns_of_full_ones(site: Site) -> None:
    reader = site.client(Role.OPERATOR)
    site.write("listed", {"v": 1.0})
    for path, none in (
        ("/v1/devices", {"prefix": "nosuch"}),
        ("/v1/metrics", {"tenant": "umbra"}),
        ("/v1/admin/audit", {"start": "-10d", "end": "-9d"}),
        ("/v1/usage", {"start": "now", "end": "now"}),
    ):
        for form in ("text/csv", "application/vnd.apache.arrow.stream"):
            full, empty = (
                columns(reader.get(path, headers={"Accept": form}, params={"tenant": "acme", **params}))
                for params in ({}, none)
            )
            names = [one.split(",") if isinstance(one, str) else one.names for one in (full, empty)]
            assert names[0] == names[1], (path, form)
            assert len(names[0]) > 3
