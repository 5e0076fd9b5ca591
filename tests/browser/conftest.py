"""A served store for the dashboard's tests, and a look at a view of it with a token.

Rule: a look ends with what every view has to keep: no complaint in the console, and no request to another host.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeAlias

import pytest

from servers.chromium import Chromium
from system.conftest import Site, config_at, served
from widerow.model.token import Role
from widerow.service import Service

WIDE = {"width": 1360, "height": 880}
PHONE = {"width": 390, "height": 844}
Look: TypeAlias = Callable[..., AbstractContextManager[Any]]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("page")
    with Service.open(config_at(folder)) as service, served(service, folder / "serve.sock") as site:
        yield site


def show(page: Any, view: str) -> None:
    """Go to a view, such as `#/letters`, and wait until it is there."""
    page.evaluate("view => { location.hash = view }", view)
    page.locator(f"main .view-{re.split('[/?]', view)[1]} h1").wait_for()


def rows(page: Any, caption: str) -> list[list[str]]:
    """The cells of the table whose caption begins so."""
    body = page.locator("table", has=page.locator("caption", has_text=re.compile(f"^{caption}"))).locator("tbody tr")
    body.first.wait_for()
    cells = "rows => rows.map(row => [...row.cells].map(cell => cell.textContent.trim()))"
    found: list[list[str]] = body.evaluate_all(cells)
    return found


@pytest.fixture
def look(browser: Chromium, site: Site) -> Look:
    """A view as an admin of acme sees it, or as `role` and `tenant` say, for `with`. It gives the page."""

    @contextmanager
    def looking(
        view: str,
        role: Role = Role.ADMIN,
        tenant: str = "acme",
        *,
        viewport: dict[str, int] = WIDE,
        theme: str = "light",
        refusals: str = "no refusal is expected",
    ) -> Iterator[Any]:
        start = f"{site.url}/#token={site.token(role, tenant)}"
        with browser.visit(start, viewport=viewport, color_scheme=theme) as visit:
            visit.page.locator("nav a[aria-current]").wait_for()
            show(visit.page, view)
            yield visit.page
            # Chromium complains of each answer that is an error; `refusals` are those that the test asks for.
            assert [words for words in visit.complaints if refusals not in words] == []
            assert [address for address in visit.requests if not address.startswith(site.url)] == []

    return looking
