"""The section `[mqtt]`, as the client takes it."""

from __future__ import annotations

import socket

import pytest

from widerow.config import Mqtt
from widerow.ingest.mqtt.settings import client_settings, topic_templates
from widerow.ingest.mqtt.topics import Template
from widerow.model.errors import ConfigError
from widerow.model.lane import Lane

TELEMETRY = Template("mqtt.telemetry_topic", Mqtt().telemetry_topic)
STATUS = Template("mqtt.status_topic", Mqtt().status_topic)


def test_the_client_id_has_the_name_of_the_host_where_that_is_asked_for() -> None:
    host = socket.gethostname()

    def check(given: str, want: str) -> None:
        config = Mqtt(url="mqtt://broker", client_id=given)
        assert client_settings(config, TELEMETRY, STATUS).client_id == want

    check("", f"widerow-{host}")
    check("widerow-5eed", "widerow-5eed")
    check("widerow-5eed-{host}", f"widerow-5eed-{host}")
    check("{host}/{host}", f"{host}/{host}")
    check("{other}-%", "{other}-%")


def test_a_group_shares_telemetry_and_never_status() -> None:
    def filters(group: str) -> list[str]:
        found = client_settings(Mqtt(url="mqtt://broker", group=group), TELEMETRY, STATUS)
        return [subscription.filter for subscription in found.subscriptions]

    assert filters("5eed") == ["$share/5eed/widerow/v1/+/+/telemetry", "widerow/v1/+/+/status"]
    assert filters("") == ["widerow/v1/+/+/telemetry", "widerow/v1/+/+/status"]


def test_backlog_has_a_session_of_its_own_and_the_same_window() -> None:
    config = Mqtt(url="mqtt://broker", client_id="widerow-5eed", group="5eed", receive_maximum=7, max_unacked_mib=3)
    *_, backfill = topic_templates(config)
    found = client_settings(config, backfill, lane=Lane.BACKFILL)
    assert found.client_id == "widerow-5eed-backfill"
    assert [subscription.filter for subscription in found.subscriptions] == ["$share/5eed/widerow/v1/+/+/backfill"]
    assert (found.receive_maximum, found.max_unacked_bytes) == (7, 3 << 20)
    assert "mqtt.backfill_topic" in found.if_denied
    assert client_settings(config, TELEMETRY, STATUS).if_denied == ""


def test_an_empty_topic_for_backlog_is_none() -> None:
    names = [template.setting for template in topic_templates(Mqtt(backfill_topic=""))]
    assert names == ["mqtt.telemetry_topic", "mqtt.status_topic", "mqtt.errors_topic"]


def test_all_topics_differ_and_the_two_that_do_not_are_named() -> None:
    with pytest.raises(ConfigError, match=r"mqtt\.telemetry_topic and mqtt\.backfill_topic are one and the same"):
        topic_templates(Mqtt(backfill_topic=Mqtt().telemetry_topic))
    with pytest.raises(ConfigError, match=r"mqtt\.backfill_topic"):
        topic_templates(Mqtt(backfill_topic="widerow/v1/{tenant}/backfill"))
