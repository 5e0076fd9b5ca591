"""Reports as messages of Kafka's and back: nothing is lost, bent or doubled on the way, whoever sent it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message
from hypothesis import given
from hypothesis import strategies as st

from reference.murmur2 import murmur2
from widerow.codec.arrow import encode_arrow
from widerow.codec.json import JsonDecoder
from widerow.ingest.kafka.message import ARROW, FORMAT, JSON, VERSION, Header, Outgoing, messages_of
from widerow.ingest.kafka.offsets import Line
from widerow.ingest.kafka.partition import key_of, partitions_of
from widerow.ingest.kafka.receive import MOST_AHEAD_US, PACK_MESSAGES, Incoming, Pack, Receiver, incoming, packs_of
from widerow.model.batch import Report, batch_of, reports_of
from widerow.model.names import Names
from widerow.model.times import HOUR, MAX_TIME_US, MS, SECOND, ManualClock
from widerow.pipeline.job import Lane

NOW = 1_800_000_000 * SECOND
MAX = 16 << 10
RECEIVER = Receiver(JsonDecoder(seed=1), ManualClock(NOW))

names = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=12)
numbers = st.floats(allow_nan=False, allow_infinity=False)
reports = st.builds(
    Report,
    names,
    st.integers(NOW - 3 * HOUR, NOW),
    st.dictionaries(names, numbers | st.text(max_size=300), min_size=1, max_size=8),
    st.dictionaries(names, st.text(max_size=20), max_size=2),
    st.integers(NOW // MS - 10_000, NOW // MS).map(lambda ms: ms * MS),
)


def pack_of(values: list[bytes], form: bytes, devices: list[str] | None = None, stamp_us: int = NOW) -> Pack:
    line = Line("t", 0)
    devices = devices or [""] * len(values)
    messages = [
        Incoming(line.take(i, len(value)), value, form, "acme", device, stamp_us + i * MS, 0, stamp_us + i * MS)
        for i, (value, device) in enumerate(zip(values, devices, strict=True))
    ]
    (pack,) = packs_of(messages, Lane.LIVE)
    return pack


# -- partitions


def test_murmur2_is_that_of_kafkas_own_tests() -> None:
    """The vectors of `UtilsTest.testMurmur2`, in Java's signed numbers."""

    def check(text: bytes, want: int) -> None:
        assert murmur2(text) == want % (1 << 32)

    check(b"21", -973932308)
    check(b"foobar", -790332482)
    check(b"a-little-bit-long-string", -985981536)
    check(b"a-little-bit-longer-string", -1486304829)
    check(b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971)
    check(b"abc", 479470107)


@given(st.lists(names, max_size=20), st.integers(1, 1000))
def test_a_devices_partition_is_that_of_its_key(devices: list[str], partitions: int) -> None:
    found = partitions_of("acme", Names.of(devices), partitions).tolist()
    assert found == [(murmur2(key_of("acme", device)) & 0x7FFFFFFF) % partitions for device in devices]


# -- ours


@given(st.lists(reports, max_size=40), st.integers(1, 5))
def test_what_is_encoded_is_decoded_once_each_in_its_own_lane_and_partition(sent: list[Report], partitions: int) -> None:
    batch = batch_of(sent)
    late = batch.time_us < NOW - HOUR
    messages, too_large = messages_of("acme", batch, late, {Lane.LIVE: partitions, Lane.BACKFILL: 3}, MAX)
    assert sorted(np.concatenate([*[m.rows for m in messages], too_large]).tolist()) == list(range(len(sent)))
    for message in messages:
        want = [sent[i] for i in message.rows.tolist()]
        assert len(message.value) <= MAX
        assert message.rows.tolist() == sorted(message.rows.tolist())
        assert message.key == key_of("acme", want[0].device)
        count = partitions if message.lane is Lane.LIVE else 3
        for report in want:
            assert (report.time_us < NOW - HOUR) == (message.lane is Lane.BACKFILL)
            assert partitions_of("acme", Names.of([report.device]), count)[0] == message.partition
    if messages:
        check_round_trip(sent, messages)


def check_round_trip(sent: list[Report], messages: list[Outgoing]) -> None:
    decoded = RECEIVER.decode(pack_of([m.value for m in messages], ARROW))
    assert decoded.refusals == ()
    assert reports_of(decoded.batch) == [sent[i] for message in messages for i in message.rows.tolist()]


def test_large_batches_are_split_and_a_report_that_is_too_large_by_itself_is_named() -> None:
    def text(n: int) -> str:
        return "".join(chr(97 + (i * 7 + n) % 26) for i in range(6000))

    sent = [Report("d", NOW - i, {"t": f"{i}{text(i)}"}, {}, NOW) for i in range(20)]
    sent[7] = Report("d", NOW, {f"m{k}": f"{k}{text(k)}" for k in range(4)}, {}, NOW)
    late = np.zeros(len(sent), np.bool_)
    messages, too_large = messages_of("acme", batch_of(sent), late, {Lane.LIVE: 4}, MAX)
    assert too_large.tolist() == [7]
    assert len(messages) >= 10
    assert {len(m.value) <= MAX for m in messages} == {True}
    check_round_trip(sent, messages)


def test_a_version_from_the_future_is_refused_and_a_broken_message_leaves_its_neighbours() -> None:
    def value(report: Report) -> bytes:
        (message,), _ = messages_of("acme", batch_of([report]), np.zeros(1, np.bool_), {Lane.LIVE: 1}, MAX)
        return message.value

    good = Report("d", NOW, {"x": 1.0}, {}, NOW)
    future = Report("d", NOW, {"x": 1.0}, {}, NOW + SECOND)
    pack = pack_of([value(good), b"no arrow", value(future), value(good)], ARROW)
    decoded = RECEIVER.decode(pack)
    assert reports_of(decoded.batch) == [good, good]
    told = [(r.code, m.place.offset, r.positions) for m, several in pack.refused(decoded.refusals) for r in several]
    assert told == [("syntax", 1, []), ("time", 2, [0])]


# -- others'


@given(st.lists(st.lists(st.tuples(numbers, st.booleans()), min_size=1, max_size=3), min_size=1, max_size=8))
def test_json_of_many_messages_is_what_each_would_be_alone(told: list[list[tuple[float, bool]]]) -> None:
    """With the device of its key and the time of its message, where the report names none."""
    values, want = [], []
    for i, several in enumerate(told):
        documents = [
            {"values": {"x": x}} | ({"time": NOW // MS - k} if timed else {}) for k, (x, timed) in enumerate(several)
        ]
        values.append(json.dumps(documents if len(documents) > 1 else documents[0]).encode())
        stamp_us = NOW - SECOND + i * MS
        for k, (x, timed) in enumerate(several):
            tags = {} if timed else {"widerow_time": "received"}
            before = sum(not timed for _, timed in several[:k])  # a microsecond for each
            want.append(Report(f"d{i}", NOW - k * MS if timed else stamp_us + i + before, {"x": x}, tags, stamp_us))
    devices = [f"d{i}" for i in range(len(told))]
    decoded = RECEIVER.decode(pack_of(values, JSON, devices, NOW - SECOND))
    assert decoded.refusals == ()
    assert decoded.apart
    assert reports_of(decoded.batch) == want


def taken(stamps_us: list[int], now_us: int, value: bytes = b'{"values":{"x":1}}', *headers: Header) -> list[Incoming]:
    """What a worker whose clock says `now_us` takes."""
    line = Line("t", 0)
    return [
        incoming(
            Message(key=b"acme/d", value=value, headers=[*headers], timestamp=(TIMESTAMP_CREATE_TIME, stamp_us // MS)),
            line.take(i, 1),
            now_us,
        )
        for i, stamp_us in enumerate(stamps_us)
    ]


@given(st.lists(st.integers(-20_000, 10_000), min_size=1, max_size=5), st.integers(0, HOUR))
def test_json_without_a_time_has_that_of_its_message_whoever_takes_it_and_when(ahead_ms: list[int], later_us: int) -> None:
    stamps_us = [NOW + ms * MS for ms in ahead_ms]
    received = {"widerow_time": "received"}
    want = [Report("d", stamp_us + i, {"x": 1.0}, received, stamp_us) for i, stamp_us in enumerate(stamps_us)]
    for now_us in (NOW, NOW + later_us):
        (pack,) = packs_of(taken(stamps_us, now_us), Lane.LIVE)
        assert pack.ready_us == max(report.time_us for report in want)  # so that it waits for
        decoded = Receiver(JsonDecoder(seed=1), ManualClock(max(now_us, pack.ready_us))).decode(pack)
        assert (reports_of(decoded.batch), decoded.refusals) == (want, ())


@pytest.mark.parametrize("form", [JSON, ARROW])
def test_messages_of_one_millisecond_without_times_are_kept_each_and_at_the_same_times_by_whoever_takes_them(
    form: bytes,
) -> None:
    value = b'{"values":{"x":1}}' if form == JSON else stream_of({"device": ["d"], "x": [1.0]})

    def decoded(*offsets: int) -> list[tuple[int, int]]:
        line = Line("t", 0)
        messages = [Incoming(line.take(n, 1), value, form, "acme", "d", NOW, 0, NOW) for n in offsets]
        (pack,) = packs_of(messages, Lane.LIVE)
        batch = Receiver(JsonDecoder(seed=1), ManualClock(NOW)).decode(pack).batch
        return list(zip(batch.time_us.tolist(), batch.version_us.tolist(), strict=True))

    together = decoded(5_040, 5_041, 5_042, 6_999)
    assert together == [(NOW + 40, NOW), (NOW + 41, NOW), (NOW + 42, NOW), (NOW + 999, NOW)]
    assert decoded(5_042) == [together[2]]  # another worker, after a rebalance


def test_the_time_of_a_message_is_never_beyond_what_can_be_stored() -> None:
    message = Incoming(Line("t", 0).take(999, 1), b"", JSON, "acme", "d", MAX_TIME_US, 0, 0)
    assert message.time_us == MAX_TIME_US


def test_a_message_too_far_ahead_is_refused_and_its_neighbours_need_not_wait_for_it() -> None:
    times = pa.array([NOW - SECOND, None], pa.timestamp("us", "UTC"))
    columns = {"device": ["d", "d"], "time": times, "x": [1.0, 2.0]}
    versions = {"version_us": pa.array([NOW - SECOND, None], pa.int64())}

    def check(value: bytes, headers: list[Header], far_us: int, want: list[tuple[int, list[int]]]) -> None:
        (pack,) = packs_of(taken([NOW, far_us, NOW - SECOND], NOW, value, *headers), Lane.LIVE)
        assert pack.ready_us == NOW
        for now_us in (NOW, NOW + SECOND):  # a moment later it is too far ahead all the same
            decoded = Receiver(JsonDecoder(seed=1), ManualClock(now_us)).decode(pack)
            refused = [(m.place.offset, r) for m, several in pack.refused(decoded.refusals) for r in several]
            assert [(offset, list(r.positions)) for offset, r in refused] == want
            assert {(r.code, "ahead of the worker's clock" in r.reason) for _, r in refused} <= {("future", True)}
            assert len(decoded.batch) + sum(map(len, decoded.refusals)) == 3 * (1 if not headers else 2)

    far_us, arrow = NOW + MOST_AHEAD_US + MS, (FORMAT, ARROW)
    check(b'{"values":{"x":1}}', [], far_us, [(1, [])])
    check(b'{"time":%d,"values":{"x":1}}' % (NOW // MS), [], far_us, [(1, [])])  # its version is the message's
    check(b'{"values":{"x":1}}', [], 1 << 62, [(1, [])])
    check(stream_of(columns), [arrow], far_us, [(1, [0, 1])])
    check(stream_of(columns | versions), [arrow], far_us, [(1, [1])])  # the other has a version of its own
    ours = encode_arrow(batch_of([Report("d", NOW, {"x": x}, {}, NOW) for x in (1.0, 2.0)]))
    check(ours, [arrow, (VERSION, b"%d" % NOW)], far_us, [])  # nothing of it is from the broker's clock


def stream_of(columns: dict[str, Any]) -> bytes:
    table, sink = pa.table(columns), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def test_a_fronts_messages_wait_for_its_clock_and_not_for_the_brokers() -> None:
    def check(sent_us: int, want_us: int) -> None:
        (message,) = taken([NOW + SECOND], NOW, b"", (FORMAT, ARROW), (VERSION, b"%d" % sent_us))
        assert message.ready_us == want_us

    check(NOW, NOW)
    check(NOW + 3 * SECOND, NOW + 3 * SECOND)
    check(NOW + MOST_AHEAD_US + 1, 0)


def test_what_is_wrong_with_a_json_message_is_its_own() -> None:
    values = [
        b'{"values":{"x":1}}',
        b"{broken",
        b'{"device":"other","values":{"x":1}}',
        b'{"device":"c","values":{"x":1}}',
        b"",
    ]
    pack = pack_of(values, JSON, ["a", "a", "a", "", "a"])
    decoded = RECEIVER.decode(pack)
    assert decoded.batch.device.to_list() == ["a", "c"]
    refused = [(r.code, m.place.offset) for m, several in pack.refused(decoded.refusals) for r in several]
    assert refused == [("syntax", 1), ("wrong-device", 2), ("syntax", 4)]


def test_a_format_that_is_not_known_is_refused_with_the_name_of_the_header() -> None:
    pack = pack_of([b"x", b"y"], b"avro")
    ((first, (refusal,)), (second, _)) = pack.refused(RECEIVER.decode(pack).refusals)
    assert (first.place.offset, second.place.offset) == (0, 1)
    assert "widerow-format" in refusal.reason


def test_packs_hold_one_tenant_and_format_and_are_bounded() -> None:
    line = Line("t", 0)
    made = [
        Incoming(line.take(i, 1), b"{}", JSON if i % 3 else ARROW, f"t{i % 2}", "d", NOW, 0, NOW)
        for i in range(4 * PACK_MESSAGES)
    ]
    packs = packs_of(made, Lane.BACKFILL)
    assert {len({(m.tenant, m.form) for m in pack.messages}) for pack in packs} == {1}
    assert max(len(pack.messages) for pack in packs) == PACK_MESSAGES
    assert sorted(m.place.offset for pack in packs for m in pack.messages) == list(range(len(made)))


# -- offsets


@given(st.permutations(list(range(12))), st.integers(0, 12))
def test_what_is_committed_has_nothing_unfinished_before_it(order: list[int], finished: int) -> None:
    line = Line("t", 0)
    offsets = [5 + 2 * i for i in range(12)]  # gaps, as transactions and compaction leave them
    places = [line.take(offset, 1) for offset in offsets]
    assert line.to_commit() is None
    done = order[:finished]
    for i in done:
        line.finish(places[i])
    first = next((i for i in range(12) if i not in done), 12)
    assert line.next == (5 if first == 0 else offsets[first - 1] + 1)
    assert line.idle == (finished == 12)


def test_only_what_is_below_the_first_offset_that_is_there_was_missed() -> None:
    line = Line("t", 0)
    line.begin(10)
    assert (line.next, line.to_commit()) == (10, None)
    for offset in (10, 12, 20):  # 11 may be the end of a transaction
        line.take(offset, 1)
    assert line.missed(18) == 1 + 5
    assert line.missed(18) == 0, "once"
    for offset in (22, 24):
        line.take(offset, 1)
    assert line.missed(18) == 0, "nothing was deleted since"

    told_late = Line("t", 0)
    told_late.take(20, 1)
    told_late.begin(15)
    told_late.take(21, 1)
    assert (told_late.missed(19), told_late.next) == (4, 20)

    of_a_new_group = Line("t", 0)
    of_a_new_group.take(20, 1)
    assert of_a_new_group.missed(20) == 0
