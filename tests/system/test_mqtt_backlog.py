"""Backlog on its own topic, over a real broker: it waits for its lane, and live messages do not wait for it."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from servers.cache import Missing
from servers.fixtures import had
from servers.mosquitto import PASSWORD, USER, Mosquitto
from system.mqtt_site import Device, MqttSite, eventually, mqtt_site
from widerow.ingest.mqtt import client as client_module
from widerow.ingest.mqtt.mosquitto import hashed
from widerow.model.errors import Overloaded
from widerow.model.lane import Lane
from widerow.model.times import HOUR

WINDOW = 20
OLD_MS = 2 * 3_600_000


def report(value: float, *, age_ms: int = 0) -> dict[str, Any]:
    return {"time": time.time_ns() // 1_000_000 - age_ms, "values": {"temp": value}}


def backlog_of(site: MqttSite, device: str) -> list[float]:
    return site.stored(device, back_us=3 * HOUR)


def sample(site: MqttSite, name: str, **labels: str) -> float | None:
    return site.service.counters.registry.get_sample_value(name, labels)


def publish(device: Device, topics: list[str], *, age_ms: int = 0) -> None:
    """To each topic its place in the list. Returns when the broker has them."""
    for message in [device.send(topic, report(float(i), age_ms=age_ms)) for i, topic in enumerate(topics)]:
        message.wait_for_publish(20)


@contextmanager
def full_lane(site: MqttSite) -> Iterator[None]:
    """All room for backlog is taken by somebody else."""
    pressure = site.service.pipeline.pressure
    permit = pressure.admit(1 << 20, Lane.BACKFILL, "somebody")
    try:
        yield
    finally:
        pressure.release(permit)


def test_live_messages_do_not_wait_for_backlog_that_fills_its_window(mosquitto: Mosquitto, tmp_path: Path) -> None:
    with (
        mqtt_site(mosquitto, tmp_path, backfill_mib=1, receive_maximum=WINDOW) as site,
        Device(mosquitto) as device,
    ):
        backlog = site.gateway.backlog
        assert backlog is not None
        with full_lane(site):
            publish(device, [site.topic(f"old{i}", "backfill") for i in range(3 * WINDOW)], age_ms=OLD_MS)
            eventually(lambda: site.received("backfill") == WINDOW)
            publish(device, [site.topic(f"new{i}") for i in range(3 * WINDOW)])
            eventually(lambda: all(site.stored(f"new{i}") == [float(i)] for i in range(3 * WINDOW)))
            eventually(site.gateway.client.window.is_empty)
            assert site.received("backfill") == WINDOW
            assert sample(site, "widerow_mqtt_unacked_bytes", lane="live") == 0
            assert (sample(site, "widerow_mqtt_unacked_bytes", lane="backfill") or 0) > 0
        eventually(lambda: all(backlog_of(site, f"old{i}") == [float(i)] for i in range(3 * WINDOW)))
        eventually(backlog.client.window.is_empty)
        assert site.received("backfill") == 3 * WINDOW


def test_what_is_sent_as_backlog_and_is_live_is_stored_and_what_is_refused_is_told(
    mosquitto: Mosquitto, tmp_path: Path
) -> None:
    with mqtt_site(mosquitto, tmp_path) as site, Device(mosquitto, listens=f"{site.prefix}/+/+/errors") as device:
        device.publish(site.topic("mistaken", "backfill"), report(1.0))
        device.publish(site.topic("bad", "backfill"), b"{")
        eventually(lambda: site.stored("mistaken") == [1.0] and device.messages)
        (topic, said), *more = device.messages
        assert (topic, said["code"], said["topic"], more) == (
            site.topic("bad", "errors"),
            "syntax",
            site.topic("bad", "backfill"),
            [],
        )
        letters = site.service.dead_letters.store
        sources = [letters.get("acme", one.id).letter.source for one in letters.newest("acme")]
        assert sources == [f"mqtt:{site.topic('bad', 'backfill')}"]
        assert [sample(site, "widerow_mqtt_connected", lane=lane.value) for lane in Lane] == [1, 1]


def test_backlog_that_was_not_acknowledged_comes_again_and_both_sessions_stop_within_one_grace(
    mosquitto: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(_job: Any, *, wake: bool = True) -> None:
        raise Overloaded(f"full {wake}")

    grace_s = 2.0
    with mqtt_site(mosquitto, tmp_path, receive_maximum=WINDOW) as site, Device(mosquitto) as device:
        with monkeypatch.context() as patch:
            patch.setattr(site.service.pipeline, "submit", never)
            publish(device, [site.topic(f"d{i}", "backfill") for i in range(2 * WINDOW)], age_ms=OLD_MS)
            publish(device, [site.topic("live")])
            eventually(lambda: site.received("backfill") == WINDOW and site.received("telemetry") == 1)
            began_s = time.monotonic()
            assert not site.gateway.stop(grace_s)
            assert time.monotonic() - began_s < 1.8 * grace_s
        site.start()
        eventually(lambda: all(backlog_of(site, f"d{i}") == [float(i)] for i in range(2 * WINDOW)))
        eventually(lambda: site.stored("live") == [0.0])
        assert sample(site, "widerow_mqtt_again_total") == WINDOW + 1
        resumed = [sample(site, "widerow_mqtt_connections_total", lane=lane.value, session="resumed") for lane in Lane]
        assert resumed == [1, 1]


def test_a_stop_that_leaves_backlog_alone_says_so(mosquitto: Mosquitto, tmp_path: Path) -> None:
    with mqtt_site(mosquitto, tmp_path, backfill_mib=1) as site, Device(mosquitto) as device, full_lane(site):
        publish(device, [site.topic("d", "backfill")], age_ms=OLD_MS)
        eventually(lambda: site.received("backfill") == 1)
        assert site.gateway.client.window.is_empty()
        assert not site.gateway.stop(0.1)


# -- a broker that refuses the subscription


def test_without_the_right_to_read_backlog_all_else_goes_on_and_the_log_says_what_to_do(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mosquitto's own access file lets everyone subscribe; its plugin refuses, as other brokers do."""
    monkeypatch.setattr(client_module, "_DENIED_PAUSE_S", 0.2)
    caplog.set_level(logging.INFO, "widerow.ingest.mqtt")
    broker = had(lambda: Refusing("denied/+/+/backfill"))
    warning = (
        "refuses the subscription denied/+/+/backfill: not authorized (0x87). Nothing is taken from mqtt.backfill_topic"
    )
    with (
        broker,
        mqtt_site(
            broker, tmp_path, without_backlog=True, group="", backfill_topic="denied/{tenant}/{device}/backfill"
        ) as site,
    ):
        backlog = site.gateway.backlog
        assert backlog is not None
        eventually(lambda: backlog.client.is_denied)
        with Device(broker) as device:
            publish(device, [site.topic("live")])
            eventually(lambda: site.stored("live") == [0.0])
        assert site.gateway.trouble() == ""
        assert [sample(site, "widerow_mqtt_connected", lane=lane.value) for lane in Lane] == [1, 0]
        eventually(lambda: broker.log().count(f" as {site.prefix}-backfill ") > 2)
        said = [line for line in caplog.messages if warning in line]
        assert len(said) == 1  # though it was asked for again
        assert "`widerow mqtt config`" in said[0]
        assert "set mqtt.backfill_topic to empty" in said[0]
        broker.refused = "nothing"
        broker.restart()
        assert backlog.client.wait_connected(20), backlog.client.trouble
        with Device(broker) as device:
            publish(device, ["denied/acme/old/backfill"], age_ms=OLD_MS)
            eventually(lambda: backlog_of(site, "old") == [0.0])


class Refusing(Mosquitto):
    """Refuses one subscription, and nothing else."""

    def __init__(self, refused: str) -> None:
        self.refused, self._plugin = refused, next(iter(Path("/usr/lib").glob("*/mosquitto_dynamic_security.so")), None)
        if self._plugin is None:
            raise Missing("mosquitto's plugin for dynamic security is missing: install mosquitto of Debian 12 or newer")
        super().__init__(configuration=lambda _: self._text())

    def _text(self) -> str:
        _, _, iterations, salt, password = hashed(PASSWORD).split("$")
        who = {"username": USER, "password": password, "salt": salt, "iterations": int(iterations)}
        rule = {"acltype": "subscribeLiteral", "topic": self.refused, "allow": False}
        everything = ("publishClientSend", "publishClientReceive", "subscribe", "unsubscribe")
        rules = {
            "defaultACLAccess": dict.fromkeys(everything, True),
            "clients": [{**who, "roles": [{"rolename": "all"}]}],
            "roles": [{"rolename": "all", "acls": [rule]}],
        }
        (self.folder / "rules.json").write_text(json.dumps(rules))
        return (
            f"listener {self.port} {self.host}\nuser root\nallow_anonymous false\n"
            f"plugin {self._plugin}\nplugin_opt_config_file {self.folder}/rules.json\n"
            "max_inflight_messages 0\nlog_dest stderr\n"
        )
