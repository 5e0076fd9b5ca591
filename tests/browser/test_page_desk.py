"""The dashboard's views for operators and admins in a real browser: they show what was written, and do what they say."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from browser.conftest import PHONE, WIDE, Look, rows, show
from system.conftest import Site, now_ms
from widerow.model.token import Role

SCRIPT = "<img src=x onerror=alert(1)>"
VIEWS = {
    "#/tenants": ".stat, td",
    "#/keys": ".view-keys table",
    "#/alerts": "h2 >> text=Resolved",
    "#/letters": ".state, td",
    "#/system": ".view-system .state, .view-system .facts",
}
"""With what is there when a view is."""


def write(site: Site, *reports: dict[str, Any], tenant: str = "acme", status: int = 204) -> None:
    answer = site.client(Role.WRITE, tenant).post("/v1/write", json=list(reports))
    assert answer.status_code == status, answer.text


def get(site: Site, path: str, role: Role = Role.OPERATOR, **parameters: Any) -> Any:
    answer = site.client(role).get(path, params=parameters)
    assert answer.status_code == 200, answer.text
    return answer.json()


def patch(site: Site, **change: Any) -> None:
    answer = site.client(Role.OPERATOR).patch("/v1/admin/tenants/acme", json=change)
    assert answer.status_code == 200, answer.text


# -- dead letters


def test_a_dead_letter_is_counted_and_shown_with_what_cannot_be_seen(site: Site, look: Look) -> None:
    body = b'{"device": "press-1", "note": "\x1b[31m\xe2\x80\xae' + SCRIPT.encode() + b'"\n oops'
    answer = site.client(Role.WRITE).post("/v1/write", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    with look("#/letters?code=syntax") as page:
        counts = {code: int(count.split()[0]) for code, _, count in rows(page, "Letters by reason")}
        letters = get(site, "/v1/deadletters", Role.ADMIN)["letters"]
        assert counts == {"syntax": sum(letter["code"] == "syntax" for letter in letters)}
        page.get_by_role("cell", name="JSON").first.click()
        shown = page.locator("pre.body")
        escapes = {"\x1b": "\\x1b", "\u202e": "\\u202e", "\n": "\\n\n"}
        assert shown.text_content() == "".join(escapes.get(letter, letter) for letter in body.decode())
        assert page.locator("pre img").count() == 0
        assert "the body cannot be read" in page.locator("dl").text_content()
        assert "the body is not JSON" in page.locator("main .notice").text_content()


def test_letters_are_sent_again_after_their_consequence_is_told(site: Site, look: Look) -> None:
    patch(site, registers_devices=False)
    write(site, {"device": "stranger-7", "time": now_ms(), "values": {"temperature": 41.5}}, status=422)
    patch(site, registers_devices=True)
    with look("#/letters?code=unknown-device") as page:
        assert "stranger-7" in rows(page, "Dead letters")[0][2]
        page.get_by_role("button", name="Send again").click()
        told = page.locator("dialog").text_content()
        assert "Send 1 letter again?" in told
        assert "1 report goes into the tenant acme" in told
        assert "refused again stay" in told
        page.locator("dialog").get_by_role("button", name="Send again").click()
        page.locator(".notice", has_text="1 letter stored, with 1 report.").wait_for()
        page.locator(".state", has_text="No report was refused as unknown-device").wait_for()
    assert site.values("stranger-7") == {"temperature": 41.5}


def test_letters_that_are_refused_again_say_why_and_can_be_deleted(site: Site, look: Look) -> None:
    write(site, {"device": "press-1", "time": now_ms() + 9 * 86_400_000, "values": {"t": 1}}, status=422)
    with look("#/letters?code=future") as page:
        page.get_by_role("button", name="Send again").click()
        page.locator("dialog").get_by_role("button", name="Send again").click()
        page.locator(".notice", has_text="1 letter refused again: time ").wait_for()
        assert rows(page, "Dead letters")[0][6].startswith("1")
        page.get_by_role("button", name="Delete").click()
        page.locator("dialog").get_by_role("button", name="Cancel").click()
        assert len(get(site, "/v1/deadletters", Role.ADMIN, code="future")["letters"]) == 1
        page.get_by_role("button", name="Delete").click()
        page.locator("dialog").get_by_role("button", name="Delete").click()
        page.locator(".notice", has_text="1 letter is removed.").wait_for()
    assert get(site, "/v1/deadletters", Role.ADMIN, code="future")["letters"] == []


# -- tenants and limits


def test_a_tenant_shows_its_use_against_its_limits(site: Site, look: Look) -> None:
    write(site, *({"device": f"counted-{i}", "time": now_ms(), "values": {"t": 1.0}} for i in range(8)))
    patch(site, limits={"devices": 100, "storage_bytes": 1 << 30, "series": 400}, limit_modes={"series": "shadow"})
    while not get(site, "/v1/usage", tenant="acme")["series"]:  # they are counted from the store first
        time.sleep(0.1)
    with look("#/tenants", Role.OPERATOR) as page:
        # Devices are known at once; bytes and series come with an answer of their own.
        page.locator("td", has_text=re.compile(r"^\d.* of 1 GiB")).first.wait_for()
        row = next(row for row in rows(page, "Tenants") if row[0].startswith("acme"))
        use = get(site, "/v1/usage", tenant="acme", start="-1h")
        assert row[2] == f"{use['devices']} of 100"
        assert row[4] == f"{use['series']} of 400 shadow"
        page.get_by_role("link", name="acme").click()
        stats = page.locator(".stat", has_text="Devices")
        stats.get_by_text(f"{use['devices']}", exact=True).wait_for()
        assert stats.locator("em").text_content() == f"{use['devices']}% of 100"
        page.reload()
        page.locator(".stat", has_text=re.compile(r"Series.*of 400, shadow")).wait_for()


def test_a_limit_is_tried_before_it_is_saved(site: Site, look: Look) -> None:
    with look("#/tenants?tenant=acme", Role.OPERATOR) as page:
        page.locator("#limit-devices").fill("2")
        told = page.locator(".limit", has=page.locator("#limit-devices")).locator(".told")
        told.get_by_text("over it now by").wait_for()
        devices = get(site, "/v1/usage", tenant="acme")["devices"]
        assert told.text_content() == f"over it now by {devices - 2}: nothing new is taken"
        page.locator("#limit-writes_per_s").fill("1")
        seen = site.client(Role.OPERATOR).post("/v1/admin/tenants/acme/whatif", json={"limits": {"writes_per_s": 1}}).json()
        told = page.locator(".limit", has=page.locator("#limit-writes_per_s")).locator(".told")
        told.get_by_text("of").wait_for()
        writes = seen["writes"]
        wanted = f"{writes['refused']} of {writes['offered']} reports refused" if writes["refused"] else "none of"
        assert told.text_content().startswith(wanted)
        assert get(site, "/v1/admin/tenants/acme")["limits"]["devices"] == 100
        page.locator("#limit-devices").fill("1k")
        page.locator("#limit-writes_per_s").fill("")
        page.get_by_role("button", name="Save limits").click()
        page.locator("dialog", has_text="Devices: 100 becomes 1,000.").get_by_role("button", name="Save limits").click()
        expect(page.locator("#limit-devices")).to_have_value("1000")
    assert get(site, "/v1/admin/tenants/acme")["limits"]["devices"] == 1000


def test_a_change_by_somebody_else_is_not_overwritten(site: Site, look: Look) -> None:
    with look("#/tenants?tenant=acme", Role.OPERATOR, refusals="412") as page:
        page.locator("#limit-devices").fill("500")
        page.locator(".told", has_text="it fits").wait_for()
        patch(site, limits={"devices": 700})
        page.get_by_role("button", name="Save limits").click()
        page.locator("dialog").get_by_role("button", name="Save limits").click()
        page.locator("[role=alert]", has_text="Somebody else changed this tenant").wait_for()
    assert get(site, "/v1/admin/tenants/acme")["limits"]["devices"] == 700


# -- the key space


@pytest.fixture(scope="module")
def hot(site: Site) -> str:
    """A device with nearly all writes, and a name that is markup."""
    at = now_ms()
    for k in range(4):
        write(site, *({"device": SCRIPT, "time": at - k * 1000 - i, "values": {"t": 1.0}} for i in range(1000)))
    write(site, *({"device": f"calm-{i}", "time": at, "values": {"t": 1.0}} for i in range(50)))
    write(site, {"device": "umbra-only", "time": at, "values": {"t": 1.0}}, tenant="umbra")
    return SCRIPT


def test_the_hottest_key_is_named_with_its_share(site: Site, look: Look, hot: str) -> None:
    with look("#/keys", Role.OPERATOR) as page:
        key, share, count = rows(page, "The keys with the most writes")[0]
        use = get(site, "/v1/admin/keyspace")["writes"]
        first = use["hottest"][0]
        assert key == first["key"] == f"acme/{hot}"
        assert float(share.removesuffix("%")) == pytest.approx(100 * first["count"] / use["count"], rel=0.02)
        assert count == f"{first['count']:,.0f} ± {first['error']:,.0f}"
        assert page.locator("main img").count() == 0
        page.get_by_role("button", name="Reads").click()
        expect(page.locator("h1")).to_contain_text("devices read")
        page.reload()
        expect(page.get_by_role("button", name="Reads")).to_have_attribute("aria-pressed", "true")


def split_off(site: Site, page: Any, key: str) -> tuple[list[list[str]], int]:
    """The ranges, and the place of the one that has this key alone: a range is split when it goes on being written."""
    for k in range(40):
        page.locator("details summary").click()
        table = rows(page, "Ranges of keys")
        places = [i for i, row in enumerate(table) if row[0] == key]
        if places:
            return table, places[0]
        at, device = now_ms(), key.partition("/")[2]
        write(site, *({"device": device, "time": at - i, "values": {"t": float(k)}} for i in range(100)))
        page.wait_for_timeout(1000)
        page.reload()
    raise AssertionError(table)


def test_the_pointer_and_the_arrow_keys_tell_range_minute_and_count(site: Site, look: Look, hot: str) -> None:
    with look("#/keys", Role.OPERATOR) as page:
        table, at = split_off(site, page, f"acme/{hot}")
        canvas = page.locator("canvas.heat")
        box = canvas.bounding_box()
        canvas.hover(position={"x": box["width"] - 2, "y": box["height"] * (at + 0.5) / len(table)})
        readout = page.locator(".heat-readout")
        told = readout.text_content()
        assert re.search(rf"^\d\d:\d\d  acme/{re.escape(hot)}: [\d,]+ writes in this minute", told), told
        assert f"{table[at][2].split()[0]} " in told
        canvas.focus()
        page.keyboard.press("ArrowDown")
        expect(readout).not_to_have_text(told)


def test_a_range_is_zoomed_into_and_out_of(site: Site, look: Look, hot: str) -> None:
    with look("#/keys?start=acme%2Fcalm-1&stop=acme%2Fcalm-3", Role.OPERATOR) as page:
        page.locator("details summary").click()
        ranges = get(site, "/v1/admin/keyspace", start="acme/calm-1", stop="acme/calm-3")["ranges"]
        assert len(rows(page, "Ranges of keys")) == len(ranges)
        assert page.locator(".crumbs").text_content().endswith("acme/calm-1 to before acme/calm-3")
        page.get_by_role("link", name="All keys").click()
        page.locator("td", has_text=hot).first.wait_for()
        page.go_back()
        page.locator(".crumbs", has_text="calm-3").wait_for()


# -- the system


def test_the_system_shows_the_process_and_the_last_changes(site: Site, look: Look) -> None:
    patch(site, display_name=f"Acme {SCRIPT}")
    with look("#/system", Role.OPERATOR) as page:
        status = get(site, "/v1/status")
        expect(page.locator("h1")).to_contain_text(f"Widerow {status['version']}")
        last = rows(page, "What admins and operators did")[0]
        assert last[3:5] == ["changed the tenant", f'display_name: "" -> Acme {SCRIPT}']
        levels = [row[0] for row in rows(page, "Levels of rollups")]
        assert len(levels) == len(status["rollups"]["levels"])
        assert page.locator("dd", has_text="none is running").count() == 1
        page.locator("td", has_text="Commit").wait_for()
    patch(site, display_name="")


# -- what all of them keep


@pytest.mark.usefixtures("hot")
def test_a_reader_sees_its_own_and_no_button_that_changes_anything(look: Look) -> None:
    with look("#/tenants", Role.READ) as page:
        for view, there in VIEWS.items():
            show(page, view)
            page.locator(there).first.wait_for()
            shown = page.locator("body").inner_text()
            assert "umbra" not in shown, view
            assert not re.search("Save|Send again|Delete|Acknowledge|Silence", shown), view
            assert page.locator("main form, main input").count() == 0, view


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.usefixtures("hot")
def test_views_fit_a_phone(look: Look, tmp_path: Path, theme: str) -> None:
    with look("#/tenants", Role.OPERATOR, theme=theme) as page:
        assert page.evaluate("document.documentElement.dataset.theme") == theme
        for view, there in {
            **VIEWS,
            "#/tenants?tenant=acme": ".limit",
            "#/letters?tenant=acme": ".view-letters .grid",
        }.items():
            show(page, view)
            page.locator(there).first.wait_for()
            for name, size in (("phone", PHONE), ("wide", WIDE)):
                page.set_viewport_size(size)
                page.screenshot(path=tmp_path / f"{re.sub('[^a-z]+', '-', view[2:])}-{name}.png", full_page=True)
                assert page.evaluate("document.documentElement.scrollWidth") <= size["width"], view
