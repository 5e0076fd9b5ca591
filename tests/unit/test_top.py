"""`widerow top` as text: what stands where, at which size, and which keys mean something."""

from __future__ import annotations

import re
from typing import Any

from widerow.cli.top import keys
from widerow.cli.top_picture import Look, amount, chosen_tenant, picture, spark

NOTHING: list[float | None] = [None] * 60


def tenant(name: str, share: float | None = None) -> dict[str, Any]:
    return {
        "name": name,
        "display_name": "",
        "reports_per_s": 250.4,
        "refused_per_s": 0.0,
        "devices": 208,
        "share": share,
        "minutes": [*NOTHING[:58], 1.0, 2.0],
    }


def answer(**changes: Any) -> dict[str, Any]:
    figure = {"now": 521.04, "unit": "reports/s", "minutes": [*NOTHING[:58], 100.0, 521.0], "limit": None}
    latency = {"now": 0.0767, "unit": "s", "minutes": [*NOTHING[:58], 0.02, 0.0767], "limit": 0.05}
    return {
        "time": "2026-11-19T20:40:47.304994Z",
        "version": "0.1.0",
        "started": "2026-11-19T20:00:47.304994Z",
        "scope": "all",
        "headline": [],
        "figures": {"ingestion_rate": figure, "ingestion_latency_p99": latency},
        "devices": {"total": 415, "online": 415, "stale": 0},
        "refusals": [{"code": "hot-rate", "count": 6813, "minutes": [*NOTHING[:59], 6813.0]}],
        "stages": [
            {"name": "decode", "state": "ok", "detail": "0 B in flight", "value": 0.0},
            {"name": "rollup", "state": "slow", "detail": "2m behind", "value": 120.0},
            {"name": "kafka", "state": "unused", "detail": "", "value": None},
        ],
        "tenants": [tenant("acme"), tenant("globex"), tenant("initech", 0.9)],
        "alerts": [],
    } | changes


def lines(found: dict[str, Any], look: Look | None = None, width: int = 100, height: int = 0) -> list[str]:
    return picture(found, look or Look(), width, height).plain.splitlines()


def line_of(found: list[str], beginning: str) -> str:
    return next(line for line in found if line.startswith(beginning))


def test_the_second_line_says_what_is_wrong_or_that_nothing_is() -> None:
    assert lines(answer())[1] == "Nothing is wrong."
    wrong = {"severity": "critical", "text": "the disk is full", "since": "2026-11-19T20:32:38Z"}
    assert lines(answer(headline=[wrong]))[1] == "critical the disk is full  since 20:32"


def test_a_figure_past_its_limit_says_so_in_words() -> None:
    found = lines(answer())
    assert re.search(r"Latency p99 +77ms +▃█ +above 50ms$", line_of(found, "Latency"))
    assert re.search(r"Reports +521 reports/s +▂█$", line_of(found, "Reports"))


def test_stages_that_do_well_share_a_line_and_unused_ones_have_none() -> None:
    found = lines(answer())
    assert "slow     rollup: 2m behind" in found
    assert "ok       decode" in found
    assert not any("kafka" in line for line in found)


def test_a_bar_stands_for_a_minute_and_an_unknown_minute_is_empty() -> None:
    def check(minutes: list[float | None], width: int, want: str) -> None:
        assert spark(minutes, width) == want

    check([None, 0, 4, 8], 60, " ▁▅█")
    check([0, 0], 60, "▁▁")
    check([1, 2, 3], 2, "▆█")
    check([1, 2, 3], 0, "")
    check([1, 2, 3], -5, "")
    check([], 60, "")
    check([5.0] * 90, 100, "█" * 60)


def test_figures_have_their_units() -> None:
    def check(name: str, value: float | None, unit: str, want: str) -> None:
        assert amount(name, value, unit) == want

    check("quota_rejections", 0.0123, "", "1.2 %")
    check("ingestion_latency_p99", 0.0246, "s", "25ms")
    check("ingestion_latency_p99", None, "s", "-")
    check("metrics_rate", 5291.4, "values/s", "5,291 values/s")
    check("batch_size_avg", 15.14, "reports", "15.1 reports")


def test_no_line_is_wider_and_no_picture_higher_than_the_terminal() -> None:
    many = answer(tenants=[tenant(f"tenant-{n}") for n in range(10)], headline=[])
    for width in (20, 40, 80, 200):
        for height in (3, 8, 24, 60):
            found = lines(many, Look(chosen=9), width, height)
            assert len(found) <= height
            assert max(map(len, found)) <= width


def test_the_chosen_tenant_is_in_sight_where_there_is_room_for_few() -> None:
    many = answer(tenants=[tenant(f"tenant-{n}") for n in range(10)])
    for chosen in range(10):
        assert f"> tenant-{chosen} " in "\n".join(lines(many, Look(chosen=chosen), 80, 14))


def test_a_tenant_that_is_gone_leaves_another_one_chosen() -> None:
    assert chosen_tenant(answer(), Look(chosen=7)) == "initech"
    assert chosen_tenant(answer(tenants=[]), Look(chosen=7)) is None
    assert chosen_tenant(answer(scope="acme"), Look()) is None


def test_names_cannot_move_the_cursor() -> None:
    found = "\n".join(lines(answer(tenants=[tenant("a\x1b[2Jb\n")])))
    assert "\x1b" not in found
    assert "a\\x1b[2Jb\\n" in found


def test_trouble_stands_above_the_last_answer() -> None:
    found = lines(answer(), Look(trouble="cannot reach it"))
    assert found[1] == "no answer since 20:40:47, trying again: cannot reach it"
    assert line_of(found, "Reports")


def test_what_is_printed_once_names_no_keys() -> None:
    assert lines(answer())[-1].endswith("q quits")
    assert not any("q quits" in line or line.startswith(">") for line in lines(answer(), Look(is_live=False)))


def test_keys_that_mean_nothing_do_nothing() -> None:
    def check(typed: bytes, *want: str) -> None:
        assert list(keys(typed)) == list(want)

    check(b"\x1b[A\x1b[B\x1bOB", "up", "down", "down")
    check(b"\r", "enter")
    check(b"\x1b", "back")
    check(b"\x1b[15~")
    check(b"xq", "quit")
    check("ü".encode())
