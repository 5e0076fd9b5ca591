"""The section `[mqtt]`, as the client takes it."""

from __future__ import annotations

import socket

from widerow.config import Mqtt
from widerow.ingest.mqtt.settings import client_settings
from widerow.ingest.mqtt.topics import Template

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
