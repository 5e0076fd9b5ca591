"""Through a real Kafka: what is acknowledged is in it, and all that is in it comes to the store."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path as FilePath
from threading import Event, Thread, Timer
from typing import Any, cast

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from servers.fixtures import had
from servers.kafka import Kafka
from servers.mosquitto import program
from system.kafka_path import Path, committed, fail_for_good, kafka_path, until
from widerow.codec.decoded import Decoded
from widerow.codec.json import JsonDecoder
from widerow.config import Config, Store
from widerow.config import Kafka as KafkaConfig
from widerow.engine.rows import Rows
from widerow.ingest.kafka.connect import ensure_topics
from widerow.ingest.kafka.partition import partitions_of
from widerow.ingest.kafka.rollups import RollupsOut
from widerow.ingest.kafka.send import Sender
from widerow.model.arrays import Bytes
from widerow.model.batch import Report, batch_of
from widerow.model.device import Device
from widerow.model.errors import ConfigError, StoreUnavailable, Unavailable, WiderowError
from widerow.model.names import Names
from widerow.model.tenant import Tenant
from widerow.model.times import DAY, HOUR, MS, SECOND, TimeSpan, format_time
from widerow.ops.counters import Counters
from widerow.pipeline.job import Job, Lane
from widerow.service import Service


def messages(broker: Kafka, topic: str, count: int) -> list[Message]:
    """The first messages of a topic."""
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "looks", "auto.offset.reset": "earliest"})
    partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
    found: list[Message] = []
    deadline_s = time.monotonic() + 20
    while len(found) < count and time.monotonic() < deadline_s:
        found += consumer.consume(1000, 0.2)
    found += consumer.consume(1000, 0.3)
    consumer.close()
    return found


def kcat(broker: Kafka, *arguments: str, given: str | None = None) -> str:
    tool = str(had(lambda: program("kcat", "kcat")))
    command = [tool, "-b", broker.address, *arguments]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_coordinator_that_still_loads_is_asked_again_and_one_that_refuses_is_not() -> None:
    answers = [KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, 0, KafkaError.GROUP_AUTHORIZATION_FAILED]

    class Asker:
        def committed(self, parts: list[TopicPartition], timeout: float) -> list[TopicPartition]:
            assert timeout > 0
            if code := answers.pop(0):
                raise KafkaException(KafkaError(code))
            return parts

    parts = [TopicPartition("t", 0, 7)]
    assert committed(cast("Consumer", Asker()), parts) == parts
    with pytest.raises(KafkaException):
        committed(cast("Consumer", Asker()), parts)
    assert answers == []


# -- topics


def test_topics_are_made_when_that_is_wanted_and_missed_with_advice_otherwise(kafka: Kafka) -> None:
    settings = KafkaConfig(brokers=kafka.address, topic="made.live", backfill_topic="made.late", partitions=3)
    with pytest.raises(ConfigError, match=r"no topic made\.live and no topic made\.late.*--create-topics"):
        ensure_topics(settings, create=False)
    for _ in range(2):
        assert ensure_topics(settings, create=True) == {Lane.LIVE: 3, Lane.BACKFILL: 3}
    until(lambda: {"made.live": 3, "made.late": 3}.items() <= kafka.topics().items())
    with pytest.raises(ConfigError, match=r"kafka\.brokers is empty"):
        ensure_topics(KafkaConfig(), create=False)


# -- the sink


def test_what_is_acknowledged_is_in_the_partition_that_other_clients_would_choose(kafka: Kafka) -> None:
    devices = [f"dev ü/{i}" for i in range(40)]
    with kafka_path(kafka, partitions=7) as path:
        outcomes = path.send([[path.report(d, i), path.report(d, -i, ago_us=2 * HOUR)] for i, d in enumerate(devices)])
        assert [(o.accepted, o.error, list(o.refusals)) for o in outcomes] == [(2, None, [])] * len(devices)
        others = f"{path.config.kafka.topic}.others"
        kafka.create_topic(others, 7)
        producer = Producer({"bootstrap.servers": kafka.address, "partitioner": "murmur2_random"})
        for device in devices:
            producer.produce(others, b"x", f"acme/{device}".encode())
        assert producer.flush(20) == 0
        chosen = {message.key(): message.partition() for message in messages(kafka, others, len(devices))}
        for topic in (path.config.kafka.topic, path.config.kafka.backfill_topic):
            check_topic(messages(kafka, topic, 7), devices, chosen, live=topic == path.config.kafka.topic)


def check_topic(found: list[Message], devices: list[str], chosen: dict[Any, Any], *, live: bool) -> None:
    seen: dict[str, float] = {}
    for message in found:
        headers = dict(message.headers() or ())
        assert headers["widerow-format"] == b"arrow"
        assert headers["widerow-tenant"] == b"acme"
        table = pa.ipc.open_stream(message.value()).read_all()
        assert max(table["version_us"].to_pylist()) <= int(headers["widerow-version-us"] or 0)
        rows = table.to_pylist()
        assert message.key() == f"acme/{rows[0]['device']}".encode()
        for row in rows:
            assert chosen[f"acme/{row['device']}".encode()] == message.partition()
            seen[row["device"]] = row["cells"][0]["number"]
    assert seen == {device: i if live else -i for i, device in enumerate(devices)}


def test_without_a_broker_nothing_is_acknowledged_and_with_one_again_everything_is(kafka: Kafka) -> None:
    with kafka_path(kafka, send_timeout_s=6) as path:
        assert path.send([[path.report("d", 1)]])[0].accepted == 1
        kafka.kill()
        try:
            outcomes = path.send([[path.report("d", 2), path.report("e", 2)], [path.report("f", 2)]])
            assert {type(outcome.error) for outcome in outcomes} == {StoreUnavailable}
            failures = path.counters.commit_failures.labels("store-unavailable")  # what /health/ready goes by
            until(lambda: failures._value.get() >= 1)
        finally:
            kafka.start()
        until(lambda: path.send([[path.report("d", 3)]])[0].accepted == 1)  # it takes a moment to find it again


def test_a_producer_that_has_failed_for_good_fails_what_it_has_and_another_takes_its_place(kafka: Kafka) -> None:
    with kafka_path(kafka, linger_ms=1000) as path:

        def check_it_fails_once() -> None:
            (outcome,) = path.send([[path.report("d", 1)]], timeout_s=10)
            assert (type(outcome.error), outcome.accepted) == (StoreUnavailable, 0)
            assert path.send([[path.report("d", 2)]])[0].accepted == 1

        assert path.send([[path.report("d", 0)]])[0].accepted == 1
        fail_for_good(path.sink.sender.producer)
        check_it_fails_once()
        while_a_message_waits_for_company = Timer(0.3, fail_for_good, [path.sink.sender.producer])
        while_a_message_waits_for_company.start()
        check_it_fails_once()


def test_producers_that_fail_one_after_the_other_are_replaced_once_a_second(kafka: Kafka) -> None:
    sender = Sender(KafkaConfig(brokers=kafka.address), Counters())
    told: list[WiderowError | None] = []
    began_s = time.monotonic()
    for _ in range(3):
        fail_for_good(sender.producer)
        sender.send("nowhere", b"value", b"key", told.append, sender.deadline_s())
    assert time.monotonic() - began_s >= 2
    assert [type(word) for word in told] == [StoreUnavailable] * 3
    sender.close()


def test_a_front_refuses_unknown_devices_and_registers_none(kafka: Kafka) -> None:
    with kafka_path(kafka) as path:
        catalog = path.service.catalog
        path.tenant = catalog.tenants.update("acme", lambda tenant: replace(tenant, registers_devices=False))
        catalog.devices.create(path.tenant, Device(name="known"))
        mixed, good = path.send(
            [[path.report("stranger", 1), path.report("known", 1)], [path.report("known", 2, ago_us=SECOND)]]
        )
        assert (mixed.accepted, [(r.code, list(r.positions)) for r in mixed.refusals]) == (1, [("unknown-device", [0])])
        assert (good.accepted, list(good.refusals)) == (1, [])
        path.tenant = catalog.tenants.update("acme", lambda tenant: replace(tenant, registers_devices=True))
        assert path.send([[path.report("stranger", 1)]])[0].accepted == 1
        assert list(catalog.devices.names("acme")) == ["known"]


# -- the worker


def test_everything_sent_is_stored_once_and_the_offsets_follow(kafka: Kafka) -> None:
    with kafka_path(kafka) as path, path.worker() as worker:
        sent = {f"d{i}": [path.report(f"d{i}", x, ago_us=(50 - x) * SECOND) for x in range(50)] for i in range(20)}
        late = [path.report("d0", -x, ago_us=DAY - x * SECOND) for x in range(10)]
        path.send([*sent.values(), late])
        topic, backfill = path.config.kafka.topic, path.config.kafka.backfill_topic
        until(lambda: path.lag() == 0 and path.lag(backfill) == 0)
        assert path.stored("d0") == [-x for x in range(10)] + list(range(50))
        assert all(path.stored(device) == list(range(50)) for device in list(sent)[1:])
        assert path.letters() == []
        assert worker.trouble() == ""
        until(lambda: [lag_gauge(path, topic, p) for p in range(4)] == [0.0] * 4)


def lag_gauge(path: Path, topic: str, partition: int) -> float | None:
    labels = {"topic": topic, "partition": str(partition)}
    return path.service.counters.registry.get_sample_value("widerow_kafka_lag", labels)


def test_what_was_not_committed_comes_again_and_changes_nothing(kafka: Kafka) -> None:
    with kafka_path(kafka) as path:
        path.send([[path.report(f"d{i}", i)] for i in range(10)])
        for group in ("first", "second"):
            again = replace(path, config=replace(path.config, kafka=replace(path.config.kafka, group=group)))
            with again.worker():
                until(lambda: again.lag() == 0)  # noqa: B023
        assert [path.stored(f"d{i}") for i in range(10)] == [[i] for i in range(10)]


def test_messages_that_kafka_deleted_before_a_worker_took_them_are_counted(
    kafka: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    with kafka_path(kafka, partitions=1) as path:
        topic, missed = path.config.kafka.topic, path.service.counters.kafka_missed
        # What others do in transactions leaves gaps where nothing is missing.
        producer = Producer({"bootstrap.servers": kafka.address, "transactional.id": topic})
        producer.init_transactions(30)
        for x in range(3):
            producer.begin_transaction()
            producer.produce(topic, f'{{"values": {{"x": {x}}}}}'.encode(), b"acme/d")
            producer.commit_transaction(30)
        with path.worker() as worker:
            until(lambda: len(path.stored("d")) == 3)
            until(lambda: len(worker.streams[0]._lines[0].gaps) == 0)
        assert missed.labels(topic)._value.get() == 0

        for x in range(3, 13):
            path.send([[path.report("d", x)]])
        admin = AdminClient({"bootstrap.servers": kafka.address})
        deleted = admin.delete_records([TopicPartition(topic, 0, 6 + 7)])
        assert [future.result(30).low_watermark for future in deleted.values()] == [13]
        with path.worker():
            until(lambda: path.lag() == 0)
            until(lambda: missed.labels(topic)._value.get() > 0)
        assert sorted(path.stored("d")) == [0, 1, 2, 10, 11, 12]
        # The worker before had committed what is behind the last message, and the end of its transaction counts as one.
        assert missed.labels(topic)._value.get() == 7 + 1
        assert "Kafka deleted 8 messages before they were taken" in caplog.text


def test_a_message_that_is_ahead_of_our_clock_has_its_own_time_as_often_as_it_comes(kafka: Kafka) -> None:
    with kafka_path(kafka) as path:
        stamp_ms = path.service.clock.now_us() // MS + 3000
        producer = Producer({"bootstrap.servers": kafka.address})
        producer.produce(path.config.kafka.topic, b'{"values": {"x": 1}}', b"acme/d", timestamp=stamp_ms)
        assert producer.flush(20) == 0
        done_us = []
        for group in ("first", "second"):
            again = replace(path, config=replace(path.config, kafka=replace(path.config.kafka, group=group)))
            with again.worker():
                until(lambda: again.lag() == 0)  # noqa: B023
            done_us.append(path.service.clock.now_us())
            until(lambda: path.service.clock.now_us() > stamp_ms * MS)
        span = TimeSpan(0, stamp_ms * MS + HOUR)
        points = path.service.queries.series(path.tenant, "d", span=span, limit=10).points
        assert (points.time_us.tolist(), points.number.tolist()) == ([stamp_ms * MS], [1])
        assert done_us[0] >= stamp_ms * MS


def test_while_the_store_fails_nothing_is_skipped_and_memory_is_bounded(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kafka_path(kafka, max_message_kib=64) as path:
        engine, broken = path.service.engine, Event()
        write = engine.write

        def fails(changes: Any) -> None:
            if broken.is_set():
                raise Unavailable("the store is away")
            write(changes)

        monkeypatch.setattr(engine, "write", fails)
        broken.set()
        with path.worker(max_in_flight_mib=1) as worker:
            texts = [
                [replace(path.report(f"d{i}", x, ago_us=x), values={"t": f"{i}/{x}/" + 20_000 * "z"}) for x in range(20)]
                for i in range(12)
            ]
            path.send(texts)
            counters, topic = path.service.counters, path.config.kafka.topic
            until(lambda: counters.kafka_pauses.labels(topic)._value.get() >= 1)
            until(lambda: counters.kafka_retries.labels(topic, "unavailable")._value.get() >= 6)
            assert "paused" in worker.strain()
            until(lambda: counters.kafka_in_flight.labels(topic)._value.get() >= 1 << 20)
            assert counters.kafka_in_flight.labels(topic)._value.get() < 2 << 20
            waiting = path.lag()
            assert waiting >= 48
            broken.clear()
            until(lambda: path.lag() == 0)
            until(lambda: worker.strain() == "")
        assert [len(path.stored(f"d{i}")) for i in range(12)] == [20] * 12


def test_workers_come_and_go_while_reports_flow_and_none_is_lost(kafka: Kafka) -> None:
    with kafka_path(kafka, partitions=6) as path:
        stop, sent = Event(), [0]

        def flow() -> None:
            while not stop.wait(0.01):
                x = sent[0]
                outcomes = path.send([[path.report(f"d{i}", x)] for i in range(12)])
                assert all(outcome.accepted == 1 for outcome in outcomes)
                sent[0] += 1

        sender = Thread(target=flow)
        sender.start()
        try:
            with path.worker():
                until(lambda: len(path.stored("d0")) > 20)
                with path.worker() as second:
                    until(lambda: all(len(stream._lines) == 3 for stream in second.streams))
                    before = len(path.stored("d0"))
                    until(lambda: len(path.stored("d0")) > before + 20)
                until(lambda: len(path.stored("d0")) > before + 40)
        finally:
            stop.set()
            sender.join()
        with path.worker():
            until(lambda: path.lag() == 0)
        assert [path.stored(f"d{i}") for i in range(12)] == [list(range(sent[0]))] * 12
        assert _count(path, "lost") == 0


def test_what_a_worker_refuses_is_kept_and_sent_again_after_the_fix(kafka: Kafka) -> None:
    """Acknowledged by a front that did not know better: the tenant was closed to new devices meanwhile."""
    with kafka_path(kafka) as path:
        path.send([[path.report("new", 1), path.report("new", 2, ago_us=SECOND)], [path.report("known", 3)]])
        catalog = path.service.catalog
        catalog.devices.create(path.tenant, Device(name="known"))
        tenant = catalog.tenants.update("acme", lambda tenant: replace(tenant, registers_devices=False))
        kcat(kafka, "-P", "-t", path.config.kafka.topic, "-K", "|", given='acme/new|{"values": {"x": 4}}\n')
        with path.worker():
            until(lambda: path.lag() == 0)
        assert path.stored("known") == [3]
        letters = path.letters()
        assert sorted((filed.letter.code, filed.letter.reports) for filed in letters) == [
            ("unknown-device", 0),
            ("unknown-device", 2),
        ]
        catalog.devices.create(tenant, Device(name="new"))
        assert [path.service.replay.one(tenant, filed).outcome for filed in letters] == ["stored", "stored"]
        assert sorted(path.stored("new")) == [1, 2, 4]
        assert path.letters() == []


def test_what_a_front_acknowledged_is_stored_also_if_its_tenant_was_a_stranger_a_moment_ago(kafka: Kafka) -> None:
    with kafka_path(kafka) as path, path.worker():
        topic, skipped = path.config.kafka.topic, path.service.counters.kafka_skipped
        kcat(kafka, "-P", "-t", topic, "-K", "|", given='newcomer/d|{"values": {"x": 1}}\n')
        until(lambda: skipped.labels(topic, "unknown-tenant")._value.get() == 1)
        path.tenant = path.service.catalog.tenants.create(Tenant(name="newcomer"))
        assert path.send([[path.report("d", 2)]])[0].accepted == 1
        until(lambda: path.lag() == 0)
        assert path.stored("d") == [2]
        kcat(kafka, "-P", "-t", topic, "-K", "|", given='newcomer/d|{"values": {"x": 3}}\n')  # now known to all
        until(lambda: path.stored("d") == [2, 3])


def test_a_message_that_a_decoder_fails_on_is_filed_and_its_neighbours_are_stored(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A fault of ours that nobody foresaw: trying again for ever would hold up the partition."""
    decode_documents = JsonDecoder.decode_documents

    def fail(self: JsonDecoder, data: Bytes, *rest: Any, **named: Any) -> Decoded:
        if b"cursed" in data.tobytes():
            raise IndexError("out of thin air")
        return decode_documents(self, data, *rest, **named)

    monkeypatch.setattr(JsonDecoder, "decode_documents", fail)
    with kafka_path(kafka) as path:
        reports = [f'acme/d{i}|{{"values": {{"x": {i}}}}}' for i in range(20)]
        reports[7] = 'acme/d7|{"values": {"cursed": 1}}'
        kcat(kafka, "-P", "-t", path.config.kafka.topic, "-K", "|", given="\n".join(reports) + "\n")
        with path.worker():
            until(lambda: path.lag() == 0)
        assert [path.stored(f"d{i}") for i in range(20)] == [[i] if i != 7 else [] for i in range(20)]
        (filed,) = path.letters()
        assert (filed.letter.code, b"cursed" in filed.body) == ("internal", True)
        assert "IndexError" in filed.letter.reason
    assert "decoding failed" in caplog.text


def _count(path: Path, event: str) -> float:
    topic = path.config.kafka.topic
    return float(path.service.counters.kafka_rebalances.labels(topic, event)._value.get())


# -- rollups out


def _not_now(_out: RollupsOut) -> None:
    raise Unavailable("not now")


def _never_again(out: RollupsOut) -> None:
    fail_for_good(out.sender.producer)


@pytest.mark.parametrize("trouble", [_not_now, _never_again])
def test_hours_that_were_rolled_go_out_and_go_again_if_kafka_did_not_take_them(
    kafka: Kafka, trouble: Callable[[RollupsOut], None]
) -> None:
    topic = f"out{trouble.__name__}"
    settings = KafkaConfig(
        brokers=kafka.address,
        topic=f"{topic}.live",
        backfill_topic=f"{topic}.late",
        rollups_topic=f"{topic}.hours",
        partitions=3,
    )
    ensure_topics(settings, create=True)
    troubles = [trouble]

    def told(counters: Counters) -> Callable[[Tenant, Rows], None]:
        out = RollupsOut(settings, counters)

        def tell(tenant: Tenant, hours: Rows) -> None:
            if troubles:
                troubles.pop()(out)
            out(tenant, hours)

        return tell

    config = Config(kafka=settings, store=Store(url="memory:"))
    with Service.open(config, rolls=True, told=told) as service:
        service.pyramid.stop()
        tenant = service.catalog.tenants.create(Tenant(name="acme"))
        hour_us = service.clock.now_us() // HOUR * HOUR - 2 * HOUR
        done = Event()
        sent = [
            Report(device, hour_us + x * SECOND, {"x": float(x), "y": 2.0, "t": "text"}, {}, hour_us)
            for device in ("a", "b")
            for x in range(10)
        ]
        service.pipeline.submit(Job(tenant, 1, lambda: Decoded(batch_of(sent)), lambda _outcome: done.set()))
        assert done.wait(30)
        units = list(service.pyramid.marks.pending())
        for unit in units:
            for _ in range(2):
                with suppress(Unavailable):
                    service.pyramid.roller.roll(tenant, unit)
    found = {message.key(): json.loads(message.value() or b"") for message in messages(kafka, settings.rollups_topic, 2)}
    assert set(found) == {b"acme/a", b"acme/b"}
    said = found[b"acme/a"]
    assert (said["device"], said["level"], said["start"]) == ("a", "hour", format_time(hour_us))
    x, y = said["metrics"]["x"], said["metrics"]["y"]
    assert (x["count"], x["min"], x["max"], x["sum"], x["avg"], x["first"], x["last"]) == (10, 0, 9, 45, 4.5, 0, 9)
    assert (y["stddev"], y["p50"], set(said["metrics"])) == (0, 2, {"x", "y"})


# -- others


GUIDE = FilePath(__file__).parents[2] / "docs/guides/kafka.md"


def test_the_lines_with_kcat_in_the_guide_do_what_it_says(kafka: Kafka) -> None:
    tool = str(had(lambda: program("kcat", "kcat")))
    lines = [block for block in re.findall(r"```sh\n(.*?)```", GUIDE.read_text(), re.DOTALL) if "kcat" in block]
    with kafka_path(kafka) as path:

        def run(line: str) -> str:
            for written, meant in (
                ("kcat ", f"{tool} "),
                ("kafka:9092", kafka.address),
                ("widerow.reports", path.config.kafka.topic),
            ):
                assert written in line
                line = line.replace(written, meant)
            done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False, timeout=60)
            assert done.returncode == 0, done.stderr
            return done.stdout

        write, read_all, read_one = lines
        assert run(write) == ""
        value = '{"values": {"temperature": 71.5}}'
        partition = int(partitions_of("acme", Names.of(["press-4"]), 4)[0])
        assert partition == 0, "as the guide says; without murmur2 it would be 1"
        assert run(read_all) == f"0 0 acme/press-4 [] {len(value)}\n"
        assert run(read_one) == f"acme/press-4 {value}\n"
        path.send([[path.report("press-4", 2)]])
        ours = re.fullmatch(r"0 1 acme/press-4 \[(.*)\] \d+", run(read_all).splitlines()[1])
        assert ours
        assert ours[1].startswith("widerow-format=arrow,widerow-tenant=acme,widerow-version-us=")
        with path.worker():
            until(lambda: path.lag() == 0)
        assert sorted(path.stored("press-4")) == [2, 71.5]


def test_kcat_writes_and_reads_the_topics_as_documented(kafka: Kafka) -> None:
    with kafka_path(kafka) as path, path.worker():
        topic = path.config.kafka.topic
        now_ms = path.service.clock.now_us() // 1000
        lines = [
            f"acme/press 4|{json.dumps({'time': now_ms, 'values': {'x': 71.5}})}",
            f"acme/press 4|{json.dumps([{'time': now_ms - 2 + x, 'values': {'x': x}} for x in (0, 1)])}",
            f"acme|{json.dumps({'device': 'own', 'values': {'x': 3}})}",
            'acme/press 4|{"values": {"x": broken}}',
            'acme/press 4|{"device": "other", "values": {"x": 1}}',
            'nobody/d|{"values": {"x": 1}}',
            'no key|{"values": {"x": 1}}',
        ]
        # Without the page's partitioner: a message in the wrong partition is stored all the same.
        kcat(kafka, "-P", "-t", topic, "-K", "|", given="\n".join(lines) + "\n")
        until(lambda: path.lag() == 0)
        assert path.stored("press 4") == [0, 1, 71.5]
        assert path.stored("own") == [3]
        told = sorted((filed.letter.code, filed.letter.device, filed.body.decode()) for filed in path.letters())
        assert told == [
            ("syntax", "press 4", lines[3].partition("|")[2]),
            ("wrong-device", "press 4", lines[4].partition("|")[2]),
        ]
        assert {filed.letter.source.partition("/")[0] for filed in path.letters()} == {f"kafka:{topic}"}
        skipped = path.service.counters.kafka_skipped
        assert skipped.labels(topic, "unknown-tenant")._value.get() == 2

        path.send([[path.report("ours", 5)]])
        until(lambda: path.stored("ours") == [5])
        partition = int(partitions_of("acme", Names.of(["ours"]), 4)[0])
        shown = kcat(kafka, "-C", "-t", topic, "-p", str(partition), "-o", "-1", "-c", "1", "-f", "%k %h")
        assert shown.startswith("acme/ours widerow-format=arrow,widerow-tenant=acme,widerow-version-us=")
