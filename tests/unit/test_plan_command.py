"""`widerow plan` on the command line: what it prints, and how it refuses what cannot be."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from typer.testing import CliRunner, Result

from widerow.cli.commands import app
from widerow.plan.fleet import example
from widerow.plan.prices import price_table

MILLION = ("--devices", "1000000", "--interval", "10s", "--metrics", "10", "--tenants", "20")


def run(*options: str) -> Result:
    return CliRunner().invoke(app, ["plan", *options])


def lines_of(*options: str) -> list[str]:
    done = run(*options)
    assert done.exit_code == 0, done.stderr
    return done.stdout.splitlines()


def test_a_plan_names_rates_bytes_nodes_the_bottleneck_and_what_is_cheaper() -> None:
    text = "\n".join(lines_of(*MILLION))
    for words in (
        "1,000,000 devices: 100,000 reports/s, 1,000,000 metrics/s, as rows on cassandra",
        "total: 212.1 TB, 636.3 TB in 3 copies",
        "nodes: 245 nodes of 16 cores and 4 TB, 220,500 USD a month; the bottleneck is disk",
        "- writes: 34: 3,510,000 rows/s of all copies",
        "columns of many devices instead of rows",
    ):
        assert words in text
    assert "simpler" not in text


def test_the_textbook_is_drawn_with_its_figures_and_its_faults() -> None:
    lines = lines_of("--textbook", "--devices", "1000000", "--retention", "30d", "--rf", "3")
    assert lines[1:8] == [
        "raw, a device and day       8.64 MB",
        "raw, all devices and a day  8.64 TB",
        "raw, 30d                    259.2 TB",
        "with 10% for aggregates     285.1 TB",
        "in 3 copies                 855.4 TB",
        "writes/s, raw to days       100,000, 1,667, 27.78, 1.157",
        "an hour's partition         3,600 rows, 360 kB",
    ]
    assert "where the textbook is wrong:" in lines


def test_a_small_fleet_is_told_what_is_enough() -> None:
    lines = lines_of("--devices", "500", "--interval", "1d", "--metrics", "3", "--retention", "365d")
    assert "something simpler is enough:" in lines
    assert (
        "- a device reports once a day or less: 500 reports a day in all: a table in PostgreSQL, partitioned by month"
        in lines
    )


def test_a_reason_that_is_not_enough_stands_apart() -> None:
    def reasons(*options: str) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        heading = ""
        for line in lines_of(*options):
            heading = line if not line.startswith("- ") else heading
            if heading in ("something simpler is enough:", "before you build this:") and line.startswith("- "):
                found.setdefault(heading, []).append(line)
        return found

    none = ("--minute-retention", "none", "--hour-retention", "none", "--day-retention", "none")
    (single,) = reasons("--devices", "100000", "--retention", "1s")["something simpler is enough:"]
    assert "one machine takes 100,000 metrics/s (up to 985,000) and 2.199 TB" in single
    found = reasons("--devices", "1000000", "--retention", "1h", *none)
    assert ["Redis" in line for line in found["something simpler is enough:"]] == [True]
    assert ["QuestDB" in line for line in found["before you build this:"]] == [True]
    assert list(reasons("--devices", "100000", "--retention", "forever", *none)) == ["before you build this:"]
    assert list(reasons("--devices", "1", "--interval", "1us")) == ["before you build this:"]
    assert "1 device: 0.1 reports/s, 1 metrics/s, as rows on cassandra" in lines_of("--devices", "1")


def test_a_described_fleet_and_prices_of_ones_own_are_read(tmp_path: Path) -> None:
    fleet, prices = tmp_path / "fleet.toml", tmp_path / "prices.toml"
    fleet.write_text(example())
    prices.write_text(price_table().replace('"USD"', '"EUR"'))
    text = "\n".join(lines_of("--fleet", str(fleet), "--prices", str(prices), "--engine", "bigtable", "--rf", "2"))
    assert "EUR a month" in text
    assert "SSD nodes in 2 clusters" in text
    assert "HDD nodes in 2 clusters" in text


def test_the_price_table_can_be_printed() -> None:
    assert run("--print-prices").stdout == price_table()


def test_what_cannot_be_planned_is_one_line_that_says_why(tmp_path: Path) -> None:
    def check(*options: str, words: tuple[str, ...]) -> None:
        done = run(*options)
        assert done.exit_code in (1, 2), done.stdout
        (line,) = done.stderr.splitlines()
        assert line.startswith("error: ")
        for word in words:
            assert word in line, line

    def file(text: str) -> str:
        path = tmp_path / "given.toml"
        path.write_text(text)
        return str(path)

    check(words=("--devices",))
    check("--devices", "1", "--interval", "soon", words=("--interval", "soon"))
    check("--devices", "1", "--interval", "0s", words=("--interval", "longer than nothing"))
    check("--devices", "3", "--tenants", "4", words=("--tenants 4", "give 3 at most"))
    check("--devices", "1", "--retention", "none", words=("--retention", "none"))
    check("--devices", "1", "--hour-retention", "1 eon", words=("--hour-retention", "1 eon"))
    check("--fleet", file("[[class]]\ndevices = 0"), words=("given.toml: class[1].devices: 0",))
    check("--fleet", str(tmp_path), words=(str(tmp_path), "directory"))
    check("--fleet", "x.toml", "--devices", "1", words=("--fleet", "--devices"))
    check("--devices", "1", "--prices", file("[cassandra]\ncores = 0"), words=("given.toml: cassandra.cores: 0",))
    check("--devices", "1", "--prices", str(tmp_path / "none"), words=("none", "No such file"))
    check("--devices", "1", "--engine", "rocksdb", "--rf", "2", words=("--rf 2", "one copy"))
    check("--devices", "1", "--textbook", "--engine", "bigtable", words=("--textbook", "Cassandra"))
    check("--devices", "1", "--store", "rocksdb:x", words=("--store", "--measure"))
    check("--devices", "1", "--measure", words=("--store",))
    check("--devices", "1", "--measure", "--textbook", words=("--textbook", "--measure"))
    check("--devices", "1", "--measure", "--store", "bigtable://a/b/c", words=("bigtable", "size"))
    check("--devices", "1", "--measure", "--store", f"rocksdb:{tmp_path}", words=(str(tmp_path), "exists"))
    check("--devices", "1", "--measure", "--store", f"rocksdb:{tmp_path}/a/b", words=(f"{tmp_path}/a is no folder",))
    check("--devices", "1", "--measure", "--engine", "cassandra", "--store", "rocksdb:x", words=("contradict",))
    check("--devices", "1", "--measure", "--engine", "rocksdb", "--layout", "packed", words=("--layout",))


def test_a_file_that_is_no_text_is_refused_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "binary.toml"
    path.write_bytes(b"\xff\xfe")
    done = run("--fleet", str(path))
    assert done.exit_code == 1
    assert "binary.toml is not UTF-8" in done.stderr


def test_the_guide_shows_what_the_command_prints() -> None:
    guide = Path(__file__).resolve().parents[2] / "docs" / "guides" / "plan-a-cluster.md"
    shown = re.findall(r"^```console\n\$ widerow plan ([^\n]+)\n(.*?)^```", guide.read_text(), re.MULTILINE | re.DOTALL)
    assert len(shown) >= 3
    for options, output in shown:
        assert run(*shlex.split(options)).stdout == output
