"""Chromium, the system's package, driven by Playwright: a browser for the pages that we write.

Rule 1: it has no network but loopback and files. A page that asks for anything else is told of in `Visit.requests`.
Rule 2: a browser is not a server: it is started for a module of tests and ends with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from .cache import Say, say
from .mosquitto import program

# The tests run as root in containers, where Chromium's own sandbox cannot start; the pages are ours.
_LOOPBACK: Final = "MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1"
_OPTIONS: Final = ["--no-sandbox", "--disable-dev-shm-usage", f"--host-resolver-rules={_LOOPBACK}"]


def fetch(_tell: Say = say) -> Path:
    """The program. It is the system's to install. Raises Missing."""
    return program("chromium", package="chromium")


@dataclass
class Visit:
    """A page that is open, and what it did: requests, errors of its scripts, lines of its console."""

    page: Any
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Chromium:
    """`visit(address)` opens a page. For `with`: it is closed behind."""

    browser: Any

    @contextmanager
    def visit(self, address: str, **options: Any) -> Iterator[Visit]:
        context = self.browser.new_context(**options)
        try:
            page = context.new_page()
            visit = Visit(page)
            page.on("request", lambda request: visit.requests.append(request.url))
            page.on("pageerror", lambda error: visit.complaints.append(str(error)))
            page.on(
                "console", lambda line: visit.complaints.append(line.text) if line.type in ("error", "warning") else None
            )
            page.goto(address)
            yield visit
        finally:
            context.close()


@contextmanager
def chromium() -> Iterator[Chromium]:
    """A browser without a window."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - a second to import, for a few tests

    path = fetch()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(path), args=_OPTIONS)
        try:
            yield Chromium(browser)
        finally:
            browser.close()
