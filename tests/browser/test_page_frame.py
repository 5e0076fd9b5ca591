"""The dashboard's frame in a real browser: signing in and out, what a tenant may see, the keyboard, phones, both themes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from browser.conftest import PHONE, WIDE, Look, show
from servers.chromium import Chromium
from system.conftest import Site, now_ms
from widerow.model.token import Role

SCRIPT = "<img src=x onerror=alert(1)>"
VIEWS = (
    "#/overview",
    "#/devices",
    "#/device/press-1",
    "#/fleet",
    "#/tenants",
    "#/keys",
    "#/alerts",
    "#/letters",
    "#/system",
)
OURS = ("#/overview", "#/devices", "#/device/press-1", "#/fleet")
MARK = "umbra-secret"
"""Part of every name that belongs to the other tenant."""


@pytest.fixture(scope="module", autouse=True)
def written(site: Site) -> None:
    describe(site, "acme", name="press-1", type="press", location="Hall 3", tags={"line": "L2"})
    describe(site, "umbra", name=f"{MARK}-1", type=f"{MARK}-type", location=f"{MARK}-hall", tags={MARK: MARK})
    for at in range(5):
        site.write("press-1", {"temperature": 20.5 + at, "state": "run"}, time_ms=now_ms() - 60_000 * at)
        site.write(f"{MARK}-1", {f"{MARK}-metric": 1.0, "state": MARK}, tenant="umbra", time_ms=now_ms() - 60_000 * at)


def describe(site: Site, tenant: str, **device: Any) -> None:
    answer = site.client(Role.ADMIN, tenant).post("/v1/devices/batch", json={"devices": [device]})
    assert answer.status_code == 200, answer.text


# -- signing in


def test_a_token_signs_in_by_the_field_and_signing_out_forgets_it(site: Site, browser: Chromium) -> None:
    with browser.visit(f"{site.url}/") as visit:
        page = visit.page
        page.get_by_label("Token").fill("wr_wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_contain_text("token")
        page.get_by_label("Token").fill(site.token(Role.READ))
        page.keyboard.press("Enter")
        page.locator("nav a", has_text="Devices").wait_for()
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        assert page.evaluate("sessionStorage.length") == 0
        page.reload()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_a_link_with_a_token_works_in_an_open_tab_and_leaves_the_address(site: Site, browser: Chromium) -> None:
    with browser.visit(f"{site.url}/#token={site.token(Role.READ)}") as visit:
        page = visit.page
        page.locator("nav a", has_text="Devices").wait_for()
        assert "token" not in page.url
        assert page.get_by_label("Tenant").count() == 0
        page.evaluate("token => { location.hash = `#token=${token}` }", site.token(Role.OPERATOR))
        page.get_by_label("Tenant", exact=True).wait_for()
        assert "token" not in page.url
        assert page.evaluate("sessionStorage.getItem('widerow-token')") == site.token(Role.OPERATOR)
        assert not any("wr_" in request for request in visit.requests[1:])


def test_a_revoked_token_leads_to_the_sign_in(site: Site, browser: Chromium) -> None:
    operator = site.client(Role.OPERATOR)
    made = operator.post("/v1/admin/tokens", json={"role": "read", "tenant": "acme"}).json()
    with browser.visit(f"{site.url}/#token={made['token']}") as visit:
        show(visit.page, "#/device/press-1")
        assert operator.delete(f"/v1/admin/tokens/{made['id']}").status_code == 204
        expect(visit.page.get_by_role("heading", name="Sign in")).to_be_visible(timeout=15_000)
        assert visit.page.evaluate("sessionStorage.length") == 0


# -- what a tenant may see


def test_a_tenants_token_never_renders_a_byte_of_another_tenant(site: Site, look: Look) -> None:
    bodies: list[str] = []
    with look("#/overview", Role.READ, refusals="404") as page:
        page.on("response", lambda one: bodies.append(one.url + read(one)) if one.url.startswith(site.url) else None)
        for view in VIEWS:
            show(page, view)
            page.wait_for_timeout(250)
            assert MARK not in page.content(), view
        show(page, f"#/device/{MARK}-1")
        expect(page.locator("main .state")).to_contain_text("There is no such device.")
    told = [body for body in bodies if MARK in body and f"/v1/devices/{MARK}-1" not in body]
    assert told == []
    assert sum("/v1/" in body for body in bodies) > 10


def read(response: Any) -> str:
    if "event-stream" in response.headers.get("content-type", ""):
        return ""  # it has no end; its events are the overview's
    try:
        return str(response.text())
    except Exception:  # noqa: BLE001 - the view it belonged to is gone, and so is its body
        return ""


def test_an_operator_chooses_a_tenant_before_its_devices_are_shown(look: Look) -> None:
    with look("#/devices", Role.OPERATOR) as page:
        page.get_by_role("link", name="umbra").click()
        page.get_by_role("link", name=f"{MARK}-1").wait_for()
        assert "tenant=umbra" in page.url
        page.get_by_label("Tenant", exact=True).select_option("acme")
        page.get_by_role("link", name="press-1").wait_for()
        assert page.get_by_role("link", name=f"{MARK}-1").count() == 0


def test_script_in_names_and_values_is_shown_as_text(site: Site, look: Look) -> None:
    describe(site, "acme", name=SCRIPT, type=SCRIPT, location=SCRIPT, tags={SCRIPT: SCRIPT}, display_name=SCRIPT)
    site.write(SCRIPT, {SCRIPT: 1.0, f"{SCRIPT}2": SCRIPT})
    with look("#/devices") as page:
        page.get_by_role("link", name=SCRIPT).click()
        expect(page.locator("main h1")).to_contain_text(SCRIPT)
        expect(page.locator("main .tags")).to_contain_text(f"{SCRIPT}={SCRIPT}")
        page.locator("td", has_text=SCRIPT).first.wait_for()
        for view in ("#/fleet", "#/devices", "#/overview"):
            show(page, view)
        assert page.locator("img").count() == 0


# -- addresses, keys, sizes


def test_reload_and_back_keep_the_view(look: Look) -> None:
    with look("#/overview") as page:
        for view in OURS:
            show(page, f"{view}?range=7d&zone=utc")
            address, title = page.url, page.title()
            page.reload()
            show(page, f"{view}?range=7d&zone=utc")
            assert (page.url, page.title()) == (address, title)
            expect(page.locator("header .zone")).to_have_text("UTC")
            show(page, "#/keys")
            page.go_back()
            show(page, f"{view}?range=7d&zone=utc")
            assert page.url == address


def test_an_address_without_a_view_says_so(look: Look) -> None:
    with look("#/overview") as page:
        page.evaluate("location.hash = '#/nowhere'")
        expect(page.locator("main .state")).to_contain_text("no view nowhere")


def test_a_slash_leads_to_the_search_and_arrows_to_what_it_found(look: Look) -> None:
    with look("#/overview") as page:
        page.keyboard.press("/")
        expect(page.get_by_label("Find a device")).to_be_focused()
        page.keyboard.type("press-1")
        page.locator(".popover a", has_text="press-1").wait_for()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        expect(page.locator("main h1")).to_contain_text("press-1")
        show(page, "#/devices")
        page.keyboard.press("/")
        expect(page.get_by_label("Find devices")).to_be_focused()


def test_the_tab_key_reaches_everything_that_can_be_used(look: Look) -> None:
    everything = "a[href], button:not(:disabled), input:not(:disabled), select:not(:disabled), textarea"
    with look("#/device/press-1") as page:
        page.locator("main input[type=checkbox]").first.wait_for()
        page.locator("body").evaluate("body => { document.activeElement.blur() }")
        wanted = page.locator(everything).evaluate_all("all => all.filter(one => one.offsetParent !== null).length")
        reached = set()
        for _ in range(wanted + 8):
            page.keyboard.press("Tab")
            reached.add(page.evaluate(f"[...document.querySelectorAll('{everything}')].indexOf(document.activeElement)"))
        assert len(reached - {-1}) >= wanted


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", ["wide", "phone"])
def test_a_view_fits_its_screen(look: Look, tmp_path: Path, width: str, theme: str) -> None:
    viewport = WIDE if width == "wide" else PHONE
    with look("#/overview", viewport=viewport, theme=theme) as page:
        for view in OURS:
            show(page, view)
            page.wait_for_timeout(300)  # for the picture: charts are drawn
            page.screenshot(path=tmp_path / f"{re.sub('[^a-z]', '', view)}-{theme}-{width}.png", full_page=True)
            assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"], view
            if view == "#/overview" and width == "wide":
                assert page.evaluate("(main => main.scrollHeight <= main.clientHeight)(document.querySelector('main'))")


def test_the_theme_and_the_zone_can_be_chosen(look: Look) -> None:
    with look("#/overview") as page:
        page.get_by_role("button", name="Light or dark").click()
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        page.reload()
        page.locator("main h1").wait_for()
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        page.locator("header .zone").click()
        expect(page.locator("header .zone")).to_have_text("UTC")
        assert "zone=utc" in page.url
