"""The last hour of a process: what it keeps of tenants, and what it forgets."""

from __future__ import annotations

from widerow.model.times import MINUTE
from widerow.ops.figures import Sample
from widerow.ops.hour import LastHour, Refused
from widerow.ops.rings import MINUTES

BEGAN = 1_700_000_040_000_000 // MINUTE * MINUTE


def hour_of(minutes: int) -> LastHour:
    """Each minute acme and bolt send sixty reports more, and of each six are refused."""
    hour = LastHour(counted(0), BEGAN)
    for minute in range(1, minutes + 1):
        hour.fold(counted(minute), BEGAN + minute * MINUTE, {"acme": 3, "bolt": 3, "": 6})
    return hour


def counted(minute: int) -> Sample:
    reports = dict.fromkeys(("acme", "bolt"), 60.0 * minute)
    refused = dict.fromkeys(("acme", "bolt"), 6.0 * minute)
    refusals = {(name, "future"): 6.0 * minute for name in ("acme", "bolt")}
    return Sample(at_s=60.0 * minute, reports=reports, refused=refused, refusals=refusals)


def there(minutes: list[float | None]) -> list[float]:
    return [count for count in minutes if count is not None]


def test_a_tenant_that_was_deleted_is_forgotten_and_no_other() -> None:
    hour = hour_of(3)
    hour.forget("acme")
    # What it sent in the minute in which it was deleted is not its namesake's.
    hour.fold(Sample(at_s=230, reports={"acme": 220}, refusals={("acme", "future"): 30}), BEGAN + 3 * MINUTE, {})
    assert [there(hour.of(figure, "acme")) for figure in ("ingestion_rate", "refused_rate", "devices_online")] == [
        [],
        [],
        [],
    ]
    assert hour.refusals("acme") == []
    assert (there(hour.of("ingestion_rate", "bolt"))[:3], hour.refusals("bolt")[0].count) == ([1.0, 1.0, 1.0], 18)
    assert hour.refusals() == hour.refusals("bolt")


def test_minutes_before_a_tenant_was_made_are_not_its_own() -> None:
    hour = hour_of(5)
    hour.begin("acme", BEGAN + 3 * MINUTE + MINUTE // 2)
    assert there(hour.of("ingestion_rate", "acme")) == [1.0, 1.0]
    assert there(hour.of("devices_online", "acme")) == [3, 3]
    assert hour.refusals("acme") == [Refused("future", 12, [*[None] * (MINUTES - 2), 6, 6])]
    assert len(there(hour.of("ingestion_rate", "bolt"))) == 5


def test_a_namesake_is_counted_from_the_minute_after_the_deletion() -> None:
    hour = hour_of(3)
    hour.forget("acme")
    for minute in (4, 5):
        hour.fold(counted(minute), BEGAN + minute * MINUTE, {})
    assert there(hour.of("ingestion_rate", "acme")) == [1.0]
