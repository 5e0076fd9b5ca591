"""The page of `widerow keys simulate --html` in a real browser: it shows each key and its shares, and asks for nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from servers.chromium import Chromium, Visit
from widerow.cli.commands import app

BAD, GOOD = "timestamp#sensor", "{tenant}#{device}#{reversed:13}"


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "heat.html"
    result = CliRunner().invoke(app, ["keys", "simulate", BAD, GOOD, "--hours", "3", "--html", str(file)])
    assert result.exit_code == 0, result.output
    return file


def check_quiet(visit: Visit, file: Path) -> None:
    assert visit.complaints == []
    assert [request for request in visit.requests if not request.startswith("data:")] == [file.as_uri()]


def test_the_page_opens_without_requests_or_complaints(browser: Chromium, page_file: Path, tmp_path: Path) -> None:
    with browser.visit(page_file.as_uri()) as visit:
        assert visit.page.title() == "Row keys compared"
        assert visit.page.locator("svg text", has_text=BAD).count() == 1
        assert visit.page.locator("td", has_text=GOOD).count() == 1
        assert "the busiest of 8 nodes takes 100%" in visit.page.locator("svg").text_content()
        visit.page.screenshot(path=tmp_path / "heat.png", full_page=True)
        check_quiet(visit, page_file)


def test_the_pointer_tells_the_key_range_and_its_share(browser: Chromium, page_file: Path) -> None:
    with browser.visit(page_file.as_uri()) as visit:
        box = visit.page.locator("svg g g").first.bounding_box()
        visit.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        told = visit.page.locator("#at").text_content()
        assert "UTC" in told
        assert "% of all writes" in told
        visit.page.mouse.move(2, 2)
        check_quiet(visit, page_file)


def test_the_page_fits_a_phone(browser: Chromium, page_file: Path) -> None:
    with browser.visit(page_file.as_uri(), viewport={"width": 390, "height": 800}) as visit:
        width = visit.page.evaluate("document.documentElement.scrollWidth")
        assert width <= 390, "nothing has to be scrolled sideways"
        check_quiet(visit, page_file)
