"""Rules of tenants in a service whose clock the test moves: when they fire, who is told, and what survives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pytest

from widerow.alerts.alert import Acknowledged, Alert
from widerow.alerts.alerts import Alerts, AlertSettings, Sources
from widerow.alerts.book import Silence
from widerow.alerts.rule import read
from widerow.alerts.store import MOST_ALERTS
from widerow.alerts.track import Track, minutes_in
from widerow.alerts.webhook import Notice
from widerow.engine.memory import MemoryEngine
from widerow.engine.rows import rows_of
from widerow.model.arrays import Ints
from widerow.model.errors import Unavailable
from widerow.model.names import Names
from widerow.model.tenant import Limits, Tenant
from widerow.model.times import HOUR, MINUTE, SECOND, ManualClock
from widerow.ops.counters import Counters
from widerow.schema.tables import TABLES, telemetry

NOW_US = 1_800_000_000_000_000 - 1_800_000_000_000_000 % MINUTE
HOT = {"kind": "threshold", "metric": "temp", "above": 80, "clear": 70, "fleet": True, "webhooks": ["ops"]}
RAW = telemetry(HOUR)


class Presence:
    def __init__(self) -> None:
        self.last_us: dict[str, int] = {}

    def last_seen(self, _tenant: str) -> tuple[Names, Ints]:
        return Names.of(self.last_us), np.array(list(self.last_us.values()), np.int64)


@dataclass
class Site:
    """One process, or what several share. `told` are the notices that its webhooks were sent."""

    clock: ManualClock
    engine: MemoryEngine
    presence: Presence
    counters: Counters
    used: dict[str, float]
    devices: dict[str, str]
    """Those there are, with their types."""

    def process(self, *, watching: bool = True) -> Process:
        sources = Sources(
            tenant=lambda name: Tenant(name=name, limits=Limits(devices=100)),
            matches=lambda _tenant, match, names: {n for n in names if match.type in (None, self.devices.get(n))},
            devices=lambda _tenant, names: {name for name in names if name in self.devices},
            used=lambda _tenant, limit: self.used.get(limit),
            presence=self.presence,
        )
        process = Process(self, Alerts(self.engine, self.clock, self.counters, AlertSettings(shared=True), sources))
        process.alerts._watching = watching
        process.alerts.load()
        return process


class Process:
    def __init__(self, site: Site, alerts: Alerts) -> None:
        self.site, self.alerts, self.told = site, alerts, list[Alert]()
        alerts.courier.submit = self._submit  # type: ignore[method-assign]

    def _submit(self, notice: Notice) -> bool:
        form = msgspec.json.decode(notice.body)["alert"]
        self.told.append(form)
        notice.done()
        return True

    def rule(self, name: str, form: dict[str, Any]) -> None:
        self.alerts.book.set_rule("acme", read({"name": name, **form}))
        self.alerts.rules_changed()

    def write(self, values: dict[str, float], *, minute: int, metric: str = "temp") -> None:
        """A report of each device, in a minute after the beginning."""
        at_us = NOW_US + minute * MINUTE + SECOND
        rows = rows_of(RAW, [(("acme", d, 0, 0, at_us), {metric: v}) for d, v in values.items()], version_us=0)
        self.alerts.written("acme", [rows])

    def minute(self, values: dict[str, float], minute: int) -> list[str]:
        """A minute passes in which devices report, and closes. Gives the states of all alerts."""
        self.site.clock.time_us = NOW_US + minute * MINUTE + 2 * SECOND
        self.write(values, minute=minute)
        return self.close(minute)

    def close(self, minute: int) -> list[str]:
        self.site.clock.time_us = NOW_US + (minute + 1) * MINUTE + 20 * SECOND
        self.alerts.judge_minutes()
        return self.states()

    def states(self) -> list[str]:
        return [alert.state for alert in self.alerts.current("acme")]

    def notices(self) -> list[tuple[str, str]]:
        return [(form["device"], form["state"]) for form in self.told]  # type: ignore[index]


@pytest.fixture
def site() -> Site:
    clock = ManualClock(NOW_US)
    engine = MemoryEngine(clock)
    engine.apply([*TABLES, RAW])
    devices = {f"press-{i}": "press" for i in range(10)} | {"lift-1": "lift"}
    return Site(clock, engine, Presence(), Counters(), {}, devices)


@pytest.fixture
def process(site: Site) -> Process:
    return site.process()


# -- thresholds


def test_a_threshold_fires_above_it_and_is_over_where_it_is_clear(process: Process) -> None:
    process.rule("hot", HOT)
    values = [79, 81, 75, 85, 71, 69]
    states = [process.minute({"press-1": float(value)}, i) for i, value in enumerate(values)]
    assert states == [[], ["firing"], ["firing"], ["firing"], ["firing"], ["resolved"]]
    assert process.notices() == [("press-1", "firing"), ("press-1", "resolved")]


def test_a_rule_with_for_waits_and_tells_nobody_of_a_short_peak(process: Process) -> None:
    process.rule("hot", {**HOT, "for": "2m"})
    values = [81, 60, 81, 82, 83, 84]
    states = [process.minute({"press-1": float(value)}, i) for i, value in enumerate(values)]
    assert states == [["pending"], [], ["pending"], ["pending"], ["firing"], ["firing"]]
    assert process.notices() == [("press-1", "firing")]


def test_each_device_has_an_alert_of_its_own(process: Process) -> None:
    process.rule("hot", HOT)
    process.minute({f"press-{i}": 75.0 + 2 * i for i in range(10)}, 0)
    assert sorted(alert.device for alert in process.alerts.current("acme")) == [f"press-{i}" for i in range(3, 10)]


def test_windows_and_aggregates() -> None:
    def check(form: dict[str, Any], minutes: Sequence[Sequence[float]], want: list[float]) -> None:
        """The figures that are judged, minute by minute; a value each second."""
        rule = read({"name": "r", "kind": "threshold", "metric": "m", "above": 0, "fleet": True, **form})
        track = Track(rule, most_bytes=1 << 20)
        figures = []
        for i, values in enumerate(minutes):
            ids = track.ids(Names.of(["a"]))[np.zeros(len(values), np.int32)]
            times = NOW_US + i * MINUTE + np.arange(len(values)) * SECOND
            for minute in minutes_in(ids, times, np.array(values, np.float64)):
                figures += track.figures(minute).tolist()
        assert figures == pytest.approx(want, nan_ok=True)

    values = [[1.0, 3.0], [5.0], [], [9.0, 7.0]]
    check({"aggregate": "mean"}, values, [2, 5, 8])
    check({"aggregate": "last"}, values, [3, 5, 7])
    check({"aggregate": "mean", "window": "2m"}, values, [2, 3, 8])
    check({"aggregate": "sum", "window": "4m"}, values, [4, 9, 25])
    check({"aggregate": "count", "window": "3m"}, values, [2, 3, 3])
    check({"aggregate": "min", "window": "3m"}, values, [1, 1, 5])
    check({"aggregate": "max", "window": "3m"}, values, [3, 5, 9])


def test_a_rate_of_change_is_between_the_last_values_of_minutes(process: Process) -> None:
    process.rule("leak", {"kind": "rate_of_change", "metric": "temp", "below": -2, "window": "3m", "fleet": True})
    states = [process.minute({"press-1": value}, i) for i, value in enumerate([50.0, 49.0, 45.0, 40.0, 40.0, 40.0])]
    assert states == [[], [], ["firing"], ["firing"], ["firing"], ["resolved"]]
    assert process.alerts.current("acme")[0].unit == "/min"


def test_values_of_a_minute_that_come_in_several_requests_are_one_minute(process: Process) -> None:
    process.rule("hot", {**HOT, "aggregate": "count", "above": 2, "clear": 2})
    for _ in range(3):
        process.write({"press-1": 1.0}, minute=0)
        process.alerts.judge_minutes()
    assert process.close(0) == ["firing"]


def test_a_match_watches_the_devices_that_match_and_follows_them(site: Site, process: Process) -> None:
    process.rule("hot", {**HOT, "fleet": None, "match": {"type": "press"}})
    process.minute({"press-1": 90.0, "lift-1": 90.0}, 0)
    assert [alert.device for alert in process.alerts.current("acme")] == ["press-1"]
    site.devices["lift-1"] = "press"
    process.minute({"lift-1": 90.0}, 11)
    assert {alert.device for alert in process.alerts.current("acme")} == {"press-1", "lift-1"}


def test_a_device_rule_watches_no_other(process: Process) -> None:
    process.rule("hot", {**HOT, "fleet": None, "device": "press-2"})
    process.minute({"press-1": 90.0, "press-2": 91.0}, 0)
    assert [(alert.device, alert.value) for alert in process.alerts.current("acme")] == [("press-2", 91.0)]


def test_variants_of_a_metric_are_watched_apart(process: Process) -> None:
    process.rule("full", {**HOT, "metric": "disk"})
    for metric, value in (("disk{path=/}", 90.0), ("disk{path=/tmp}", 10.0), ("diskette", 99.0)):
        process.write({"press-1": value}, minute=0, metric=metric)
    process.close(0)
    assert [alert.metric for alert in process.alerts.current("acme")] == ["disk{path=/}"]


# -- late ones


def test_late_reports_and_a_backlog_raise_no_alert_and_take_none_back(process: Process) -> None:
    process.rule("hot", HOT)
    process.minute({"press-1": 60.0, "press-2": 90.0}, 5)
    process.write({"press-1": 99.0}, minute=5)  # late: its minute has closed
    process.write({"press-1": 99.0, "press-3": 99.0}, minute=1)  # a backlog
    process.write({"press-2": 60.0}, minute=5)
    process.close(6)
    assert [(alert.device, alert.state) for alert in process.alerts.current("acme")] == [("press-2", "firing")]
    assert process.notices() == [("press-2", "firing")]


def test_a_tenant_without_rules_is_not_looked_at(process: Process) -> None:
    process.write({"press-1": 90.0}, minute=0)
    assert process.alerts.watch._aside == []


# -- silence and limits


def look(process: Process, at_us: int) -> list[tuple[str, str]]:
    process.site.clock.time_us = at_us
    process.alerts.look()
    return [(alert.device, alert.state) for alert in process.alerts.current("acme")]


def test_a_device_that_falls_silent_is_offline_until_it_reports_again(site: Site, process: Process) -> None:
    process.rule("gone", {"kind": "offline", "after": "10m", "match": {"type": "press"}, "webhooks": ["ops"]})
    site.presence.last_us = {"press-1": NOW_US, "press-2": NOW_US, "lift-1": NOW_US}
    assert look(process, NOW_US + 5 * MINUTE) == []
    site.presence.last_us["press-2"] = NOW_US + 8 * MINUTE
    assert look(process, NOW_US + 11 * MINUTE) == [("press-1", "firing")]
    assert look(process, NOW_US + 12 * MINUTE) == [("press-1", "firing")]
    site.presence.last_us |= {"press-1": NOW_US + 13 * MINUTE, "press-2": NOW_US + 13 * MINUTE}
    assert look(process, NOW_US + 14 * MINUTE) == [("press-1", "resolved")]
    assert process.notices() == [("press-1", "firing"), ("press-1", "resolved")]


def test_a_limit_that_is_nearly_spent_is_told(site: Site, process: Process) -> None:
    process.rule("full", {"kind": "quota", "limit": "devices", "percent": 90, "clear": 80})
    found = []
    for minute, used in enumerate((80, 91, 85, 80)):
        site.used["devices"] = float(used)
        found.append(look(process, NOW_US + minute * MINUTE))
    assert found == [[], [("", "firing")], [("", "firing")], [("", "resolved")]]


# -- what lasts


def test_an_alert_that_fires_is_not_told_again_after_a_restart(site: Site, process: Process) -> None:
    process.rule("hot", HOT)
    process.minute({"press-1": 90.0}, 0)
    assert process.notices() == [("press-1", "firing")]
    after = site.process()
    assert after.minute({"press-1": 91.0}, 1) == ["firing"]
    assert after.notices() == []
    assert after.minute({"press-1": 60.0}, 2) == ["resolved"]
    assert after.notices() == [("press-1", "resolved")]


def test_of_two_processes_one_tells_people(site: Site, process: Process) -> None:
    process.rule("hot", HOT)
    other = site.process()
    for minute, value in enumerate((90.0, 91.0, 60.0, 95.0)):
        site.clock.time_us = NOW_US + minute * MINUTE + 2 * SECOND
        for each in (process, other):
            each.write({"press-1": value}, minute=minute)
        process.close(minute)
        other.close(minute)
    told = sorted(process.notices() + other.notices())
    assert told == [("press-1", "firing"), ("press-1", "firing"), ("press-1", "resolved")]
    events = [event.state for _, event in process.alerts.store.history("acme", start_us=0, stop_us=1 << 60)]
    assert sorted(events) == ["firing", "firing", "resolved"]


def test_a_notice_whose_process_died_is_sent_by_another(site: Site, process: Process) -> None:
    process.rule("hot", HOT)
    process.alerts.courier.submit = lambda _notice: True  # type: ignore[method-assign,assignment]  # and then it dies
    process.minute({"press-1": 90.0}, 0)
    other = site.process()
    look(other, NOW_US + 5 * MINUTE)
    assert other.notices() == []
    look(other, NOW_US + 12 * MINUTE)
    look(other, NOW_US + 30 * MINUTE)
    assert other.notices() == [("press-1", "firing")]


def test_a_silenced_alert_is_told_when_the_silence_ends(process: Process) -> None:
    process.rule("hot", HOT)
    until_us = NOW_US + 30 * MINUTE
    process.alerts.book.add_silence("acme", Silence(name="1" * 16, until_us=until_us, device="press-1"))
    process.minute({"press-1": 90.0, "press-2": 90.0}, 0)
    assert process.notices() == [("press-2", "firing")]
    look(process, NOW_US + 29 * MINUTE)
    assert process.notices() == [("press-2", "firing")]
    look(process, NOW_US + 31 * MINUTE)
    assert process.notices() == [("press-2", "firing"), ("press-1", "firing")]


def test_nobody_is_told_of_the_end_of_what_nobody_was_told_of(process: Process) -> None:
    process.rule("hot", HOT)
    process.alerts.book.add_silence("acme", Silence(name="1" * 16, until_us=NOW_US + HOUR))
    process.minute({"press-1": 90.0}, 0)
    assert process.minute({"press-1": 60.0}, 1) == ["resolved"]
    assert process.notices() == []


def test_what_somebody_sees_to_stays_so_while_the_alert_lasts(process: Process) -> None:
    process.rule("hot", HOT)
    process.minute({"press-1": 90.0}, 0)
    (alert,) = process.alerts.current("acme")
    seen = Acknowledged(by="me", at_us=NOW_US)
    process.alerts.store.edit("acme", alert.id, lambda old: msgspec.structs.replace(old, acknowledged=seen))
    process.minute({"press-1": 95.0}, 1)
    assert process.alerts.current("acme")[0].acknowledged == seen
    process.minute({"press-1": 60.0}, 2)
    process.minute({"press-1": 90.0}, 3)
    assert process.alerts.current("acme")[0].acknowledged is None


def test_alerts_go_with_their_rule_and_with_their_device(site: Site, process: Process) -> None:
    process.rule("hot", HOT)
    process.minute({"press-1": 90.0, "press-2": 90.0}, 0)
    del site.devices["press-1"]
    assert look(process, NOW_US + 3 * MINUTE) == [("press-2", "firing")]
    process.alerts.book.delete_rule("acme", "hot")
    process.alerts.rules_changed()
    assert process.states() == []
    assert len(process.notices()) == 2


def test_a_resolved_alert_is_forgotten_after_a_day(process: Process) -> None:
    process.rule("hot", HOT)
    process.minute({"press-1": 90.0}, 0)
    process.minute({"press-1": 60.0}, 1)
    assert look(process, NOW_US + 23 * HOUR) == [("press-1", "resolved")]
    assert look(process, NOW_US + 25 * HOUR) == []


def test_a_tenant_has_a_bounded_number_of_alerts(site: Site, process: Process) -> None:
    process.rule("hot", HOT)
    site.devices |= {f"d{i}": "press" for i in range(MOST_ALERTS + 50)}
    process.minute({f"d{i}": 90.0 for i in range(MOST_ALERTS + 50)}, 0)
    assert len(process.states()) == MOST_ALERTS
    assert site.counters.alerts_dropped.labels("acme")._value.get() == 50


def test_a_deleted_tenant_leaves_no_alerts_and_rules(process: Process) -> None:
    process.rule("hot", HOT)
    process.minute({"press-1": 90.0}, 0)
    process.alerts.forget("acme")
    assert (process.states(), process.alerts.book.tenants()) == ([], [])


# -- what fails


def fails(site: Site, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """The store takes no alert so many times."""
    put_if, left = site.engine.put_if, [times]

    def failing(*args: Any) -> bool:
        left[0] -= 1
        if left[0] >= 0:
            raise Unavailable("the store is away")
        return put_if(*args)

    monkeypatch.setattr(site.engine, "put_if", failing)


def test_a_change_that_the_store_did_not_take_is_stored_later(
    site: Site, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    process.rule("hot", HOT)
    fails(site, monkeypatch, 1)
    assert process.minute({"press-1": 90.0, "press-2": 90.0}, 0) == []
    process.alerts.judge_minutes()
    assert sorted(process.notices()) == [("press-1", "firing"), ("press-2", "firing")]
    fails(site, monkeypatch, 1)
    assert "firing" in process.minute({"press-1": 60.0, "press-2": 60.0}, 1)
    process.alerts.judge_minutes()
    assert process.states() == ["resolved", "resolved"]


def test_silence_that_the_store_did_not_take_is_stored_later(
    site: Site, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    process.rule("gone", {"kind": "offline", "after": "10m", "fleet": True})
    site.presence.last_us = {"press-1": NOW_US}
    fails(site, monkeypatch, 1)
    assert look(process, NOW_US + 11 * MINUTE) == []
    assert look(process, NOW_US + 12 * MINUTE) == [("press-1", "firing")]


def test_a_change_that_waits_goes_with_its_rule(site: Site, process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    process.rule("hot", HOT)
    with monkeypatch.context() as while_away:
        fails(site, while_away, 1)
        process.minute({"press-1": 90.0}, 0)
    process.alerts.book.delete_rule("acme", "hot")
    process.alerts.judge_minutes()
    assert process.states() == []


def test_changes_beyond_those_that_may_wait_are_judged_again(
    site: Site, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("widerow.alerts.storing.MOST_UNSTORED", 0)
    process.rule("hot", HOT)
    fails(site, monkeypatch, 1)
    assert process.minute({"press-1": 90.0}, 0) == []
    assert site.counters.alerts_dropped.labels("acme")._value.get() == 1
    assert process.minute({"press-1": 90.0}, 1) == ["firing"]
    fails(site, monkeypatch, 1)
    assert process.minute({"press-1": 60.0}, 2) == ["firing"]
    assert process.minute({"press-1": 60.0}, 3) == ["resolved"]


def test_reports_that_cannot_be_judged_are_counted_and_stop_no_others(process: Process) -> None:
    matches, left = process.alerts.watch._matches, [1]

    def failing(*args: Any) -> set[str]:
        left[0] -= 1
        if left[0] >= 0:
            raise Unavailable("the store is away")
        return matches(*args)

    process.alerts.watch._matches = failing
    process.rule("hot", {**HOT, "fleet": None, "match": {"type": "press"}})
    process.write({"press-1": 90.0}, minute=0)
    process.write({"press-2": 90.0}, minute=0)
    process.close(0)
    assert [alert.device for alert in process.alerts.current("acme")] == ["press-2"]
    assert process.site.counters.alerts_unjudged._value.get() == 1


def test_nobody_is_told_that_a_deleted_device_is_silent(site: Site, process: Process) -> None:
    process.rule("gone", {"kind": "offline", "after": "10m", "fleet": True, "webhooks": ["ops"]})
    site.presence.last_us = {"press-1": NOW_US, "deleted": NOW_US}
    for minute in (11, 12, 13):
        look(process, NOW_US + minute * MINUTE)
    assert process.notices() == [("press-1", "firing")]


def test_silence_is_judged_as_of_the_last_time_that_all_was_read(site: Site, process: Process) -> None:
    process.rule("gone", {"kind": "offline", "after": "10m", "fleet": True})
    site.presence.last_us = {"press-1": NOW_US}
    found = []
    for read_us in (0, NOW_US + 9 * MINUTE, NOW_US + 11 * MINUTE):
        process.alerts._sources = replace(process.alerts._sources, presence_us=partial(int, read_us))
        process.alerts._minute_us = 0
        found.append(look(process, NOW_US + 20 * MINUTE))
    assert found == [[], [], [("press-1", "firing")]]


def test_alerts_go_when_their_rule_covers_them_no_longer(site: Site, process: Process) -> None:
    def check(form: dict[str, Any], stay: list[str]) -> None:
        process.rule("hot", HOT)
        site.clock.time_us += MINUTE
        minute = (site.clock.time_us - NOW_US) // MINUTE + 1
        process.minute({"press-1": 90.0, "lift-1": 90.0}, minute)
        process.rule("hot", form)
        lasting = [alert.device for alert in process.alerts.current("acme") if alert.state == "firing"]
        assert sorted(lasting) == stay

    check({**HOT, "above": 85}, ["lift-1", "press-1"])
    check({**HOT, "fleet": None, "device": "press-1"}, ["press-1"])
    check({**HOT, "fleet": None, "match": {"type": "lift"}}, ["lift-1"])
    check({**HOT, "metric": "load"}, [])
    check({"kind": "offline", "after": "10m", "fleet": True}, [])


def test_a_notice_without_room_is_sent_when_there_is_room_and_to_each_webhook_once(process: Process) -> None:
    process.rule("hot", {**HOT, "webhooks": ["ops", "slow"]})
    told, room = list[str](), [False]

    def submit(notice: Notice) -> bool:
        if notice.key[1] == "slow" and not room[0]:
            return False
        told.append(notice.key[1])
        notice.done()
        return True

    process.alerts.courier.submit = submit  # type: ignore[method-assign]
    process.minute({"press-1": 90.0}, 0)
    look(process, NOW_US + 2 * MINUTE)
    assert told == ["ops"]
    room[0] = True
    look(process, NOW_US + 3 * MINUTE)
    look(process, NOW_US + 30 * MINUTE)
    assert told == ["ops", "slow"]
