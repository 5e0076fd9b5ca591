"""The dashboard's view of alerts in a real browser: what fires, rules that are tried before they are saved, and webhooks."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from browser.conftest import Look, rows, show
from browser.test_page_desk import SCRIPT, get, write
from system.conftest import Site, now_ms
from widerow.alerts.alert import Alert
from widerow.alerts.state import State
from widerow.model.token import Role


def fire(site: Site, rule: str, *, tenant: str = "acme", device: str = "press-1", value: float = 93.2) -> str:
    """An alert as the judge of rules sees it."""
    now_us = site.service.clock.now_us()
    alert = Alert(tenant=tenant, rule=rule, state="pending", since_us=now_us, device=device, value=value, threshold=80.0)
    site.service.alerts.board.saw(alert, State.FIRING, now_us)
    return alert.id


def button(page: Any, name: str) -> Any:
    return page.get_by_role("button", name=name)


def test_an_alert_is_shown_acknowledged_and_silenced(site: Site, look: Look) -> None:
    fire(site, "hot-oil", device=SCRIPT)
    fire(site, "elsewhere", tenant="umbra")
    with look("#/alerts") as page:
        [row] = rows(page, "Alerts that fire")
        assert row[0].startswith("hot-oil")
        assert (row[1], row[2]) == (f"{SCRIPT} acme", "93.2 limit 80")
        assert row[3].startswith("firing since ")
        button(page, "Acknowledge").click()
        page.get_by_label("Note").fill("a fitter is on the way")
        page.locator("dialog").get_by_role("button", name="Acknowledge").click()
        page.locator("td", has_text="a fitter is on the way").wait_for()
        button(page, "Silence").click()
        page.get_by_label("For").select_option("4h")
        page.get_by_label("Comment").fill("in the workshop")
        page.locator("dialog").get_by_role("button", name="Silence").click()
        assert rows(page, "Silences")[0][:2] == ["hot-oil", SCRIPT]
        [alert] = get(site, "/v1/alerts", Role.READ)["alerts"]
        assert (alert["acknowledged"]["note"], alert["silenced"]) == ("a fitter is on the way", True)
        assert rows(page, "Alerts that fire")[0][3].startswith("silenced since ")
        button(page, "End").click()
        expect(page.locator("caption", has_text="Silences")).to_have_count(0)
        button(page, "History").click()
        assert rows(page, "When alerts fired")[0][1].startswith("hot-oil")
        page.reload()
        assert rows(page, "When alerts fired")[0][4] == "93.2"
        assert "umbra" not in page.locator("body").inner_text()


@pytest.fixture(scope="module")
def oil(site: Site) -> str:
    """A metric that was above 80 for ten minutes of the last half hour, and 60 otherwise."""
    start = now_ms() // 60_000 - 30
    values = [(start + k, 90.0 if 10 <= k < 20 else 60.0) for k in range(30)]
    write(site, *({"device": "press-7", "time": minute * 60_000, "values": {"oil": value}} for minute, value in values))
    return "oil"


def test_a_rule_is_tried_while_it_is_typed_then_saved_changed_and_deleted(site: Site, look: Look, oil: str) -> None:
    with look("#/alerts?show=rules") as page:
        button(page, "Add a rule").click()
        page.get_by_label("Name").fill("hot-oil")
        page.get_by_label("Metric").fill(oil)
        page.get_by_label("Value").fill("80")
        page.get_by_label("About").select_option("device")
        page.get_by_label("Device", exact=True).fill("press-7")
        page.locator("p", has_text="Tried on 1 device. It would have fired 1 time, and sent 2 notices.").wait_for()
        rule = {"name": "hot-oil", "kind": "threshold", "metric": oil, "above": 80, "device": "press-7"}
        tried = site.client().post("/v1/alerts/rules/preview", json=rule).json()
        assert [row[1:] for row in rows(page, "What the rule would have done")] == [
            ["fires" if event["state"] == "firing" else "is resolved", "press-7", f"{event['value']:g}"]
            for event in tried["events"]
        ]
        page.locator(".chart[aria-label*='oil of press-7']").wait_for()
        assert get(site, "/v1/alerts/rules", Role.READ)["rules"] == []
        button(page, "Add rule").click()
        assert rows(page, "Rules")[0][:3] == ["hot-oil", "the mean of oil over 1m is above 80", "press-7"]
        [stored] = get(site, "/v1/alerts/rules", Role.READ)["rules"]
        assert (stored["above"], stored["device"], stored["severity"]) == (80, "press-7", "warning")
        page.reload()
        page.get_by_role("link", name="hot-oil").click()
        page.get_by_label("Value").fill("85")
        page.get_by_label("Severity").select_option("critical")
        button(page, "Save rule").click()
        page.locator("td", has_text="is above 85").wait_for()
        assert get(site, "/v1/alerts/rules", Role.READ)["rules"][0]["severity"] == "critical"
        page.get_by_role("link", name="hot-oil").click()
        button(page, "Delete").click()
        assert "hot-oil" in page.locator("dialog").text_content()
        page.locator("dialog").get_by_role("button", name="Delete").click()
        page.locator(".state", has_text="There are no rules yet").wait_for()
    assert get(site, "/v1/alerts/rules", Role.READ)["rules"] == []


def test_what_is_wrong_with_a_rule_is_said_in_the_servers_words(look: Look) -> None:
    with look("#/alerts?show=rules&rule=%2B", refusals="400") as page:
        page.get_by_label("Name").fill("Not A Name")
        page.get_by_label("Fires when").select_option("quota")
        page.get_by_label("Percent used").fill("90")
        button(page, "Add rule").click()
        page.locator("[role=alert]", has_text="name: give 1 to 64 of").wait_for()


def test_a_webhook_is_added_tested_and_deleted(site: Site, look: Look) -> None:
    with look("#/alerts?show=webhooks") as page:
        button(page, "Add a webhook").click()
        page.get_by_label("Name").fill("ops")
        page.get_by_label("Address").fill(f"{site.url}/v1/write")
        page.get_by_label("Secret").fill("do-not-tell")
        page.locator("dialog").get_by_role("button", name="Add").click()
        assert rows(page, "Webhooks")[0][:3] == ["ops", f"{site.url}/v1/write", "signed"]
        button(page, "Test").click()
        page.locator(".notice.bad", has_text="ops did not take the notice: ").wait_for()
        button(page, "Delete").click()
        page.locator("dialog").get_by_role("button", name="Delete").click()
        page.locator(".state", has_text="No webhook is set up").wait_for()
        assert "do-not-tell" not in page.content()


def test_a_reader_may_look_at_a_rule_and_try_it_but_not_change_it(site: Site, look: Look, oil: str) -> None:
    rule = {"kind": "threshold", "metric": oil, "above": 80, "fleet": True}
    site.client().put("/v1/alerts/rules/oil", json=rule).raise_for_status()
    fire(site, "oil")
    with look("#/alerts", Role.READ) as page:
        assert rows(page, "Alerts that fire")[0][0].startswith("oil")
        show(page, "#/alerts?show=rules&rule=oil")
        page.locator("p", has_text="It would have fired 1 time").wait_for()
        expect(page.get_by_label("Value")).to_be_disabled()
        shown = page.locator("body").inner_text()
        for word in ("Acknowledge", "Silence", "Save", "Delete", "Add a"):
            assert word not in shown
    site.client().delete("/v1/alerts/rules/oil").raise_for_status()
