"""The brokers that other tests run on: they answer, keep what they took, let in whom they should, and end as told.

What every server does (dying with its owner, closing, skipping) is in test_servers.py.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from servers.cache import Missing
from servers.fixtures import had
from servers.kafka import Kafka
from servers.mosquitto import USER, Mosquitto, program


@pytest.fixture(scope="module")
def own_kafka(kafka: Kafka) -> Iterator[Kafka]:
    """One that a test may mistreat: the shared one, which others find as it was."""
    kafka.create_topic("kept", 3)
    try:
        yield kafka
    finally:
        kafka.delete_topic("kept")


@pytest.fixture
def broker(mosquitto: Mosquitto) -> Iterator[Mosquitto]:
    """One that a test may mistreat. The shared one shows whether there can be one."""
    assert mosquitto.runs()
    with Mosquitto() as server:
        yield server


def kcat(server: Kafka, *arguments: str, given: str | None = None) -> str:
    tool = str(had(lambda: program("kcat", "kcat")))
    command = [tool, "-b", server.address, "-m", "20", *arguments]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def client(server: Mosquitto, name: str, *arguments: str, user: str = USER) -> subprocess.CompletedProcess[str]:
    """`mosquitto_pub` or `mosquitto_sub` as one of the broker's users."""
    tool = str(had(lambda: program(name, "mosquitto-clients")))
    who = ["-h", server.host, "-p", str(server.port), "-u", user, "-P", server.users[user]]
    command = [tool, *who, "-V", "mqttv5", "-q", "1", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


# -- Kafka


def test_kafka_keeps_messages_and_partitions_over_a_clean_restart_and_a_kill(own_kafka: Kafka) -> None:
    assert own_kafka.topics()["kept"] == 3
    address = own_kafka.address
    kcat(own_kafka, "-P", "-t", "kept", "-p", "2", "-K", ":", "-X", "acks=all", given="a/b:one\n")
    own_kafka.restart()
    kcat(own_kafka, "-P", "-t", "kept", "-p", "2", "-K", ":", "-X", "acks=all", given="a/b:two\n")
    own_kafka.kill()
    own_kafka.start()
    assert own_kafka.address == address
    assert own_kafka.topics()["kept"] == 3
    assert kcat(own_kafka, "-C", "-t", "kept", "-p", "2", "-e", "-q", "-f", "%k %o %s\n") == "a/b 0 one\na/b 1 two\n"


def test_a_paused_kafka_is_silent_until_it_is_resumed(own_kafka: Kafka) -> None:
    own_kafka.pause()
    try:
        with pytest.raises(TimeoutError):
            own_kafka.answers()
    finally:
        own_kafka.resume()
    own_kafka.wait(within_s=10)


def test_kafka_makes_no_topic_that_nobody_asked_for(own_kafka: Kafka) -> None:
    with pytest.raises(AssertionError, match="Unknown topic"):
        kcat(own_kafka, "-P", "-t", "typo", "-X", "topic.metadata.propagation.max.ms=0", given="lost\n")
    assert "typo" not in own_kafka.topics()


def test_partitions_are_added_and_topics_deleted(own_kafka: Kafka) -> None:
    own_kafka.create_topic("grows", 2, retention_ms=60_000)
    own_kafka.add_partitions("grows", 5)
    assert own_kafka.topics()["grows"] == 5
    own_kafka.delete_topic("grows")
    assert "grows" not in own_kafka.topics()


# -- mosquitto


def subscribe(server: Mosquitto, topic: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """As a client whose session stays: without messages to wait for, it only leaves a subscription."""
    return client(server, "mosquitto_sub", "-c", "-i", "stays", "-x", "3600", "-t", topic, *arguments)


def test_mosquitto_keeps_sessions_and_their_messages_over_a_clean_restart(broker: Mosquitto) -> None:
    assert subscribe(broker, "a/#", "-E").returncode == 0
    assert client(broker, "mosquitto_pub", "-t", "a/b", "-m", "kept").returncode == 0
    broker.restart()
    assert subscribe(broker, "a/#", "-C", "1", "-W", "10").stdout == "kept\n"


def test_a_killed_mosquitto_has_what_was_saved_and_nothing_after(broker: Mosquitto) -> None:
    subscribe(broker, "a/#", "-E")
    client(broker, "mosquitto_pub", "-t", "a/b", "-m", "saved")
    broker.save()
    client(broker, "mosquitto_pub", "-t", "a/b", "-m", "acknowledged and lost")
    broker.kill()
    broker.start()
    assert subscribe(broker, "a/#", "-W", "5").stdout == "saved\n"


def test_mosquitto_lets_users_do_what_their_lines_say_as_soon_as_they_are_added(broker: Mosquitto) -> None:
    broker.allow("device", "pass word/1", "topic write own/#")
    assert client(broker, "mosquitto_pub", "-t", "own/x", "-m", "1", user="device").returncode == 0
    refused = client(broker, "mosquitto_pub", "-t", "other/x", "-m", "1", user="device")
    assert "Not authorized" in refused.stderr
    broker.users["stranger"] = "guess"  # not allowed: the broker does not know of it
    assert "Not authorized" in client(broker, "mosquitto_pub", "-t", "own/x", "-m", "1", user="stranger").stderr
    assert broker.url("device") == f"mqtt://device:pass%20word%2F1@127.0.0.1:{broker.port}"


def test_settings_replace_those_of_the_default_configuration(mosquitto: Mosquitto) -> None:
    assert mosquitto.runs()
    with Mosquitto(settings={"max_queued_messages": 1, "max_inflight_messages": 1}) as server:
        subscribe(server, "a/#", "-E")
        for number in range(5):
            client(server, "mosquitto_pub", "-t", "a/b", "-m", str(number))
        assert len(subscribe(server, "a/#", "-W", "5").stdout.split()) < 5


def test_a_configuration_may_be_the_tests_own(mosquitto: Mosquitto) -> None:
    assert mosquitto.runs()

    def open_to_all(server: Mosquitto) -> str:
        return f"listener {server.port} 127.0.0.1\nallow_anonymous true\nuser root\nlog_dest stderr\n"

    with Mosquitto(users={"any": "one"}, configuration=open_to_all) as server:
        assert client(server, "mosquitto_pub", "-t", "a", "-m", "1", user="any").returncode == 0


def test_a_program_that_is_not_there_is_named_with_its_package() -> None:
    with pytest.raises(Missing, match="no-such-broker is not installed: install the package that-one"):
        program("no-such-broker", "that-one")
