"""Topics and templates."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from widerow.codec.mqtt import Publishes, Scanner, packets
from widerow.ingest.mqtt.topics import OTHER, STATUS, TELEMETRY, Template, Topics, decode_name, encode_name
from widerow.model.errors import ConfigError

TELEMETRY_TOPIC = Template("mqtt.telemetry_topic", "widerow/v1/{tenant}/{device}/telemetry")
STATUS_TOPIC = Template("mqtt.status_topic", "widerow/v1/{tenant}/{device}/status")
NAMES = st.text(st.characters(min_codepoint=32, exclude_categories=("Cs", "Cc")), min_size=1, max_size=30)


def messages(topics: list[bytes]) -> Publishes:
    stream = b"".join(packets.publish(topic, b"") for topic in topics)
    found = Scanner(1 << 20).scan(np.frombuffer(stream, np.uint8).copy(), 0, len(stream)).publishes
    assert found is not None
    return found


@given(NAMES, NAMES)
def test_a_topic_says_what_it_was_made_of(tenant: str, device: str) -> None:
    topic = TELEMETRY_TOPIC.topic(tenant, device)
    assert TELEMETRY_TOPIC.parse(topic.decode()) == (tenant, device)
    assert STATUS_TOPIC.parse(topic.decode()) is None
    assert topic.count(b"/") == 4
    assert not set(topic) & set(b"+#\0")


@given(st.text(max_size=20))
def test_a_level_stands_for_at_most_one_name_and_that_is_encoded_so(level: str) -> None:
    name = decode_name(level)
    assert name is None or encode_name(name) == level or "%" not in level


def test_filters_have_a_plus_for_each_name_and_the_group_in_front() -> None:
    assert TELEMETRY_TOPIC.filter() == "widerow/v1/+/+/telemetry"
    assert TELEMETRY_TOPIC.filter("g") == "$share/g/widerow/v1/+/+/telemetry"


@pytest.mark.parametrize(
    "text",
    [
        "a/{tenant}/b",
        "{tenant}/{device}/{device}",
        "{tenant}/x-{device}",
        "{tenant}/{device}/+",
        "$sys/{tenant}/{device}",
        "",
    ],
)
def test_a_template_that_cannot_work_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"mqtt\.status_topic"):
        Template("mqtt.status_topic", text)


def test_telemetry_and_status_must_differ() -> None:
    with pytest.raises(ConfigError):
        Topics(TELEMETRY_TOPIC, TELEMETRY_TOPIC)


def test_many_topics_are_taken_apart_at_once() -> None:
    topics = Topics(TELEMETRY_TOPIC, STATUS_TOPIC)
    given_topics = [
        b"widerow/v1/acme/d1/telemetry",
        b"widerow/v1/umbra/d%2F2/telemetry",
        b"widerow/v1/acme/d1/status",
        b"widerow/v1/acme/d1/telemetry",
        b"widerow/v1/acme/d%3/telemetry",
        b"widerow/v1/acme//telemetry",
        b"elsewhere",
        b"widerow/v1/acme/\xff/telemetry",
    ]
    for _ in range(2):
        parsed = topics.parse(messages(given_topics))
        assert parsed.kind.tolist() == [TELEMETRY, TELEMETRY, STATUS, TELEMETRY, OTHER, OTHER, OTHER, OTHER]
        assert [parsed.names(row) for row in range(4)] == [("acme", "d1"), ("umbra", "d/2"), ("acme", "d1"), ("acme", "d1")]
        devices = parsed.devices(np.array([3, 1, 0]))
        assert devices.to_list() == ["d1", "d/2", "d1"]


def test_a_table_that_is_full_starts_afresh_and_forgets_nothing_that_was_handed_out() -> None:
    topics = Topics(TELEMETRY_TOPIC, STATUS_TOPIC, capacity=50)
    earlier = []
    for start in range(0, 300, 30):
        names = [f"device-{k}" for k in range(start, start + 30)]
        parsed = topics.parse(messages([TELEMETRY_TOPIC.topic(f"t{start}", name) for name in names]))
        earlier.append((parsed, start, names))
    for parsed, start, names in earlier:
        assert parsed.devices(np.arange(30)).to_list() == names
        assert {parsed.names(row)[0] for row in range(30)} == {f"t{start}"}


def test_long_topics_that_somebody_makes_up_take_no_more_memory_than_they_may() -> None:
    topics = Topics(TELEMETRY_TOPIC, STATUS_TOPIC, capacity_bytes=1 << 20)
    most = 0
    for start in range(0, 1_000, 10):
        made_up = [b"widerow/v1/acme/" + f"{start + k:05}".encode() * 4_000 + b"/telemetry" for k in range(10)]
        parsed = topics.parse(messages([*made_up, b"widerow/v1/acme/d1/telemetry"]))
        assert parsed.kind.tolist() == [OTHER] * 10 + [TELEMETRY]
        assert parsed.names(10) == ("acme", "d1")
        most = max(most, topics._table.bytes)
    assert most < 4 << 20, "of 20 MiB"
