"""The routes of InfluxDB, as its clients use them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
from influxdb import InfluxDBClient as InfluxDBClient1
from influxdb.exceptions import InfluxDBClientError
from influxdb_client import InfluxDBClient, Point, WriteOptions, WritePrecision
from influxdb_client.client.write_api import SYNCHRONOUS
from influxdb_client.rest import ApiException

from system.conftest import OWN_DEVICE, Site, now_ms
from widerow.model.token import Role

pytestmark = pytest.mark.about_http


@pytest.mark.parametrize("gzip", [False, True])
def test_the_official_client_writes_and_is_acknowledged(site: Site, gzip: bool) -> None:
    device = f"influx-sync-{gzip}"
    with InfluxDBClient(site.url, site.token(Role.WRITE), org="any", enable_gzip=gzip) as client:
        with client.write_api(write_options=SYNCHRONOUS) as api:
            point = Point("boiler").tag("host", device).field("pressure", 2.5).field("mode", "eco")
            api.write(bucket="any", record=point.time(now_ms(), WritePrecision.MS))
        assert client.ping()
        assert client.version()
    assert site.values(device) == {"boiler_pressure": 2.5, "boiler_mode": "eco"}


def test_the_official_client_writes_in_batches(site: Site) -> None:
    options = WriteOptions(batch_size=100, flush_interval=200)
    failures: list[object] = []
    at = now_ms()
    with (
        InfluxDBClient(site.url, site.token(Role.WRITE), org="any", enable_gzip=True) as client,
        client.write_api(write_options=options, error_callback=lambda *failed: failures.append(failed)) as api,
    ):
        for i in range(250):
            api.write(bucket="any", record=f"m,device=influx-batch n={i} {(at - i) * 1_000_000}")
    assert not failures
    answer = site.client(Role.READ).get("/v1/devices/influx-batch/series", params={"metrics": "m_n"})
    assert len(answer.json()["series"][0]["points"]) == 250


def test_the_official_client_raises_on_a_bad_line_and_the_good_ones_are_kept(site: Site) -> None:
    lines = [
        "m,device=influx-partial a=1",
        "this is no line",
        "m,device=influx-partial b=nan",
        "m,device=influx-partial c=3",
    ]
    with (
        InfluxDBClient(site.url, site.token(Role.WRITE), org="any") as client,
        client.write_api(write_options=SYNCHRONOUS) as api,
        pytest.raises(ApiException) as caught,
    ):
        api.write(bucket="any", record=lines)
    assert caught.value.status == 400
    assert "partial write: " in caught.value.message
    assert "dropped=2" in caught.value.message
    assert site.values("influx-partial") == {"m_a": 1.0, "m_c": 3.0}


def test_the_official_client_is_told_of_a_bad_token_and_may_send_nothing(site: Site) -> None:
    def write(role_token: str, record: object) -> None:
        with (
            InfluxDBClient(site.url, role_token, org="any") as client,
            client.write_api(write_options=SYNCHRONOUS) as api,
        ):
            assert client.ping()
            api.write(bucket="any", record=record)

    for token, status, said in (("wrong", 401, "token is not known"), (site.token(Role.READ), 403, "role")):
        with pytest.raises(ApiException) as caught:
            write(token, "m,device=influx-none a=1")
        assert caught.value.status == status
        assert said in caught.value.message
    write(site.token(Role.WRITE), "")
    write(site.token(Role.WRITE), [])
    assert site.client().get("/v1/devices/influx-none").status_code == 404


@contextmanager
def of_version_1(site: Site, token: str, *, gzip: bool = False) -> Iterator[InfluxDBClient1]:
    """The client of InfluxDB 1, which signs in with a user and a password."""
    at = urlsplit(site.url)
    with InfluxDBClient1(at.hostname, at.port, "any", token, "any", gzip=gzip) as client:
        yield client


@pytest.mark.parametrize("gzip", [False, True])
def test_the_client_of_influxdb_1_pings_and_writes(site: Site, gzip: bool) -> None:
    device, now = f"influx-1-{gzip}", now_ms()
    points = [
        {
            "measurement": "boiler",
            "tags": {"host": device},
            "time": now - i,
            "fields": {"pressure": 2.5, "mode": "eco", "n": i},
        }
        for i in range(100)
    ]
    with of_version_1(site, site.token(Role.WRITE), gzip=gzip) as client:
        assert client.ping()
        assert client.write_points(points, time_precision="ms", batch_size=30)
        assert client.write_points([f"boiler,host={device} open=true {now * 1_000_000}"], protocol="line")
        assert client.write_points([])
        assert client.write("", params={"db": "any"}, protocol="line")
    assert site.values(device) == {
        "boiler_pressure": 2.5,
        "boiler_mode": "eco",
        "boiler_n": 0.0,
        "boiler_open": 1.0,
    }
    answer = site.client(Role.READ).get(f"/v1/devices/{device}/series", params={"metrics": "boiler_n"})
    assert len(answer.json()["series"][0]["points"]) == 100


def test_the_client_of_influxdb_1_raises_what_it_raises_elsewhere(site: Site) -> None:
    def check(token: str, lines: list[str], code: int, said: str, precision: str | None = None) -> None:
        with of_version_1(site, token) as client, pytest.raises(InfluxDBClientError, match=said) as caught:
            client.write_points(lines, protocol="line", time_precision=precision)
        assert caught.value.code == code

    good, seconds = "m,host=influx-1-bad a=1", now_ms() // 1000
    check("wrong", [good], 401, "token is not known")
    check(site.token(Role.READ), [good], 403, "role")
    check(site.token(Role.WRITE), [good, "no line"], 400, "partial write: .*dropped=1")
    check(site.token(Role.WRITE), [f"{good} {seconds}"], 400, "partial write: .*precision=s.*dropped=1")
    assert site.values("influx-1-bad") == {"m_a": 1.0}


def test_errors_have_the_shape_that_clients_read(site: Site) -> None:
    def check(role: Role | None, path: str, body: str, status: int, code: str) -> None:
        answer = site.client(role).post(path, content=body)
        assert answer.status_code == status, answer.text
        said = answer.json()
        assert said["code"] == code
        assert said["message"] == said["error"] != ""

    check(None, "/api/v2/write", "m,device=d a=1", 401, "unauthorized")
    check(Role.READ, "/api/v2/write", "m,device=d a=1", 403, "forbidden")
    check(Role.WRITE, "/api/v2/write", "nonsense", 400, "invalid")
    check(Role.WRITE, "/write?precision=years", "m,device=d a=1", 400, "invalid")
    check(Role.WRITE, "/write", "m,device=d a=1\n" * 100_000, 413, "request too large")
    check(Role.OPERATOR, "/write?tenant=nobody", "m,device=d a=1", 404, "not found")


def test_the_token_may_come_in_every_way_that_influxdb_knows(site: Site) -> None:
    token = site.token(Role.WRITE)
    basic = b64encode(f"any:{token}".encode()).decode()

    def check(status: int, path: str, authorization: str | None = None) -> None:
        headers = {"Authorization": authorization} if authorization else {}
        answer = site.client(None).post(path, content=b"m,device=influx-auth a=1", headers=headers)
        assert answer.status_code == status, answer.text

    check(204, "/write", f"Token {token}")
    check(204, "/write", f"Bearer {token}")
    check(204, "/write", f"Basic {basic}")
    check(204, f"/write?db=any&u=any&p={token}")
    check(204, "/api/v2/write", f"Token {token}")
    check(401, f"/api/v2/write?u=any&p={token}")
    check(401, "/write?u=any&p=wrong")
    check(401, "/write", "Basic !!!")


def test_an_empty_body_is_fine_and_changes_nothing(site: Site) -> None:
    assert site.client(Role.WRITE).post("/write", content=b"").status_code == 204
    assert site.client(Role.WRITE).post("/write", content=b"\n# a comment\n\n").status_code == 204


def test_a_device_token_writes_lines_of_its_device_only(site: Site) -> None:
    body = f"m,device={OWN_DEVICE} mine=1\nm,device=another theirs=1\n"
    answer = site.client(Role.DEVICE).post("/write", content=body)
    assert answer.status_code == 400
    assert "dropped=1" in answer.json()["message"]
    assert site.values(OWN_DEVICE)["m_mine"] == 1.0
    assert site.client().get("/v1/devices/another").status_code == 404


def test_ping_needs_no_token(site: Site) -> None:
    for answer in (site.client(None).get("/ping"), site.client(None).head("/ping")):
        assert answer.status_code == 204
        assert answer.headers["X-Influxdb-Version"]
