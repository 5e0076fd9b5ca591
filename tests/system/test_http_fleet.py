"""Fleet series over HTTP: from the fleet's own hours, and from devices; as people ask for them."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from system.conftest import Site, now_ms
from widerow.admit.controls import What
from widerow.cli.commands import app
from widerow.model.times import HOUR, format_time
from widerow.model.token import Role
from widerow.server.call import USED_HEADER

HOUR_MS = 3_600_000
DEVICES = {"press 1": ("press", "Linz"), "press #2": ("press", "Graz"), "oven": ("oven", "Linz"), "plain": ("", "")}


@pytest.fixture(scope="module")
def start_ms(site: Site) -> int:
    """Four devices, a report in each of three hours, all of them past and rolled; and one more now."""
    start = now_ms() // HOUR_MS * HOUR_MS - 5 * HOUR_MS
    described = [{"name": name, "type": type_, "location": place} for name, (type_, place) in DEVICES.items()]
    assert site.client(Role.ADMIN).post("/v1/devices/batch", json={"devices": described}).status_code == 200
    reports = [
        {"device": name, "time": start + h * HOUR_MS + 1000 * k, "values": {"temp": 10 * n + h, "odd, name": 1}}
        for n, name in enumerate(DEVICES)
        for h in range(3)
        for k in range(2)
    ]
    assert site.client(Role.WRITE).post("/v1/write", json=reports).status_code == 204
    pyramid, tenant = site.service.pyramid, site.service.catalog.tenants.get("acme")
    for unit in sorted(pyramid.marks.pending()):
        pyramid.roller.roll(tenant, unit)
    for unit in sorted(pyramid.roller.fleet.pending()):
        pyramid.fleet.roll(tenant, unit)
    return start


def asked(site: Site, start_ms: int, **params: Any) -> Any:
    given = {"start": start_ms, "end": start_ms + 3 * HOUR_MS, "step": "1h", "metrics": "temp", **params}
    answer = site.client(Role.READ).get("/v1/fleet/series", params=given)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_it_is_said_of_which_spans_of_devices_that_match_part_was_kept(site: Site, start_ms: int) -> None:
    controls, from_us, stop_us = site.service.controls, start_ms * 1000 + 3 * HOUR // 2, start_ms * 1000 + 2 * HOUR
    controls.add("acme", "oven", What.SAMPLE, 0.25, "test", from_us)
    controls.add("acme", "oven", What.SAMPLE, 0.0, "test", stop_us)
    controls.add("acme", "gone", What.SAMPLE, 0.5, "of a device that there is not", from_us)
    controls.add("acme", "gone", What.SAMPLE, 0.0, "test", stop_us)
    span = {"device": "oven", "start": format_time(from_us), "end": format_time(stop_us), "rate": 0.25}
    assert asked(site, start_ms)["sampled"] == [span]
    assert asked(site, start_ms, type="oven", step="20m")["sampled"] == [span]
    assert "sampled" not in asked(site, start_ms, type="press")
    assert "sampled" not in asked(site, start_ms, end=start_ms + HOUR_MS)
    arguments = ["--server", site.url, "--token", site.token(Role.READ), "--start", str(start_ms), "--format", "csv"]
    told = CliRunner().invoke(app, ["fleet", "series", *arguments])
    assert told.exit_code == 0, told.output
    assert f"oven {span['start']}/{span['end']}=0.25" in told.stderr


def test_the_fleets_hours_answer_for_all_for_a_type_and_by_type(site: Site, start_ms: int) -> None:
    found = asked(site, start_ms, agg="avg,count,devices,p50")
    assert found["used"] == {"fleet": 3}
    assert found["step"] == "1h"
    values = {one["agg"]: [value for _, value in one["points"]] for one in found["series"]}
    assert values["avg"] == [15.0, 16.0, 17.0]
    assert values["count"] == [8, 8, 8]
    assert values["devices"] == [4, 4, 4]
    assert values["p50"] == pytest.approx([10.0, 11.0, 12.0], rel=0.011)
    assert {(one.get("group"), one["metric"]) for one in found["series"]} == {(None, "temp")}
    found = asked(site, start_ms, agg="max", type="press")
    assert found["used"] == {"fleet": 3}
    assert [value for _, value in found["series"][0]["points"]] == [10.0, 11.0, 12.0]
    found = asked(site, start_ms, agg="sum", group_by="type", step="1d", metrics="temp,none")
    assert set(found["used"]) == {"fleet"}
    sums = {one["group"]["type"]: sum(value for _, value in one["points"]) for one in found["series"]}
    assert sums == {"press": 72.0, "oven": 126.0}


def test_other_questions_are_asked_of_the_devices(site: Site, start_ms: int) -> None:
    found = asked(site, start_ms, agg="devices", location="Linz")
    assert "fleet" not in found["used"]
    assert [value for _, value in found["series"][0]["points"]] == [2, 2, 2]
    found = asked(site, start_ms, agg="max", group_by="location", step="1d")
    assert {one["group"]["location"] for one in found["series"]} == {"Linz", "Graz"}
    found = asked(site, start_ms, agg="count", step="10m", prefix="press")
    assert [value for _, value in found["series"][0]["points"]] == [4, 4, 4]


def test_what_came_just_now_counts_at_once(site: Site, start_ms: int) -> None:
    before = asked(site, start_ms, agg="max", metrics="fresh")
    assert before["series"] == []
    site.write("oven", {"fresh": 7.5}, time_ms=start_ms + HOUR_MS + 5)
    after = asked(site, start_ms, agg="max", metrics="fresh")
    assert [value for _, value in after["series"][0]["points"]] == [7.5]
    assert after["used"]["raw"] >= 1


def test_it_comes_as_csv_and_arrow(site: Site, start_ms: int) -> None:
    params = {
        "start": str(start_ms),
        "end": str(start_ms + 3 * HOUR_MS),
        "step": "1h",
        "metrics": "temp",
        "group_by": "type",
    }
    client = site.client(Role.READ)
    answer = client.get("/v1/fleet/series", params=params, headers={"Accept": "text/csv"})
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert list(rows[0]) == ["type", "time", "metric", "agg", "kind", "value", "text"]
    assert len(rows) == 6
    assert "fleet=" in answer.headers[USED_HEADER]
    answer = client.get("/v1/fleet/series", params=params, headers={"Accept": "application/vnd.apache.arrow.stream"})
    table = pa.ipc.open_stream(answer.content).read_all()
    assert table.num_rows == 6
    assert set(table["type"].to_pylist()) == {"press", "oven"}


def test_what_cannot_be_asked_is_refused(site: Site) -> None:
    client = site.client(Role.READ)
    for params, code in (
        ({"agg": "first"}, "agg"),
        ({"group_by": "device"}, "group"),
        ({"step": "soon"}, "step"),
        ({"tz": "Europe/Berlin"}, "tz"),
        ({"fill": "some"}, "parameter"),
        ({"stp": "1h"}, "parameter"),
    ):
        answer = client.get("/v1/fleet/series", params=params)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, code), answer.text
    assert site.client(Role.WRITE).get("/v1/fleet/series").status_code == 403


def test_another_tenant_sees_nothing_of_it(site: Site, start_ms: int) -> None:
    params = {"start": str(start_ms), "step": "1h"}
    assert site.client(Role.READ, "umbra").get("/v1/fleet/series", params=params).json()["series"] == []


def test_a_device_that_is_deleted_is_gone_from_the_fleet_at_once(site: Site, start_ms: int) -> None:
    assert site.client(Role.ADMIN).delete("/v1/devices/plain").status_code == 204
    for _ in range(2):
        found = asked(site, start_ms, agg="devices")
        assert [value for _, value in found["series"][0]["points"]] == [3, 3, 3]
        site.service.house.purge()


def test_the_command_line_shows_it(site: Site, start_ms: int) -> None:
    where = ["--server", site.url, "--token", site.token(Role.READ)]
    span = ["--start", str(start_ms), "--end", str(start_ms + 3 * HOUR_MS), "-m", "temp"]

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(app, [*arguments, *where])
        assert result.exit_code == 0, result.output
        return result.stdout

    table = run("fleet", "series", *span, "--agg", "max,devices", "--type", "press").splitlines()
    assert table[0].split() == ["time", "temp", "max", "temp", "devices"]
    assert len(table) == 2 + 3
    assert table[-1].split()[-2:] == ["12", "2"]
    grouped = json.loads(run("fleet", "series", *span, "--group-by", "type", "--step", "all", "--json"))
    assert [one["group"] for one in grouped["series"]] == [{"type": "oven"}, {"type": "press"}]
    assert run("fleet", "series", *span, "--format", "csv").startswith("time,metric,agg,kind,value,text")
    latest = json.loads(run("fleet", "latest", "--type", "press", "-m", "temp", "--json"))
    assert [one["device"] for one in latest] == ["press #2", "press 1"]
    assert run("fleet", "series", "--start", "2001-01-01T00:00:00Z", "--end", "2001-01-02T00:00:00Z") == ""
