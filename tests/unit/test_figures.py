"""Numbers in messages: never an exponent, never more digits than people read."""

from __future__ import annotations

from widerow.admit.escalation import HotSettings, judged
from widerow.catalog.forms import to_json
from widerow.model.device import Profile
from widerow.model.errors import QuotaExceeded
from widerow.model.figures import figure
from widerow.model.tenant import Retention, Tenant
from widerow.model.times import DAY


def test_figures_have_four_digits_or_all_before_the_point() -> None:
    def check(value: float, want: str) -> None:
        assert figure(value) == want

    check(0, "0")
    check(3.0, "3")
    check(12.3456, "12.35")
    check(999.99, "1000")
    check(49_999.6, "50,000")
    check(1_234_567, "1,234,567")
    check(5e15, "5,000,000,000,000,000")
    check(0.00003, "0.00003")
    check(-2.5, "-2.5")


def test_errors_of_limits_have_no_exponents() -> None:
    said = str(QuotaExceeded("acme", "writes_per_s", 2e6, 12_345_678.9, 0.26))
    assert said == "acme: limits.writes_per_s allows 2,000,000, saw 12,345,679; retry in 0.3s or raise the limit"


def test_a_hot_device_is_described_without_exponents() -> None:
    declared = Profile(reports_per_s=5e5)
    assert judged(5e4, declared, 0.0, HotSettings()).why.startswith("50,000 reports/s, and its profile's 500,000 ")
    assert judged(5e4, Profile(), 1e5, HotSettings(reports_per_s=1e6)).why.startswith("50,000 of 100,000 reports/s in all")


def test_a_retention_of_a_week_is_seven_days() -> None:
    form = to_json(Tenant(name="acme", retention=Retention(raw_us=7 * DAY, minute_us=90 * DAY)))
    assert (form["retention"]["raw"], form["retention"]["minute"]) == ("7d", "90d")
