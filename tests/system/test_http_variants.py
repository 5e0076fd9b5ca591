"""Metrics with labels: a plain name finds all its variants, a label some of them, and `group_by` merges them."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import httpx
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from system.conftest import Site, now_ms
from widerow.cli.commands import app
from widerow.client import Client
from widerow.model.errors import Rejected
from widerow.model.labels import labelled
from widerow.model.token import Role

HOUR_MS, HOURS, PER_HOUR = 3_600_000, 4, 4
ROOT = labelled("disk_used", {"fstype": "ext4", "path": "/"})
DATA = labelled("disk_used", {"fstype": "xfs", "path": "/data"})
LOGS = labelled("disk_used", {"fstype": "xfs", "path": "/log,s"})
HOSTS = {"k3": {ROOT: 10.0, DATA: 20.0, LOGS: 30.0}, "k4": {ROOT: 50.0, "disk_used": 70.0}}


@pytest.fixture(scope="module")
def start_ms(site: Site) -> int:
    """Two hosts, a report every 15 minutes of four hours; the first three are rolled. Gives the first hour's begin."""
    begin = now_ms() // HOUR_MS * HOUR_MS - HOURS * HOUR_MS
    others = {"disk_used_max": 1.0, "load": 2.0, "disk_free{path=/}": 3.0}
    reports = [
        {
            "device": host,
            "time": begin + i * (HOUR_MS // PER_HOUR),
            "values": others | {name: value + i for name, value in disks.items()},
        }
        for host, disks in HOSTS.items()
        for i in range(HOURS * PER_HOUR)
    ]
    assert site.client(Role.WRITE).post("/v1/write", json=reports).status_code == 204
    assert site.client().patch("/v1/devices/k3", json={"type": "db", "location": "hall 1"}).status_code == 200
    pyramid, tenant = site.service.pyramid, site.service.catalog.tenants.get("acme")
    for unit in sorted(pyramid.marks.pending()):
        if unit.start_us < (begin + 3 * HOUR_MS) * 1000:
            pyramid.roller.roll(tenant, unit)
    for unit in sorted(pyramid.roller.fleet.pending()):
        if unit.start_us < (begin + 2 * HOUR_MS) * 1000:
            pyramid.fleet.roll(tenant, unit)
    return begin


def during(start_ms: int) -> dict[str, Any]:
    return {"start": start_ms, "end": start_ms + HOURS * HOUR_MS}


def series(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["series"]
    return found


def named(found: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return sorted((one.get("device", ""), one["metric"]) for one in found)


def of(host: str, *metrics: str) -> list[tuple[str, str]]:
    return sorted((host, metric) for metric in metrics)


def test_a_plain_name_finds_all_variants_one_series_each(site: Site, start_ms: int) -> None:
    client, span = site.client(Role.READ), during(start_ms)

    def check(metrics: Any, *want: str) -> None:
        for steps in ({}, {"step": "1h"}, {"step": "15m"}, {"agg": "last"}):
            found = series(client.get("/v1/devices/k3/series", params={**span, **steps, "metrics": metrics}))
            assert named(found) == of("k3", *want)
            assert all(
                len(one["points"]) == {"1h": HOURS, None: 1}.get(steps.get("step"), 16) for one in found if "agg" in one
            )
        for tags in ("true", "false"):
            found = series(client.get("/v1/devices/k3/series", params={**span, "metrics": metrics, "tags": tags}))
            assert named(found) == of("k3", *want)
            assert all(len(one["points"]) == HOURS * PER_HOUR for one in found)
        assert named(series(client.get("/v1/devices/k3/latest", params={"metrics": metrics}))) == of("k3", *want)

    check("disk_used", ROOT, DATA, LOGS)
    check("disk_used{path=/}", ROOT)
    check("disk_used{fstype=xfs}", DATA, LOGS)
    check("disk_used{path=/data,fstype=xfs},load", DATA, "load")
    check(["disk_used{path=/data}", "load"], DATA, "load")
    check(LOGS, LOGS)
    check("disk_used{path=/nowhere},disk")
    check("disk_used,disk_used{path=/}", ROOT, DATA, LOGS)


def test_variants_are_found_in_questions_about_many_devices(site: Site, start_ms: int) -> None:
    client, span = site.client(Role.READ), during(start_ms)
    both = [*of("k3", ROOT, DATA, LOGS), *of("k4", ROOT, "disk_used")]

    def check(metrics: Any, want: list[tuple[str, str]], **how: Any) -> None:
        for which in ({"devices": ["k3", "k4"]}, {"match": {"prefix": "k"}}):
            asked = {**span, **which, **how, "metrics": metrics}
            assert named(series(client.post("/v1/query", json=asked))) == want

    for how in ({}, {"step": "1h"}, {"agg": ["max"]}):
        check("disk_used", both, **how)
        check(["disk_used"], both, **how)
        check("disk_used{fstype=xfs,path=/data},load", [("k3", DATA), ("k3", "load"), ("k4", "load")], **how)
        check(["disk_used{path=/}", "disk_used{path=/data}"], [("k3", ROOT), ("k3", DATA), ("k4", ROOT)], **how)
    for form in ({"metrics": "disk_used"}, {"metrics": ["disk_used"]}):
        assert named(series(client.post("/v1/latest", json={"devices": ["k4", "k3"], **form}))) == both
    assert named(series(client.get("/v1/fleet/latest", params={"metrics": "disk_used"}))) == both
    found = series(client.get("/v1/fleet/series", params={**span, "metrics": "disk_used", "step": "1h", "agg": "devices"}))
    assert {one["metric"]: [value for _, value in one["points"]] for one in found} == {
        ROOT: [2] * HOURS, DATA: [1] * HOURS, LOGS: [1] * HOURS, "disk_used": [1] * HOURS,
    }  # fmt: skip


def test_top_devices_are_ranked_by_their_best_variant(site: Site, start_ms: int) -> None:
    asked = {**during(start_ms), "match": {}, "metrics": "disk_used", "top": 2, "by": "max"}
    answer = site.client(Role.READ).post("/v1/query", json=asked).json()
    assert answer["top"] == [{"device": "k4", "value": 85.0}, {"device": "k3", "value": 45.0}]
    assert [(one["device"], one["metric"]) for one in answer["series"]] == [("k4", "disk_used"), ("k3", LOGS)]


def test_group_by_a_label_merges_the_variants_that_share_its_value(site: Site, start_ms: int) -> None:
    client, span = site.client(Role.READ), during(start_ms)

    def told(answer: httpx.Response) -> dict[tuple[str, ...], list[Any]]:
        return {(*one["group"].values(), one["metric"]): [value for _, value in one["points"]] for one in series(answer)}

    def device(by: str, **how: Any) -> dict[tuple[str, ...], list[Any]]:
        asked = {**span, "metrics": "disk_used", "agg": "count", "group_by": by, **how}
        return told(client.get("/v1/devices/k3/series", params=asked))

    assert device("fstype") == {("k3", "ext4", "disk_used"): [16], ("k3", "xfs", "disk_used"): [32]}
    assert device("fstype", step="1h", agg="max") == {
        ("k3", "ext4", "disk_used"): [13.0, 17.0, 21.0, 25.0], ("k3", "xfs", "disk_used"): [33.0, 37.0, 41.0, 45.0],
    }  # fmt: skip
    assert device("label:fstype,path")["k3", "xfs", "/log,s", "disk_used"] == [16]
    assert device("path", metrics="disk_used,disk_free,load") == device("path") | {("k3", "/", "disk_free"): [16]}

    def many(by: list[str], **how: Any) -> dict[tuple[str, ...], list[Any]]:
        asked = {**span, "match": {"prefix": "k"}, "metrics": "disk_used", "agg": "count", "group_by": by, **how}
        return told(client.post("/v1/query", json=asked))

    assert many(["fstype"]) == {("ext4", "disk_used"): [32], ("xfs", "disk_used"): [32]}
    assert many(["fstype"], step="1h")["ext4", "disk_used"] == [8] * HOURS
    assert many(["path", "location"]) == {
        ("/", "", "disk_used"): [16], ("/", "hall 1", "disk_used"): [16],
        ("/data", "hall 1", "disk_used"): [16], ("/log,s", "hall 1", "disk_used"): [16],
    }  # fmt: skip
    assert many(["device"])["k3", ROOT] == [16], "without a label, variants are apart"

    def fleet(by: str, **how: Any) -> dict[tuple[str, ...], list[Any]]:
        asked = {**span, "metrics": "disk_used", "agg": "count", "group_by": by, **how}
        return told(client.get("/v1/fleet/series", params=asked))

    assert fleet("fstype") == {("ext4", "disk_used"): [32], ("xfs", "disk_used"): [32]}
    assert fleet("label:fstype", step="1h", agg="max") == {
        ("ext4", "disk_used"): [53.0, 57.0, 61.0, 65.0], ("xfs", "disk_used"): [33.0, 37.0, 41.0, 45.0],
    }  # fmt: skip
    assert fleet("fstype", type="db", step="30m") == {("ext4", "disk_used"): [2] * 8, ("xfs", "disk_used"): [4] * 8}


def test_a_label_that_no_metric_has_is_refused_and_so_is_counting_devices(site: Site, start_ms: int) -> None:
    client, span = site.client(Role.READ), during(start_ms)

    def check(code: str, text: str, answer: httpx.Response) -> None:
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)
        assert text in answer.json()["error"]["message"]

    for by in ("colour", "label:type"):
        check("group", "no metric", client.get("/v1/devices/k3/series", params={**span, "group_by": by}))
        check("group", "no metric", client.get("/v1/fleet/series", params={**span, "group_by": by}))
        check("group", "no metric", client.post("/v1/query", json={**span, "match": {}, "group_by": [by]}))
    check("agg", "devices", client.get("/v1/fleet/series", params={**span, "group_by": "path", "agg": "devices"}))
    check("group", "label:NAME", client.get("/v1/fleet/series", params={**span, "group_by": "label:"}))
    check("agg", "last", client.get("/v1/devices/k3/series", params={**span, "group_by": "path", "agg": "last"}))
    assert client.get("/v1/devices/nobody/series", params={"group_by": "path"}).status_code == 404
    check("invalid", "brace", client.get("/v1/devices/k3/series", params={**span, "metrics": "a{x=1,b"}))


def test_csv_and_arrow_name_the_variants_and_the_groups(site: Site, start_ms: int) -> None:
    client = site.client(Role.READ)
    asked = {**during(start_ms), "metrics": "disk_used{fstype=xfs}", "agg": "max"}

    def lines(**how: Any) -> list[dict[str, str]]:
        answer = client.get("/v1/devices/k3/series", params={**asked, **how}, headers={"Accept": "text/csv"})
        return list(csv.DictReader(io.StringIO(answer.text)))

    assert [line["metric"] for line in lines()] == [DATA, LOGS]
    assert [(line["device"], line["fstype"], line["metric"], line["value"]) for line in lines(group_by="fstype")] == [
        ("k3", "xfs", "disk_used", "45.0")
    ]
    arrow = {"Accept": "application/vnd.apache.arrow.stream"}
    answer = client.get("/v1/devices/k3/series", params={**asked, "group_by": "path"}, headers=arrow)
    table = pa.ipc.open_stream(answer.content).read_all()
    assert table.column("path").to_pylist() == ["/data", "/log,s"]
    assert table.column("metric").to_pylist() == ["disk_used"] * 2


def test_the_python_client_and_the_command_line_take_selectors(site: Site, start_ms: int) -> None:
    span = during(start_ms)
    with Client(site.url, site.token(Role.READ)) as client:
        assert {row["metric"] for row in client.series("k3", metrics="disk_used", **span)} == {ROOT, DATA, LOGS}
        found = client.series("k3", metrics=["disk_used"], agg="max", group_by="fstype", **span)
        assert [(row["fstype"], row["value"]) for row in found] == [("ext4", 25.0), ("xfs", 45.0)]
        found = client.query(["k3", "k4"], metrics="disk_used{path=/}", agg="count", group_by=["path"], **span)
        assert [(row["path"], row["value"]) for row in found] == [("/", 32)]
        assert {row["metric"] for row in client.latest(["k4"], metrics="disk_used")} == {ROOT, "disk_used"}
        assert len(client.fleet(metrics="disk_used{path=/}", group_by="path", **span)) == 1
        with pytest.raises(Rejected):
            client.series("k3", metrics="load", group_by="colour", **span)

    def run(*arguments: str) -> list[dict[str, Any]]:
        told = CliRunner().invoke(app, [*arguments, "--server", site.url, "--token", site.token(Role.READ), "--json"])
        assert told.exit_code == 0, told.output
        found = json.loads(told.stdout)
        return found if isinstance(found, list) else list(found["series"])

    two, around = "disk_used{fstype=xfs,path=/data},load", ("--start", str(span["start"]), "--end", str(span["end"]))
    assert named(run("query", "k3", "-m", two, *around)) == of("k3", DATA, "load")
    assert named(run("query", "k3", "-m", two, "--step", "1h", *around)) == of("k3", DATA, "load")
    assert named(run("query", "k3", "k4", "-m", two, *around))[:2] == of("k3", DATA, "load")
    assert named(run("latest", "k3", "-m", two)) == of("k3", DATA, "load")
    assert named(run("latest", "k3", "k4", "-m", two))[:2] == of("k3", DATA, "load")
    assert named(run("fleet", "latest", "-m", "disk_used{path=/}")) == [("k3", ROOT), ("k4", ROOT)]
    groups = [one["group"] for one in run("query", "--all", "-m", "disk_used", "--group-by", "path", *around)]
    assert groups == [{"path": "/"}, {"path": "/data"}, {"path": "/log,s"}]
    assert len(run("fleet", "series", "-m", "disk_used", "--group-by", "fstype", "--step", "all", *around)) == 2
