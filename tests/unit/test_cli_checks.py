"""The verdicts of `widerow doctor`."""

from __future__ import annotations

from widerow.cli import checks
from widerow.cli.checks import GIB, MIB, Check, Verdict
from widerow.config import build
from widerow.model.times import SECOND

NOW_US = 1_763_000_000 * SECOND


def verdict(check: Check, want: Verdict) -> None:
    assert check.verdict is want, check
    assert bool(check.todo) == (want in (Verdict.WARN, Verdict.FAIL)), check


def test_disk() -> None:
    verdict(checks.check_disk(500 * GIB, 1000 * GIB, 64 * MIB), Verdict.OK)
    verdict(checks.check_disk(600 * MIB, 1000 * GIB, 64 * MIB), Verdict.WARN)
    verdict(checks.check_disk(63 * MIB, 1000 * GIB, 64 * MIB), Verdict.FAIL)


def test_the_middle_sync_decides_not_the_slowest() -> None:
    verdict(checks.check_sync([0.001] * 9 + [5.0]), Verdict.OK)
    verdict(checks.check_sync([0.05] * 10), Verdict.WARN)
    verdict(checks.check_sync([0.5] * 10), Verdict.FAIL)


def test_a_clock_that_jumped_is_a_warning_and_one_before_the_release_a_failure() -> None:
    verdict(checks.check_clock(NOW_US), Verdict.OK)
    verdict(checks.check_clock(0), Verdict.FAIL)
    verdict(checks.check_trust(True, "", 0), Verdict.OK)
    verdict(checks.check_trust(True, "", 3_456_000), Verdict.OK)
    verdict(checks.check_trust(False, "the clock shows ...", 3_456_000), Verdict.WARN)


def test_a_difference_between_clocks_counts_beyond_the_round_trip() -> None:
    def check(skew_s: float, trip_s: float, want: Verdict) -> None:
        verdict(checks.check_skew(round(skew_s * SECOND), round(trip_s * SECOND), 300 * SECOND), want)

    check(0.3, 0.1, Verdict.OK)
    check(-30.0, 29.5, Verdict.OK)
    check(-30.0, 0.1, Verdict.WARN)
    check(301.0, 0.1, Verdict.FAIL)


def test_compaction() -> None:
    verdict(checks.check_compaction(None), Verdict.SKIPPED)
    verdict(checks.check_compaction(0), Verdict.OK)
    verdict(checks.check_compaction(5 * GIB), Verdict.WARN)
    verdict(checks.check_compaction(100 * GIB), Verdict.FAIL)


def test_rollups_may_be_late_for_two_hours_and_the_margin_shrink_to_half() -> None:
    day_s = 86_400.0
    verdict(checks.check_rollups(0, 7 * day_s, 3), Verdict.OK)
    verdict(checks.check_rollups(7_000, 7 * day_s, 3), Verdict.OK)
    verdict(checks.check_rollups(7_300, 7 * day_s, 3), Verdict.WARN)
    verdict(checks.check_rollups(30 * day_s, 3.6 * day_s, 3), Verdict.WARN)
    verdict(checks.check_rollups(34 * day_s, 3.4 * day_s, 3), Verdict.FAIL)


def test_memory_is_held_against_what_the_settings_allow() -> None:
    config = build({"store": {"cache_mib": 1024, "write_buffer_mib": 512}, "pipeline": {"max_in_flight_mib": 512}}, {})
    verdict(checks.check_memory(8 * GIB, config), Verdict.OK)
    verdict(checks.check_memory(2 * GIB, config), Verdict.WARN)
    verdict(checks.check_memory(1 * GIB, config), Verdict.FAIL)


def test_the_tenant_that_takes_most_memory_is_named() -> None:
    held = {"acme": {"in_flight": 0, "open_minutes": 3 << 20}, "umbra": {"in_flight": 1 << 20, "open_minutes": 0}}
    check = checks.check_tenant_memory(held)
    assert check.found == "4.0 MiB; most for acme, 3.0 MiB: open minutes 3.0 MiB"
    assert checks.check_tenant_memory({"acme": {}}).found == "none to speak of"


def test_files_versions_and_settings() -> None:
    verdict(checks.check_files(65536), Verdict.OK)
    verdict(checks.check_files(1024), Verdict.WARN)
    verdict(checks.check_version("1.0", "1.0"), Verdict.OK)
    verdict(checks.check_version("1.0", "1.1"), Verdict.WARN)
    verdict(checks.check_settings(build({}, {})), Verdict.OK)
    verdict(checks.check_settings(build({"http": {"host": "0.0.0.0"}}, {})), Verdict.WARN)
    verdict(checks.check_settings(build({"http": {"host": "0.0.0.0", "tls_cert": "server.pem"}}, {})), Verdict.OK)
