"""The guide "Telegraf": its own commands and configuration, and lines that Telegraf sent, recorded in `telegraf.lp`."""

from __future__ import annotations

import gzip
import json
import re
import shlex
import tomllib
from base64 import b64encode
from collections import defaultdict
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from reference.line import decode
from system.conftest import Site, now_ms
from widerow.cli.commands import app
from widerow.codec.line import LineNaming
from widerow.model.batch import CellKind
from widerow.model.labels import parted
from widerow.model.token import Role

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "guides" / "telegraf.md").read_text()
RECORDED = (Path(__file__).parent / "telegraf.lp").read_text()
NAMING = LineNaming(device_tags=("host",), attribute_tags=("datacenter", "rack"))

Points = dict[tuple[str, str], set[tuple[int, str]]]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)


COMMANDS = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("widerow ")]
CURL = next(block for block in blocks("sh") if block.startswith("curl"))
OUTPUTS: dict[str, dict[str, Any]] = {
    name: settings for block in blocks("toml") for name, (settings,) in tomllib.loads(block).get("outputs", {}).items()
}


def run(site: Site, command: str) -> str:
    arguments = [*shlex.split(command)[1:], "--server", site.url, "--token", site.token(Role.OPERATOR)]
    told = CliRunner().invoke(app, arguments)
    assert told.exit_code == 0, told.output
    return told.stdout


def sent(site: Site, output: str, token: str, body: str) -> httpx.Response:
    """As that output of Telegraf sends it."""
    settings = {name: str(value).replace("$WIDEROW_TOKEN", token) for name, value in OUTPUTS[output].items()}
    if output == "influxdb_v2":
        path = "/api/v2/write"
        params = {"bucket": settings["bucket"], "org": settings["organization"]}
        authorization = f"Token {settings['token']}"
    else:
        path, params = "/write", {"db": settings["database"], "consistency": "any"}
        login = f"{settings['username']}:{settings['password']}"
        authorization = f"Basic {b64encode(login.encode()).decode()}"
    headers = {"Authorization": authorization, "Content-Encoding": "gzip", "Content-Type": "text/plain; charset=utf-8"}
    return site.client(None).post(path, params=params, content=gzip.compress(body.encode()), headers=headers)


@pytest.fixture(scope="module")
def stored(site: Site) -> Points:
    """Run the commands that prepare the tenant and send two hosts' lines of a minute ago by both outputs: what lines say."""
    sets = [command for command in COMMANDS if " set " in command and "--series" not in command]
    assert len(sets) == 2
    for command in sets:
        run(site, command)
    token = run(site, next(c for c in COMMANDS if "token create" in c)).split()[0]
    shift = (now_ms() - 60_000) * 1_000_000 - max(int(time) for time in re.findall(r" (\d{19})$", RECORDED, re.MULTILINE))
    lines = re.sub(r" (\d{19})$", lambda found: f" {int(found[1]) + shift}", RECORDED, flags=re.MULTILINE)
    other = lines.replace("host=web-1", "host=web-2,rack=r7").replace(",host=", ",datacenter=north,host=")
    for output, body in (("influxdb_v2", lines), ("influxdb", other), ("influxdb", lines)):
        assert sent(site, output, token, body).status_code == 204
    points: Points = defaultdict(set)
    for body in (lines, other):
        rows, refused = decode(body.encode(), NAMING)
        assert not refused
        for row in rows:
            for name, kind, value in row.cells:
                if kind != CellKind.TAG:
                    points[row.device, name].add((row.time_us, value))
    return points


def read(site: Site, device: str, metrics: str) -> Points:
    params = {"metrics": metrics, "start": "-1h", "epoch": "us"}
    answer = site.client(Role.READ).get(f"/v1/devices/{device}/series", params=params)
    assert answer.status_code == 200, answer.text
    series = answer.json()["series"]
    assert len({one["metric"] for one in series}) == len(series)
    return {
        (one["device"], one["metric"]): {(time, v if isinstance(v, str) else repr(float(v))) for time, v in one["points"]}
        for one in series
    }


def of(stored: Points, device: str, plain: str, **labels: str) -> Points:
    """What lines say of the variants of a metric that have these labels."""
    return {
        (owner, metric): points
        for (owner, metric), points in stored.items()
        if owner == device and parted(metric)[0] == plain and labels.items() <= parted(metric)[1].items()
    }


def test_every_line_is_stored_and_a_plain_name_reads_its_variants_apart(site: Site, stored: Points) -> None:
    plain = {(device, parted(metric)[0]) for device, metric in stored}
    assert len(plain) > 2 * 80
    for device, name in plain:
        assert read(site, device, name) == of(stored, device, name)
    assert len(of(stored, "web-1", "cpu_usage_idle")) == len(of(stored, "web-1", "disk_used")) == 3
    assert len(of(stored, "web-1", "net_bytes_recv")) == len(of(stored, "web-1", "diskio_reads")) == 2
    letters = site.client(Role.ADMIN).get("/v1/deadletters").json()
    assert letters["letters"] == []


@pytest.mark.usefixtures("stored")
def test_each_kind_of_field_is_read_as_it_was_sent(site: Site) -> None:
    def check(metric: str, *want: str) -> None:
        ((_, points),) = read(site, "web-1", metric).items()
        assert [value for _, value in sorted(points)] == [*want]

    check("mqtt_consumer_open{topic=plant/7/state}", "1.0", "1.0")
    check("press_jam{line=L 7}", "0.0", "0.0")
    check("mqtt_consumer_note{topic=plant/7/state}", *['a "b", c=d'] * 2)
    check("press_cycles{topic=plant/7/lp,line=L 7}", *["4000000000.0"] * 2)
    check("net_speed{interface=eth0}", "-1.0", "-1.0")
    check("system_uptime_format", " 0:31", " 0:31")


def test_a_label_chooses_variants(site: Site, stored: Points) -> None:
    labelled = [metric for device, metric in stored if device == "web-1" and parted(metric)[1]]
    assert len(labelled) > 80
    for first in range(0, len(labelled), 40):  # names with labels, separated by commas outside of braces
        some = labelled[first : first + 40]
        assert read(site, "web-1", ",".join(some)) == {("web-1", metric): stored["web-1", metric] for metric in some}
    assert read(site, "web-2", "disk_used{path=/}") == of(stored, "web-2", "disk_used", path="/")
    assert read(site, "web-2", "disk_used{mode=rw,fstype=ext4}") == of(stored, "web-2", "disk_used", fstype="ext4")


@pytest.mark.usefixtures("stored")
def test_global_tags_are_attributes(site: Site) -> None:
    params = {"metrics": "mem_used", "tags": "true"}
    answer = site.client(Role.READ).get("/v1/devices/web-2/series", params=params).json()
    assert [point[2] for point in answer["series"][0]["points"]] == [{"datacenter": "north", "rack": "r7"}] * 2


def test_the_questions_of_the_guide_are_answered(site: Site, stored: Points) -> None:
    def check(command: str, want: set[tuple[str, str]]) -> None:
        (written,) = [one for one in COMMANDS if command in one]
        asked.add(written)
        answer = json.loads(run(site, f"{written} --json"))
        series = answer if isinstance(answer, list) else answer["series"]
        assert {(next(iter(one.get("group", one).values())), one["metric"]) for one in series} == want

    asked: set[str] = set()
    used = set(of(stored, "web-1", "disk_used"))
    root = set(of(stored, "web-1", "disk_used", path="/"))
    paths = {(parted(metric)[1]["path"], "disk_used_percent") for _, metric in used}
    check("latest web-1", used)
    check("disk_used,mem_used", used | {("web-1", "mem_used")})
    check("'disk_used{path=/}'", root)
    check("cpu_usage_idle{cpu=cpu-total}", root | {("web-1", "cpu_usage_idle{cpu=cpu-total}")})
    check("--group-by path", paths)
    check("fleet series", {(cpu, "cpu_usage_idle") for cpu in ("cpu0", "cpu1", "cpu-total")})
    (by_interface,) = [one for one in COMMANDS if "--group-by interface" in one]
    answer = json.loads(run(site, f"{by_interface} --json"))["series"]
    assert [(one["group"]["interface"], one["points"][0][1]) for one in answer] == [("eth0", 2), ("lo", 2)]
    assert {one for one in COMMANDS if one.split()[1] in ("latest", "query", "fleet")} == asked | {by_interface}
    url = re.search(r'"\$URL(\S+)"', CURL)
    assert url is not None
    params = dict(text.split("=", 1) for text in re.findall(r"--data-urlencode '(.+?)'", CURL))
    answer = site.client(Role.READ).get(url[1], params=params).json()["series"]
    assert {(one["device"], one["metric"]) for one in answer} == root
    for command in COMMANDS:
        if "deadletters" in command or "--series" in command:
            run(site, command)
