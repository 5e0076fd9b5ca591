"""Laws of telemetry, on any engine. A subclass gives the `engine` and `clock` fixtures and nothing else."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from contract.placement_law import Step, check_placement
from widerow.engine.port import Engine
from widerow.model.batch import Report, batch_of
from widerow.model.device import Profile
from widerow.model.errors import Rejected
from widerow.model.points import Points
from widerow.model.tenant import Retention, RetentionEpoch, Tenant
from widerow.model.times import DAY, HOUR, MINUTE, MS, SECOND, ManualClock, TimeSpan
from widerow.query.points import newest, points_of
from widerow.schema.tables import TABLES
from widerow.telemetry.placement import Epoch, declared_epoch
from widerow.telemetry.store import Telemetry, TelemetrySettings

ACME = Tenant(name="acme")
Point = tuple[str, int, str, float | str]


def plain(points: Points) -> list[Point]:
    texts = points.text.to_list() if points.text is not None else [""] * len(points)
    values = [t if np.isnan(n) else n for n, t in zip(points.number.tolist(), texts, strict=True)]
    return list(zip(points.device.to_list(), points.time_us.tolist(), points.metric.to_list(), values, strict=True))


class TelemetrySuite:
    def telemetry(self, engine: Engine, clock: ManualClock) -> Telemetry:
        engine.apply(TABLES)
        return Telemetry(engine, clock, TelemetrySettings(max_future_us=5 * MINUTE, refresh_us=10 * SECOND))

    @staticmethod
    def read(telemetry: Telemetry, device: str, span: TimeSpan, tenant: Tenant = ACME) -> list[Point]:
        chunks = [rows for _, part in telemetry.read(tenant, device, span) for rows in part]
        return sorted(plain(points_of(chunks)), key=str)

    @staticmethod
    def write(telemetry: Telemetry, reports: Sequence[Report], tenant: Tenant = ACME) -> int:
        return telemetry.write(tenant, batch_of(list(reports))).kept

    def test_what_is_written_is_read(self, engine: Engine, clock: ManualClock) -> None:
        t = self.telemetry(engine, clock)
        now = clock.now_us()
        version = now - now % MS
        sent = [Report("d 1/#ü", now - i * HOUR, {"temp": i + 0.5, "state": "on"}, {"site": "a"}, version) for i in range(5)]
        assert self.write(t, sent) == 5
        want = [("d 1/#ü", r.time_us, name, value) for r in sent for name, value in r.values.items()]
        assert self.read(t, "d 1/#ü", TimeSpan(0, now + 1)) == sorted(want, key=str)

    def test_reports_a_microsecond_apart_both_survive(self, engine: Engine, clock: ManualClock) -> None:
        t = self.telemetry(engine, clock)
        now = clock.now_us()
        self.write(t, [Report("d", now, {"x": 1.0}, {}, 0), Report("d", now + 1, {"x": 2.0}, {}, 0)])
        assert [p[3] for p in self.read(t, "d", TimeSpan(now, now + 2))] == [1.0, 2.0]
        assert [p[3] for p in self.read(t, "d", TimeSpan(now, now + 1))] == [1.0]

    def test_the_greatest_version_wins_in_any_order_of_arrival(self, engine: Engine, clock: ManualClock) -> None:
        t = self.telemetry(engine, clock)
        now = clock.now_us()
        versions = [Report("", now, {"x": 1.0, "y": 1.0}, {}, 1 * MS), Report("", now, {"x": 2.0}, {}, 2 * MS)]
        versions.append(Report("", now, {"y": 3.0, "z": 3.0}, {}, 3 * MS))
        for n, order in enumerate(itertools.permutations(versions)):
            device = f"d{n}"
            for r in order:
                self.write(t, [Report(device, r.time_us, r.values, {}, r.version_us)])
            got = {name: value for _, _, name, value in self.read(t, device, TimeSpan(now, now + 1))}
            assert got == {"x": 2.0, "y": 3.0, "z": 3.0}

    def test_latest_is_the_newest_event_whatever_arrives_later(self, engine: Engine, clock: ManualClock) -> None:
        t = self.telemetry(engine, clock)
        now = clock.now_us() - clock.now_us() % HOUR + 30 * MINUTE
        clock.time_us = now
        self.write(t, [Report("d", now, {"x": 2.0}, {}, 1 * MS)])
        self.write(t, [Report("d", now - MINUTE, {"x": 1.0, "rare": 7.0}, {}, 2 * MS)])
        self.write(t, [Report("d", now - 3 * HOUR, {"x": 0.0}, {}, 3 * MS)])
        for process in (t, self.telemetry(engine, clock)):  # also with nothing remembered
            got = newest(points_of(process.latest(ACME, ["d", "never seen"])))
            assert {(m, v) for _, _, m, v in plain(got)} == {("x", 2.0), ("rare", 7.0)}

    def test_a_device_may_change_width_and_spread_and_late_data_lands_where_it_is_looked_for(
        self, engine: Engine, clock: ManualClock
    ) -> None:
        t = self.telemetry(engine, clock)
        start = clock.now_us() - clock.now_us() % DAY
        clock.time_us = start
        first = start + HOUR + 20 * MINUTE
        t.places.add_epoch("acme", "d", Epoch(first, 15 * MINUTE, 4, "test"))
        t.places.add_epoch("acme", "d", Epoch(first + 3 * HOUR, 6 * HOUR, 1, "test"))
        clock.time_us = start + 8 * HOUR
        reports = [Report("d", start + i * 5 * MINUTE, {"x": float(i)}, {}, MS) for i in range(96)]
        self.write(t, reports[::2])
        other = self.telemetry(engine, clock)
        self.write(other, reports[1::2])
        for process in (t, other):
            assert len(self.read(process, "d", TimeSpan(start, start + 8 * HOUR))) == 96
            assert len(self.read(process, "d", TimeSpan(first, first + HOUR))) == 12
            assert plain(newest(points_of(process.latest(ACME, ["d"]))))[0][3] == 95.0

    def test_a_device_spread_as_its_profile_calls_for_is_read_as_any_other(self, engine: Engine, clock: ManualClock) -> None:
        t = self.telemetry(engine, clock)
        start = clock.now_us() - clock.now_us() % HOUR + HOUR
        for device, rate, spread in (("fast", 100, 16), ("fastest", 1704, 256)):
            epoch = declared_epoch([], Profile(reports_per_s=rate), t.places.earliest_epoch_us())
            assert epoch is not None
            assert (epoch.width_us, epoch.sub_buckets) == (15 * MINUTE, spread)
            t.places.add_epoch("acme", device, epoch)
        clock.time_us = start + HOUR
        times = [start + i * 3_571_428 for i in range(1000)]  # over an hour, with odd microseconds
        for device in ("fast", "fastest"):
            self.write(t, [Report(device, at, {"x": float(i), "y": -1.0}, {}, MS) for i, at in enumerate(times)])
        for process in (t, self.telemetry(engine, clock)):
            for device in ("fast", "fastest"):
                got = [p for p in self.read(process, device, TimeSpan(start, start + HOUR)) if p[2] == "x"]
                assert sorted((at, value) for _, at, _, value in got) == [(at, float(i)) for i, at in enumerate(times)]
            latest = plain(newest(points_of(process.latest(ACME, ["fast", "fastest"]))))
            want = {(device, times[-1], m, v) for device in ("fast", "fastest") for m, v in (("x", 999.0), ("y", -1.0))}
            assert set(latest) == want

    def test_whatever_epochs_are_decided_every_accepted_report_is_read_by_its_span(
        self, engine: Engine, clock: ManualClock
    ) -> None:
        history: list[Step] = [("send", 0, "a", 90, 4), ("look", True), ("send", 1, "a", 90, 4), ("late", 0, "a", 200)]
        history += [("declare", 1, "a", 300.0), ("send", 1, "a", 3, 4), ("restart", 0), ("send", 0, "a", 240, 2)]
        history += [("declare", 0, "a", 0.0), ("send", 0, "b", 3, 14), ("look", True), ("send", 1, "b", 3, 5)]
        assert len(check_placement(engine, clock, history)) >= 3

    def test_an_epoch_must_lie_ahead_of_every_writer(self, engine: Engine, clock: ManualClock) -> None:
        t = self.telemetry(engine, clock)
        try:
            t.places.add_epoch("acme", "d", Epoch(clock.now_us() - clock.now_us() % MS))
        except Rejected as error:
            assert error.code == "epoch"  # noqa: PT017  (no pytest in a suite that others may import)
        else:
            raise AssertionError("an epoch in the past was accepted")

    def test_another_process_learns_of_an_epoch_within_the_refresh_interval(
        self, engine: Engine, clock: ManualClock
    ) -> None:
        t, other = self.telemetry(engine, clock), self.telemetry(engine, clock)
        assert other.places.epochs("acme", "d") == []
        epoch = Epoch(t.places.earliest_epoch_us(), 6 * HOUR)
        t.places.add_epoch("acme", "d", epoch)
        clock.time_us += 11 * SECOND
        assert other.places.epochs("acme", "d") == [epoch]

    def test_reads_are_cut_at_the_retention(self, engine: Engine, clock: ManualClock) -> None:
        t = self.telemetry(engine, clock)
        now = clock.now_us()
        self.write(t, [Report("d", now - 29 * DAY, {"x": 1.0}, {}, 0), Report("d", now, {"x": 2.0}, {}, 0)])
        assert len(self.read(t, "d", TimeSpan(0, now + 1))) == 2
        clock.time_us += 2 * DAY
        assert [p[3] for p in self.read(t, "d", TimeSpan(0, now + 1))] == [2.0]

    def test_latest_is_cut_at_the_retention_too(self, engine: Engine, clock: ManualClock) -> None:
        t = self.telemetry(engine, clock)
        self.write(t, [Report("d", clock.now_us(), {"x": 1.0}, {}, 0)])
        clock.time_us += 31 * DAY  # the engine still has it, for late rolls
        assert t.latest(ACME, ["d"]) == []

    def test_latest_finds_every_sub_bucket_while_a_narrower_epoch_is_still_to_come(
        self, engine: Engine, clock: ManualClock
    ) -> None:
        t = self.telemetry(engine, clock)
        start = t.places.earliest_epoch_us() + SECOND
        t.places.add_epoch("acme", "d", Epoch(start, HOUR, 8, "test"))
        t.places.add_epoch("acme", "d", Epoch(start + 30 * DAY, HOUR, 1, "test"))
        clock.time_us = start + HOUR
        bucket = clock.now_us() - clock.now_us() % HOUR
        for i in range(16):  # most fall outside sub-bucket 0
            self.write(t, [Report("d", bucket + 1 + i, {"x": float(i)}, {}, 0)])
            got = plain(newest(points_of(t.latest(ACME, ["d"]))))
            assert [p[3] for p in got] == [float(i)]

    def test_a_tenant_may_change_its_retention_class(self, engine: Engine, clock: ManualClock) -> None:
        t = self.telemetry(engine, clock)
        now = clock.now_us()
        epochs = (RetentionEpoch(0, 30 * DAY), RetentionEpoch(now - HOUR, 7 * DAY))
        tenant = Tenant(name="acme", retention=Retention(raw_us=7 * DAY), raw_epochs=epochs)
        self.write(t, [Report("d", now - i * 20 * MINUTE, {"x": float(i)}, {}, 0) for i in range(7)], tenant)
        assert len(self.read(t, "d", TimeSpan(0, now + 1), tenant)) == 7
        clock.time_us += 8 * DAY
        assert self.read(t, "d", TimeSpan(0, now + 1), tenant) == []

    def test_latest_follows_a_retention_that_changes_within_a_bucket(self, engine: Engine, clock: ManualClock) -> None:
        t = self.telemetry(engine, clock)
        bucket = clock.now_us() - clock.now_us() % HOUR
        clock.time_us = bucket + HOUR
        changes = ((0, 30 * DAY), (bucket + 20 * MINUTE, 7 * DAY), (bucket + 40 * MINUTE, 30 * DAY))
        epochs = tuple(RetentionEpoch(from_us, keep_us) for from_us, keep_us in changes)
        tenant = Tenant(name="acme", raw_epochs=epochs)

        def latest(device: str) -> list[float | str]:
            return [value for *_, value in plain(newest(points_of(t.latest(tenant, [device]))))]

        def report(device: str, minute: int) -> Report:
            return Report(device, bucket + minute * MINUTE, {"x": float(minute)}, {}, 0)

        for minute, want in ((10, 10.0), (25, 25.0), (15, 25.0), (30, 30.0), (45, 45.0), (35, 45.0)):
            self.write(t, [report("d", minute)], tenant)
            assert latest("d") == [want]
            # With nothing remembered, on rows of before.
            self.write(self.telemetry(engine, clock), [report("restarted", minute)], tenant)
            assert latest("restarted") == [want]
        self.write(t, [report("at once", minute) for minute in (45, 10, 25)], tenant)
        assert latest("at once") == [45.0]

    def test_a_shorter_retention_holds_at_once_and_a_longer_one_from_then_on(
        self, engine: Engine, clock: ManualClock
    ) -> None:
        t = self.telemetry(engine, clock)
        now = clock.now_us()
        self.write(t, [Report("d", now - days * DAY, {"x": float(days)}, {}, 0) for days in (1, 5, 20)])
        self.write(t, [Report("e", now - 20 * DAY, {"x": 20.0}, {}, 0)])

        def seen(*keeps: int) -> list[list[float]]:
            epochs = tuple(RetentionEpoch(now + k * HOUR if k else 0, keep) for k, keep in enumerate(keeps))
            tenant = Tenant(name="acme", retention=Retention(raw_us=keeps[-1], minute_us=0, hour_us=0), raw_epochs=epochs)
            latest = newest(points_of(t.latest(tenant, ["d", "e"]))).number
            read = [p[3] for p in self.read(t, "d", TimeSpan(0, now + 1), tenant)]
            return [sorted(map(float, read)), sorted(latest.tolist())]

        assert seen(30 * DAY) == [[1.0, 5.0, 20.0], [1.0, 20.0]]
        assert seen(30 * DAY, 7 * DAY) == [[1.0, 5.0], [1.0]]
        assert seen(30 * DAY, 7 * DAY, 0) == [[1.0, 5.0], [1.0]]
        assert seen(30 * DAY, 0, 2 * DAY, 40 * DAY) == [[1.0], [1.0]]
        assert seen(30 * DAY, 60 * DAY) == [[1.0, 5.0, 20.0], [1.0, 20.0]]
        clock.time_us += 11 * DAY  # what was kept for 30 days is not kept longer afterwards
        assert seen(30 * DAY, 60 * DAY) == [[1.0, 5.0], [1.0]]

    def test_an_erased_device_stays_erased_when_its_old_reports_come_again(self, engine: Engine, clock: ManualClock) -> None:
        t = self.telemetry(engine, clock)
        now = clock.now_us() - clock.now_us() % MS
        old = [Report("d", now - i * MINUTE, {"x": float(i)}, {}, now - SECOND) for i in range(3)]
        spared = Report("e", now, {"x": 9.0}, {}, now - SECOND)
        self.write(t, [*old, spared])
        t.erase(ACME, device="d")
        for process in (t, self.telemetry(engine, clock)):
            assert self.read(process, "d", TimeSpan(0, now + 1)) == []
            assert points_of(process.latest(ACME, ["d"])).time_us.tolist() == []
            refused = process.write(ACME, batch_of(old)).refusals
            assert [(r.code, len(r)) for r in refused] == [("erased", 3)]
            assert self.read(process, "d", TimeSpan(0, now + 1)) == []
        clock.time_us += SECOND
        self.write(t, [Report("d", now, {"x": 5.0}, {}, now + MS)])
        assert [p[3] for p in self.read(t, "d", TimeSpan(0, now + 1))] == [5.0]
        assert [p[3] for p in self.read(t, "e", TimeSpan(0, now + 1))] == [9.0]

    def test_purging_takes_what_was_erased_off_the_disk_and_nothing_else(self, engine: Engine, clock: ManualClock) -> None:
        t = self.telemetry(engine, clock)
        now = clock.now_us() - clock.now_us() % MS
        self.write(t, [Report(d, now - i * HOUR, {"x": 1.0, "y": 2.0}, {}, now - SECOND) for d in "de" for i in range(3)])
        t.erase(ACME, device="d")
        t.erase(ACME, device="e", metric="x", span=TimeSpan(now - HOUR, now + 1))
        clock.time_us += SECOND
        self.write(t, [Report("d", now, {"x": 5.0}, {}, now + MS)])
        for tenant, mark, place in t.erasure.unfinished():
            assert tenant == "acme"
            t.purge(tenant, mark, [mark.device])
            t.erasure.finish(tenant, mark, place)
        assert t.erasure.unfinished() == []
        stored = [p for chunk in engine.scan(t.table(30 * DAY), None) for p in plain(points_of([chunk]))]
        want = [("d", now, "x", 5.0), ("e", now - 2 * HOUR, "x", 1.0)]
        want += [("e", now - i * HOUR, "y", 2.0) for i in range(3)]
        assert sorted(stored) == sorted(want)

    def test_tenants_see_nothing_of_each_other(self, engine: Engine, clock: ManualClock) -> None:
        t = self.telemetry(engine, clock)
        now = clock.now_us()
        other = Tenant(name="other")
        self.write(t, [Report("d", now, {"x": 1.0}, {}, 0)], ACME)
        self.write(t, [Report("d", now, {"x": 2.0}, {}, 0)], other)
        t.erase(other)
        assert [p[3] for p in self.read(t, "d", TimeSpan(0, now + 1), ACME)] == [1.0]
        assert self.read(t, "d", TimeSpan(0, now + 1), other) == []
