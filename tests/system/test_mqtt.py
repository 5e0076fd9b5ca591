"""Devices, a real broker, the gateway, an embedded store: what arrives, what is refused, what is never lost."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from servers.mosquitto import PASSWORD, USER, Mosquitto, program
from system.mqtt_site import Device, MqttSite, eventually, mqtt_site
from widerow.admit.pressure import Permit
from widerow.catalog.online import Status
from widerow.codec.decoded import Decoded
from widerow.codec.mqtt import Scanner, packets
from widerow.ingest.mqtt import gateway as gateway_module
from widerow.ingest.mqtt import watch as watch_module
from widerow.ingest.mqtt.parcel import Parcel
from widerow.model.errors import Overloaded, Rejected, Unavailable
from widerow.model.lane import Lane
from widerow.model.tenant import Limits, Tenant
from widerow.model.times import MINUTE, MS, ManualClock

NOT_AUTHORIZED = 0x87


@pytest.fixture(scope="module")
def shared(mosquitto: Mosquitto, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqttSite]:
    with mqtt_site(mosquitto, tmp_path_factory.mktemp("widerow"), max_payload_kib=64) as site:
        yield site


@pytest.fixture
def site(shared: MqttSite) -> MqttSite:
    shared.statuses.clear()
    return shared


@pytest.fixture
def device(site: MqttSite) -> Iterator[Device]:
    with Device(site.broker, listens=f"{site.prefix}/+/+/errors") as device:
        yield device


def report(value: float, at_ms: int | None = None) -> dict[str, Any]:
    return {"time": time.time_ns() // 1_000_000 if at_ms is None else at_ms, "values": {"temp": value}}


def test_a_paho_client_and_mosquitto_pub_are_devices(site: MqttSite, device: Device) -> None:
    device.publish(site.topic("paho-1"), report(21.5))
    login = ["-h", site.broker.host, "-p", str(site.broker.port), "-u", USER, "-P", PASSWORD, "-q", "1"]
    command = [
        str(program("mosquitto_pub", "mosquitto-clients")),
        *login,
        "-t",
        site.topic("pub-1"),
        "-m",
        '{"values":{"temp":3}}',
    ]
    subprocess.run(command, check=True, timeout=20)
    eventually(lambda: site.stored("paho-1") == [21.5] and site.stored("pub-1") == [3.0])


def test_a_payload_may_be_an_array_and_name_its_own_device(site: MqttSite, device: Device) -> None:
    now_ms = time.time_ns() // 1_000_000
    device.publish(site.topic("many"), [{"device": "many", **report(float(i), now_ms - i * 1000)} for i in range(100)])
    eventually(lambda: site.stored("many") == [float(i) for i in reversed(range(100))])


def test_an_array_of_reports_without_a_time_is_kept_each_and_in_order(site: MqttSite, device: Device) -> None:
    values = [float(i // 5 % 5) for i in range(150)]
    device.publish(site.topic("timeless-array"), [{"values": {"temp": value}} for value in values])
    eventually(lambda: site.stored("timeless-array") == values)


def test_of_an_array_only_the_reports_with_seconds_for_milliseconds_are_refused(site: MqttSite, device: Device) -> None:
    now_ms = time.time_ns() // 1_000_000
    sent = [report(float(i), (now_ms - i) // 1000 if i % 2 else now_ms - i) for i in range(10)]
    device.publish(site.topic("unset"), sent)
    eventually(lambda: site.stored("unset") == [8.0, 6.0, 4.0, 2.0, 0.0])
    eventually(lambda: device.messages)
    ((_, told),) = device.messages
    assert told["code"] == "time"
    assert "precision=s" in told["reason"]
    assert "MQTT and Kafka take ms" in told["reason"]


def test_names_with_slashes_and_wildcards_are_percent_encoded(site: MqttSite, device: Device) -> None:
    device.publish(site.topic("Line 1%2FPress%237"), report(7.0))
    eventually(lambda: site.stored("Line 1/Press#7") == [7.0])


def test_what_is_refused_is_told_counted_and_filed_while_neighbours_pass(site: MqttSite, device: Device) -> None:
    nowhere, letters = site.topic("lost", tenant="nobody"), site.service.dead_letters.store
    earlier = {one.id for one in letters.newest("acme")}
    bad = {
        site.topic("syntax"): (b'{"values": {', "syntax"),
        site.topic("other"): (b'{"device": "somebody", "values": {"temp": 1}}', "wrong-device"),
        site.topic("empty"): (b'{"values": {}}', "no-values"),
        site.topic("crowd"): (b'{"values": {%s}}' % b", ".join(b'"m%d": 1' % i for i in range(1_001)), "too-many-values"),
        site.topic("large"): (b'{"values": {"text": "%s"}}' % (b"x" * (10 << 20)), "too-large"),
        site.topic("future"): (b'{"time": "2099-01-01T00:00:00Z", "values": {"temp": 1}}', "future"),
        nowhere: (b'{"values": {"temp": 1}}', "unknown-tenant"),
    }
    before = {code: site.refused(code) for _, code in bad.values()}
    sent, now_ms = [], time.time_ns() // 1_000_000
    for i, (topic, (payload, _)) in enumerate(bad.items()):
        sent += [device.send(topic, payload), device.send(site.topic("good"), report(float(i), now_ms - i))]
    for message in sent:
        message.wait_for_publish(20)

    eventually(lambda: len(site.stored("good")) == len(bad))
    eventually(lambda: len(device.messages) == len(bad))
    told = {message["topic"]: (topic, message["code"]) for topic, message in device.messages}
    assert told == {topic: (topic.replace("telemetry", "errors"), code) for topic, (_, code) in bad.items()}
    assert all(message["reason"] for _, message in device.messages)
    assert {code: site.refused(code) - count for code, count in before.items()} == dict.fromkeys(before, 1)
    found = [letters.get("acme", one.id) for one in letters.newest("acme") if one.id not in earlier]
    filed = {one.letter.source: (one.letter.device, one.letter.code, one.body[:1000]) for one in found}
    wanted = {topic: what for topic, what in bad.items() if topic != nowhere}
    assert filed == {f"mqtt:{topic}": (topic.split("/")[2], code, body[:1000]) for topic, (body, code) in wanted.items()}
    eventually(site.gateway.client.window.is_empty)  # acknowledged: none of it comes again


def test_a_topic_that_the_broker_forbids_is_refused_by_the_broker_and_the_device_is_told(site: MqttSite) -> None:
    own = site.topic("own")
    site.broker.allow(f"{site.prefix}-own", "secret", f"topic write {own}")
    # One after the other: mosquitto may end the connection of who was refused.
    for topic, answer in ((site.topic("another"), NOT_AUTHORIZED), (own, 0)):
        with Device(site.broker, user=f"{site.prefix}-own", password="secret") as device:
            device.publish(topic, report(2.0))
            eventually(lambda: device.answers == [answer])  # noqa: B023 - asked at once
    eventually(lambda: site.stored("own") == [2.0])
    assert site.stored("another") == []


def test_a_topic_that_names_nobody_is_acknowledged_and_counted(site: MqttSite, device: Device) -> None:
    before = site.refused("topic")
    device.publish(site.topic("a%62"), report(1.0))
    eventually(lambda: site.refused("topic") == before + 1)
    eventually(site.gateway.client.window.is_empty)


def test_a_device_is_not_told_more_often_than_it_may_be(site: MqttSite, device: Device) -> None:
    before = site.refused("syntax")
    for message in [device.send(site.topic("noisy"), b"{") for _ in range(50)]:
        message.wait_for_publish(20)
    eventually(lambda: site.refused("syntax") == before + 50)
    eventually(lambda: device.messages)
    time.sleep(0.2)
    assert len(device.messages) <= 10


def test_the_later_of_two_messages_that_contradict_each_other_wins(site: MqttSite, device: Device) -> None:
    now_ms = time.time_ns() // 1_000_000
    for message in [device.send(site.topic("twice"), report(value, now_ms)) for value in (1.0, 2.0)]:
        message.wait_for_publish(20)
    eventually(lambda: site.stored("twice") == [2.0])
    assert device.messages == []


@pytest.mark.parametrize(
    "reads",
    [
        [[1.0, 2.0, 1.0]],  # the last says again what was contradicted
        [[float(i) for i in range(20)], [50.0, 51.0]],
        [[float(i) for i in range(20)], [50.0]],
        [[float(i) for i in range(20)], [5.0, 6.0], [60.0], [7.0]],
    ],
)
def test_of_messages_that_contradict_each_other_the_last_wins_however_they_are_received(
    site: MqttSite, reads: list[list[float]]
) -> None:
    name = f"contradicts{sum(map(len, reads))}"
    now_us, before = site.service.clock.now_us(), site.refused("conflict")
    blocks = []
    for i, values in enumerate(reads):
        told = [json.dumps(report(value, now_us // MS)).encode() for value in values]
        topic = site.topic(name).encode()
        sent = b"".join(packets.publish(topic, payload, identifier=0, qos=0) for payload in told)
        messages = Scanner(1 << 20).scan(np.frombuffer(sent, np.uint8).copy(), 0, len(sent)).publishes
        assert messages is not None
        blocks.append(site.gateway.client.window.add(messages, now_us + (i - len(reads)) * MS))  # a millisecond apart
    for block in blocks:
        site.gateway._received(block)
        given_us = site.service.clock.version_us()
        eventually(lambda given_us=given_us: site.service.clock.version_us() > given_us)  # type: ignore[misc]
    eventually(lambda: not any(block.left for block in blocks))
    assert site.stored(name) == [reads[-1][-1]]
    assert site.refused("conflict") == before


def test_reports_without_a_time_that_are_received_together_are_kept_each_and_in_order(
    mosquitto: Mosquitto, tmp_path: Path
) -> None:
    with mqtt_site(mosquitto, tmp_path) as site, Device(mosquitto, listens=f"{site.prefix}/+/+/errors") as device:
        site.gateway.stop()
        values = [float(i // 5 % 5) for i in range(50)]  # equal ones, different ones, and some that were there before
        for message in [device.send(site.topic("timeless"), {"values": {"temp": value}}) for value in values]:
            message.wait_for_publish(20)
        site.start()
        eventually(lambda: site.received("telemetry") == 50 and site.gateway.client.window.is_empty())
        assert site.stored("timeless") == values
        assert device.messages == []


def test_reports_without_a_time_of_several_reads_in_the_same_instant_are_kept_each_and_in_order(
    mosquitto: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mqtt_site(mosquitto, tmp_path) as site, Device(mosquitto) as device:
        stopped = ManualClock(site.service.clock.now_us())
        monkeypatch.setattr(site.gateway.client, "_clock", stopped)
        for i in range(20):
            device.publish(site.topic("timeless"), {"values": {"temp": i % 3}})
            eventually(lambda: site.received("telemetry") == i + 1)  # noqa: B023 - asked at once
        eventually(site.gateway.client.window.is_empty)
        assert site.stored("timeless") == [float(i % 3) for i in range(20)]


def test_a_report_without_a_time_has_the_same_whenever_it_is_tried_again(
    mosquitto: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when what came with it is tried again in halves, because a part of it brings the decoder down."""
    with mqtt_site(mosquitto, tmp_path) as site, Device(mosquitto) as device:
        site.gateway.stop()
        for message in [device.send(site.topic("timeless"), {"values": {"temp": i}}) for i in range(40)]:
            message.wait_for_publish(20)
        times: dict[float, set[int]] = {}
        decode, tries = gateway_module._dated, count()

        def fails_at_first(parcel: Parcel, decoded: Decoded) -> Decoded:
            dated = decode(parcel, decoded)
            for time_us, number in zip(dated.batch.time_us.tolist(), dated.batch.cells.number[::2].tolist(), strict=True):
                times.setdefault(number, set()).add(time_us)
            if len(parcel) > 1 and next(tries) < 3:  # one alone would be refused for good
                raise Rejected("nobody foresaw this", code="internal")
            return dated

        monkeypatch.setattr(gateway_module, "_dated", fails_at_first)
        site.start()
        eventually(lambda: site.received("telemetry") == 40 and site.gateway.client.window.is_empty())
        assert site.stored("timeless") == [float(i) for i in range(40)]
        assert sorted(times) == [float(i) for i in range(40)]
        assert {len(seen) for seen in times.values()} == {1}
        assert next(tries) > 0, "nothing was tried again"


def test_status_says_who_is_online(site: MqttSite, device: Device) -> None:
    device.publish(site.topic("s1", "status"), b"online", retain=True)
    device.publish(site.topic("s2", "status"), {"status": "offline", "why": "last will"})
    device.publish(site.topic("s3", "status"), b"sleepy")
    eventually(lambda: len(site.statuses) == 2 and device.messages)
    assert sorted(site.statuses) == [("acme", "s1", True), ("acme", "s2", False)]
    told = [site.service.catalog.online.of("acme", device) for device in ("s1", "s2", "s3")]
    assert [said and said.online for said in told] == [True, False, None]
    assert [(topic, message["code"]) for topic, message in device.messages] == [(site.topic("s3", "errors"), "syntax")]


def test_many_statuses_are_few_writes_and_the_last_of_a_device_counts(
    site: MqttSite, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[int] = []
    tell = site.service.catalog.online.tell

    def watched(said: Sequence[Status]) -> None:
        writes.append(len(said))
        tell(said)

    monkeypatch.setattr(site.service.catalog.online, "tell", watched)
    sent = [device.send(site.topic(f"m{i % 10}", "status"), b"offline" if i < 990 else b"online") for i in range(1000)]
    for message in sent:
        message.wait_for_publish(20)
    eventually(lambda: all((said := site.service.catalog.online.of("acme", f"m{i}")) and said.online for i in range(10)))
    eventually(site.gateway.client.window.is_empty)
    assert sum(writes) < 500, writes


def test_a_store_that_is_away_holds_up_neither_statuses_nor_what_comes_behind_them(
    site: MqttSite, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    device.publish(site.topic("before"), report(1.0))
    eventually(lambda: site.stored("before") == [1.0])
    tell, away = site.service.catalog.online.tell, threading.Event()
    away.set()

    def sometimes(said: Sequence[Status]) -> None:
        if away.is_set():
            raise Unavailable("the store does not answer")
        tell(said)

    monkeypatch.setattr(site.service.catalog.online, "tell", sometimes)
    with monkeypatch.context() as patch:
        patch.setattr(site.service.catalog.tenants, "get", no_answer)
        patch.setattr(site.service.catalog.tenants, "list", no_answer)
        entries = site.service.catalog.tenants._recent._entries
        known, _, read_us = entries["acme"]
        entries["acme"] = known, read_us - MINUTE, read_us - MINUTE
        received = site.received("telemetry")
        device.publish(site.topic("w1", "status"), b"online")
        device.publish(site.topic("behind"), report(2.0))
        eventually(lambda: site.received("telemetry") > received and site.gateway.client.window.is_empty())
    assert site.stored("behind") == [2.0]
    assert site.service.catalog.online.of("acme", "w1") is None
    away.clear()
    eventually(lambda: (said := site.service.catalog.online.of("acme", "w1")) is not None and said.online)


def no_answer(*_: object) -> Any:
    raise Unavailable("the store does not answer")


def start_again(site: MqttSite) -> None:
    """A gateway that knows the tenants there are."""
    site.gateway.stop()
    entries = site.service.catalog.tenants._recent._entries
    entries.clear()
    site.start()
    eventually(lambda: "acme" in entries)


def test_a_tenant_that_was_not_heard_of_before_the_store_went_away_holds_up_nothing(
    mosquitto: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mqtt_site(mosquitto, tmp_path) as site, Device(mosquitto) as device:
        tenants = site.service.catalog.tenants
        tenants.create(Tenant(name="quiet"))
        start_again(site)
        entries = tenants._recent._entries
        for name, (known, _, read_us) in list(entries.items()):
            entries[name] = known, read_us - MINUTE, read_us - MINUTE
        with monkeypatch.context() as patch:
            patch.setattr(tenants, "get", no_answer)
            patch.setattr(tenants, "list", no_answer)
            device.publish(site.topic("d", tenant="quiet"), report(1.0))
            device.publish(site.topic("d"), report(2.0))
            eventually(lambda: site.received("telemetry") == 2 and site.gateway.client.window.is_empty())
        assert (site.stored("d", "quiet"), site.stored("d")) == ([1.0], [2.0])


def test_a_tenant_that_is_not_known_while_the_store_is_away_is_asked_about_once_and_taken_when_it_is_back(
    mosquitto: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mqtt_site(mosquitto, tmp_path) as site, Device(mosquitto) as device:
        start_again(site)
        tenants, asked = site.service.catalog.tenants, list[str]()
        tenants.create(Tenant(name="new"))

        def get(name: str) -> Any:
            asked.append(name)
            no_answer()

        monkeypatch.setattr(watch_module, "_AGAIN_S", 0.05)
        with monkeypatch.context() as patch:
            patch.setattr(tenants, "get", get)
            patch.setattr(tenants, "list", no_answer)
            device.publish(site.topic("d", tenant="new"), report(1.0))
            device.publish(site.topic("behind"), report(2.0))
            registry = site.service.counters.registry
            tried = {"code": "unavailable"}
            eventually(lambda: (registry.get_sample_value("widerow_mqtt_retries_total", tried) or 0) >= 5)
            eventually(lambda: site.gateway.client.window.held_bytes > 0)
            assert asked == ["new"]
        eventually(site.gateway.client.window.is_empty)
        assert (site.stored("d", "new"), site.stored("behind")) == ([1.0], [2.0])


def test_messages_that_are_refused_while_the_store_is_away_wait_together_and_not_for_ever(
    mosquitto: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mqtt_site(mosquitto, tmp_path) as site, Device(mosquitto) as device:
        tries: list[str] = []

        def hangs(tenant: str, *_: object) -> None:
            tries.append(tenant)
            time.sleep(0.1)
            no_answer()

        monkeypatch.setattr(site.service.dead_letters, "file", hangs)
        monkeypatch.setattr(gateway_module, "_FILING_S", 0.5)
        monkeypatch.setattr(gateway_module, "_LONGEST_DELAY_S", 0.05)
        start_again(site)
        monkeypatch.setattr(site.service.catalog.tenants, "list", no_answer)
        for message in [device.send(site.topic(f"d{i}"), b"{") for i in range(30)]:
            message.wait_for_publish(20)
        eventually(lambda: site.refused("syntax") == 30 and site.gateway.client.window.is_empty())
        assert tries == ["acme"]  # the others did not ask
        dropped = {"tenant": "acme"}
        assert site.service.counters.registry.get_sample_value("widerow_dead_letters_dropped_total", dropped) == 30

        device.publish(site.topic("later"), b"{")  # the store has not answered for so long: there is nothing to wait for
        monkeypatch.setattr(gateway_module, "_LONGEST_DELAY_S", 60.0)
        eventually(lambda: site.refused("syntax") == 31 and site.gateway.client.window.is_empty())
        assert tries == ["acme"]


def test_what_could_not_be_stored_at_first_is_not_refused_for_having_been_tried_often(
    mosquitto: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mqtt_site(mosquitto, tmp_path) as site, Device(mosquitto, listens=f"{site.prefix}/+/+/errors") as device:
        site.service.catalog.tenants.update("acme", lambda old: replace(old, limits=Limits(writes_per_s=5, writes_burst=25)))
        write, fails = site.service.engine.write, threading.Event()
        fails.set()

        def sometimes(changes: Any) -> None:
            if fails.is_set():
                raise Unavailable("the disk is full")
            write(changes)

        monkeypatch.setattr(site.service.engine, "write", sometimes)
        now_ms = time.time_ns() // 1_000_000
        sent = [device.send(site.topic(f"d{i}"), report(float(i), now_ms)) for i in range(20)]
        sent += [device.send(site.topic("d7"), report(7.0, now_ms)) for _ in range(5)]  # repeats, which are kept once
        for message in sent:
            message.wait_for_publish(20)
        retries = "widerow_mqtt_retries_total"
        registry = site.service.counters.registry
        eventually(lambda: (registry.get_sample_value(retries, {"code": "unavailable"}) or 0) > 100)
        fails.clear()
        eventually(lambda: all(site.stored(f"d{i}") == [float(i)] for i in range(20)))
        eventually(site.gateway.client.window.is_empty)
        assert device.messages == []


def test_live_reports_do_not_wait_for_the_backlog_that_came_with_them(
    mosquitto: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mqtt_site(mosquitto, tmp_path) as site, Device(mosquitto) as device:
        full, move = threading.Event(), site.service.pipeline.pressure.move
        full.set()

        def sometimes(permit: Permit, lane: Lane) -> None:
            if full.is_set():
                raise Overloaded("64 MiB of backlog are in flight")
            move(permit, lane)

        monkeypatch.setattr(site.service.pipeline.pressure, "move", sometimes)
        now_ms = time.time_ns() // 1_000_000
        for message in [
            device.send(site.topic(name), report(1.0, at_ms))
            for i in range(20)
            for name, at_ms in ((f"new{i}", now_ms), (f"old{i}", now_ms - 2 * 3_600_000))
        ]:
            message.wait_for_publish(20)
        eventually(lambda: all(site.stored(f"new{i}") == [1.0] for i in range(20)))
        assert not site.gateway.client.window.is_empty(), "the old ones are the broker's"
        full.clear()
        eventually(site.gateway.client.window.is_empty)


def test_a_gateway_that_is_new_learns_the_status_that_was_kept(mosquitto: Mosquitto, tmp_path: Path) -> None:
    with mqtt_site(mosquitto, tmp_path) as site, Device(mosquitto) as device:
        site.gateway.stop()
        device.publish(site.topic("kept", "status"), b"online", retain=True)
        site.config = type(site.config)(**{**_fields(site.config), "client_id": f"{site.prefix}-new"})
        site.start()
        eventually(lambda: ("acme", "kept", True) in site.statuses)


def _fields(config: Any) -> dict[str, Any]:
    return {name: getattr(config, name) for name in config.__slots__}


def test_what_the_pipeline_does_not_take_now_is_kept_and_tried_again(
    mosquitto: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mqtt_site(mosquitto, tmp_path) as site, Device(mosquitto) as device:
        down = threading.Event()
        down.set()
        submit = site.service.pipeline.submit
        causes: list[Unavailable] = [Overloaded("full"), Unavailable("the store does not answer")]

        def sometimes(job: Any, *, wake: bool = True) -> None:
            if down.is_set():
                raise causes[len(job.tenant.name) % 2]
            submit(job, wake=wake)

        monkeypatch.setattr(site.service.pipeline, "submit", sometimes)
        for i in range(20):
            device.publish(site.topic(f"d{i}"), report(float(i)))
        eventually(lambda: not site.gateway.client.window.is_empty())
        assert site.stored("d0") == []
        down.clear()
        eventually(lambda: all(site.stored(f"d{i}") == [float(i)] for i in range(20)))
        eventually(site.gateway.client.window.is_empty)


def test_what_was_not_acknowledged_comes_again_after_a_reconnect(
    mosquitto: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mqtt_site(mosquitto, tmp_path) as site, Device(mosquitto) as device:
        submit = site.service.pipeline.submit

        def never(_job: Any, *, wake: bool = True) -> None:
            raise Overloaded(f"full {wake}")

        monkeypatch.setattr(site.service.pipeline, "submit", never)
        for i in range(20):
            device.publish(site.topic(f"d{i}"), report(float(i)))
        eventually(lambda: site.gateway.client.window.held_bytes > 0)
        assert not site.gateway.stop(0.1)
        monkeypatch.setattr(site.service.pipeline, "submit", submit)
        site.start()
        eventually(lambda: all(site.stored(f"d{i}") == [float(i)] for i in range(20)))
        assert site.service.counters.registry.get_sample_value("widerow_mqtt_again_total") == 20
        assert (
            site.service.counters.registry.get_sample_value(
                "widerow_mqtt_connections_total", {"lane": "live", "session": "resumed"}
            )
            == 1
        )


def test_a_broker_that_restarts_is_found_again(mosquitto: Mosquitto, tmp_path: Path) -> None:
    with mqtt_site(mosquitto, tmp_path) as site:
        with Device(mosquitto) as device:
            device.publish(site.topic("before"), report(1.0))
            eventually(lambda: site.stored("before") == [1.0])
        mosquitto.restart()
        eventually(lambda: not site.gateway.trouble())
        with Device(mosquitto) as device:
            device.publish(site.topic("after"), report(2.0))
            eventually(lambda: site.stored("after") == [2.0])


def test_what_comes_between_a_restart_of_the_broker_and_our_return_is_kept_without_a_group(
    mosquitto: Mosquitto, tmp_path: Path
) -> None:
    """The broker forgets shared subscriptions, and then has nobody; a plain one it keeps."""
    for group, reason, kept in (("", 0, [1.0]), ("shared", 16, [])):
        with mqtt_site(mosquitto, tmp_path / f"store-{group}", group=group) as site:
            assert site.gateway.stop(10)
            mosquitto.restart()
            with Device(mosquitto) as device:
                device.publish(site.topic("meanwhile"), report(1.0))
                assert device.answers == [reason]
                site.start()
                device.publish(site.topic("after"), report(2.0))
                eventually(lambda: site.stored("after") == [2.0])
            assert site.stored("meanwhile") == kept


def test_a_stop_waits_for_what_is_under_way(mosquitto: Mosquitto, tmp_path: Path) -> None:
    with mqtt_site(mosquitto, tmp_path) as site, Device(mosquitto) as device:
        for message in [device.send(site.topic(f"d{i}"), report(float(i))) for i in range(500)]:
            message.wait_for_publish(20)
        assert site.gateway.stop(10)
        left = sum(site.stored(f"d{i}") == [] for i in range(500))
        site.start()
        eventually(lambda: all(site.stored(f"d{i}") for i in range(500)))
        again = site.service.counters.registry.get_sample_value("widerow_mqtt_again_total") or 0.0
        assert again <= left  # what it had read, it had acknowledged
