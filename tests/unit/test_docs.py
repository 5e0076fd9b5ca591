"""Everything a user can set, see or run into is documented, and the documentation holds together."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main
from prometheus_client import Counter, Gauge, Histogram

from widerow.catalog.catalog import CatalogSettings
from widerow.cli.commands import app
from widerow.cli.token import revoke
from widerow.codec.line import LineDecoder
from widerow.config import Config
from widerow.engine.rocksdb import RocksEngine
from widerow.model.batch import Report, batch_of
from widerow.model.device import Profile
from widerow.model.errors import REFUSAL_CODES, Refusal
from widerow.model.tenant import Tenant
from widerow.model.times import SECOND, ManualClock, format_duration
from widerow.ops.counters import Counters
from widerow.schema.tables import TABLES
from widerow.server.routes import ROUTES
from widerow.telemetry.store import Telemetry, TelemetrySettings

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
SOURCES = ROOT / "src" / "widerow"
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])


def page(name: str) -> str:
    return (DOCS / name).read_text()


def first_cells(text: str) -> list[str]:
    """What stands between backticks in the first column of the tables of a page."""
    return re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)


def section(text: str, title: str) -> str:
    """A second-level section of a page."""
    return re.split(r"^## ", text.split(f"\n## {title}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


# -- promises


def test_wherever_revoking_a_token_is_explained_its_delay_is_said_in_seconds() -> None:
    delay = f"within {CatalogSettings().token_refresh_us // SECOND} seconds"
    commands = page("reference/cli.md").split("### `widerow token revoke`")[1].split("\n## ")[0]
    route = page("reference/http.md").split("### `DELETE /v1/admin/tokens/{id}`")[1].split("\n### ")[0]
    guide = section(page("guides/operating.md"), "Tenants and tokens")
    openapi = next(route.doc for route in ROUTES if route.summary == "Revoke a token")
    for text in (commands, route, guide, openapi, str(revoke.__doc__)):
        assert delay in " ".join(text.split())


# -- settings


def test_every_setting_is_documented_with_its_default_and_range() -> None:
    rows = {cells[0].strip("`"): cells for cells in table_rows(page("reference/configuration.md")) if "." in cells[0]}
    wanted = {}
    for part in fields(Config):
        for setting in fields(part.default_factory):  # type: ignore[arg-type]
            name = f"{part.name}.{setting.name}"
            wanted[name] = [
                f"`{name}`",
                f"`{shown(setting.default)}`",
                range_of(setting.default, setting.metadata["low"], setting.metadata["high"]),
                f"`WIDEROW_{part.name}_{setting.name}`".upper(),
                setting.metadata["doc"],
            ]
    assert rows == wanted


def table_rows(text: str) -> Iterator[list[str]]:
    for line in text.splitlines():
        if line.startswith("| `"):
            yield [cell.strip() for cell in line.strip().strip("|").split("|")]


def shown(default: Any) -> str:
    if isinstance(default, tuple):
        return "[" + ", ".join(f'"{value}"' for value in default) + "]"
    return f'"{default}"' if isinstance(default, str) else str(default)


def range_of(default: Any, low: float | None, high: float | None) -> str:
    if low is not None:
        return f"{low} to {high}"
    return "text" if isinstance(default, str) else "list of texts"


# -- errors


def test_every_refusal_code_is_documented() -> None:
    text = section(page("reference/errors.md"), "Refusals")
    assert set(first_cells(text)) == set(REFUSAL_CODES)


def test_every_error_code_is_documented() -> None:
    text = page("reference/errors.md")
    documented = set(first_cells(section(text, "Errors"))) | set(first_cells(section(text, "Errors of the command line")))
    assert error_codes() - documented == set()


def test_no_error_code_is_documented_that_does_not_exist() -> None:
    assert set(first_cells(page("reference/errors.md"))) - error_codes() - set(REFUSAL_CODES) == set()


@cache
def error_codes() -> frozenset[str]:
    """Codes of error classes, and those given to errors where they are raised (`code="..."`), in all sources."""
    found = set()
    for path in SOURCES.rglob("*.py"):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if "code" in text else ():
            if isinstance(node, ast.Assign) and any(_names_code(target) for target in node.targets):
                found |= _text(node.value)
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") != Refusal.__name__:
                found |= {code for keyword in node.keywords if keyword.arg == "code" for code in _text(keyword.value)}
    return frozenset(found)


def _names_code(target: ast.expr) -> bool:
    return (
        target.id if isinstance(target, ast.Name) else target.attr if isinstance(target, ast.Attribute) else ""
    ) == "code"


def _text(node: ast.expr) -> set[str]:
    return {node.value} if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value else set()


# -- command line


def test_every_command_is_documented() -> None:
    text = page("reference/cli.md")
    documented = set(re.findall(r"^###? `(widerow [^`]+)`$", text, re.MULTILINE))
    assert documented == set(commands())


def test_every_command_is_in_the_table_at_the_top_with_what_it_has() -> None:
    rows = dict(re.findall(r"^\| \[`widerow (\w+)`\]\(#widerow-\w+\) \| (.+) \|$", page("reference/cli.md"), re.MULTILINE))
    groups = {name: set(child.commands) for name, child in top_level().items() if hasattr(child, "commands")}
    assert set(rows) == set(top_level())
    for name, commands_of_it in groups.items():
        assert set(re.findall(r"`([\w-]+)`", rows[name])) == commands_of_it, name


def test_every_option_is_documented() -> None:
    def named(text: str) -> set[str]:
        """`--verify` and `--no-verify` are one."""
        return {option.replace("--no-", "--") for option in re.findall(r"--[a-z][a-z-]+", text)}

    text = page("reference/cli.md")
    everywhere = named(section(text, "Server or store") + section(text, "Output")) | {"--help"}
    for command, options in commands().items():
        said = named(section(text, f"`{' '.join(command.split()[:2])}`"))
        assert named(" ".join(options)) - everywhere - said == set(), command


def top_level() -> dict[str, Any]:
    found: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    return found


def test_every_option_of_the_documented_commands_exists() -> None:
    known = {option for options in commands().values() for option in options} | {"--version", "--help"}
    for path in PAGES:
        for line in path.read_text().splitlines():
            if line.lstrip().removeprefix("$ ").startswith("widerow "):
                given = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", line))
                assert given <= known, f"{path.relative_to(ROOT)}: {line}"


def commands() -> dict[str, set[str]]:
    """Every command and group of the command line, with its options."""
    out: dict[str, set[str]] = {}

    def walk(command: Any, name: str) -> None:
        for child_name, child in getattr(command, "commands", {}).items():
            out[f"{name} {child_name}"] = {
                option for p in child.params for option in [*p.opts, *p.secondary_opts] if option.startswith("--")
            }
            walk(child, f"{name} {child_name}")

    walk(typer.main.get_command(app), "widerow")
    return out


# -- HTTP


def test_every_route_is_documented() -> None:
    documented = set(re.findall(r"^### `([A-Z]+ /[^`]*)`$", page("reference/http.md"), re.MULTILINE))
    assert documented == {f"{route.method} {route.path}" for route in ROUTES}


# -- metrics


def test_every_exported_metric_is_documented_with_its_type_and_labels() -> None:

    wanted = {}
    for metric in vars(Counters()).values():
        if isinstance(metric, (Counter, Gauge, Histogram)):
            (family,) = metric.describe()
            name = family.name + ("_total" if family.type == "counter" else "")
            wanted[name] = (family.type, ", ".join(f"`{label}`" for label in metric._labelnames))
    rows = [cells for cells in table_rows(page("reference/metrics.md")) if cells[0].startswith("`widerow_")]
    documented = {
        cells[0].strip("`"): (cells[1], cells[2]) for cells in rows if cells[1] in ("counter", "gauge", "histogram")
    }
    assert documented == wanted


# -- dependencies


def test_every_dependency_has_its_reason() -> None:
    file = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, page_packages = file["project"], json.loads((ROOT / "tools/assets/package.json").read_text())["dependencies"]
    rows = re.findall(r"^\| ([a-z][a-z, -]+) \|", page("dependencies.md"), re.MULTILINE)
    documented = {name.strip() for row in rows for name in row.split(",")} - {"package"}
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"], *file["dependency-groups"]["assets"]]
    wanted += page_packages
    assert documented == {re.split(r"[<>=;\[ ]", line, maxsplit=1)[0] for line in wanted}


def test_lock_files_name_no_address() -> None:
    assert "://" not in (ROOT / "tools/assets/package-lock.json").read_text()
    for lock in (ROOT / "requirements").glob("*.lock"):
        assert "://" not in lock.read_text(), lock.name


# -- figures that follow from the code


def test_the_partition_sizes_are_those_of_the_model() -> None:
    sizes = page("format/cassandra.md").split("### Partition sizes", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| ([\d/]+) \| (\d+) \| (\w+) \| (\d+) \| ([\d.]+) \|", sizes, re.MULTILINE)
    assert len(rows) == 6
    for rate, metrics, width, sub_buckets, mib in rows:
        profile = Profile(reports_per_s=float(Fraction(rate)), metrics_per_report=int(metrics))
        spread = profile.sub_buckets()
        estimated = f"{profile.bucket_bytes() / spread / (1 << 20):.2f}"
        assert (format_duration(profile.bucket_width_us()), str(spread), estimated) == (width, sub_buckets, mib)


# -- examples


def test_the_lines_in_the_reference_of_line_protocol_have_the_metrics_that_it_says() -> None:
    rows = re.findall(r"^\| `(.+ used=1)` \| `(.+)` \|$", page("reference/line-protocol.md"), re.MULTILINE)
    assert len(rows) == 3
    for line, metric in rows:
        decoded = LineDecoder(capacity=8).decode(line.encode(), now_us=0, version_us=0)
        assert decoded.batch.cells.names.to_list() == [metric, "widerow_time"]


# -- plain words

RIDDLE = re.compile(
    r"(?:^|[.:;!]\s+|\| |^(?:[-*>]|\d+\.) |, (?:and|but|so|because) )(?:\*\*|\[)?"
    r"(?:who|what(?! to\b)|whatever)\b(?![^.;|]*\?)"
    r"|\bwhoever\b",
    re.IGNORECASE | re.MULTILINE,
)
"""A clause whose subject is a riddle: "What was not declared is ...", "Who sends ...". Questions are none."""


def riddles(text: str) -> list[str]:
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    prose = re.sub(r"(?<=[^\n|])\n(?=[^\n|#*>\d-])", " ", prose)  # a sentence goes on in the next line
    return [prose[found.start() : found.end() + 60] for found in RIDDLE.finditer(prose)]


def test_a_riddle_is_a_clause_whose_subject_is_who_or_what() -> None:
    def check(text: str, count: int) -> None:
        assert len(riddles(text)) == count, text

    check("What was not declared is not guessed.", 1)
    check("It is refused. Who sends more,\nwaits; what is left stays, and what is new goes.", 3)
    check("- **Whatever** is late is kept\n| `a` | What it costs. |", 2)
    check("A store is open to whoever may read the files.", 1)
    check(
        "## What happens if the disk is full?\n\nWhat happens then? The guide says what to do, and shows what is stored.", 0
    )


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_page_speaks_in_riddles(path: Path) -> None:
    assert riddles(path.read_text()) == []


def test_no_help_text_speaks_in_riddles() -> None:
    def walk(command: Any) -> Iterator[str]:
        yield command.help or ""
        for parameter in command.params:
            yield getattr(parameter, "help", None) or ""
        for child in getattr(command, "commands", {}).values():
            yield from walk(child)

    assert [riddle for text in walk(typer.main.get_command(app)) for riddle in riddles(text)] == []


def test_no_setting_or_message_speaks_in_riddles() -> None:
    """Every text with a space in the sources but docstrings: settings, errors, logs, the description of the API."""
    found = []
    for path in sorted(SOURCES.rglob("*.py")):
        tree = ast.parse(path.read_text())
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                found += [f"{path.name}:{node.lineno}: {riddle}" for riddle in riddles(node.value) if " " in node.value]
    assert found == []


# -- the pages themselves


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_resolve(path: Path) -> None:
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        found = (path.parent / name).resolve() if name else path
        assert found.is_file(), f"{target} in {path.name}"
        if anchor:
            assert anchor in anchors(found.read_text()), f"{target} in {path.name}"


def anchors(text: str) -> set[str]:
    """The anchors that headings get: lower case, without punctuation, hyphens for spaces."""
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in titles}


LONGEST_LINE = 160
LINES_OF_TWO_PAGES, WORDS_OF_TWO_PAGES = 80, 900


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_line_of_a_page_is_longer_than_a_screen(path: Path) -> None:
    """A row of a table cannot be broken, nor can the target of a link. The README has none that are longer all the same."""
    long = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        shown = line if path.name == "README.md" else re.sub(r"\]\([^)]*\)", "]", line)
        if len(shown) > LONGEST_LINE and (path.name == "README.md" or not line.startswith("|")):
            long.append(f"{number}: {len(shown)}")
    assert long == []


@pytest.mark.parametrize("path", sorted((DOCS / "adr").glob("*.md")), ids=lambda path: path.name)
def test_a_decision_is_two_pages_at_most(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= LINES_OF_TWO_PAGES
    assert len(text.split()) <= WORDS_OF_TWO_PAGES


def test_the_readme_is_under_120_lines() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 120


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    for path in DOCS.rglob("*.md"):
        assert str(path.relative_to(DOCS)) in navigation


def test_no_placeholder_is_left() -> None:
    for path in PAGES:
        assert re.findall(r"@@\w+@@", path.read_text()) == [], path.name


def test_the_reader_of_the_format_page_reads_a_store(tmp_path: Path) -> None:
    now_us = 1_760_000_001_000_000
    clock = ManualClock(now_us)
    engine = RocksEngine(tmp_path / "store", clock=clock)
    engine.apply(TABLES)
    telemetry = Telemetry(engine, clock, TelemetrySettings(max_future_us=SECOND, refresh_us=SECOND))
    first = Report("d\N{SNOWMAN}/#", now_us - SECOND, {"temp": 21.5, "state": "run"}, {"site": "a"}, now_us)
    other = Report("e", now_us - SECOND, {"temp": -1.0}, {}, now_us)
    correction = Report(first.device, first.time_us, {"temp": 22.5}, {}, now_us + 1000)
    telemetry.write(Tenant(name="acme"), batch_of([first, other]))
    telemetry.write(Tenant(name="acme"), batch_of([correction]))
    engine.close()

    source = re.findall(r"^```python\n(.*?)^```", page("format/rocksdb.md"), re.MULTILINE | re.DOTALL)[-1]
    reader: dict[str, Any] = {}
    exec(source, reader)
    assert sorted(reader["reports"](str(tmp_path / "store"), "telemetry_30d", now_us // SECOND)) == sorted(
        [
            ("acme", first.device, first.time_us, {(False, "temp"): 22.5, (False, "state"): "run", (True, "site"): "a"}),
            ("acme", "e", other.time_us, {(False, "temp"): -1.0}),
        ],
        key=lambda report: report[:3],
    )
