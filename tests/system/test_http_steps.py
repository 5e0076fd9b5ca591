"""Questions about steps of time over HTTP, on each engine: from rollups and raw reports, whichever know."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import httpx
import pyarrow as pa
import pytest

from system.conftest import Site, now_ms
from widerow.client import Client
from widerow.model.tenant import Limits
from widerow.model.times import HOUR, MS
from widerow.model.token import Role
from widerow.query.budget import QuerySettings
from widerow.server.call import MISSING_HEADER, USED_HEADER

HOURS = 5
PER_HOUR = 4
HOUR_MS = HOUR // MS
SERIES = "/v1/devices/steps-0/series"


@pytest.fixture(scope="module")
def start_ms(site: Site) -> int:
    """Five hours of three devices, the first three rolled up, the others not. Gives the first hour's begin."""
    begin = now_ms() // HOUR_MS * HOUR_MS - HOURS * HOUR_MS
    reports = [
        {
            "device": f"steps-{d}",
            "time": begin + i * (HOUR_MS // PER_HOUR) + d,
            "values": {"n": i + 100 * d, "total": 7 * i % 50},
        }
        for d in range(3)
        for i in range(HOURS * PER_HOUR)
        if not (d == 1 and i // PER_HOUR == 2)
    ]
    assert site.client(Role.WRITE).post("/v1/write", json=reports).status_code == 204
    for d, kind in enumerate(("press", "press", "fan")):
        form = {"type": kind, "location": f"hall {d}", "tags": {"line": "L1"} if d else {}}
        assert site.client().patch(f"/v1/devices/steps-{d}", json=form).status_code == 200
    service = site.service
    tenant = service.catalog.tenants.get("acme")
    for unit in set(service.pyramid.marks.units()):
        if unit.tenant == "acme" and unit.start_us < (begin + 3 * HOUR_MS) * MS:
            service.pyramid.roller.roll(tenant, unit)
    return begin


def span(start_ms: int, hours: int = HOURS) -> dict[str, str]:
    return {"start": str(start_ms), "end": str(start_ms + hours * HOUR_MS)}


def told(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    form: dict[str, Any] = answer.json()
    return form


def values(form: dict[str, Any], *keys: str) -> dict[tuple[Any, ...], list[Any]]:
    return {tuple(one[key] for key in keys): [value for _, value in one["points"]] for one in form["series"]}


def refusal(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def test_steps_of_a_device_come_from_rollups_and_raw_reports(site: Site, start_ms: int) -> None:
    client = site.client(Role.READ)
    asked = {**span(start_ms), "step": "1h", "agg": "avg,count,max,increase", "metrics": "n", "epoch": "ms"}
    form = told(client.get(SERIES, params=asked))
    assert values(form, "device", "metric", "agg") == {
        ("steps-0", "n", "avg"): [4 * h + 1.5 for h in range(HOURS)],
        ("steps-0", "n", "count"): [4] * HOURS,
        ("steps-0", "n", "max"): [4.0 * h + 3 for h in range(HOURS)],
        ("steps-0", "n", "increase"): [3.0, *[4.0] * (HOURS - 1)],
    }
    assert [time for time, _ in form["series"][0]["points"]] == [start_ms + h * HOUR_MS for h in range(HOURS)]
    assert (form["step"], form["next"]) == ("1h", None)
    assert form["used"] == {"hour": 3, "raw": 8}
    assert "missing" not in form


def test_any_step_adds_up_to_the_same(site: Site, start_ms: int) -> None:
    client = site.client(Role.READ)

    def check(step: str, tz: str | None = None) -> None:
        asked = {
            **span(start_ms),
            "step": step,
            "agg": "sum,count,increase",
            "metrics": "total",
            **({"tz": tz} if tz else {}),
        }
        found = values(told(client.get(SERIES, params=asked)), "agg")
        n = HOURS * PER_HOUR
        assert sum(found["sum",]) == sum(7 * i % 50 for i in range(n))
        assert sum(found["count",]) == n
        counter = [7 * i % 50 for i in range(n)]
        gained = sum(b - a if b >= a else b for a, b in pairwise(counter))
        assert sum(found["increase",]) == pytest.approx(gained)

    for step in ("30s", "15m", "40m", "1h", "2h", "1d", "1w", "1mo"):
        check(step)
    check("1d", "Asia/Kolkata")
    check("6h", "Europe/Berlin")


def test_without_a_step_the_whole_span_is_one(site: Site, start_ms: int) -> None:
    form = told(site.client(Role.READ).get(SERIES, params={**span(start_ms), "agg": "min,last", "metrics": "n"}))
    assert values(form, "agg") == {("min",): [0.0], ("last",): [19.0]}
    assert form["step"] is None


def test_days_begin_at_the_midnight_of_the_zone(site: Site, start_ms: int) -> None:
    asked = {**span(start_ms), "step": "1d", "tz": "Asia/Kolkata", "agg": "count", "metrics": "n"}
    form = told(site.client(Role.READ).get(SERIES, params=asked))
    assert form["tz"] == "Asia/Kolkata"
    for time, _ in form["series"][0]["points"]:
        moment = datetime.fromisoformat(time).astimezone(UTC)
        assert (moment.hour, moment.minute) == (18, 30)


def test_nothing_is_filled_unless_it_is_asked_for(site: Site, start_ms: int) -> None:
    client = site.client(Role.READ)

    def check(fill: str | None, want: list[float | None]) -> None:
        asked = {**span(start_ms), "step": "1h", "agg": "first", "metrics": "n", **({"fill": fill} if fill else {})}
        assert values(told(client.get("/v1/devices/steps-1/series", params=asked)), "agg")["first",] == want

    check(None, [100.0, 104.0, 112.0, 116.0])
    check("none", [100.0, 104.0, 112.0, 116.0])
    check("null", [100.0, 104.0, None, 112.0, 116.0])
    check("previous", [100.0, 104.0, 104.0, 112.0, 116.0])
    check("linear", [100.0, 104.0, 108.0, 112.0, 116.0])


def test_texts_have_a_last_a_count_and_states(site: Site, start_ms: int) -> None:
    minute = 60_000
    reports = [
        {"device": "stateful", "time": start_ms + n * minute, "values": {"state": text, "load": n}}
        for n, text in [(0, "run"), (20, "idle"), (50, "run"), (70, 'stop, "hard"')]
    ]
    assert site.client(Role.WRITE).post("/v1/write", json=reports).status_code == 204
    client, path = site.client(Role.READ), "/v1/devices/stateful/series"
    asked = {**span(start_ms), "step": "1h", "agg": "last,count,states,max"}
    found = values(told(client.get(path, params=asked)), "metric", "agg")
    assert found == {
        ("load", "last"): [50.0, 70.0],
        ("load", "count"): [3, 1],
        ("load", "max"): [50.0, 70.0],
        ("state", "last"): ["run", 'stop, "hard"'],
        ("state", "count"): [3, 1],
        ("state", "states"): [
            {"run": {"seconds": 1800.0, "count": 2}, "idle": {"seconds": 1800.0, "count": 1}},
            {'stop, "hard"': {"seconds": 3000.0, "count": 1}, "run": {"seconds": 600.0, "count": 0}},
            *[{'stop, "hard"': {"seconds": 3600.0, "count": 0}}] * (HOURS - 2),
        ],
    }
    text = client.get(path, params={**asked, "agg": "states,last"}, headers={"Accept": "text/csv"}).text
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["text"] for row in rows if row["agg"] == "last" and row["kind"] == "text"] == ["run", 'stop, "hard"']
    assert [json.loads(row["text"]) for row in rows if row["agg"] == "states"] == found["state", "states"]
    assert {row["value"] for row in rows if row["kind"] == "text"} == {""}
    arrow = client.get(path, params={**asked, "agg": "last"}, headers={"Accept": "application/vnd.apache.arrow.stream"})
    table = pa.ipc.open_stream(arrow.content).read_all()
    assert table["value"].to_pylist() == [50.0, 70.0, None, None]
    assert table["text"].to_pylist() == [None, None, "run", 'stop, "hard"']


def test_csv_and_arrow_say_the_same(site: Site, start_ms: int) -> None:
    client = site.client(Role.READ)
    asked = {**span(start_ms), "step": "1h", "agg": "avg,count", "metrics": "n", "fill": "null"}
    path = "/v1/devices/steps-1/series"
    whole = values(told(client.get(path, params=asked)), "agg")
    text = client.get(path, params=asked, headers={"Accept": "text/csv"})
    rows = list(csv.DictReader(io.StringIO(text.text)))
    assert list(rows[0]) == ["device", "time", "metric", "agg", "kind", "value", "text"]
    assert [row["value"] for row in rows if row["agg"] == "avg"] == ["" if v is None else str(v) for v in whole["avg",]]
    arrow = client.get(path, params=asked, headers={"Accept": "application/vnd.apache.arrow.stream"})
    table = pa.ipc.open_stream(arrow.content).read_all()
    assert table.column_names == ["device", "time", "metric", "agg", "kind", "value", "text"]
    assert table.filter(pa.compute.equal(table["agg"], "count"))["value"].to_pylist() == whole["count",]
    assert text.headers[USED_HEADER] == arrow.headers[USED_HEADER]
    assert text.headers[USED_HEADER].startswith("hour=")
    assert MISSING_HEADER not in text.headers


def test_what_is_no_longer_kept_is_said_to_be_missing(site: Site, start_ms: int) -> None:
    asked = {"start": "-45d", "end": str(start_ms + HOURS * HOUR_MS), "step": "30s", "agg": "count", "metrics": "n"}
    answer = site.client(Role.READ).get(SERIES, params=asked)
    (gone,) = told(answer)["missing"]
    assert gone["start"] < gone["end"]
    kept = datetime.now(UTC) - datetime.fromisoformat(gone["end"])
    assert 29.9 < kept.total_seconds() / 86_400 < 30.1
    assert answer.headers[MISSING_HEADER] == f"{gone['start']}/{gone['end']}"
    hourly = told(site.client(Role.READ).get(SERIES, params={**asked, "step": "1h", "start": "-45d"}))
    assert "missing" not in hourly or hourly["missing"][0]["end"] < gone["end"]


def test_a_device_that_is_not_there_is_not_silent(site: Site, start_ms: int) -> None:
    client = site.client(Role.READ)
    assert refusal(client.get("/v1/devices/nobody/series?step=1h")) == (404, "not-found")
    silent = told(client.get(SERIES, params={"step": "1h", "start": str(start_ms - 9 * HOUR_MS), "end": str(start_ms)}))
    assert silent["series"] == []


def test_what_cannot_be_asked_is_refused(site: Site, start_ms: int) -> None:
    client = site.client(Role.READ)
    assert start_ms

    def check(query: str, code: str) -> None:
        assert refusal(client.get(f"{SERIES}?{query}")) == (400, code)

    check("step=1x", "step")
    check("step=1h&agg=median", "agg")
    check("step=1h&fill=zero", "parameter")
    check("step=1d&tz=Mars/Base", "tz")
    check("agg=avg&tz=Europe/Berlin", "tz")
    check("step=1h&after=x", "parameter")
    check("step=1h&limit=5", "parameter")
    check("step=1h&tags=true", "parameter")


def test_numbers_and_texts_of_one_metric_are_series_of_their_own_in_every_format(site: Site, start_ms: int) -> None:
    reports = [
        {"device": "mixed", "time": start_ms + n * HOUR_MS // 4, "values": {"m": n if n % 2 else f"t{n}"}} for n in range(8)
    ]
    assert site.client(Role.WRITE).post("/v1/write", json=reports).status_code == 204
    client, path = site.client(Role.READ), "/v1/devices/mixed/series"
    asked = {**span(start_ms), "step": "1h", "agg": "count,last", "metrics": "m", "fill": "previous"}
    assert values(told(client.get(path, params=asked)), "agg", "kind") == {
        ("count", "number"): [2, 2, 0, 0, 0],
        ("count", "text"): [2, 2, 0, 0, 0],
        ("last", "number"): [3.0, 7.0, 7.0, 7.0, 7.0],
        ("last", "text"): ["t2", "t6", "t6", "t6", "t6"],
    }
    text = client.get(path, params=asked, headers={"Accept": "text/csv"}).text
    rows = [(r["agg"], r["kind"], r["value"] or r["text"]) for r in csv.DictReader(io.StringIO(text))]
    assert rows[5:15] == [
        *[("count", "text", "2.0")] * 2,
        *[("count", "text", "0.0")] * 3,
        ("last", "number", "3.0"),
        *[("last", "number", "7.0")] * 4,
    ]
    arrow = client.get(path, params=asked, headers={"Accept": "application/vnd.apache.arrow.stream"})
    of_arrow = pa.ipc.open_stream(arrow.content).read_all().to_pylist()
    with Client(site.url, site.token(Role.READ)) as ours:
        begin, end = int(asked["start"]), int(asked["end"])
        of_client = ours.series(
            "mixed", start=begin, end=end, step="1h", agg=["count", "last"], metrics="m", fill="previous"
        ).rows()
    for told_rows in (of_arrow, of_client):
        assert [(r["agg"], r["kind"], str(r.get("text") or r["value"])) for r in told_rows if r["agg"] == "last"] == rows[
            10:
        ]


def test_a_state_that_lasts_into_the_span_is_in_all_of_its_hours(site: Site, start_ms: int) -> None:
    site.write("lasting", {"state": "idle"}, time_ms=start_ms - 3 * HOUR_MS + 600_000)
    site.write("lasting", {"state": "run"}, time_ms=start_ms + HOUR_MS + 600_000)
    asked = {**span(start_ms), "step": "1h", "agg": "states", "fill": "previous"}
    (states,) = values(told(site.client(Role.READ).get("/v1/devices/lasting/series", params=asked)), "kind").values()
    assert states == [
        {"idle": {"seconds": 3600.0, "count": 0}},
        {"idle": {"seconds": 600.0, "count": 0}, "run": {"seconds": 3000.0, "count": 1}},
        *[{"run": {"seconds": 3600.0, "count": 0}}] * 3,
    ]
    answer = ask(site, **span(start_ms), devices=["lasting", "steps-0"], step="1d", agg="states", metrics=["state"])
    days = [point[1] for one in told(answer)["series"] for point in one["points"]]  # of two days around midnight
    assert sum(state["seconds"] for day in days for state in day.values()) == HOURS * 3600


def test_sums_that_overflow_on_the_way_are_right_from_rollups_and_raw_reports(site: Site, start_ms: int) -> None:
    """Two hours of these are rolled, the third is not; a sum that is too large for a number is null."""
    per_hour = [1.7e308, 1.7e308, -1.7e308, 0.85e308]
    begin = start_ms - 24 * HOUR_MS
    reports = [
        {"device": "huge", "time": begin + h * HOUR_MS + i * 600_000, "values": {"h": value}}
        for h in range(3)
        for i, value in enumerate(per_hour if h < 2 else [1.7e308] * 2)
    ]
    assert site.client(Role.WRITE).post("/v1/write", json=reports).status_code == 204
    service = site.service
    tenant = service.catalog.tenants.get("acme")
    for unit in set(service.pyramid.marks.units()):
        if unit.tenant == "acme" and begin * MS <= unit.start_us < (begin + 2 * HOUR_MS) * MS:
            service.pyramid.roller.roll(tenant, unit)

    def ask_for(agg: str, step: str | None) -> list[Any]:
        asked = {"start": str(begin), "end": str(begin + 3 * HOUR_MS), "agg": agg, **({"step": step} if step else {})}
        form = told(site.client(Role.READ).get("/v1/devices/huge/series", params=asked))
        assert form["used"] == {"hour": 2, "raw": 2} or step == "30m"
        return [value for (found,) in [values(form, "agg").values()] for value in found]

    mean = math.fsum([value / 4 for value in per_hour])
    assert ask_for("avg", "1h") == pytest.approx([mean, mean, 1.7e308])
    assert ask_for("sum", "1h") == [None, None, None]
    assert ask_for("avg", None) == pytest.approx([math.fsum([*[value / 10 for value in [*per_hour, *per_hour]], 0.34e308])])
    assert ask_for("max", None) == [1.7e308]
    assert ask_for("avg", "30m")[:2] == pytest.approx([1.7e308 / 3, 0.85e308])


# -- POST /v1/query


def ask(site: Site, **form: Any) -> httpx.Response:
    return site.client(Role.READ).post("/v1/query", json=form)


def test_each_device_that_matches_has_its_series(site: Site, start_ms: int) -> None:
    hour = {"start": start_ms, "end": start_ms + HOUR_MS, "step": "1h", "metrics": ["n"]}

    def check(want: dict[str, float], **which: Any) -> None:
        found = values(told(ask(site, **hour, **which)), "device", "agg")
        assert found == {(device, "avg"): [value] for device, value in want.items()}

    check({"steps-0": 1.5, "steps-2": 201.5}, devices=["steps-2", "steps-0", "nobody", "steps-2"])
    check({"steps-0": 1.5, "steps-1": 101.5}, match={"type": "press"})
    check({"steps-1": 101.5, "steps-2": 201.5}, match={"tags": {"line": "L1"}, "prefix": "steps"})
    check({"steps-2": 201.5}, match={"location": "hall 2", "q": "STEP"})
    check({}, match={"type": "lathe"})


def test_devices_are_grouped_by_what_they_have_in_common(site: Site, start_ms: int) -> None:
    day = {**span(start_ms), "match": {"prefix": "steps-"}, "metrics": ["n"], "agg": ["sum", "count"]}

    def check(by: list[str], want: dict[tuple[str, ...], int]) -> None:
        form = told(ask(site, **day, group_by=by))
        counts = {tuple(one["group"].values()): one["points"][0][1] for one in form["series"] if one["agg"] == "count"}
        assert counts == want
        assert all("device" not in one for one in form["series"])

    check([], {(): 56})
    check(["metric"], {(): 56})
    check(["type"], {("fan",): 20, ("press",): 36})
    check(["tag:line"], {("",): 20, ("L1",): 36})
    check(["type", "location"], {("fan", "hall 2"): 20, ("press", "hall 0"): 20, ("press", "hall 1"): 16})
    check(["device"], {("steps-0",): 20, ("steps-1",): 16, ("steps-2",): 20})
    form = told(ask(site, **{**day, "agg": "rate,p50"}, step="1h", group_by=[]))
    assert {one["agg"] for one in form["series"]} == {"rate", "p50"}
    assert all(len(one["points"]) == HOURS for one in form["series"])
    text = site.client(Role.READ).post("/v1/query", json={**day, "group_by": ["type"]}, headers={"Accept": "text/csv"}).text
    assert text.splitlines()[0] == "type,time,metric,agg,kind,value,text"


def test_the_top_devices_by_an_aggregate(site: Site, start_ms: int) -> None:
    which = {**span(start_ms), "match": {"prefix": "steps-"}, "metrics": ["n"]}
    form = told(ask(site, **which, top=2, by="max"))
    assert form["top"] == [{"device": "steps-2", "value": 219.0}, {"device": "steps-1", "value": 119.0}]
    assert values(form, "device", "agg") == {("steps-2", "max"): [219.0], ("steps-1", "max"): [119.0]}
    form = told(ask(site, **which, top=1, by="min", order="asc", step="1h", agg="last"))
    assert form["top"] == [{"device": "steps-0", "value": 0.0}]
    assert values(form, "device", "agg") == {("steps-0", "last"): [3.0, 7.0, 11.0, 15.0, 19.0]}


def test_raw_points_of_many_devices_come_whole_or_not_at_all(site: Site, start_ms: int) -> None:
    which = {**span(start_ms), "devices": ["steps-0", "steps-1"], "metrics": ["n"]}
    form = told(ask(site, **which))
    assert {key: len(found) for key, found in values(form, "device", "metric").items()} == {
        ("steps-0", "n"): 20,
        ("steps-1", "n"): 16,
    }
    refused = ask(site, **which, limit=35)
    assert refusal(refused) == (400, "query-limit")
    assert refused.json()["error"]["limit"] == "limit"
    assert told(ask(site, **which, limit=36))["next"] is None


def test_questions_that_are_put_wrongly_are_refused(site: Site, start_ms: int) -> None:
    def check(code: str, **form: Any) -> None:
        assert refusal(ask(site, **form)) == (400, code)

    some = {"devices": ["steps-0"]}
    check("field")
    check("field", **some, match={})
    check("field", devices=[])
    check("field", devices="steps-0")
    check("field", match={"colour": "red"})
    check("field", match={"tags": {"line": 1}})
    check("field", **some, steps="1h")
    check("field", **some, step=60)
    check("field", **some, start=True)
    check("field", **some, limit=0)
    check("time", **some, start="soon")
    check("span", **some, start="now", end="-1h")
    check("agg", **some, agg="median")
    check("agg", **some, agg="last", group_by=[])
    check("agg", **some, agg="states", group_by=[])
    check("group", **some, **span(start_ms), group_by=["colour"])
    check("group", **some, group_by=["tag:"])
    check("fill", **some, step="1h", fill="zero")
    check("top", **some, by="max")
    check("top", **some, top=1, by="max")
    check("top", **some, top=1, metrics=["n"], order="up")
    check("top", **some, top=1, metrics=["n"], group_by=[])
    check("agg", **some, top=1, metrics=["n"], by="median")
    check("field", **some, top=0)
    answer = site.client(Role.WRITE).post("/v1/query", json=some)
    assert answer.status_code == 403


@contextmanager
def allowed(site: Site, settings: QuerySettings) -> Iterator[None]:
    queries = site.service.queries
    before, queries.settings = queries.settings, settings
    try:
        yield
    finally:
        queries.settings = before


def test_a_limit_refuses_and_says_what_to_do(site: Site, start_ms: int) -> None:
    asked = {**span(start_ms), "step": "30s", "metrics": "n"}
    with allowed(site, QuerySettings(max_rows=10)):
        answer = site.client(Role.READ).get(SERIES, params=asked)
    assert refusal(answer) == (400, "query-limit")
    error = answer.json()["error"]
    assert (error["limit"], error["allowed"]) == ("query.max_rows", 10)
    in_pieces = site.service.config.store.url.startswith("cassandra:")  # and it ends with the one that is too much
    assert 10 < error["seen"] <= 20 if in_pieces else error["seen"] == 20
    assert "coarser step" in error["message"]
    with allowed(site, QuerySettings(max_answer_bytes=100)):
        answer = ask(site, **span(start_ms), match={}, step="1h", metrics=["n"])
    assert answer.json()["error"]["limit"] == "query.max_answer_mib"
    with allowed(site, QuerySettings(timeout_s=0)):
        answer = ask(site, **span(start_ms), match={}, step="1h", metrics=["n"], group_by=[])
    assert answer.json()["error"]["limit"] == "query.timeout_s"


def test_a_tenant_has_limits_of_its_own(site: Site, start_ms: int) -> None:
    operator = site.client(Role.OPERATOR)
    assert operator.patch("/v1/admin/tenants/acme", json={"limits": {"query_rows": 5}}).status_code == 200
    try:
        tenant = site.service.catalog.tenants.get("acme")
        assert tenant.limits == replace(Limits(), query_rows=5)
        budget = site.service.queries.budget(tenant)
        with pytest.raises(Exception, match=r"limits\.query_rows"):
            budget.expect(6)
    finally:
        assert operator.patch("/v1/admin/tenants/acme", json={"limits": {"query_rows": 0}}).status_code == 200
    assert start_ms
