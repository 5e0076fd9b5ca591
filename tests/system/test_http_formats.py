"""What is written in any form reads back equal, whatever the names."""

from __future__ import annotations

import gzip
import io
import json
from typing import Any

import httpx
import pyarrow as pa
import pytest
import zstandard

from system.conftest import Site, in_path, now_ms
from widerow.model.token import Role

ARROW = "application/vnd.apache.arrow.stream"
NDJSON = "application/x-ndjson"
VALUES = {"temperature": 21.5, "running": 1.0, "state": 'läuft "gut", oder?\n'}


def post(site: Site, body: bytes, content_type: str, path: str = "/v1/write", **headers: str) -> httpx.Response:
    return site.client(Role.WRITE).post(path, content=body, headers={"Content-Type": content_type, **headers})


def arrow(columns: dict[str, Any]) -> bytes:
    table = pa.table(columns)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def test_one_report_as_json(site: Site) -> None:
    body = json.dumps({"device": "json-one", "time": now_ms(), "values": VALUES, "tags": {"line": "3"}}).encode()
    assert post(site, body, "application/json").status_code == 204
    assert site.values("json-one") == VALUES


def test_many_reports_as_a_json_array_or_lines(site: Site) -> None:
    at = now_ms()
    reports = [{"device": f"{{}}-{i}", "time": at - i, "values": {"n": i, "on": True}} for i in range(3)]

    def check(kind: str, content_type: str, body: str) -> None:
        assert post(site, body.replace("{}", kind).encode(), content_type).status_code == 204
        for i in range(3):
            assert site.values(f"{kind}-{i}") == {"n": i, "on": 1.0}

    check("array", "application/json; charset=utf-8", json.dumps(reports))
    check("lines", NDJSON, "\n".join(json.dumps(report) for report in reports) + "\n")


def test_arrow_wide_and_long(site: Site) -> None:
    at = pa.array([now_ms(), now_ms()], pa.timestamp("ms", "UTC"))
    wide = arrow({"device": ["wide-a", "wide-b"], "time": at, "temperature": [1.5, 2.5], "state": ["on", None]})
    assert post(site, wide, ARROW).status_code == 204
    assert site.values("wide-a") == {"temperature": 1.5, "state": "on"}
    assert site.values("wide-b") == {"temperature": 2.5}
    long = arrow({"device": ["long", "long"], "time": at, "metric": ["a", "b/c"], "value": [0.1, -7.0]})
    assert post(site, long, ARROW).status_code == 204
    assert site.values("long") == {"a": 0.1, "b/c": -7.0}


@pytest.mark.parametrize("path", ["/write", "/api/v2/write"])
@pytest.mark.parametrize("encoding", ["", "gzip", "zstd"])
def test_line_protocol_plain_and_packed(site: Site, path: str, encoding: str) -> None:
    device = f"line{path.replace('/', '-')}-{encoding}"
    lines = f'weather,device={device},site=north temp=21.5,count=3i,ok=t,word="a b" {now_ms()}\n'.encode()
    packed = {"": lines, "gzip": gzip.compress(lines), "zstd": zstandard.compress(lines)}[encoding]
    headers = {"Content-Encoding": encoding} if encoding else {}
    answer = post(site, packed, "text/plain", f"{path}?precision=ms", **headers)
    assert answer.status_code == 204, answer.text
    expected = {"weather_temp": 21.5, "weather_count": 3.0, "weather_ok": 1.0, "weather_word": "a b"}
    assert site.values(device) == {f"{name}{{site=north}}": value for name, value in expected.items()}


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_json_and_arrow_may_be_packed(site: Site, pack: Any) -> None:
    name = pack.__module__.partition(".")[0]
    headers = {"Content-Encoding": "gzip" if name == "gzip" else "zstd"}
    body = json.dumps({"device": f"packed-{name}", "time": now_ms(), "values": VALUES}).encode()
    assert post(site, pack(body), "application/json", **headers).status_code == 204
    assert site.values(f"packed-{name}") == VALUES
    table = arrow({"device": [f"table-{name}"], "time": pa.array([now_ms()], pa.timestamp("ms", "UTC")), "m": [1.0]})
    assert post(site, pack(table), ARROW, **headers).status_code == 204
    assert site.values(f"table-{name}") == {"m": 1.0}


@pytest.mark.parametrize(("precision", "factor"), [("s", 1 / 1000), ("ms", 1), ("us", 1_000), ("ns", 1_000_000)])
def test_the_precision_says_what_an_epoch_counts(site: Site, precision: str, factor: float) -> None:
    at = now_ms() // 1000 * 1000
    body = json.dumps({"device": f"precise-{precision}", "time": int(at * factor), "values": {"v": 1}}).encode()
    assert post(site, body, "application/json", f"/v1/write?precision={precision}").status_code == 204
    answer = site.client(Role.READ).get(f"/v1/devices/precise-{precision}/latest?epoch=ms")
    assert answer.json()["series"][0]["points"] == [[at, 1.0]]


NAMES = ["Conveyor/Batch Qty", "a#b", "50% full", "%2F", "Größe ü 温度", "ns=2;s=Temp", "a b+c&d=e?f", "..", "batch", "x,y"]


@pytest.mark.parametrize("name", NAMES)
def test_names_round_trip_through_addresses(site: Site, name: str) -> None:
    """As device and as metric: written, listed, described, read, and deleted."""
    site.write(name, {name: 4.5})
    path = in_path(name)
    client = site.client()
    assert client.get(f"/v1/devices/{path}").json()["name"] == name
    series = client.get(f"/v1/devices/{path}/series", params={"metrics": [name, "other"]}).json()["series"]
    assert [(s["device"], s["metric"], [v for _, v in s["points"]]) for s in series] == [(name, name, [4.5])]
    assert site.values(name) == {name: 4.5}
    assert client.get("/v1/devices", params={"prefix": name}).json()["devices"][0]["name"] == name
    assert client.get(f"/v1/metrics/{path}").json()["name"] == name
    assert client.patch(f"/v1/devices/{path}", json={"display_name": name}).json()["display_name"] == name
    assert client.delete(f"/v1/devices/{path}").status_code == 204
    assert client.get(f"/v1/devices/{path}").status_code == 404


def test_numbers_read_back_equal(site: Site) -> None:
    numbers = [0.1, -0.0, 1e308, 5e-324, 2.0**53, 1 / 3, 123456789.123456789]
    at = now_ms() - 1000
    for i, number in enumerate(numbers):
        site.write("numbers", {"n": number}, time_ms=at + i)
    points = site.client(Role.READ).get("/v1/devices/numbers/series").json()["series"][0]["points"]
    assert [value for _, value in points] == numbers


def test_an_answer_comes_as_csv_or_arrow_when_asked_for(site: Site) -> None:
    at = site.write("tabular", {"a": 1.5, "b": 'x,"y"'})
    client = site.client(Role.READ)
    text = client.get("/v1/devices/tabular/series", headers={"Accept": "text/csv"})
    assert text.headers["content-type"] == "text/csv; charset=utf-8"
    assert text.text.splitlines()[0] == "device,time,metric,value,text"
    assert 'b,,"x,""y"""' in text.text
    stream = client.get("/v1/devices/tabular/series", headers={"Accept": ARROW})
    assert stream.headers["content-type"] == ARROW
    rows = pa.ipc.open_stream(stream.content).read_all().to_pylist()
    assert [(r["metric"], r["value"], r["text"], round(r["time"].timestamp() * 1000)) for r in rows] == [
        ("a", 1.5, None, at),
        ("b", None, 'x,"y"', at),
    ]
    devices = client.get("/v1/devices", params={"prefix": "tabular"}, headers={"Accept": "text/csv, application/json;q=0.5"})
    assert devices.text.splitlines()[1].startswith("tabular,")
