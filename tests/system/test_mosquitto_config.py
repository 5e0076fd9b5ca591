"""What `widerow mqtt config` writes, in a real mosquitto: who gets in, who may do what, and what is lost when."""

from __future__ import annotations

import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from servers.fixtures import had
from servers.mosquitto import Mosquitto, program
from system.configured_broker import (
    BACKFILL,
    ERRORS,
    EVERY_BACKLOG,
    EVERY_REPORT,
    STATUS,
    TELEMETRY,
    WITHIN_S,
    Configured,
)
from widerow.config import Config, Store
from widerow.ingest.mqtt.mosquitto import GATEWAY, User
from widerow.ingest.mqtt.topics import Template
from widerow.model.names import Names
from widerow.model.tenant import Tenant
from widerow.service import Service

ODD = ("ns=2;s=Temp", "Conveyor/Batch Qty", "50%", "Fräse Ölfilter", "a+b#c", " :x ")


def topic(template: str, tenant: str, device: str) -> str:
    return Template("t", template).topic(tenant, device).decode()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A catalog of two tenants, one of which has devices with odd names."""
    url = f"rocksdb:{tmp_path_factory.mktemp('catalog')}/store"
    with Service.open(Config(store=Store(url=url, cache_mib=8, write_buffer_mib=16, reserve_mib=0))) as service:
        for name, devices in (("acme", ("press-7", *ODD)), ("other", ("press-7",))):
            tenant = service.catalog.tenants.create(Tenant(name=name))
            service.catalog.devices.register(tenant, Names.of(devices))
    return url


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority of our own, `ca.pem`, and what it signed for localhost, `broker.pem` and `broker.key`."""
    folder = tmp_path_factory.mktemp("certificates")
    tool = str(had(lambda: program("openssl", "openssl")))
    (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    signed = ["-CAcreateserial", "-extfile", "names", "-out", "broker.pem"]
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    for arguments in (
        ["req", "-x509", *new_key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=An authority"],
        ["req", *new_key, "-keyout", "broker.key", "-out", "broker.csr", "-subj", "/CN=localhost"],
        ["x509", "-req", "-in", "broker.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-days", "2", *signed],
    ):
        subprocess.run([tool, *arguments], cwd=folder, check=True, capture_output=True, timeout=60)
    return folder


@pytest.fixture(scope="module")
def secured(
    store: str, certificates: Path, tmp_path_factory: pytest.TempPathFactory, mosquitto: Mosquitto
) -> Iterator[Configured]:
    """With TLS, and users for all devices."""
    assert mosquitto.runs()
    files = {"--tls-cert": "broker.pem", "--tls-key": "broker.key", "--tls-ca": "ca.pem"}
    options = [text for option, file in files.items() for text in (option, str(certificates / file))]
    tls = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
    made = Configured(store, tmp_path_factory.mktemp("secured"), *options, "--devices", "all", tls=tls)
    with made.broker:
        yield made


@pytest.fixture
def plain(store: str, tmp_path: Path, mosquitto: Mosquitto) -> Configured:
    """Without TLS; not started."""
    assert mosquitto.runs()
    return Configured(store, tmp_path)


# -- who gets in


def test_nobody_gets_in_without_a_password_or_with_a_wrong_one(secured: Configured) -> None:
    for user, password in ((None, None), ("acme", "wrong"), ("nobody", "x"), (GATEWAY, secured.password("acme"))):
        with secured.client(user, password) as client:
            assert client.refused == "Not authorized"


def test_nobody_gets_in_without_tls(secured: Configured) -> None:
    with socket.create_connection(("127.0.0.1", secured.broker.port), timeout=WITHIN_S) as bare:
        bare.sendall(b"\x10\x0d\x00\x04MQTT\x05\x02\x00\x05\x00\x00\x00")
        with suppress(ConnectionResetError):
            assert bare.recv(1) == b""


# -- who may do what


@pytest.mark.parametrize("device", ["press-7", *ODD])
def test_a_device_publishes_its_own_topics_and_nothing_else(secured: Configured, device: str) -> None:
    with secured.reader(keeps=False) as gateway, secured.client(User("acme", device).name) as client:
        assert client.publish(topic(TELEMETRY, "acme", device), b"mine") == ["Success"]
        assert gateway.payloads(1) == [b"mine"]
        assert gateway.got[0][0] == topic(TELEMETRY, "acme", device)
        assert client.publish(topic(STATUS, "acme", device), b"online") != ["Not authorized"]
        for template, tenant, other in (
            (TELEMETRY, "acme", "press-8"),
            (TELEMETRY, "other", device),
            (STATUS, "other", "press-7"),
            (BACKFILL, "acme", "press-8"),
            (BACKFILL, "other", device),
            (ERRORS, "acme", device),
        ):
            assert client.publish(topic(template, tenant, other), b"foreign") == ["Not authorized"]
        assert client.publish("$SYS/broker/x", b"foreign") == ["Not authorized"]


def test_a_device_reads_its_own_errors_and_nothing_else(secured: Configured) -> None:
    device, neighbour = ODD[1], "press-7"
    with (
        secured.client(User("acme", device).name) as client,
        secured.client(GATEWAY, secured.gateway()["PASSWORD"]) as gateway,
    ):
        for topic_filter in ("#", "$SYS/#", "widerow/v1/acme/+/errors"):
            client.subscribe(topic_filter)
        gateway.publish(topic(ERRORS, "acme", neighbour), b"his")
        with secured.client("acme") as tenant:
            tenant.publish(topic(TELEMETRY, "acme", device), b"telemetry")
        gateway.publish(topic(ERRORS, "acme", device), b"mine")
        client.payloads(1)
        assert {payload for _, payload in client.got} == {b"mine"}


def test_a_tenant_publishes_for_all_its_devices_and_for_nobody_else(secured: Configured) -> None:
    with secured.reader(keeps=False) as gateway, secured.client("acme") as client:
        for device in (*ODD, "not-yet-known"):
            assert client.publish(topic(TELEMETRY, "acme", device), device.encode()) == ["Success"]
        assert sorted(gateway.payloads(len(ODD) + 1)) == sorted(name.encode() for name in (*ODD, "not-yet-known"))
        assert client.publish(topic(TELEMETRY, "other", "press-7"), b"foreign") == ["Not authorized"]
        assert client.publish("widerow/v1/acme/a/b/telemetry", b"no level of ours") == ["Not authorized"]
        client.subscribe("widerow/v1/other/+/errors")
        with secured.client(GATEWAY, secured.gateway()["PASSWORD"]) as errors:
            errors.publish(topic(ERRORS, "other", "press-7"), b"theirs")
            client.subscribe("widerow/v1/acme/+/errors")
            errors.publish(topic(ERRORS, "acme", "press-7"), b"ours")
        assert client.payloads(1) == [b"ours"]


@pytest.mark.parametrize("user", [User("acme", ODD[1]), User("acme")])
def test_backlog_goes_to_the_session_for_it_and_to_that_alone(secured: Configured, user: User) -> None:
    where = topic(BACKFILL, "acme", ODD[1])
    with (
        secured.reader(keeps=False) as gateway,
        secured.backlog_reader() as backlog,
        secured.client(user.name) as client,
    ):
        assert client.publish(where, b"old") == ["Success"]
        assert client.publish(topic(TELEMETRY, "acme", ODD[1]), b"new") == ["Success"]
        assert gateway.payloads(1) == [b"new"]
        assert backlog.payloads(1) == [b"old"]
        assert backlog.got == [(where, b"old")]


def test_the_gateway_publishes_errors_only(secured: Configured) -> None:
    with secured.client(GATEWAY, secured.gateway()["PASSWORD"]) as gateway:
        assert gateway.publish(topic(TELEMETRY, "acme", "press-7"), b"x") == ["Not authorized"]
        assert gateway.publish(topic(BACKFILL, "acme", "press-7"), b"x") == ["Not authorized"]
        assert gateway.publish(topic(ERRORS, "acme", ODD[2]), b"x") != ["Not authorized"]


def test_who_joins_another_group_takes_nothing_from_the_gateway(secured: Configured) -> None:
    with secured.reader(keeps=False) as gateway, secured.client("other") as thief, secured.client("acme") as client:
        thief.subscribe(f"$share/widerow/{EVERY_REPORT}")
        thief.subscribe(EVERY_REPORT)
        client.publish(topic(TELEMETRY, "acme", "press-7"), *(b"%d" % i for i in range(50)))
        assert len(gateway.payloads(50)) == 50
        assert thief.got == []


def test_mosquitto_pub_is_a_device_like_others(secured: Configured, certificates: Path) -> None:
    tool = str(had(lambda: program("mosquitto_pub", "mosquitto-clients")))
    user = User("acme", ODD[0]).name
    with secured.reader(keeps=False) as gateway:
        where = ["-h", "localhost", "-p", str(secured.broker.port), "--cafile", str(certificates / "ca.pem")]
        who = ["-u", user, "-P", secured.password(user), "-q", "1"]
        what = ["-t", topic(TELEMETRY, "acme", ODD[0]), "-m", '{"values": {"Temp": 21.5}}']
        subprocess.run([tool, *where, *who, *what], check=True, timeout=30)
        assert gateway.payloads(1) == [b'{"values": {"Temp": 21.5}}']


# -- changes while it runs


def test_a_new_password_holds_after_a_reload_and_others_keep_theirs(secured: Configured) -> None:
    before, neighbour = secured.password("other"), secured.password("acme")
    secured.write("--rotate", "other")
    assert secured.password("acme") == neighbour
    secured.reload()
    deadline_s = time.monotonic() + WITHIN_S
    while True:
        with secured.client("other", before) as old:
            if old.refused == "Not authorized":
                break
        assert time.monotonic() < deadline_s
    for user in ("other", "acme"):
        with secured.client(user) as client:
            assert client.refused is None


def test_with_access_rules_from_before_there_was_a_topic_for_backlog_publishers_are_refused_and_not_the_gateway(
    plain: Configured,
) -> None:
    """docs/deploy/mosquitto.md: who speaks MQTT 5 is told so; to MQTT 3.1.1 it looks as if it had been taken."""
    tool = str(had(lambda: program("mosquitto_pub", "mosquitto-clients")))
    plain.write()
    rules = plain.folder / "acl"
    rules.write_text("".join(line for line in rules.read_text().splitlines(keepends=True) if "backfill" not in line))
    where = topic(BACKFILL, "acme", "press-7")
    with plain.broker, plain.reader(keeps=False) as gateway:
        assert gateway.subscribe(EVERY_BACKLOG) == "Granted QoS 1"
        with plain.client("acme") as client:
            assert client.publish(where, b"old") == ["Not authorized"]
            assert client.publish(topic(TELEMETRY, "acme", "press-7"), b"new") == ["Success"]
        who = ["-p", str(plain.broker.port), "-u", "acme", "-P", plain.password("acme"), "-V", "mqttv311", "-q", "1"]
        subprocess.run([tool, *who, "-t", where, "-m", "old"], check=True, timeout=30)
        with plain.client("acme") as client:
            assert client.publish(topic(TELEMETRY, "acme", "press-7"), b"newer") == ["Success"]
        assert gateway.payloads(2) == [b"new", b"newer"]


# -- what the broker loses


def test_an_overflow_drops_the_newest_and_shows_it(plain: Configured) -> None:
    """docs/deploy/mosquitto.md: what waits is kept, what comes then is dropped though acknowledged, and counted."""
    limit, sent = 50, 120
    plain.change = lambda text: text.replace("max_queued_messages 500000", f"max_queued_messages {limit}").replace(
        "sys_interval 10", "sys_interval 1"
    )
    with plain.broker:
        with plain.reader():
            pass
        with plain.client("acme") as client:
            said = client.publish(topic(TELEMETRY, "acme", "press-7"), *(b"%d" % i for i in range(sent)))
        assert said == ["Success"] * sent
        with plain.client(GATEWAY, plain.gateway()["PASSWORD"]) as watch:
            watch.subscribe("$SYS/broker/publish/messages/dropped")
            watch.wait(lambda: bool(watch.got) and int(watch.got[-1][1]) == sent - limit)
        assert "Outgoing messages are being dropped for client" in plain.broker.log()
        with plain.reader() as gateway:
            assert gateway.payloads(limit) == [b"%d" % i for i in range(limit)]
            with plain.client("acme") as client:
                client.publish(topic(TELEMETRY, "acme", "press-7"), b"after")
            assert gateway.payloads(limit + 1)[-1] == b"after"


def test_a_crash_loses_what_came_since_the_last_save_and_a_clean_stop_nothing(plain: Configured) -> None:
    def publish(payload: bytes) -> list[str]:
        with plain.client("acme") as client:
            return client.publish(topic(TELEMETRY, "acme", "press-7"), payload)

    with plain.broker:
        with plain.reader():
            pass
        assert publish(b"saved") == ["Success"]
        plain.broker.save()
        assert publish(b"not saved") == ["Success"]
        plain.broker.kill()
        plain.broker.start()
        with plain.reader() as gateway:
            assert gateway.resumed
            assert gateway.payloads(1) == [b"saved"]
        assert publish(b"stopped") == ["Success"]
        plain.broker.restart()
        with plain.reader() as gateway:
            assert gateway.payloads(1)[-1] == b"stopped"


def test_a_restart_forgets_shared_subscriptions_and_tells_publishers_so(plain: Configured) -> None:
    """docs/deploy/mosquitto.md: until a gateway is back, nobody is there for what is published, and publishers are told."""
    with plain.broker:
        with plain.reader():
            pass
        plain.broker.restart()
        with plain.client("acme") as client:
            assert client.publish(topic(TELEMETRY, "acme", "press-7"), b"for nobody") == ["No matching subscribers"]
            with plain.reader() as gateway:
                assert client.publish(topic(TELEMETRY, "acme", "press-7"), b"for the gateway") == ["Success"]
                assert gateway.payloads(1) == [b"for the gateway"]


def test_the_broker_saves_by_itself_as_often_as_it_says(plain: Configured) -> None:
    plain.change = lambda text: text.replace("autosave_interval 10", "autosave_interval 1")
    with plain.broker:
        with plain.reader():
            pass
        with plain.client("acme") as client:
            client.publish(topic(TELEMETRY, "acme", "press-7"), b"one")
        saved = plain.broker.folder / "mosquitto.db"
        deadline_s = time.monotonic() + WITHIN_S
        while not (saved.exists() and b"one" in saved.read_bytes()):
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        plain.broker.kill()
        plain.broker.start()
        with plain.reader() as gateway:
            assert gateway.payloads(1) == [b"one"]


def test_a_gateway_that_is_away_keeps_its_share_of_the_messages(plain: Configured) -> None:
    """docs/deploy/mosquitto.md: the broker deals to sessions, whether somebody is there or not."""
    with plain.broker:
        its = plain.gateway()
        second = f"{its['CLIENT_ID']}-2"
        with plain.client(GATEWAY, its["PASSWORD"], name=second, keeps=True) as other:
            other.subscribe(f"$share/{its['GROUP']}/{EVERY_REPORT}")
        with plain.reader() as gateway, plain.client("acme") as client:
            client.publish(topic(TELEMETRY, "acme", "press-7"), *(b"%d" % i for i in range(40)))
            here = gateway.payloads(1)
            before = 0
            while len(here) > before:  # until no more come
                before = len(here)
                time.sleep(0.5)
                here = gateway.payloads(1)
        with plain.client(GATEWAY, its["PASSWORD"], name=second, keeps=True) as other:
            there = other.payloads(40 - len(here))
        assert 10 < len(here) < 30
        assert sorted(map(int, here + there)) == list(range(40))
