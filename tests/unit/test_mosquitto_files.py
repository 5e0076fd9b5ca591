"""What `widerow mqtt config` writes, and what it leaves alone when it runs again. (What a broker makes of it: system/.)"""

from __future__ import annotations

import csv
import json
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from deployment import compose
from servers.fixtures import had
from servers.mosquitto import program
from widerow.cli.commands import app
from widerow.config import Config, Mqtt, Store
from widerow.ingest.mqtt.mosquitto import (
    GATEWAY,
    Listener,
    Topics,
    User,
    access,
    configuration,
    hashed,
    matches,
    read_passwords,
)
from widerow.model.names import Names
from widerow.model.tenant import Tenant
from widerow.service import Service

SHIPPED = Path(__file__).resolve().parents[2] / "deploy" / "mosquitto"
ODD = "Conveyor/Batch Qty: 50% +#"


def test_a_password_is_hashed_as_mosquitto_reads_it() -> None:
    entry = hashed("secret")
    assert entry.startswith("$7$101$")
    assert matches("secret", entry)
    assert not matches("Secret", entry)
    assert hashed("secret") != entry


def test_a_password_that_mosquitto_hashed_is_known(tmp_path: Path) -> None:
    tool = str(had(lambda: program("mosquitto_passwd")))
    subprocess.run([tool, "-b", "-c", tmp_path / "passwd", "acme", "secret"], check=True, timeout=30)
    assert matches("secret", read_passwords((tmp_path / "passwd").read_text())["acme"])


def test_the_name_of_a_user_tells_whose_it_is() -> None:
    for user in (User(), User("acme"), User("acme", "press-7"), User("acme", ODD), User("acme", " ü/")):
        assert User.of(user.name) == user
        assert user.name.isascii()
        assert not set(user.name) & set(": +#")


def test_the_shipped_files_are_those_that_are_tested() -> None:
    # They are as compose's own `users` would write them.
    given = {
        name: Path(value)
        for name, _, value in (text.partition("=") for text in compose()["services"]["users"]["entrypoint"])
    }
    listener = Listener(port=8883, cert=given["--tls-cert"], key=given["--tls-key"], ca=given["--tls-ca"])
    text = configuration(given["--out"], given["--data"], listener)
    assert (SHIPPED / "mosquitto.conf").read_text() == text
    users = [User(), User("acme"), User("acme", "press-7"), User("acme", "Conveyor/Batch Qty")]
    assert (SHIPPED / "acl").read_text() == access(users, Topics.of(Mqtt()))


def test_topics_of_ones_own_are_in_the_rules(store: str, tmp_path: Path) -> None:
    config = tmp_path / "widerow.toml"
    config.write_text('[mqtt]\ntelemetry_topic = "plant/{tenant}/in/{device}"\n')
    made(store, tmp_path, "--tenant", "acme", "--devices", "all", "--config", str(config))
    text = (tmp_path / "acl").read_text()
    assert "topic read plant/+/in/+\n" in text
    assert "topic write plant/acme/in/Conveyor%2FBatch Qty: 50%25 %2B%23\n" in text
    assert "topic read widerow/v1/+/+/backfill\n" in text
    assert "topic write widerow/v1/acme/Conveyor%2FBatch Qty: 50%25 %2B%23/backfill\n" in text


def test_without_a_topic_for_backlog_nobody_may_publish_there() -> None:
    users = [User(), User("acme"), User("acme", "press-7")]
    assert "backfill" not in access(users, Topics.of(Mqtt(backfill_topic="")))
    assert access(users, Topics.of(Mqtt())).count("/backfill\n") == len(users)


# -- the command


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"rocksdb:{tmp_path_factory.mktemp('catalog')}/store"
    with Service.open(Config(store=Store(url=url, cache_mib=8, write_buffer_mib=16, reserve_mib=0))) as service:
        for name in ("acme", "other"):
            tenant = service.catalog.tenants.create(Tenant(name=name))
            service.catalog.devices.register(tenant, Names.of(["press-1", "press-2", "mill-1", ODD]))
    return url


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("URL", "TOKEN", "STORE", "TENANT", "CONFIG"):
        monkeypatch.delenv(f"WIDEROW_{name}", raising=False)


def run(store: str, out: Path, *more: str) -> Result:
    return CliRunner().invoke(app, ["mqtt", "config", "--store", store, "--out", str(out), "--json", *more])


def made(store: str, out: Path, *more: str) -> dict[str, list[str]]:
    result = run(store, out, *more)
    assert result.exit_code == 0, result.output
    found: dict[str, list[str]] = json.loads(result.stdout)
    return found


def credentials(out: Path) -> dict[str, str]:
    with (out / "credentials.csv").open() as file:
        return {row["user"]: row["password"] for row in csv.DictReader(file)}


def passwords(out: Path) -> dict[str, str]:
    return read_passwords((out / "passwd").read_text())


def test_secrets_are_for_their_owner_alone(store: str, tmp_path: Path) -> None:
    assert made(store, tmp_path)["new"] == ["acme", "other", GATEWAY]
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {"mosquitto.conf": 0o644, "acl": 0o644, "passwd": 0o600, "credentials.csv": 0o600, "gateway.env": 0o600}
    for user, password in credentials(tmp_path).items():
        assert matches(password, passwords(tmp_path)[user])


def test_running_it_again_keeps_what_is_there_and_adds_what_is_missing(store: str, tmp_path: Path) -> None:
    made(store, tmp_path, "--tenant", "acme")
    first, entries, gateway = credentials(tmp_path), passwords(tmp_path), (tmp_path / "gateway.env").read_text()
    assert sorted(first) == ["acme", GATEWAY]
    assert made(store, tmp_path, "--tenant", "other", "--devices", "press-*")["new"] == [
        "other",
        "other/press-1",
        "other/press-2",
    ]
    assert made(store, tmp_path)["new"] == []
    assert credentials(tmp_path).items() >= first.items()
    assert passwords(tmp_path).items() >= entries.items()
    assert (tmp_path / "gateway.env").read_text() == gateway
    assert "user other/press-2\n" in (tmp_path / "acl").read_text()


def test_credentials_that_were_taken_away_are_not_made_again(store: str, tmp_path: Path) -> None:
    made(store, tmp_path)
    entries = passwords(tmp_path)
    (tmp_path / "credentials.csv").unlink()
    (tmp_path / "gateway.env").unlink()
    made(store, tmp_path)
    assert passwords(tmp_path) == entries
    assert credentials(tmp_path) == {}
    assert not (tmp_path / "gateway.env").exists()


def test_a_rotated_user_has_a_new_password_and_others_theirs(store: str, tmp_path: Path) -> None:
    made(store, tmp_path)
    before, gateway = credentials(tmp_path), (tmp_path / "gateway.env").read_text()
    assert made(store, tmp_path, "--rotate", "acme", "--rotate", GATEWAY)["new"] == ["acme", GATEWAY]
    after = credentials(tmp_path)
    assert after["other"] == before["other"]
    for user in ("acme", GATEWAY):
        assert after[user] != before[user]
        assert matches(after[user], passwords(tmp_path)[user])
    # The gateway's session is named as before: what waits in it is not lost.
    assert (tmp_path / "gateway.env").read_text() == gateway.replace(before[GATEWAY], after[GATEWAY])


def test_who_is_no_longer_in_the_catalog_is_removed(store: str, tmp_path: Path) -> None:
    made(store, tmp_path)
    with (tmp_path / "passwd").open("a") as file:
        file.write(f"gone:{hashed('x')}\nacme/gone:{hashed('x')}\n")
    assert made(store, tmp_path)["removed"] == ["acme/gone", "gone"]
    assert sorted(passwords(tmp_path)) == ["acme", "other", GATEWAY]


def test_which_devices_get_users(store: str, tmp_path: Path) -> None:
    def check(match: str, *want: str) -> None:
        found = made(store, tmp_path / match.replace("*", "_"), "--tenant", "acme", "--devices", match)["new"]
        assert [User.of(name).device for name in found if "/" in name] == list(want)

    check("all", ODD, "mill-1", "press-1", "press-2")
    check("press-1", "press-1")
    check("*-1", "mill-1", "press-1")
    check("p*ss*2", "press-2")
    check("nosuch")


def test_paths_are_written_as_the_broker_sees_them(store: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "certs").mkdir(parents=True)
    files = {"--tls-cert": out / "certs" / "broker.pem", "--tls-key": out / "broker.key", "--tls-ca": tmp_path / "ca.pem"}
    for path in files.values():
        path.touch()
    given = [text for option, path in files.items() for text in (option, str(path))]

    def paths(*options: str) -> dict[str, str]:
        made(store, out, *given, *options)
        lines = (out / "mosquitto.conf").read_text().splitlines()
        return {name: value for name, _, value in (line.partition(" ") for line in lines) if value.startswith("/")}

    for seen, options in ((str(out), ()), ("/broker", ("--as", "/broker", "--data", "/mosquitto/data"))):
        assert paths(*options) == {
            "certfile": f"{seen}/certs/broker.pem",
            "keyfile": f"{seen}/broker.key",
            "cafile": str(tmp_path / "ca.pem"),
            "password_file": f"{seen}/passwd",
            "acl_file": f"{seen}/acl",
            "persistence_location": "/mosquitto/data/" if options else "/var/lib/mosquitto/",
        }
    # The gateway's file is the gateway's: it is not in the container.
    assert f"WIDEROW_MQTT_TLS_CA={tmp_path / 'ca.pem'}\n" in (out / "gateway.env").read_text()


def test_without_a_certificate_it_listens_on_this_machine_only(store: str, tmp_path: Path) -> None:
    made(store, tmp_path)
    assert "\nlistener 1883 127.0.0.1\n" in (tmp_path / "mosquitto.conf").read_text()


def test_what_is_put_wrongly_changes_nothing(store: str, tmp_path: Path) -> None:
    def check(want: str, *options: str) -> None:
        result = run(store, tmp_path / "out", *options)
        assert result.exit_code != 0
        assert want in result.stderr
        assert not (tmp_path / "out" / "passwd").exists()

    check("--tls-cert and --tls-key", "--tls-cert", __file__)
    check("there is no file", "--tls-cert", "nosuch.pem", "--tls-key", "nosuch.key")
    check("--as broker", "--as", "broker")
    check("there is no tenant nosuch", "--tenant", "nosuch")
    check("there is no user nosuch", "--rotate", "nosuch")


def test_a_folder_that_cannot_be_written_to_is_named(store: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = run(store, tmp_path / "file" / "out")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: file: ")
