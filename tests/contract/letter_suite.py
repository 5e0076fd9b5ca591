"""Laws of dead letters, on any engine. A subclass gives the `engine` and `clock` fixtures and nothing else."""

from __future__ import annotations

import pyarrow as pa

from widerow.engine.port import Engine
from widerow.model.times import DAY, HOUR, MS, SECOND, ManualClock
from widerow.ops.counters import Counters
from widerow.pipeline.dead_letters import DeadLetters, DeadLetterSettings
from widerow.pipeline.letter import Filed
from widerow.pipeline.origin import ARROW_TYPE, LINE_TYPE, Origin
from widerow.pipeline.parts import Kept
from widerow.schema.tables import DEAD_LETTERS

TENANT = "acme"
HTTP = Origin("http", "application/json", "ms", "", b"\xff\x00 not JSON")


class LetterSuite:
    def letters(self, engine: Engine, clock: ManualClock, settings: DeadLetterSettings | None = None) -> DeadLetters:
        engine.apply([DEAD_LETTERS])
        return DeadLetters(engine, clock, Counters(), settings)

    @staticmethod
    def all_of(letters: DeadLetters, tenant: str = TENANT) -> list[Filed]:
        assert letters.settle(240), "kernels are compiled on their first use"
        return list(letters.store.newest(tenant))

    @staticmethod
    def dropped(letters: DeadLetters, tenant: str = TENANT) -> float:
        counted: float = letters._counters.dead_letters_dropped.labels(tenant)._value.get()
        return counted

    def test_a_body_that_cannot_be_read_is_kept_byte_for_byte(self, engine: Engine, clock: ManualClock) -> None:
        letters = self.letters(engine, clock)
        letters.file(TENANT, HTTP, "syntax", "the body is not JSON")
        (filed,) = self.all_of(letters)
        assert (filed.letter.code, filed.letter.reason, filed.letter.source) == ("syntax", "the body is not JSON", "http")
        assert (filed.letter.kept, filed.letter.reports, filed.filed_us) == (Kept.WHOLE, 0, clock.now_us())
        found = letters.store.get(TENANT, filed.id)
        assert found.letter.origin(found.body) == HTTP
        assert letters.store.find("other", filed.id) is None
        letters.close()

    def test_of_a_larger_body_only_the_refused_reports_are_kept(self, engine: Engine, clock: ManualClock) -> None:
        letters = self.letters(engine, clock)
        lines = b'm,device=a x=1\n# no report\nm,device=b t="two\nlines"\n m,device=c x=3\r\n'
        array = b' [ {"device":"a"} , {"b":["]",{}]},{"c":"\\"," }\n]'
        stream = pa.BufferOutputStream()
        table = pa.table({"device": pa.array(["a", "b", "c"]).dictionary_encode(), "x": [1.0, 2.0, 3.0]})
        with pa.ipc.new_stream(stream, table.schema) as writer:
            writer.write_table(table)
        cases = {
            LINE_TYPE: (lines, [2, 4], b'm,device=b t="two\nlines"\nm,device=c x=3'),
            "application/x-ndjson": (b'{"a":1}\n\n{"b":2}\r\n{"c":3}', [0, 2], b'{"a":1}\n{"b":2}'),
            "application/json": (array, [1, 2], b'[{"b":["]",{}]},{"c":"\\"," }]'),
            ARROW_TYPE: (stream.getvalue().to_pybytes(), [1], None),
        }
        for media_type, (body, positions, _) in cases.items():
            clock.time_us += SECOND
            letters.file(TENANT, Origin("http", media_type, "us", "", body), "future", "why", positions)
        kept = {filed.letter.media_type: filed for filed in self.all_of(letters)}
        for media_type, (_, positions, want) in cases.items():
            found = letters.store.get(TENANT, kept[media_type].id)
            assert (found.letter.reports, list(found.letter.positions)) == (len(positions), positions)
            if want is None:
                with pa.ipc.open_stream(found.body) as reader:
                    assert reader.read_all().to_pylist() == [{"device": "b", "x": 2.0}]
            else:
                assert found.body == want, media_type
        letters.close()

    def test_the_newest_comes_first_across_shards_and_days(self, engine: Engine, clock: ManualClock) -> None:
        letters = self.letters(engine, clock)
        start = clock.now_us()
        for n in range(24):
            clock.time_us = start + n * 5 * HOUR
            letters.file(TENANT, HTTP, f"code-{n}", "why")
            assert letters.settle()
        clock.time_us += HOUR
        filed = self.all_of(letters)
        assert [f.letter.code for f in filed] == [f"code-{n}" for n in reversed(range(24))]
        page = list(letters.store.newest(TENANT, before=filed[9].id))
        assert [f.id for f in page] == [f.id for f in filed[10:]]
        some = list(letters.store.newest(TENANT, start_us=start + 10 * HOUR, stop_us=start + 25 * HOUR))
        assert [f.letter.code for f in some] == ["code-4", "code-3", "code-2"]
        assert self.all_of(letters, "other") == []
        letters.close()

    def test_a_letter_is_kept_as_long_as_is_set_and_no_longer(self, engine: Engine, clock: ManualClock) -> None:
        letters = self.letters(engine, clock, DeadLetterSettings(keep_us=2 * DAY))
        letters.file(TENANT, HTTP, "syntax", "why")
        (filed,) = self.all_of(letters)
        clock.time_us += 2 * DAY - SECOND
        assert len(self.all_of(letters)) == 1
        engine.expire(clock.now_us())
        assert len(self.all_of(letters)) == 1
        clock.time_us += 2 * SECOND
        assert self.all_of(letters) == []
        assert letters.store.find(TENANT, filed.id) is None
        letters.close()

    def test_one_letter_goes_and_its_neighbours_stay(self, engine: Engine, clock: ManualClock) -> None:
        letters = self.letters(engine, clock)
        for tenant in (TENANT, "other"):
            for n in range(8):  # all of one microsecond
                letters.file(tenant, HTTP, f"code-{n}", "why")
        filed = self.all_of(letters)
        for gone in filed[:3]:
            letters.store.remove(TENANT, gone)
            letters.store.remove(TENANT, gone)
        assert self.all_of(letters) == filed[3:]
        letters.forget(TENANT)
        assert self.all_of(letters) == []
        assert len(self.all_of(letters, "other")) == 8
        clock.time_us += MS
        letters.file(TENANT, HTTP, "syntax", "of a new tenant of that name")
        assert len(self.all_of(letters)) == 1
        letters.close()

    def test_letters_of_a_device_go_with_it_where_their_origin_names_it(self, engine: Engine, clock: ManualClock) -> None:
        letters = self.letters(engine, clock)
        for device in ("a", "b", ""):
            origin = Origin(f"mqtt:{device}", "", "ms", "", b"x", device)
            letters.file(TENANT, origin, "syntax", "why")
        letters.forget(TENANT, device="a")
        assert sorted(f.letter.device for f in self.all_of(letters)) == ["", "b"]
        letters.close()

    def test_what_is_refused_again_has_the_new_reason_and_is_still_one_letter(
        self, engine: Engine, clock: ManualClock
    ) -> None:
        letters = self.letters(engine, clock)
        body = b"\n".join(b"m,device=d%d x=1" % n for n in range(4))
        origin = Origin("http", LINE_TYPE, "ns", "", body)
        letters.file(TENANT, origin, "unknown-device", "not registered", range(4))
        (filed,) = self.all_of(letters)
        for n in range(2):  # within one millisecond, too
            before = letters.store.get(TENANT, filed.id)
            letters.refused_again(TENANT, before, "future", f"time {n}", [1, 2] if n == 0 else ())
        (after,) = self.all_of(letters)
        found = letters.store.get(TENANT, after.id)
        assert (after.id, after.letter.code, after.letter.reason, after.letter.replays) == (filed.id, "future", "time 1", 2)
        assert (found.body, found.letter.reports) == (b"m,device=d1 x=1\nm,device=d2 x=1", 2)
        letters.store.remove(TENANT, found)
        assert self.all_of(letters) == []
        letters.close()

    def test_a_tenant_files_no_more_letters_a_second_than_it_may(self, engine: Engine, clock: ManualClock) -> None:
        letters = self.letters(engine, clock, DeadLetterSettings(max_per_s=2))
        for _ in range(50):
            letters.file(TENANT, HTTP, "syntax", "why")
        letters.file("other", HTTP, "syntax", "why")
        assert len(self.all_of(letters)) == 20, "a burst of ten seconds"
        assert self.dropped(letters) == 30
        clock.time_us += 3 * SECOND
        for _ in range(50):
            letters.file(TENANT, HTTP, "syntax", "why")
        assert len(self.all_of(letters)) == 26
        assert len(self.all_of(letters, "other")) == 1
        letters.close()

    def test_a_tenant_stores_no_more_bytes_a_day_than_it_may_even_after_a_restart(
        self, engine: Engine, clock: ManualClock
    ) -> None:
        clock.time_us -= clock.time_us % DAY
        settings = DeadLetterSettings(max_bytes_per_day=10_000, max_body_bytes=4_000)
        large = Origin("http", LINE_TYPE, "ns", "", b"x" * 6_000)
        letters = self.letters(engine, clock, settings)
        letters.file(TENANT, large, "syntax", "why")
        (filed,) = self.all_of(letters)
        assert (filed.letter.kept, filed.letter.size) == (Kept.CUT, 4_000)
        letters.close()
        letters = self.letters(engine, clock, settings)
        for _ in range(5):
            letters.file(TENANT, large, "syntax", "why")
        assert len(self.all_of(letters)) == 2
        assert self.dropped(letters) == 4
        assert letters.store.weight_of_day(TENANT, clock.now_us()) <= 10_000
        clock.time_us += DAY
        letters.file(TENANT, large, "syntax", "why")
        assert len(self.all_of(letters)) == 3
        letters.close()

    def test_many_refused_reports_fill_several_letters_none_larger_than_allowed(
        self, engine: Engine, clock: ManualClock
    ) -> None:
        letters = self.letters(engine, clock, DeadLetterSettings(max_body_bytes=1_000))
        reports = [b'{"device":"d%d","values":{"x":1}}' % n for n in range(100)]
        origin = Origin("http", "application/json", "ms", "", b"[" + b",".join(reports) + b"]")
        letters.file(TENANT, origin, "future", "why", range(100))
        bodies = [letters.store.get(TENANT, filed.id) for filed in self.all_of(letters)]
        assert max(len(found.body) for found in bodies) <= 1_000
        kept = sorted(at for found in bodies for at in found.letter.positions)
        assert kept == list(range(100))
        pieces = {piece for found in bodies for piece in found.body[1:-1].replace(b"},{", b"}\n{").split(b"\n")}
        assert pieces == set(reports)
        letters.close()

    def test_a_durable_letter_is_in_the_store_on_return(self, engine: Engine, clock: ManualClock) -> None:
        letters = self.letters(engine, clock)
        letters.file(TENANT, Origin("kafka:t/0/1", "", "ms", "", b"?", durable=True), "syntax", "why")
        assert [f.letter.source for f in letters.store.newest(TENANT)] == ["kafka:t/0/1"]
        letters.close()

    def test_what_is_no_id_is_not_found(self, engine: Engine, clock: ManualClock) -> None:
        letters = self.letters(engine, clock)
        for text in ("", "x", "20261315T080000123456Z-3f9a0c1d", "20261115T080000123456Z-3f9a0c1d\0"):
            assert letters.store.find(TENANT, text) is None
        assert letters.store.find(TENANT, "20261115T080000123456Z-3f9a0c1d") is None
        letters.close()
