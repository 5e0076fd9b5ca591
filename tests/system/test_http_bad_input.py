"""Bad input of every kind gets its status and its code, and leaves nothing behind."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

import httpx
import pyarrow as pa
import pytest

from system.conftest import MAX_BODY_MIB, Site, now_ms
from widerow.codec.answer import ARROW, stream_of
from widerow.model.token import Role

pytestmark = pytest.mark.about_http

TOO_LARGE = (MAX_BODY_MIB << 20) + 1


def write(site: Site, reports: Any, **parameters: str) -> httpx.Response:
    body = reports if isinstance(reports, (str, bytes)) else json.dumps(reports)
    headers = {"Content-Type": "application/json"}
    return site.client(Role.WRITE).post("/v1/write", content=body, headers=headers, params=parameters)


def code_of(answer: httpx.Response) -> str:
    code: str = answer.json()["error"]["code"]
    return code


def refused(answer: httpx.Response) -> list[tuple[int, str]]:
    return [(refusal["index"], refusal["code"]) for refusal in answer.json()["refusals"]]


REFUSED = {
    "no values": ({"device": "bad", "values": {}}, "no-values"),
    "no device": ({"values": {"a": 1}}, "device-missing"),
    "an empty device": ({"device": "", "values": {"a": 1}}, "name"),
    "a device of 10 KB": ({"device": "x" * 10_240, "values": {"a": 1}}, "name"),
    "a control character in a device": ({"device": "a\tb", "values": {"a": 1}}, "name"),
    "a null character in a metric": ({"device": "bad", "values": {"a\x00b": 1}}, "name"),
    "an empty metric": ({"device": "bad", "values": {"": 1}}, "name"),
    "a metric of 257 bytes": ({"device": "bad", "values": {"ü" * 128 + "x": 1}}, "name"),
    "a text of 33 KB": ({"device": "bad", "values": {"a": "x" * 33_000}}, "text-too-long"),
    "an object as value": ({"device": "bad", "values": {"a": {}}}, "value-type"),
    "2^63 milliseconds": ({"device": "bad", "time": 2**63, "values": {"a": 1}}, "time"),
    "a time before 1970": ({"device": "bad", "time": -1, "values": {"a": 1}}, "time"),
    "a time that is none": ({"device": "bad", "time": "yesterday", "values": {"a": 1}}, "time"),
    "a time without its zone": ({"device": "bad", "time": "2026-01-01T00:00:00", "values": {"a": 1}}, "time"),
    "seconds for milliseconds": ({"device": "bad", "time": now_ms() // 1000, "values": {"a": 1}}, "time"),
    "microseconds for milliseconds": ({"device": "bad", "time": now_ms() * 1000, "values": {"a": 1}}, "time"),
    "a clock that is not set": ({"device": "bad", "time": "1970-01-01T00:01:07Z", "values": {"a": 1}}, "time"),
    "a time ahead of the clock": ({"device": "bad", "time": "2199-01-01T00:00:00Z", "values": {"a": 1}}, "future"),
    "a time of long ago": ({"device": "bad", "time": "2001-01-01T00:00:00Z", "values": {"a": 1}}, "too-old"),
    "an integer beyond 2^53": ({"device": "bad", "values": {"a": 2**53 + 1}}, "integer-range"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_bad_report_is_refused_and_its_neighbours_are_kept(site: Site, what: str) -> None:
    report, code = REFUSED[what]
    alone = write(site, report)
    assert alone.status_code == 422, alone.text
    assert alone.json()["accepted"] == 0
    assert refused(alone) == [(0, code)]
    good = {"device": "good", "time": now_ms(), "values": {"a": 1}}
    between = write(site, [good, report, {**good, "device": "better"}])
    assert between.status_code == 207
    assert (between.json()["accepted"], between.json()["refused"]) == (2, 1)
    assert refused(between) == [(1, code)]
    assert site.client().get("/v1/devices/bad").status_code == 404


def test_a_time_in_the_wrong_unit_is_refused_with_a_hint_in_every_format(site: Site) -> None:
    seconds = now_ms() // 1000
    ndjson = "".join(json.dumps({"device": "bad", "time": at, "values": {"a": 1}}) + "\n" for at in (seconds, seconds))
    table = pa.table({"device": ["bad"], "time": [seconds], "a": [1.0]})
    client = site.client(Role.WRITE)
    answers = [
        write(site, {"device": "bad", "time": seconds, "values": {"a": 1}}),
        client.post("/v1/write", content=ndjson, headers={"Content-Type": "application/x-ndjson"}),
        client.post("/v1/write", content=stream_of(table), headers={"Content-Type": ARROW}),
    ]
    for answer in answers:
        assert answer.status_code == 422, answer.text
        assert {(r["code"], "precision=s" in r["reason"]) for r in answer.json()["refusals"]} == {("time", True)}
    good = now_ms()
    ndjson = "".join(json.dumps({"device": "timed", "time": at, "values": {"a": 1}}) + "\n" for at in (good, seconds))
    table = pa.table({"device": ["timed"] * 2, "time": [good + 1, seconds], "a": [1.0, 2.0]})
    array = [{"device": "timed", "time": at, "values": {"a": 1}} for at in (good + 2, seconds)]
    for answer in (
        client.post("/v1/write", content=ndjson, headers={"Content-Type": "application/x-ndjson"}),
        client.post("/v1/write", content=stream_of(table), headers={"Content-Type": ARROW}),
        client.post("/v1/write", json=array),
    ):
        assert answer.status_code == 207, answer.text
        assert [(r["index"], r["code"]) for r in answer.json()["refusals"]] == [(1, "time")]
    for precision, meant in (("us", seconds), ("ns", seconds), ("ns", seconds * 1000), ("s", good), ("ms", good * 1000)):
        form = {"device": "bad", "time": meant, "values": {"a": 1}}
        answer = client.post("/v1/write", params={"precision": precision}, json=form)
        assert (answer.status_code, answer.json()["refusals"][0]["code"]) == (422, "time"), (precision, meant)
    points = site.client().get("/v1/devices/timed/series?epoch=ms").json()["series"][0]["points"]
    assert [at for at, _ in points] == [good, good + 1, good + 2]
    wrong = f"/write?precision=ns|{seconds}", f"/api/v2/write?precision=ms|{seconds}", f"/write?precision=s|{seconds}000"
    for path in wrong:
        url, _, at = path.partition("|")
        answer = client.post(url, content=f"m,device=bad a=1 {at}\nm,device=clocked a=1")
        assert answer.status_code == 400
        assert "precision=s" in answer.json()["message"]
        assert "dropped=1" in answer.json()["message"]
    assert site.client().get("/v1/devices/bad").status_code == 404
    assert site.values("clocked") == {"m_a": 1.0}


def test_a_question_for_seconds_is_refused_with_a_hint_and_0_is_a_start(site: Site) -> None:
    site.write("asked", {"a": 1})
    seconds = now_ms() // 1000
    client = site.client(Role.READ)
    for path in (
        f"/v1/devices/asked/series?start={seconds}",
        f"/v1/devices/asked/series?start=0&end={seconds}&step=1h",
        f"/v1/fleet/series?start=0&end={seconds}&step=1d",
    ):
        answer = client.get(path)
        assert (answer.status_code, code_of(answer)) == (400, "time")
        assert "milliseconds" in answer.json()["error"]["message"]
        assert "epoch=" in answer.json()["error"]["message"]
    answer = client.post("/v1/query", json={"devices": ["asked"], "start": seconds, "step": "1h"})
    assert (answer.status_code, code_of(answer)) == (400, "time")
    assert len(client.get("/v1/devices/asked/series?start=0").json()["series"]) == 1


@pytest.mark.parametrize("kind", ["array", "ndjson", "arrow"])
def test_reports_without_a_time_are_kept_each_and_in_order(site: Site, kind: str) -> None:
    device = f"timeless-{kind}"
    values = [float(i // 5 % 5) for i in range(150)]
    reports = [{"device": device, "values": {"a": value}} for value in values]
    if kind == "arrow":
        body: str | bytes = stream_of(pa.table({"device": [device] * 150, "a": values}))
    else:
        body = json.dumps(reports) if kind == "array" else "\n".join(map(json.dumps, reports))
    form = {"array": "application/json", "ndjson": "application/x-ndjson", "arrow": ARROW}[kind]
    before = now_ms()
    answer = site.client(Role.WRITE).post("/v1/write", content=body, headers={"Content-Type": form})
    assert answer.status_code == 204, answer.text
    points = site.client().get(f"/v1/devices/{device}/series?epoch=us").json()["series"][0]["points"]
    assert [value for _, value in points] == values
    assert [at - points[0][0] for at, _ in points] == list(range(150))
    assert before * 1000 - 150 <= points[0][0] <= now_ms() * 1000


def test_two_values_for_one_cell_are_refused_and_a_repeat_is_harmless(site: Site) -> None:
    report = {"device": "cells", "time": now_ms(), "values": {"a": 1}}
    assert write(site, [report, report]).status_code == 204
    answer = write(site, [report, {**report, "values": {"a": 2}}])
    assert answer.status_code == 207
    assert refused(answer) == [(1, "conflict")]
    assert site.values("cells") == {"a": 1.0}


BROKEN = {
    "nothing": b"",
    "half an object": b'{"device": "bad"',
    "a number": b"17",
    "NaN": b'{"device": "bad", "values": {"a": NaN}}',
    "infinity": b'{"device": "bad", "values": {"a": -Infinity}}',
    "1e999": b'{"device": "bad", "values": {"a": 1e999}}',
    "bytes that are no text": b'{"device": "\xff\xfe", "values": {"a": 1}}',
    "half a surrogate pair": b'{"device": "\\ud800", "values": {"a": 1}}',
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_body_that_cannot_be_read_is_refused(site: Site, what: str) -> None:
    answer = write(site, BROKEN[what])
    assert answer.status_code in (400, 422), answer.text
    assert site.client().get("/v1/devices/bad").status_code == 404


def test_a_body_without_a_report_says_so(site: Site) -> None:
    answer = write(site, [])
    assert (answer.status_code, code_of(answer)) == (400, "no-reports")


def test_nan_and_infinities_of_line_protocol_are_refused(site: Site) -> None:
    for word in ("nan", "NaN", "inf", "-Inf", "1e999"):
        answer = site.client(Role.WRITE).post("/write", content=f"m,device=bad a={word}")
        assert answer.status_code == 400, word
    assert site.client().get("/v1/devices/bad").status_code == 404


def test_at_most_a_thousand_refusals_are_listed(site: Site) -> None:
    answer = write(site, [{"device": "bad", "values": {}}] * 1_200)
    said = answer.json()
    assert answer.status_code == 422
    assert (said["refused"], len(said["refusals"]), said["more"]) == (1_200, 1_000, 200)
    assert [refusal["index"] for refusal in said["refusals"]] == list(range(1_000))


def test_wrong_types_and_encodings_are_not_understood(site: Site) -> None:
    client = site.client()

    def check(path: str, headers: dict[str, str], status: int, code: str) -> None:
        answer = client.post(path, content=b"{}", headers=headers)
        assert (answer.status_code, code_of(answer)) == (status, code)

    check("/v1/write", {"Content-Type": "application/xml"}, 415, "unsupported")
    check("/v1/write", {"Content-Type": "application/x-www-form-urlencoded"}, 415, "unsupported")
    check("/v1/write", {"Content-Encoding": "br"}, 415, "unsupported")
    check("/v1/write", {"Content-Encoding": "gzip"}, 400, "syntax")
    check("/v1/write", {"Content-Type": "application/vnd.apache.arrow.stream"}, 400, "syntax")
    check("/v1/latest", {"Content-Type": "text/csv"}, 415, "unsupported")


def test_a_body_that_is_too_large_is_refused_however_it_comes(site: Site) -> None:
    client = site.client()

    def check(path: str, content: Any, **headers: str) -> None:
        answer = client.post(path, content=content, headers=headers)
        assert (answer.status_code, code_of(answer)) == (413, "too-large")

    check("/v1/write", b" " * TOO_LARGE)
    check("/v1/write", (b" " * 65_536 for _ in range(64)))  # in pieces, without a length
    check("/v1/latest", b" " * TOO_LARGE)
    bomb = httpx.Client(base_url=site.url, headers=client.headers, timeout=30)
    with bomb:
        import gzip  # noqa: PLC0415

        packed = gzip.compress(b" " * (64 << 20))
        answer = bomb.post("/v1/write", content=packed, headers={"Content-Encoding": "gzip"})
        assert answer.status_code == 413


def test_a_length_that_is_too_large_is_refused_before_the_body_is_sent(site: Site) -> None:
    address = urlsplit(site.url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=30)
    try:
        connection.putrequest("POST", "/v1/write")
        connection.putheader("Authorization", f"Bearer {site.token(Role.WRITE)}")
        connection.putheader("Content-Length", str(10 << 30))
        connection.endheaders()
        assert connection.getresponse().status == 413
    finally:
        connection.close()


def test_unknown_parameters_are_named_with_those_that_exist(site: Site) -> None:
    client = site.client()

    def check(method: str, path: str, *words: str) -> None:
        answer = client.request(method, path, content=b"{}" if method == "POST" else None)
        assert (answer.status_code, code_of(answer)) == (400, "parameter")
        for word in words:
            assert word in answer.json()["error"]["message"]

    site.write("typo", {"a": 1})
    check("GET", "/v1/devices?tpye=pump", "tpye", "location", "prefix")
    check("GET", "/v1/devices/typo/series?stpe=1m", "stpe", "step", "start")
    check("GET", "/v1/devices/typo/series?limit=0", "limit", "100000")
    check("GET", "/v1/devices/typo/series?limit=many", "limit")
    check("GET", "/v1/devices/typo/series?start=-1h&start=-2h", "start", "twice")
    check("GET", "/v1/devices/typo/series?epoch=year", "epoch", "ms")
    check("GET", "/v1/devices?tag=north", "NAME:VALUE")
    check("GET", "/v1/devices?prefix=%ff", "UTF-8")
    check("POST", "/v1/write?precison=s", "precison", "precision")


def test_times_and_spans_that_make_no_sense_are_refused(site: Site) -> None:
    site.write("spans", {"a": 1})

    def check(query: str, code: str) -> None:
        answer = site.client(Role.READ).get(f"/v1/devices/spans/series?{query}")
        assert (answer.status_code, code_of(answer)) == (400, code)

    check("start=now&end=-1h", "span")
    check("start=tomorrow", "time")
    check("start=99999999999999999999", "time")
    check("after=nonsense", "cursor")
    site_devices = site.client(Role.READ).get("/v1/devices?after=nonsense")
    assert (site_devices.status_code, code_of(site_devices)) == (400, "cursor")


def test_what_does_not_exist_is_not_found(site: Site) -> None:
    client = site.client()

    def check(method: str, path: str, status: int = 404, code: str = "not-found", body: Any = None) -> None:
        answer = client.request(method, path, json=body)
        assert (answer.status_code, code_of(answer)) == (status, code), path

    check("GET", "/v1/devices/nobody")
    check("GET", "/v1/devices/nobody/latest")
    check("GET", "/v1/devices/nobody/series")
    check("PATCH", "/v1/devices/nobody", body={"type": "pump"})
    check("DELETE", "/v1/devices/nobody")
    check("GET", "/v1/metrics/nothing")
    check("DELETE", "/v1/admin/tokens/0123456789abcdef")
    check("GET", "/v1/nothing", code="route")
    check("GET", "/v1/devices/", code="route")
    check("PUT", "/v1/devices/nobody", 405, "method-not-allowed", body={})
    check("GET", "/v1/write", 405, "method-not-allowed")
    check("GET", "/v1/devices/%FF", 400, "name")
    check("GET", f"/v1/devices/{'x' * 10_240}")
    assert client.put("/v1/devices/nobody").headers["allow"] == "DELETE, GET, PATCH"


def test_a_form_that_cannot_be_given_is_not_acceptable(site: Site) -> None:
    answer = site.client().get("/v1/devices", headers={"Accept": "image/png"})
    assert (answer.status_code, code_of(answer)) == (406, "not-acceptable")


def test_broken_json_of_other_routes_is_refused(site: Site) -> None:
    def check(path: str, body: str, code: str) -> None:
        answer = site.client().post(path, content=body)
        assert (answer.status_code, code_of(answer)) == (400, code)

    check("/v1/latest", "{", "syntax")
    check("/v1/latest", "[" * 100_000, "syntax")
    check("/v1/latest", "[]", "field")
    check("/v1/latest", '{"devices": []}', "field")
    check("/v1/latest", '{"devices": [1]}', "field")
    check("/v1/latest", '{"devices": ["a"], "metric": ["b"]}', "field")
    check("/v1/devices/batch", '{"devices": 7}', "field")
    check("/v1/admin/tokens", '{"role": "king"}', "field")
    check("/v1/admin/tokens", '{"role": "device"}', "token")
    check("/v1/admin/tokens", '{"role": "read", "expires": "-1h"}', "token")
    check("/v1/admin/erase", '{"metric": "a", "start": true}', "field")
    check("/v1/admin/erase", '{"start": "-1h", "end": "now"}', "field")
