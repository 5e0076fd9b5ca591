"""The demo's history, its story and its limits, through the API of a real server."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from system.conftest import config_at
from widerow.cli.actors import Actor, began_us, cast, describe_metrics, prepare, set_limits
from widerow.cli.api import Api, in_path
from widerow.cli.demo_history import fill, missing, resume
from widerow.cli.demo_rules import RULES, set_rules
from widerow.cli.demo_story import play, send_bad_reports
from widerow.cli.demo_tokens import demo_tokens
from widerow.model.times import HOUR, MINUTE, SystemClock
from widerow.server.run import running
from widerow.server.sockets import reachable
from widerow.service import Service

pytestmark = pytest.mark.rest

SPAN_US = 3 * HOUR
CLOCK = SystemClock()


@contextmanager
def demo(folder: Path) -> Iterator[tuple[str, Api, list[Actor]]]:
    """A server as the demo starts it, its API, and the actors of a small fleet."""
    socket = folder / "serve.sock"
    with (
        Service.open(config_at(folder), rolls=True) as service,
        running(service, port=0, socket_path=socket) as url,
        reachable(socket) as path,
        Api.of_socket(path, None, "demo") as api,
    ):
        actors = cast(20, 20, began_us(api, CLOCK.now_us()))
        prepare(api, actors)
        tokens = demo_tokens(api, folder, [("write", actor.tenant) for actor in actors])
        for actor in actors:
            actor.token = tokens["write", actor.tenant]
        resume(api, actors, CLOCK.now_us(), SPAN_US)
        yield url, api, actors


def test_a_history_that_was_interrupted_is_completed_by_the_next_demo(tmp_path: Path) -> None:
    stop = threading.Event()
    with demo(tmp_path) as (url, _, actors):
        wanted = sum(len(body.ticks) * len(body.places) for body in missing(actors, CLOCK.now_us()))
        fill(url, actors, CLOCK, stop, lambda _reports: stop.set())
        assert 0 < sum(actor.acknowledged() for actor in actors) < wanted
        start_us = [actor.past.start_us for actor in actors]
    with demo(tmp_path) as (url, api, actors):
        assert [actor.past.start_us for actor in actors] == start_us
        fill(url, actors, CLOCK, threading.Event(), lambda _reports: None)
        for actor in actors:
            for name in actor.past.names:
                found = api.get(f"/v1/devices/{in_path(name)}/series", tenant=actor.tenant, start="-4h", epoch="us")
                minutes = {(at - actor.past.start_us) // MINUTE for one in found["series"] for at, *_ in one["points"]}
                assert minutes >= set(range(24 * 60 - 179, 24 * 60))
    with demo(tmp_path) as (_, _, actors):
        assert all(actor.filled >= 24 * 60 for actor in actors)


def test_history_and_present_of_the_demo_are_described_and_kept_apart_from_bad_reports(tmp_path: Path) -> None:
    stop = threading.Event()
    with demo(tmp_path) as (url, api, actors):
        fill(url, actors, CLOCK, threading.Event(), lambda _reports: None)
        for actor in actors:
            describe_metrics(api, actor)
        set_limits(api, actors)
        for _ in range(2):
            send_bad_reports(url, api, actors[0], CLOCK)
        before = [actor.acknowledged() for actor in actors]
        wait = play(url, actors, CLOCK, stop)
        time.sleep(2.5)
        stop.set()
        wait()
        assert not any(actor.broken for actor in actors)
        assert all(actor.acknowledged() > old for actor, old in zip(actors, before, strict=True))
        letters = api.get("/v1/deadletters", tenant="acme")["letters"]
        assert {one["code"] for one in letters} == {"future", "too-old", "time", "value-type", "name", "syntax"}
        assert len(letters) == 6
        units = {one["name"]: one["unit"] for one in api.get("/v1/metrics", tenant="acme")["metrics"]}
        assert units["oil_temperature"] == "°C"
        third = api.get("/v1/admin/tenants/initech")
        assert third["limits"]["writes_per_s"] == actors[2].limits["writes_per_s"]


def test_rules_of_the_demo_are_those_of_its_tenants_unless_these_have_some(tmp_path: Path) -> None:
    def names(api: Api, tenant: str) -> list[str]:
        return [rule["name"] for rule in api.get(RULES, tenant=tenant)["rules"]]

    with demo(tmp_path) as (_, api, actors):
        set_rules(api, actors)
        assert [names(api, actor.tenant) for actor in actors] == [["oil-too-warm"], ["silent"], ["writes-near-the-limit"]]
        mine = {"name": "mine", "kind": "offline", "after": "5m", "fleet": True}
        api.ask("PUT", f"{RULES}/mine", body=mine, params={"tenant": "globex"})
        api.delete(f"{RULES}/silent", tenant="globex")
        set_rules(api, actors)
        assert names(api, "globex") == ["mine"]
