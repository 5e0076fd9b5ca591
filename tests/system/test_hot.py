"""A sensor gone mad among healthy ones: found, limited, spread, sampled, cooled; and nothing that was accepted is lost.

As small as will do, since it runs in real time; `WIDEROW_HOT_FULL=1` has it with 10,000 healthy devices and 1,000 reports a
second of the mad one, on every engine.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from awake import Running
from system.conftest import ENGINES, Site, config_at, stored
from widerow.admit.controls import What
from widerow.cli.commands import app
from widerow.config import Hot, Time
from widerow.model.times import SECOND, format_time, parse_rfc3339
from widerow.model.token import Role
from widerow.service import Service

INTERVAL_S, TICK_S = 1, 0.1
FULL = bool(os.environ.get("WIDEROW_HOT_FULL"))
HEALTHY = 10_000 if FULL else 300
PERIOD_TICKS = 100
MOST_BEHIND_S = 0.25
"""Healthy devices report every ten seconds, as the mad one should."""


@pytest.fixture(scope="module", params=ENGINES[1:])
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Short intervals, and epochs that begin soon."""
    config = replace(
        stored(request, config_at(tmp_path_factory.mktemp("widerow"))),
        hot=Hot(interval_s=INTERVAL_S, cool_intervals=2),
        time=Time(max_future_s=1, refresh_s=1),
    )
    with Service.open(config) as service:
        yield service


@dataclass
class Fleet:
    """Sends what is due, in real time, and remembers what became of it."""

    writer: httpx.Client
    mad_per_s: int
    tick: int = 0
    started: float = field(default_factory=time.monotonic)
    steady_since: float = field(default_factory=time.monotonic)
    """Since when it has sent at its rate."""
    mad_kept: set[int] = field(default_factory=set)
    mad_refused: dict[int, str] = field(default_factory=dict)
    healthy_kept: dict[str, int] = field(default_factory=dict)

    def run(self, until: Callable[[], bool], at_most_s: float, *, mad: bool = True) -> None:
        running, stop = Running(), time.monotonic() + at_most_s
        while not until():
            assert time.monotonic() < stop or running.seconds() < at_most_s, "it took too long"
            self._send(mad=mad)
            self.tick += 1
            self._await_tick()

    def report_once(self) -> int:
        """The mad one is as it should be again. Gives the time of its report."""
        time_us = time.time_ns() // 1000
        report = {"device": "mad", "time": time_us, "values": {"x": 1.5}}
        assert self.writer.post("/v1/write", params={"precision": "us"}, json=[report]).status_code == 204
        self.mad_kept.add(time_us)
        return time_us

    def _await_tick(self) -> None:
        """What is far behind is not made up for: that would be another rate."""
        wait_s = self.started + self.tick * TICK_S - time.monotonic()
        if wait_s < -MOST_BEHIND_S:
            self.started -= wait_s
            self.steady_since = time.monotonic()
        time.sleep(max(0.0, wait_s))

    def _send(self, *, mad: bool) -> None:
        now_us = time.time_ns() // 1000
        count = int(self.mad_per_s * TICK_S) if mad else 0
        step_us = int(TICK_S * SECOND) // max(count, 1)
        names = ["mad"] * count + [f"good-{i:05}" for i in range(self.tick % PERIOD_TICKS, HEALTHY, PERIOD_TICKS)]
        first_us = (now_us - SECOND // 10) // step_us * step_us + self.tick % step_us  # no two ticks share one, however late
        times = [first_us + i * step_us for i in range(count)] + [now_us] * (len(names) - count)
        reports = [{"device": d, "time": t, "values": {"x": 1.5}} for d, t in zip(names, times, strict=True)]
        if not reports:
            return
        answer = self.writer.post("/v1/write", params={"precision": "us"}, json=reports)
        assert answer.status_code in (204, 207, 422, 429), answer.text
        refusals = answer.json()["refusals"] if answer.content else []
        codes = {refusal["index"]: refusal["code"] for refusal in refusals}
        assert all(index < count for index in codes), "a healthy one was refused"
        for index, (name, time_us) in enumerate(zip(names, times, strict=True)):
            if index in codes:
                self.mad_refused[time_us] = codes[index]
            elif name == "mad":
                self.mad_kept.add(time_us)
            else:
                self.healthy_kept[name] = self.healthy_kept.get(name, 0) + 1


def test_a_sensor_gone_mad(site: Site) -> None:
    operator, reader, controls = site.client(Role.OPERATOR), site.client(Role.READ), site.service.controls
    allowed = operator.patch("/v1/admin/tenants/acme", json={"hot_steps": {"sample": "auto"}})
    assert allowed.status_code == 200, allowed.text
    described = [{"name": name, "profile": {"reports_per_s": 0.1}} for name in ["mad", *good_names()]]
    for start in range(0, len(described), 5000):
        body = {"devices": described[start : start + 5000]}
        assert operator.post("/v1/devices/batch", params={"tenant": "acme"}, json=body).status_code == 200
    on_disk = site.service.config.store.url.startswith("rocksdb")
    fleet = Fleet(site.client(Role.WRITE), 1000 if FULL or on_disk else 300)
    fleet.run(lambda: fleet.tick == 2, 30, mad=False)
    for path in ("/v1/devices/good-00000/latest", "/v1/hot"):  # so that none of them is slow for the first time below
        assert reader.get(path).status_code == 200
    fleet.started = time.monotonic() - fleet.tick * TICK_S

    def said(what: What, value: Callable[[float], bool] = bool) -> Callable[[], bool]:
        return lambda: any(fact.what is what and value(fact.value) for fact in controls.story("acme", "mad"))

    began_us, running = time.time_ns() // 1000, Running()
    fleet.run(said(What.HOT), 10)
    (hot,) = controls.story("acme", "mad")[-1:]
    late_s = running.stood_still_s()
    assert hot.created_us < began_us + (2 * INTERVAL_S + 0.5 + late_s) * SECOND, "within two intervals"
    fleet.run(said(What.HOT_RATE), 5)
    fleet.run(said(What.SPREAD), 5)
    fleet.run(said(What.SAMPLE), 5)
    (spread,) = [fact for fact in controls.story("acme", "mad") if fact.what is What.SPREAD]
    fleet.run(lambda: time.time_ns() // 1000 > spread.from_us + SECOND, 10)
    fleet.run(lambda: time.monotonic() > fleet.steady_since + 3 * INTERVAL_S, 60)
    shown = reader.get("/v1/hot", params={"device": "mad"}).json()["hot"]
    assert [(one["device"], sorted(one["steps"])) for one in shown] == [("mad", ["limit", "sample", "spread"])]
    assert shown[0]["reports_per_s"] == pytest.approx(fleet.mad_per_s, rel=0.5)
    assert reader.get("/v1/devices/mad/latest").json()["sampled"][0]["end"] is None
    fleet.run(said(What.HOT, lambda value: value == 0), 20, mad=False)
    gathered = site.service.telemetry.places.epochs("acme", "mad")[-1]
    fleet.run(lambda: time.time_ns() // 1000 > gathered.from_us + SECOND, 10, mad=False)
    last_us = fleet.report_once()
    assert last_us > gathered.from_us

    (span,) = controls.sampled("acme")["mad"]
    assert span.stop_us is not None
    sampled = {t for t, code in fleet.mad_refused.items() if code == "sampled"}
    known_us = span.start_us + SECOND // 2  # what was under way when it was decided was not sampled
    inside = {t for t in fleet.mad_kept | fleet.mad_refused.keys() if known_us <= t < span.stop_us}
    assert 0.05 < len(inside - sampled) / len(inside) < 0.15
    assert {code for t, code in fleet.mad_refused.items() if t < span.start_us - SECOND} == {"hot-rate"}
    check_readable(site, reader, fleet, began_us)
    check_told(site, fleet)


def good_names() -> list[str]:
    return [f"good-{i:05}" for i in range(HEALTHY)]


def check_readable(site: Site, reader: httpx.Client, fleet: Fleet, began_us: int) -> None:
    """Every report that was accepted, on both sides of the epoch; and all that healthy devices sent."""
    span = {"start": format_time(began_us - 60 * SECOND), "end": "now"}
    found: list[int] = []
    cursor: str | None = None
    while True:
        asked: dict[str, Any] = {**span, "limit": 5000, "epoch": "us", **({"after": cursor} if cursor else {})}
        page = reader.get("/v1/devices/mad/series", params=asked).json()
        assert [one["rate"] for one in page["sampled"]] == [0.1]
        found += [point[0] for one in page["series"] for point in one["points"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert len(found) == len(set(found))
    assert set(found) == fleet.mad_kept
    spread, gathered = site.service.telemetry.places.epochs("acme", "mad")
    assert spread.sub_buckets > gathered.sub_buckets == 1
    inside = [time_us for time_us in fleet.mad_kept if spread.from_us <= time_us < gathered.from_us]
    assert inside, "some are in the partitions it was spread over"
    assert max(fleet.mad_kept) >= gathered.from_us, "and some in those that it has again"
    counts: dict[str, Any] = {}
    names = good_names()
    for start in range(0, len(names), 5000):
        question = {"devices": names[start : start + 5000], "metrics": ["x"], "agg": ["count"], **span}
        answer = reader.post("/v1/query", json=question)
        assert answer.status_code == 200, answer.text
        counts |= {one["device"]: one["points"][0][1] for one in answer.json()["series"]}
    assert counts == fleet.healthy_kept


def check_told(site: Site, fleet: Fleet) -> None:
    """One command has the whole story."""
    arguments = ["hot", "--tenant", "acme", "--server", site.url, "--token", site.token(Role.READ)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    lines = [line for line in result.stdout.splitlines() if "acme/mad" in line]
    words = ("hot: ", "limited to 1 reports/s", "spread over", "sampled: 10% kept", "limited to")
    back = ("no longer sampled", "limited to 1 reports/s", "no longer limited", "no longer spread from", "cooled")
    assert len(lines) == len(words) + len(back), result.stdout
    assert all(word in line for word, line in zip((*words, *back), lines, strict=True)), result.stdout
    assert "its profile's 0.1 allow 1" in lines[0]
    times = [parse_rfc3339(line.split()[0]) for line in lines]
    assert times == sorted(times)
    metrics = site.client(Role.OPERATOR).get("/metrics").text
    assert 'widerow_hot_turns_total{tenant="acme",turn="cooled"} 1.0' in metrics
    assert f'widerow_reports_refused_total{{code="sampled",tenant="acme"}} {fleet_sampled(fleet)}' in metrics


def fleet_sampled(fleet: Fleet) -> float:
    return float(sum(code == "sampled" for code in fleet.mad_refused.values()))


def test_steps_are_pinned_and_forbidden_over_http(site: Site) -> None:
    admin, path = site.client(Role.ADMIN), "/v1/devices/pinned/controls"
    site.write("pinned", {"x": 1.0})
    held = admin.patch(path, json={"limit": 2, "sample": "forbid"})
    assert held.status_code == 200, held.text
    assert held.json()["limit"] == {"mode": "pin", "value": 2.0}
    assert held.json()["sample"] == {"mode": "forbid", "value": None}
    start_us = time.time_ns() // 1000
    reports = [{"device": "pinned", "time": start_us - i, "values": {"x": i}} for i in range(30)]
    answer = site.client(Role.WRITE).post("/v1/write", params={"precision": "us"}, json=reports)
    assert answer.status_code == 207
    first = answer.json()["refusals"][0]
    assert (first["code"], first["limit"], first["allowed"], first["seen"]) == ("hot-rate", "hot_reports_per_s", 2, 30)
    assert answer.json()["accepted"] == 20
    (shown,) = site.client(Role.READ).get("/v1/hot", params={"device": "pinned"}).json()["hot"]
    assert (shown["since"], shown["steps"], shown["modes"]["sample"]) == (None, {"limit": 2.0}, "forbid")
    assert admin.patch(path, json={"limit": "auto", "sample": None}).json()["limit"] == {"mode": "auto", "value": None}
    assert site.client(Role.READ).get("/v1/hot", params={"device": "pinned"}).json()["hot"] == []
    for wrong in ({"limit": 0}, {"sample": 1}, {"spread": 1000}, {"limit": True}, {"limit": "maybe"}, {"other": 1}):
        assert admin.patch(path, json=wrong).status_code == 400, wrong
    assert admin.patch("/v1/devices/nobody/controls", json={"limit": 1}).status_code == 404
    assert site.client(Role.READ).patch(path, json={"limit": 1}).status_code == 403
    assert site.client(Role.READ, "umbra").get("/v1/hot").json() == {"hot": [], "story": []}
