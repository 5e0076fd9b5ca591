"""The dashboard's page as it is served: its policy, its files, and nothing from elsewhere."""

from __future__ import annotations

import re

import pytest

from system.conftest import Site
from widerow.server.page import PAGE, assets

pytestmark = pytest.mark.about_http

OURS = sorted(name for name in assets() if not name.startswith("uPlot"))
WEIGHT = 300 << 10


def test_the_page_runs_files_of_this_server_and_nothing_else(site: Site) -> None:
    answer = site.client(None).get("/")
    policy = dict(rule.split(" ", 1) for rule in answer.headers["Content-Security-Policy"].split("; "))
    assert answer.headers["Content-Type"].startswith("text/html")
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert not re.search(r"<script>|<style|\son\w+=|style=", answer.text)


@pytest.mark.parametrize("name", OURS)
def test_a_file_of_the_page_makes_no_markup_of_text_and_names_no_other_host(name: str) -> None:
    text = assets()[name].body.decode().replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\(|new Function|https?://", text)


def test_a_file_is_sent_once_and_asked_for_again_by_its_tag(site: Site) -> None:
    client = site.client(None)
    first = client.get("/ui/main.js", headers={"Accept-Encoding": "identity"})
    assert (first.status_code, first.headers["Cache-Control"]) == (200, "no-cache")
    assert first.content == assets()["main.js"].body
    packed = client.get("/ui/main.js")
    assert (packed.headers["Content-Encoding"], packed.content) == ("gzip", first.content)
    again = client.get("/ui/main.js", headers={"If-None-Match": first.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_only_files_that_were_shipped_are_found(site: Site) -> None:
    for path in ("/ui/none.js", "/ui/..%2Fpage.py", "/ui/%2Fetc%2Fpasswd", "/ui/packages%2FuPlot.esm.js", "/ui/", "/ui"):
        assert site.client(None).get(path).status_code == 404, path


def test_every_file_that_the_page_imports_is_shipped() -> None:
    wanted = set(re.findall(r'(?:href|src)="ui/([^"]+)"', assets()[PAGE].body.decode()))
    for name in OURS:
        if name.endswith(".js"):
            wanted |= set(re.findall(r'(?:from|import\()\s?"\./([\w.-]+)"', assets()[name].body.decode()))
    assert wanted <= set(assets()), "make assets fetches those of others"


@pytest.mark.parametrize("name", [name for name in OURS if name.endswith(".js")])
def test_every_name_that_a_module_imports_is_exported_and_used(name: str) -> None:
    text = assets()[name].body.decode()
    for imported, file in re.findall(r'^import \{([^}]+)\} from "\./([\w.-]+)"', text, re.MULTILINE):
        source = assets()[file].body.decode()
        for one in imported.split(","):
            wanted, own = (one.split(" as ") * 2)[:2]
            exported = rf"^export (async )?(function|const|class|let) ([^;\n]*[ ,]|){re.escape(wanted.strip())}\b"
            assert re.search(exported, source, re.MULTILINE), f"{file} exports no {wanted.strip()}"
            assert len(re.findall(rf"\b{re.escape(own.strip())}\b", text)) > 1, f"{own.strip()} is imported for nothing"


def test_the_page_weighs_little() -> None:
    assert sum(len(asset.packed) for asset in assets().values()) < WEIGHT
