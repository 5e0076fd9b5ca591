"""A hot device injected into a running server shows within one interval, at the right range, wherever keys are shown."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from system.conftest import Site, config_at, now_ms
from system.test_help_examples import examples as in_help
from widerow.cli.commands import app
from widerow.model.token import Role
from widerow.ops.keyspace import EVERY_S
from widerow.server.routes import HEALTH
from widerow.server.run import running
from widerow.service import Service

FLEET = [f"press-{i:04d}" for i in range(2_000)]
HOT = "press-0777"
KEY = f"acme/{HOT}"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service.open(config_at(tmp_path_factory.mktemp("widerow"))) as service:
        yield service


def send(site: Site, devices: list[str]) -> None:
    at = now_ms() - len(devices)
    body = "\n".join(f"m,device={device} x=1.5 {at + i}" for i, device in enumerate(devices))
    answer = site.client(Role.WRITE).post("/api/v2/write", params={"precision": "ms"}, content=body)
    assert answer.status_code == 204, answer.text


def asked(client: httpx.Client, **params: Any) -> Any:
    answer = client.get("/v1/admin/keyspace", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def heat(site: Site, *options: str) -> str:
    result = CliRunner().invoke(
        app, ["keys", "heat", "--server", site.url, "--token", site.token(Role.OPERATOR), *options], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    return result.stdout


def of_hot(view: dict[str, Any]) -> dict[str, Any]:
    (found,) = [one for one in view["ranges"] if one["start"] <= KEY and (one["stop"] is None or one["stop"] > KEY)]
    return dict(found)


def test_a_hot_device_shows_within_one_interval_at_the_right_range(site: Site) -> None:
    operator = site.client(Role.OPERATOR)
    for _ in range(3):
        send(site, FLEET)
    calm = asked(operator)
    assert calm["writes"]["count"] == 3 * len(FLEET)
    assert of_hot(calm)["keys"] > 1

    began, interval_s = time.monotonic(), calm["interval_s"]
    assert interval_s == EVERY_S
    for _ in range(4):
        send(site, [*FLEET[::8], *[HOT] * 1_000])
    view = asked(operator)
    assert time.monotonic() - began < interval_s
    hottest = view["writes"]["hottest"][0]
    assert (hottest["key"], hottest["tenant"], hottest["device"]) == (KEY, "acme", HOT)
    assert abs(hottest["count"] - 4_003) <= hottest["error"]
    own = of_hot(view)
    assert (own["start"], own["keys"]) == (KEY, 1)
    assert abs(sum(own["writes"]) - 4_003) <= own["writes_error"]
    assert view["writes"]["skew"] > 10 * calm["writes"]["skew"]

    drawn = heat(site).splitlines()
    (line,) = [line for line in drawn if line.startswith(f"{KEY} ")]
    assert "█" in line
    assert sum("█" in one for one in drawn) == 1
    assert any(one.rstrip().endswith(KEY) and "±" in one for one in drawn[len(view["ranges"]) // 4 :])
    assert of_hot(json.loads(heat(site, "--json", "--ranges", "512")))["start"] == KEY


def test_a_device_that_is_read_often_shows_as_well(site: Site) -> None:
    reader, operator = site.client(Role.READ), site.client(Role.OPERATOR)
    send(site, FLEET)
    for _ in range(20):
        assert reader.get("/v1/devices/press-1234/latest").status_code == 200
        assert reader.get("/v1/devices/press-1234/series").status_code == 200
    assert reader.post("/v1/query", json={"devices": FLEET[:100], "step": "1m"}).status_code == 200
    reads = asked(operator)["reads"]
    assert reads["count"] == 140
    assert (reads["hottest"][0]["device"], reads["hottest"][0]["count"], reads["hottest"][0]["error"]) == (
        "press-1234",
        40,
        0,
    )
    assert "acme/press-1234" in heat(site, "--what", "reads")


def test_a_part_of_the_key_space_is_shown_in_finer_ranges(site: Site) -> None:
    operator = site.client(Role.OPERATOR)
    for _ in range(5):
        send(site, FLEET)
    part = asked(operator, start="acme/press-10", stop="acme/press-11", ranges=8, minutes=2)
    assert 1 <= len(part["minutes"]) <= 2
    assert 2 < len(part["ranges"]) <= 8
    assert part["ranges"][0]["stop"] > "acme/press-1000"
    assert part["ranges"][-1]["start"] < "acme/press-11"
    assert asked(operator, tenant="umbra")["writes"]["hottest"] == []
    assert asked(operator, tenant="acme")["ranges"]


def test_a_process_that_only_writes_shows_its_key_space_too(site: Site) -> None:
    with running(site.service, routes=HEALTH) as url:
        headers = {"Authorization": f"Bearer {site.token(Role.OPERATOR)}"}
        with httpx.Client(base_url=url, headers=headers, timeout=30) as worker:
            assert asked(worker)["interval_s"] == EVERY_S
            assert worker.get("/v1/devices?tenant=acme").status_code == 404
        assert httpx.get(f"{url}/v1/admin/keyspace").status_code == 401


def test_a_live_map_is_drawn_again_until_it_is_interrupted(site: Site) -> None:
    send(site, FLEET)
    command = [sys.executable, "-m", "widerow.cli.main", "keys", "heat", "--live", "--server", site.url, "--ranges", "4"]
    env = {**os.environ, "WIDEROW_TOKEN": site.token(Role.OPERATOR)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        frames = 0
        while frames < 2:
            frames += process.stdout.readline().startswith("writes from ")
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait(30) == 0


def test_the_examples_of_the_help_run(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIDEROW_URL", site.url)
    monkeypatch.setenv("WIDEROW_TOKEN", site.token(Role.OPERATOR))
    send(site, FLEET)
    examples = [one for one in in_help() if one.startswith("widerow keys heat") and "--live" not in one]
    assert len(examples) == 2
    for example in examples:
        result = CliRunner().invoke(app, shlex.split(example)[1:], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        assert "acme/press" in result.stdout, example


def test_a_question_may_name_what_no_device_may_be_called(site: Site) -> None:
    reader = site.client(Role.READ)
    for name in ('"' + "x" * 500_000 + '"', '"\\ud800"', '"\\u0000"', '""'):
        answer = reader.post("/v1/latest", content=f'{{"devices": [{name}]}}', headers={"Content-Type": "application/json"})
        assert answer.status_code in (200, 400, 404), answer.text
    assert asked(site.client(Role.OPERATOR))["reads"]["count"] >= 0


def test_nonsense_is_refused(site: Site) -> None:
    operator = site.client(Role.OPERATOR)
    for name, value in (("minutes", "0"), ("minutes", "61"), ("ranges", "x"), ("end", "b")):
        answer = operator.get("/v1/admin/keyspace", params={name: value})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "parameter"), name


def test_a_store_without_a_server_says_that_nothing_was_counted(tmp_path_factory: pytest.TempPathFactory) -> None:
    store = f"rocksdb:{tmp_path_factory.mktemp('unserved') / 'store'}"
    assert CliRunner().invoke(app, ["tenant", "create", "acme", "--store", store]).exit_code == 0
    result = CliRunner().invoke(app, ["keys", "heat", "--store", store])
    assert (result.exit_code, result.stdout) == (0, "")
    assert "nothing was written or read there since" in result.stderr
