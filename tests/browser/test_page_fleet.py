"""The overview, the devices and the fleet on the dashboard, in a real browser: what they show is what was written."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from playwright.sync_api import expect

from browser.conftest import Look, rows, show
from system.conftest import Site, now_ms
from widerow.model.token import Role

TYPES = ("press", "oven")
HALLS = ("Hall 1", "Hall 2", "Hall 3")
DEVICES = 60
MINUTE_MS, HOUR_MS = 60_000, 3_600_000


def name(number: int) -> str:
    return f"{TYPES[number % 2]}-{number:03}"


@pytest.fixture(scope="module", autouse=True)
def written(site: Site) -> None:
    """Sixty devices; `power` of a device is its number in the present hour, and half of it in the hour before."""
    devices = [
        {"name": name(i), "type": TYPES[i % 2], "location": HALLS[i % 3], "tags": {"line": f"L{i % 4}"}}
        for i in range(DEVICES)
    ]
    assert site.client(Role.ADMIN).post("/v1/devices/batch", json={"devices": devices}).status_code == 200
    now = now_ms()
    before = now - now % HOUR_MS - HOUR_MS
    reports = [{"device": name(i), "time": now - i, "values": {"power": float(i), "state": "run"}} for i in range(DEVICES)]
    older = [{"device": name(i), "time": before + i, "values": {"power": i / 2}} for i in range(DEVICES)]
    assert site.client(Role.WRITE).post("/v1/write", json=older + reports).status_code == 204
    assert site.client(Role.ADMIN).patch("/v1/metrics/power", json={"unit": "kW"}).status_code == 200


# -- overview


def test_the_overview_shows_the_figures_of_the_server(site: Site, look: Look) -> None:
    with look("#/overview", Role.READ) as page:
        told = site.client(Role.READ).get("/v1/overview").json()
        online = page.locator("[data-figure=devices_online]")
        expect(online).to_have_text(f"{told['figures']['devices_online']['now']:.0f}of {told['devices']['total']}")
        expect(page.locator("#count-devices")).to_have_text(str(told["devices"]["total"]))
        expect(page.locator("main h1")).to_have_text(re.compile("All is well|attention"))
        expect(page.get_by_role("heading", name="Stages")).to_be_hidden()


def test_the_overview_names_what_was_refused(site: Site, look: Look) -> None:
    ahead = {"device": name(0), "time": now_ms() + 9 * 24 * HOUR_MS, "values": {"power": 1}}
    assert site.client(Role.WRITE).post("/v1/write", json=[ahead] * 5).status_code == 422
    until_s = time.monotonic() + 20
    while not site.client(Role.READ).get("/v1/overview").json()["refusals"]:
        assert time.monotonic() < until_s
        time.sleep(0.2)
    with look("#/overview", Role.READ) as page:
        chart = page.locator("section", has_text="Refused").locator(".chart")
        expect(chart).to_have_attribute("aria-label", re.compile("future"))


def test_an_operators_overview_has_stages_tenants_and_the_store(look: Look) -> None:
    with look("#/overview", Role.OPERATOR) as page:
        stages = [stage for stage, _ in rows(page, "Stages")]
        assert stages == ["Decode", "Check and admit", "Commit", "Sync to disk", "Roll up"]
        expect(page.locator("main")).to_contain_text("MQTT and Kafka: not used")
        assert "acme" in [row[0] for row in rows(page, "Tenants")]
        expect(page.locator("main")).to_contain_text("in memory; this process started at")
        page.get_by_role("link", name="acme", exact=True).click()
        expect(page.get_by_label("Tenant", exact=True)).to_have_value("acme")
        assert page.url.endswith("#/overview?tenant=acme")


# -- devices


def shown(page: Any) -> list[str]:
    """The names in the list."""
    page.locator("main tbody a").first.wait_for()
    names: list[str] = page.locator("main tbody a").all_text_contents()
    return names


def test_devices_are_found_as_one_types_and_the_words_are_in_the_address(look: Look) -> None:
    with look("#/devices") as page:
        page.get_by_role("link", name=name(0)).wait_for()
        page.get_by_label("Find devices").press_sequentially("oven-01")
        expect(page.locator("main tbody tr")).to_have_count(5)
        assert sorted(shown(page)) == [f"oven-0{i}" for i in range(11, 20, 2)]
        assert "q=oven-01" in page.url
        expect(page.get_by_label("Find devices")).to_be_focused()
        page.get_by_label("Find devices").fill("")
        expect(page.locator("main tbody tr")).to_have_count(50)
        page.get_by_label("Type").select_option("press")
        page.get_by_label("Location").select_option("Hall 2")
        expect(page.locator("main tbody tr")).to_have_count(10)
        page.get_by_label("Tags").fill("line:L0")
        page.get_by_label("Tags").press("Enter")
        wanted = [name(i) for i in range(DEVICES) if i % 2 == 0 and i % 3 == 1 and i % 4 == 0]
        expect(page.locator("main tbody tr")).to_have_count(len(wanted))
        assert shown(page) == wanted
        page.reload()
        assert shown(page) == wanted
        page.get_by_role("button", name="Clear").click()
        expect(page.locator("main tbody tr")).to_have_count(50)
        page.get_by_label("Find devices").fill("nothing like this")
        expect(page.locator("main .state")).to_have_text("No device matches these words and filters.")


def test_devices_are_paged_in_the_order_of_the_store_while_the_list_to_sort_is_made(
    site: Site, look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {name(i) for i in range(DEVICES)}
    with look("#/fleet", refusals="503") as page:
        with monkeypatch.context() as patch:
            patch.setattr(site.service.catalog.directories, "at_hand", lambda *_: None)
            show(page, "#/devices")
            first = set(shown(page))
            assert len(first) == 50
            page.get_by_role("button", name="Next").click()
            expect(page.locator("main .pages")).to_contain_text("Page 2, 10 devices")
            assert {*first, *shown(page)} == names
        page.reload()
        assert set(shown(page)) == names - first  # the order stays what it was
        page.get_by_role("button", name="name").click()
        expect(page.locator("main tbody tr")).to_have_count(50)
        assert shown(page) == sorted(names)[:50]


def test_devices_are_sorted_and_paged_forth_and_back(look: Look) -> None:
    names = sorted(name(i) for i in range(DEVICES))
    with look("#/devices") as page:
        assert shown(page) == names[:50]
        page.get_by_role("button", name="Next").click()
        expect(page.locator("main .pages")).to_contain_text("Page 2, 10 devices")
        assert shown(page) == names[50:]
        page.reload()
        assert shown(page) == names[50:]
        page.get_by_role("button", name="Back").click()
        expect(page.locator("main .pages")).to_contain_text("Page 1")
        assert shown(page) == names[:50]
        page.get_by_role("button", name="name").click()
        expect(page.locator("th[aria-sort=descending]")).to_have_text(re.compile("name"))
        assert shown(page) == names[:-51:-1]
        page.get_by_role("button", name="last seen").click()
        expect(page.locator("th[aria-sort=descending]")).to_have_text(re.compile("last seen"))
        assert "sort=-last_seen" in page.url
        assert shown(page)[0] == name(0)


def test_devices_say_when_they_reported_last_and_in_which_state_they_are(site: Site, look: Look) -> None:
    devices = {"devices": [{"name": "a-new"}, {"name": "b-seen"}]}
    answer = site.client(Role.ADMIN, "umbra").post("/v1/devices/batch", json=devices)
    assert answer.status_code == 200
    site.write("b-seen", {"state": "run"}, tenant="umbra")
    with look("#/devices", tenant="umbra") as page:
        new, seen = rows(page, "Devices")
        assert (new[3], new[5]) == ("never", "never reported")
        assert re.fullmatch(r"now|\d+ s ago", seen[3])
        assert seen[5] == "online"
        page.get_by_role("button", name="Silent").click()
        expect(page.locator("main tbody tr")).to_have_count(1)
        assert shown(page) == ["a-new"]
        assert "state=stale" in page.url
        page.get_by_role("button", name="All").click()
        site.write("a-new", {"state": "run"}, tenant="umbra")
        expect(page.locator("tr", has_text="a-new").locator(".state-of")).to_have_text("online", timeout=15_000)
        page.locator("tr", has_text="a-new").locator("td").nth(4).click()
        expect(page.locator("main h1")).to_contain_text("a-new")


# -- fleet


def test_the_fleet_shows_means_of_all_devices_and_those_at_the_top(look: Look) -> None:
    with look("#/fleet?metric=power&range=24h") as page:
        mean = sum(range(DEVICES)) / DEVICES
        expect(page.locator("table", has_text="over the span").locator("tbody tr")).to_have_text(f"power{mean:g}kW")
        assert rows(page, "Devices at the top")[0] == [name(59), "44.25kW"]
        chart = page.locator("main .chart").first
        expect(chart).to_have_attribute("aria-label", re.compile(r"mean [\d.]+ kW"))
        expect(page.locator("main .chart").nth(1)).to_have_attribute("aria-label", re.compile(f"devices {DEVICES} "))
        page.get_by_role("button", name="smallest mean").click()
        expect(page.locator("table", has_text=name(0)).first).to_be_visible()
        assert rows(page, "Devices at the top")[0] == [name(0), "0kW"]
        assert "top=min" in page.url


def test_the_fleet_by_type_and_by_location_has_a_line_for_each(look: Look) -> None:
    with look("#/fleet?metric=power") as page:
        legend = page.locator("main .legend").first
        page.get_by_role("button", name="By type").click()
        expect(legend).to_have_text("ovenpress")
        page.get_by_role("button", name="By location").click()
        expect(legend).to_have_text("".join(HALLS))
        page.reload()
        expect(legend).to_have_text("".join(HALLS))


def test_a_fleet_without_numbers_says_so(look: Look) -> None:
    with look("#/fleet", tenant="umbra") as page:
        expect(page.locator("main")).to_contain_text("No device of this tenant has sent a number yet.")


# -- news


def test_the_overview_changes_as_devices_come_and_tabs_share_one_stream(site: Site, look: Look) -> None:
    streams: list[str] = []
    with look("#/overview", Role.READ) as page:
        page.locator("header .live", has_text="live").wait_for()
        other = page.context.new_page()
        other.on("request", lambda one: streams.append(one.url) if "/v1/live" in one.url else None)
        other.goto(f"{site.url}/#token={site.token(Role.READ)}")
        other.locator("header .live", has_text="live").wait_for()
        before = int(page.locator("#count-devices").text_content())
        site.write("comes-now", {"state": "run"})
        for tab in (page, other):
            expect(tab.locator("#count-devices")).to_have_text(str(before + 1), timeout=15_000)
        assert streams == []
        page.goto("about:blank")
        site.write("comes-later", {"state": "run"})
        expect(other.locator("#count-devices")).to_have_text(str(before + 2), timeout=15_000)
        assert len(streams) == 1, "the tab that stays reads on"
