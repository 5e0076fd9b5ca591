"""Alerts over HTTP: rules and who is told of them, as a tenant and as an operator set them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from system.conftest import Site, config_at, now_ms
from widerow.alerts.alert import OPERATOR, Alert
from widerow.alerts.rule import Rule
from widerow.alerts.state import State
from widerow.config import Alerts, Config, Rollup, Store
from widerow.model.errors import ConfigError
from widerow.model.tenant import Tenant
from widerow.model.times import MINUTE, MS, ManualClock
from widerow.model.token import Role
from widerow.server.run import running
from widerow.service import Service

HOT = {"kind": "threshold", "metric": "temp", "above": 80.0, "clear": 70.0, "fleet": True}


def test_a_rule_that_was_read_can_be_edited_and_sent_back(site: Site) -> None:
    client = site.client()
    made = client.put("/v1/alerts/rules/hot", json=HOT)
    assert (made.status_code, made.headers["ETag"]) == (200, '"1"')
    rule = made.json()
    assert (rule["aggregate"], rule["window"], rule["for"]) == ("mean", "1m", "0s")
    assert (rule["source"], rule["readonly"]) == ("http", False)
    again = client.put("/v1/alerts/rules/hot", json={**rule, "above": 90.0}, headers={"If-Match": '"1"'})
    assert (again.json()["above"], again.json()["revision"]) == (90.0, 2)
    assert client.put("/v1/alerts/rules/hot", json=HOT, headers={"If-Match": '"1"'}).status_code == 412
    assert site.client(Role.READ).get("/v1/alerts/rules").json()["rules"] == [{**again.json(), "readonly": True}]
    assert client.delete("/v1/alerts/rules/hot").status_code == 204
    assert client.get("/v1/alerts/rules").json() == {"rules": []}


def test_a_wrong_rule_is_refused_with_the_name_of_the_key(site: Site) -> None:
    client = site.client()

    def check(change: dict[str, Any], said: str) -> None:
        answer = client.put("/v1/alerts/rules/wrong", json={**HOT, **change})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "field")
        assert said in answer.json()["error"]["message"]

    check({"kind": "often"}, "kind: give one of threshold, offline")
    check({"after": "5m"}, "unknown key 'after': a rule of kind threshold has")
    check({"below": 3}, "above, below: give one of them")
    check({"above": None}, "above, below: give one of them")
    check({"above": "80"}, "above: give a number")
    check({"clear": 90}, "clear: give a number that is at most `above`")
    check({"window": "90s"}, "window: give whole minutes")
    check({"device": "press-1"}, "device, match, fleet: give one of them")
    check({"fleet": None}, "device, match, fleet: give one of them")
    check({"fleet": None, "match": {"color": "red"}}, "match: unknown key 'color'")
    check({"webhooks": ["nobody"]}, "webhooks: there is none named 'nobody'")
    check({"severity": "bad"}, "severity: give one of info, warning, critical")
    check({"name": "other"}, "name is 'other', and the address says 'wrong'")
    built_in = client.put("/v1/alerts/rules/hot_partitions", json=HOT)
    assert "is a built-in alert" in built_in.json()["error"]["message"]
    assert client.get("/v1/alerts/rules").json() == {"rules": []}


def test_a_secret_is_never_shown_and_stays_when_none_is_given(site: Site) -> None:
    client = site.client()
    url = "https://hooks.example.com/T0/private-part"
    made = client.put("/v1/alerts/webhooks/chat", json={"url": url, "secret": "do-not-tell"})
    assert made.json() == {"name": "chat", "url": url, "has_secret": True, "readonly": False, "revision": 1}
    changed = client.put("/v1/alerts/webhooks/chat", json={"url": f"{url}/2"})
    assert changed.json()["has_secret"]
    assert site.service.alerts.book.webhooks("acme")["chat"].secret == "do-not-tell"
    assert "do-not-tell" not in client.get("/v1/alerts/webhooks").text
    log = client.get("/v1/admin/audit").text
    assert "hooks.example.com" in log
    assert "do-not-tell" not in log
    assert "private-part" not in log
    assert client.put("/v1/alerts/rules/hot", json={**HOT, "webhooks": ["chat"]}).status_code == 200
    assert client.delete("/v1/alerts/webhooks/chat").status_code == 409
    client.delete("/v1/alerts/rules/hot")
    assert client.delete("/v1/alerts/webhooks/chat").status_code == 204


def test_a_test_of_a_webhook_at_a_forbidden_address_says_so(site: Site) -> None:
    client = site.client()
    client.put("/v1/alerts/webhooks/inside", json={"url": f"{site.url}/v1/write"})
    answer = client.post("/v1/alerts/webhooks/inside/test").json()
    assert (answer["delivered"], answer["status"]) == (False, None)
    assert "alerts.webhook_networks" in answer["reason"]
    assert client.put("/v1/alerts/webhooks/odd", json={"url": "file:///etc/passwd"}).status_code == 400
    client.delete("/v1/alerts/webhooks/inside")


def fire(site: Site, rule: str = "hot", tenant: str = "acme", device: str = "press-1") -> str:
    now_us = site.service.clock.now_us()
    alert = Alert(tenant=tenant, rule=rule, state="pending", since_us=now_us, device=device, value=90.0, source="builtin")
    site.service.alerts.board.saw(alert, State.FIRING, now_us)
    return alert.id


def test_a_tenant_sees_its_own_alerts_and_an_operator_all(site: Site) -> None:
    ours, theirs, process = fire(site), fire(site, tenant="umbra"), fire(site, "batch_size_avg", "", "")

    def ids(client: Any, **params: Any) -> set[str]:
        return {alert["id"] for alert in client.get("/v1/alerts", params=params).json()["alerts"]}

    assert ids(site.client(Role.READ)) == {ours}
    assert ids(site.client(Role.OPERATOR)) >= {ours, theirs, process}
    assert ids(site.client(Role.OPERATOR), tenant="umbra") == {theirs}
    assert ids(site.client(Role.READ), state="resolved") == set()
    events = site.client(Role.READ).get("/v1/alerts/history").json()["events"]
    assert [(event["tenant"], event["name"], event["state"]) for event in events] == [("acme", "hot", "firing")]
    pages = site.client(Role.OPERATOR).get("/v1/alerts/history", params={"limit": 1}).json()
    assert (len(pages["events"]), bool(pages["next"])) == (1, True)


def test_an_alert_is_acknowledged_and_silenced(site: Site) -> None:
    client, name = site.client(), fire(site)
    seen = client.post(f"/v1/alerts/{name}/acknowledge", json={"note": "on my way"}).json()
    assert seen["acknowledged"]["note"] == "on my way"
    assert seen["acknowledged"]["by"].startswith("token ")
    assert client.post("/v1/alerts/0000000000000000/acknowledge", json={}).status_code == 404
    made = client.post("/v1/alerts/silences", json={"device": "press-1", "until": "+2h", "comment": "repair"})
    assert made.status_code == 201
    assert [alert["silenced"] for alert in client.get("/v1/alerts").json()["alerts"]] == [True]
    assert client.get("/v1/alerts/silences").json()["silences"] == [made.json()]
    assert client.delete(f"/v1/alerts/silences/{made.json()['id']}").status_code == 204
    assert [alert["silenced"] for alert in client.get("/v1/alerts").json()["alerts"]] == [False]
    for until in ("-1h", "+31d"):
        assert client.post("/v1/alerts/silences", json={"until": until}).status_code == 400


def test_a_preview_judges_the_last_day_and_tells_nobody(site: Site) -> None:
    base_ms = (now_ms() // 60_000 - 60) * 60_000
    for minute, value in enumerate([60.0, 85.0, 75.0, 86.0, 65.0, 90.0]):
        site.write("kiln-1", {"heat": value}, time_ms=base_ms + minute * 60_000)
        site.write("kiln-2", {"heat": 50.0}, time_ms=base_ms + minute * 60_000)
    client = site.client(Role.READ)
    found = client.post("/v1/alerts/rules/preview", json={**HOT, "metric": "heat"}).json()
    assert (found["device"], found["threshold"]) == ("kiln-1", 80.0)
    assert [value for _, value in found["points"]] == [60.0, 85.0, 75.0, 86.0, 65.0, 90.0]
    assert [(event["device"], event["state"], event["value"]) for event in found["events"]] == [
        ("kiln-1", "firing", 85.0),
        ("kiln-1", "resolved", 65.0),
        ("kiln-1", "firing", 90.0),
    ]
    assert found["would_notify"] == 3
    gone = client.post("/v1/alerts/rules/preview", json={"kind": "offline", "after": "10m", "device": "kiln-1"}).json()
    assert [event["state"] for event in gone["events"]] == ["firing", "resolved", "firing"]
    quota = client.post("/v1/alerts/rules/preview", json={"kind": "quota", "limit": "devices", "percent": 90})
    assert quota.status_code == 400


# -- the operator's file, and the whole way


FILE = """
[[webhooks]]
name = "ops"
url = "http://127.0.0.1:PORT/notices"
secret = "s"

[[rules]]
tenant = "acme"
name = "too-hot"
kind = "threshold"
metric = "temp"
above = 80
fleet = true
webhooks = ["ops"]
"""


class Receiver(HTTPServer):
    """Refuses the first two notices, and notes those that it takes."""

    def __init__(self) -> None:
        self.asked, self.taken = 0, list[bytes]()
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked += 1
        if self.server.asked > 2:
            self.server.taken.append(body)
        self.send_response(204 if self.server.asked > 2 else 503)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def opened(tmp_path: Path, text: str, clock: ManualClock | None = None, **alerts: Any) -> Service:
    (tmp_path / "rules.toml").write_text(text)
    settings = replace(Alerts(), rules=str(tmp_path / "rules.toml"), **alerts)
    config = Config(store=Store(url="memory:"), alerts=settings, rollup=replace(Rollup(), lateness_s=0))
    return Service.open(config, clock, rolls=True)


def test_a_report_that_is_too_hot_reaches_a_webhook_that_failed_twice(tmp_path: Path, receiver: Receiver) -> None:
    file = FILE.replace("PORT", str(receiver.server_port))
    clock = ManualClock(now_ms() * MS)
    with opened(tmp_path, file, clock, webhook_networks=("127.0.0.0/8",)) as service, running(service) as url:
        service.catalog.tenants.create(Tenant(name="acme"))
        tokens = {role: service.catalog.tokens.create(role, tenant="acme")[0] for role in (Role.WRITE, Role.ADMIN)}
        site = Site(service, url, {("acme", role): token for role, token in tokens.items()}, tmp_path)
        until(lambda: "acme" in service.alerts.watch._rules)
        site.write("press-1", {"temp": 99.0}, time_ms=clock.time_us // MS)
        clock.time_us += MINUTE  # and its minute closes
        until(lambda: bool(receiver.taken))
        assert b'"event":"firing"' in receiver.taken[0]
        assert receiver.asked == 3
        (alert,) = site.client().get("/v1/alerts").json()["alerts"]
        assert (alert["name"], alert["device"], alert["value"], alert["source"]) == ("too-hot", "press-1", 99.0, "toml")
        changed = site.client().put("/v1/alerts/rules/too-hot", json=HOT)
        assert (changed.status_code, "alerts.rules" in changed.text) == (403, True)
        assert site.client().get("/v1/alerts/rules").json()["rules"][0]["readonly"]
        site.close()


def test_a_device_that_falls_silent_is_offline_until_it_reports(tmp_path: Path) -> None:
    rule = '[[rules]]\ntenant = "acme"\nname = "gone"\nkind = "offline"\nafter = "10m"\nfleet = true'
    clock = ManualClock(now_ms() * MS)
    with opened(tmp_path, rule, clock, every_s=60) as service, running(service) as url:
        service.catalog.tenants.create(Tenant(name="acme"))
        token = service.catalog.tokens.create(Role.WRITE, tenant="acme")[0]
        site = Site(service, url, {("acme", Role.WRITE): token}, tmp_path)

        def states_after(minutes: int) -> list[tuple[str, str]]:
            clock.time_us += minutes * MINUTE
            service.alerts.look()
            return sorted((alert.device, alert.state) for alert in service.alerts.current("acme"))

        for device in ("press-1", "press-2"):
            site.write(device, {"a": 1.0}, time_ms=clock.time_us // MS)
        assert states_after(6) == []
        site.write("press-2", {"a": 1.0}, time_ms=clock.time_us // MS)
        assert states_after(6) == [("press-1", "firing")]
        site.write("press-1", {"a": 1.0}, time_ms=clock.time_us // MS - 11 * 60_000)  # of what it kept, nothing recent
        assert states_after(1) == [("press-1", "firing")]
        site.write("press-1", {"a": 1.0}, time_ms=clock.time_us // MS)
        assert states_after(1) == [("press-1", "resolved")]
        site.close()


def test_what_fires_and_what_was_set_survive_a_restart(tmp_path: Path) -> None:
    config = replace(config_at(tmp_path), alerts=Alerts(every_s=60, for_s=0, window_s=1))
    said: list[list[str]] = []
    for hot in (1.0, 1.0, 0.0):
        with Service.open(config, rolls=True) as service:
            if not said:
                service.catalog.tenants.create(Tenant(name="acme"))
                service.alerts.book.set_rule("acme", Rule(name="hot", kind="threshold", metric="temp", above=80.0))
            service.counters.hot_partitions.set(hot)
            for _ in range(2):  # a figure is of two samples
                service.alerts.look()
            assert service.alerts.book.rules("acme")["hot"].threshold == 80.0
            events = service.alerts.store.history(OPERATOR, start_us=0, stop_us=1 << 60)
            said.append([event.state for _, event in events])
    assert said == [["firing"], ["firing"], ["resolved", "firing"]]


def test_a_file_with_a_fault_stops_the_start_and_says_where(tmp_path: Path) -> None:
    def check(text: str, said: str) -> None:
        with pytest.raises(ConfigError, match=said):
            opened(tmp_path, text).close()

    file = FILE.replace("PORT", "80")
    check(file.replace("above", "abovee"), "rule 1: unknown key 'abovee'")
    check(file.replace('"ops"]', '"nobody"]'), "webhooks: the file has none named nobody")
    check(file.replace("http://", "ftp://"), "webhook 1: url")
    check("[[rule]]", r"unknown section rule; known are \[\[rules\]\]")
    check("nonsense", "is not TOML")


def until(holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
