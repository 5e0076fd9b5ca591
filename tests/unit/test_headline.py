"""The line at the top of the dashboard."""

from __future__ import annotations

from widerow.model.times import HOUR
from widerow.ops.hour import Refused
from widerow.server.headline import MOST_LINES, Facts, Hot, Line, Silent, headline

HOT = Hot(tenant="acme", device="press-207", reports_per_s=1_000.0, since_us=5, steps=("limited",))
REFUSED = (Refused("quota-exceeded", 90.0, []), Refused("time-future", 5.0, []))


def texts(facts: Facts) -> list[tuple[str, str]]:
    return [(line.severity, line.text) for line in headline(facts)]


def test_nothing_wrong_gives_no_line() -> None:
    assert headline(Facts(reports_per_s=900.0, refusals=REFUSED)) == []


def test_the_worst_comes_first_and_there_are_five_at_most() -> None:
    alert = Line(severity="info", text="batches are small", view="alerts")
    facts = Facts(alerts=[alert], troubles=["the pipeline is full"], damage=["a", "b"], hot=[HOT] * 4)
    found = headline(facts)
    assert len(found) == MOST_LINES
    assert [line.severity for line in found] == ["critical", "critical", "warning", "warning", "warning"]
    assert found[1].text == "the store is damaged: 2 parts of it cannot be read"


def test_a_hot_device_is_named_with_its_rate_and_the_steps_taken() -> None:
    (line,) = headline(Facts(hot=[HOT]))
    assert line.text == "press-207 sends 1,000 reports/s; it is limited"
    assert (line.view, line.tenant, line.device, line.since_us) == ("device", "acme", "press-207", 5)


def test_many_refusals_are_a_warning_and_few_are_information() -> None:
    def check(refused_per_s: float, want: list[tuple[str, str]]) -> None:
        assert texts(Facts(refusals=REFUSED, refused_per_s=refused_per_s, reports_per_s=990.0)) == want

    check(10.0, [("warning", "10 of 1,000 reports/s are refused, most for quota-exceeded")])
    check(1.0, [("info", "1 of 991 reports/s are refused, most for quota-exceeded")])
    check(0.0, [])


def test_devices_that_went_silent_are_counted_and_the_last_is_named() -> None:
    silent = [
        Silent(tenant="acme", count=1, device="d1", last_us=10),
        Silent(tenant="bolt", count=1_200, device="d2", last_us=20),
    ]
    lines = headline(Facts(silent=silent))
    assert [line.text for line in lines] == ["1,200 devices went silent, d2 last", "d1 went silent"]
    assert [(line.view, line.device) for line in lines] == [("devices", ""), ("device", "d1")]


def test_rollups_that_are_late_and_writes_that_fail_are_told() -> None:
    assert texts(Facts(behind_us=HOUR)) == []
    assert texts(Facts(behind_us=3 * HOUR, writes_fail=True)) == [
        ("critical", "no write to the store works"),
        ("warning", "rollups are 3h behind"),
    ]
