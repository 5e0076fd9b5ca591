"""Prometheus reads what we expose: promtool accepts it, rules fire and resolve, and a real server scrapes us with them."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from servers.fixtures import had
from servers.prometheus import Prometheus, promtool
from system.conftest import Site, config_at
from widerow.model.token import Role
from widerow.ops.counters import Counters
from widerow.service import Service

RULES = Path("deploy/prometheus/widerow.rules.yml")
RULE_TESTS = Path("deploy/prometheus/widerow.test.yml")
DASHBOARD = Path("deploy/grafana/widerow.json")
WITHIN_S = 30.0


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service.open(config_at(tmp_path_factory.mktemp("widerow"))) as service:
        yield service


def test_rules_and_dashboard_name_metrics_that_exist() -> None:
    names = {
        name
        for family in Counters().registry.collect()
        for name in (family.name, *(f"{family.name}_{end}" for end in ("total", "bucket", "sum", "count")))
    }
    panels = json.loads(DASHBOARD.read_text())["panels"]
    for expression in (RULES.read_text(), *(target["expr"] for panel in panels for target in panel["targets"])):
        used = set(re.findall(r"\bwiderow_[a-z_]+", expression))
        assert used
        assert used <= names, used - names


def test_promtool_accepts_the_metrics(site: Site) -> None:
    tool = had(promtool)
    site.write("press-1", {"a": 1.0})
    text = site.client(Role.SCRAPE).get("/metrics").content
    done = subprocess.run([tool, "check", "metrics"], input=text, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules_are_right_and_each_alert_fires_and_resolves() -> None:
    tool = had(promtool)
    for line in (("check", "rules", str(RULES)), ("test", "rules", str(RULE_TESTS))):
        done = subprocess.run([tool, *line], capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
    tested = RULE_TESTS.read_text()
    alerts = re.findall(r"- alert: (\w+)", RULES.read_text())
    assert len(alerts) == 7
    for alert in alerts:
        assert f"alertname: {alert}\n" in tested, f"{alert} is seen to fire"
        assert f"alertname: {alert}, " in tested, f"{alert} is seen to resolve"


def test_a_real_prometheus_scrapes_us_with_a_scrape_token(site: Site) -> None:
    site.write("press-1", {"a": 1.0, "b": 2.0})
    token = site.token(Role.SCRAPE)
    with had(lambda: Prometheus(site.url.removeprefix("http://"), token, [RULES])) as prometheus:
        until(lambda: prometheus.values("up") == [1.0])
        until(lambda: prometheus.values("sum(widerow_reports_accepted_total)") >= [1.0])
        assert prometheus.values("sum(widerow_commit_reports_sum) / sum(widerow_commit_reports_count)") == [1.0]
        until(lambda: prometheus.values("max(widerow_store_pending_compactions)") == [0.0])
        groups = prometheus.ask("rules")["groups"]
        assert {rule["health"] for group in groups for rule in group["rules"]} <= {"ok", "unknown"}
        assert len([rule for group in groups for rule in group["rules"] if rule["type"] == "alerting"]) == 7


def until(holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < deadline_s, "Prometheus did not see it"
        time.sleep(0.3)
