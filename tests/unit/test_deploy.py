"""What deploy/ ships fits the program: commands, options, settings, ports, folders and versions are those that exist.

No container engine and no cluster runs here: images are read as text. Units are shown to systemd's own checker, and files of
compose and Kubernetes to the schemas that these publish, as packages bring them along: nothing is fetched.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import typer.main

from deployment import (
    DEPLOY,
    MANIFESTS,
    ROOT,
    UNITS,
    Process,
    compose,
    containerfile,
    documents,
    environment_file,
    image_environment,
    manifests,
    pods,
    processes,
    unit,
)
from servers.cassandra import VERSION as CASSANDRA
from servers.fixtures import had
from servers.kafka import VERSION as KAFKA
from servers.mosquitto import program
from widerow import __version__
from widerow.cli.commands import app
from widerow.cli.mqtt import GATEWAY_ENV
from widerow.config import Config, build
from widerow.ingest.mqtt.mosquitto import GATEWAY, matches, read_passwords
from widerow.server.routes import ROUTES

ALL = processes()
SERVING = {"serve", "gateway", "worker", "api"}
"""Commands that listen, and do not end."""
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SETTINGS = {f"WIDEROW_{part.name}_{s.name}".upper() for part in fields(Config) for s in fields(part.default_factory)}  # type: ignore[arg-type]
MADE = {"broker"}
"""Folders that the steps at the top of compose.yaml make."""
FOLDERS = {path.name for path in DEPLOY.iterdir() if path.is_dir()}
each = pytest.mark.parametrize("process", ALL, ids=lambda process: process.where)


def test_every_process_of_the_pipeline_is_there_in_every_way_of_running_it() -> None:
    started = {(process.where.split()[0], process.arguments[0]) for process in ALL}
    for way in ("compose", "systemd", "kubernetes"):
        assert {command for where, command in started if where == way} >= {"gateway", "worker", "api"}, way
    assert {("systemd", "serve"), ("image", "serve")} <= started


# -- the program


@each
def test_commands_and_options_exist(process: Process) -> None:
    command: Any = typer.main.get_command(app)
    rest = list(process.arguments)
    while hasattr(command, "commands"):
        assert rest[0] in command.commands, f"{process.where}: no command {rest[0]}"
        command = command.commands[rest.pop(0)]
    command.make_context(process.arguments[0], rest)  # raises if it would not take them


@each
def test_settings_exist_and_are_in_range(process: Process) -> None:
    given = {name: value for name, value in process.environment.items() if name.startswith("WIDEROW_")}
    assert set(given) - SETTINGS == set()
    build({}, given)


def test_every_setting_that_is_named_anywhere_exists() -> None:
    for path in [path for path in DEPLOY.rglob("*") if path.is_file() and path.suffix != ".tf"]:
        named = set(re.findall(r"\bWIDEROW_[A-Z_]+\b", path.read_text()))
        assert named <= SETTINGS, path.relative_to(ROOT)


@each
def test_kernels_have_a_folder_that_can_be_written(process: Process) -> None:
    # On a file system that is read-only nothing starts without one: "cannot cache function ...: no locator available".
    assert process.environment["NUMBA_CACHE_DIR"] in process.writable
    assert "/tmp" in process.writable  # where kernels are tried out


@each
def test_a_store_on_disk_is_in_a_folder_that_can_be_written(process: Process) -> None:
    options = dict(zip(process.arguments, process.arguments[1:], strict=False))
    kind, _, path = options.get("--store", process.environment.get("WIDEROW_STORE_URL", "")).partition(":")
    assert kind == "cassandra" or path in process.writable


def test_gateways_do_not_start_without_a_secret_group_and_client_id() -> None:
    """docs/deploy/mosquitto.md: whoever knows them can take messages away, and those that are not given can be guessed."""
    secrets = {f"WIDEROW_MQTT_{name}" for name in ("PASSWORD", "GROUP", "CLIENT_ID")}
    given = compose()["services"]["gateway"]["environment"]
    assert {name for name, value in given.items() if value.startswith("${") and ":?" in value} == secrets
    (container,) = dict(pods())["widerow-gateway"]["containers"]
    needed = {one["name"]: one["valueFrom"]["secretKeyRef"] for one in container["env"]}
    assert needed == {name: {"name": "widerow-mqtt", "key": name} for name in secrets}
    # Without a dash before it the file must be there. `widerow mqtt config` writes it.
    files = unit(DEPLOY / "systemd" / "widerow-gateway.service")["EnvironmentFile"]
    assert files == ["/etc/widerow/widerow.env", f"/etc/widerow/{GATEWAY_ENV}"]
    for process in ALL:
        if process.arguments[0] != "gateway":
            assert not secrets & set(process.environment), f"{process.where} need not know them"


# -- health


def test_health_checks_ask_for_what_exists_where_it_listens() -> None:
    routes = {route.path for route in ROUTES}
    asked = 0
    for process in [process for process in ALL if process.arguments[0] in SERVING and process.where != "image"]:
        for port, path in health_checks(process):
            assert (port, path in routes) == (process.port, True), process.where
            asked += 1
    assert asked >= 3 + 4 + 3 * 3


def health_checks(process: Process) -> list[tuple[str, str]]:
    """The port and path of each. None at all is an error."""
    way, name = process.where.split()
    if way == "compose":
        text = " ".join(compose()["services"][name]["healthcheck"]["test"])
    elif way == "systemd":
        text = unit(DEPLOY / "systemd" / name)["ExecStartPost"][0].replace("%i", "1")
    else:
        (container,) = dict(pods())[name]["containers"]
        ports = {port["name"]: str(port["containerPort"]) for port in container["ports"]}
        probes = [container[kind]["httpGet"] for kind in ("startupProbe", "livenessProbe", "readinessProbe")]
        return [(ports[probe["port"]], probe["path"]) for probe in probes]
    (found,) = re.findall(r"http://127\.0\.0\.1:(\d+)(/[a-z/]+)", text)
    return [found]


def test_only_silence_ends_a_process_and_not_a_store_that_is_away() -> None:
    for _, pod in pods():
        for container in pod["containers"]:
            if "livenessProbe" in container:
                assert container["livenessProbe"]["httpGet"]["path"] == "/health/live"
                assert container["readinessProbe"]["httpGet"]["path"] == "/health/ready"


# -- the image


def test_the_image_is_made_of_what_is_there() -> None:
    instructions = containerfile()
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for name, rest in instructions:
        if name == "FROM":
            assert re.search(r":\d+\.\d+", rest), f"a version is needed: {rest}"
        if name == "COPY" and "--from" not in rest:
            for source in shlex.split(rest)[:-1]:
                assert (ROOT / source).exists(), source
                assert f"!{source.split('/')[0]}" in ignored, source
    said = dict(instructions)  # of each the last
    assert said["USER"] == "10001:10001"
    assert json.loads(said["ENTRYPOINT"]) == list(PROJECT["scripts"])
    assert said["EXPOSE"] == image_environment()["WIDEROW_HTTP_PORT"]


def test_the_image_has_every_store_and_kafka() -> None:
    locked = set(re.findall(r"^([a-z0-9-]+)==", (ROOT / "requirements/image.lock").read_text(), re.MULTILINE))
    extras = PROJECT["optional-dependencies"]
    for line in [*PROJECT["dependencies"], *extras["bigtable"], *extras["cassandra"], *extras["kafka"]]:
        assert re.split(r"[<>=;\[ ]", line, maxsplit=1)[0] in locked


def test_the_image_is_called_the_same_everywhere() -> None:
    name = f"widerow:{__version__}"
    ours = {service["image"] for service in compose()["services"].values() if "build" in service}
    assert ours == {name}
    assert f"-t {name} " in (DEPLOY / "Containerfile").read_text()
    (kustomization,) = manifests("Kustomization")
    assert kustomization["images"] == [{"name": "widerow", "newName": "widerow", "newTag": __version__}]
    for _, pod in pods():
        assert {one["image"] for one in [*pod["containers"], *pod.get("initContainers", [])]} == {"widerow"}


# -- compose


def test_compose_confines_and_limits_what_is_ours_and_limits_the_rest() -> None:
    for name, service in compose()["services"].items():
        assert {"cpus", "memory"} <= set(service["deploy"]["resources"]["limits"]), name
        assert "healthcheck" in service, name
        if name in ("kafka", "cassandra"):
            continue  # their images write where they like
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert not service["user"].startswith("0"), name


def test_compose_waits_for_services_and_mounts_volumes_that_exist() -> None:
    said = compose()
    for name, service in said["services"].items():
        assert set(service.get("depends_on", {})) <= set(said["services"]), name
        for source in [mount.split(":")[0] for mount in service.get("volumes", [])]:
            assert source in said["volumes"] or Path(source).parts[0] in FOLDERS | MADE, f"{name}: {source}"
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    assert {f"/deploy/{folder}/" for folder in MADE} | {"/deploy/.env", "/deploy/ca.key"} <= set(ignored)


def test_the_broker_of_compose_finds_its_files_and_writes_where_its_user_may() -> None:
    service = compose()["services"]["mosquitto"]
    mounts = dict(mount.split(":")[:2] for mount in service["volumes"])
    lines = (DEPLOY / "mosquitto" / "mosquitto.conf").read_text().splitlines()
    named = {name: Path(value) for name, _, value in (line.partition(" ") for line in lines) if value.startswith("/")}
    # The image makes this folder for its user 1883; in others that user may not write.
    assert named.pop("persistence_location") == Path(mounts["mosquitto"]) == Path("/mosquitto/data")
    assert service["user"] == "1883:1883"
    for name, path in named.items():
        assert path.is_relative_to(mounts["./broker"]), name
    assert service["command"][-1] == f"{mounts['./broker']}/mosquitto.conf"


def test_the_steps_before_compose_are_the_same_in_its_file_and_on_its_page() -> None:
    head = (DEPLOY / "compose.yaml").read_text().split("\nname: ", 1)[0]
    in_file = re.findall(r"^#     (.+)$", head, re.MULTILINE)
    section = (
        (ROOT / "docs/deploy/pipeline.md").read_text().split("## On one machine, with compose", 1)[1].split("\n## ", 1)[0]
    )
    on_page = [line for block in re.findall(r"```sh\n(.*?)```", section, re.DOTALL) for line in block.splitlines()]
    assert in_file == on_page


def test_the_steps_before_compose_make_what_it_needs(tmp_path: Path) -> None:
    had(lambda: program("mosquitto_passwd"))
    head = (DEPLOY / "compose.yaml").read_text().split("\nname: ", 1)[0]
    steps = "\n".join(re.findall(r"^#     (.+)$", head, re.MULTILINE)).split("docker compose", 1)[0]
    # There is no container engine: the tool of the image is taken from this machine. And nothing is given away.
    docker = 'docker() { shift 5; "$1" "$2" ".$3"; }\nsudo() { echo "$@" > sudo; }\n'
    shutil.copytree(DEPLOY, tmp_path / "deploy", ignore=shutil.ignore_patterns(*MADE, ".env", "ca.key"))
    subprocess.run(["sh", "-euc", docker + steps], cwd=tmp_path, check=True, capture_output=True, timeout=60)
    folder = tmp_path / "deploy"
    assert (folder / "sudo").read_text() == "chown -R 1883:1883 broker\n"
    files = [path.relative_to(folder) for path in (folder / "broker").rglob("*") if path.is_file()]
    readable = {str(path) for path in files if (folder / path).stat().st_mode & 0o077}
    assert (len(files), readable) == (6, {"broker/certs/ca.pem"})

    made = environment_file(folder / ".env")
    assert set(made) == set(environment_file(folder / "example.env"))
    assert (folder / ".env").stat().st_mode & 0o077 == 0
    assert made["MQTT_CLIENT_ID"].endswith("-{host}")
    (entry,) = read_passwords((folder / "broker" / "passwd").read_text()).items()
    assert entry[0] == GATEWAY
    assert matches(made["MQTT_PASSWORD"], entry[1])

    certificates = folder / "broker" / "certs"
    ours = compose()["services"]["gateway"]["environment"]["WIDEROW_MQTT_URL"]
    name = urlsplit(ours).hostname
    check = ["openssl", "verify", "-x509_strict", "-verify_hostname", name, "-CAfile", "ca.pem", "broker.pem"]
    subprocess.run(check, cwd=certificates, check=True, capture_output=True, timeout=60)


def test_compose_runs_the_versions_that_are_tested() -> None:
    services = compose()["services"]
    for name, tested in (("kafka", KAFKA), ("cassandra", CASSANDRA)):
        version = services[name]["image"].rpartition(":")[2]
        assert version.split(".")[:2] == tested.split(".")[:2]


def test_every_password_that_compose_asks_for_is_in_the_example() -> None:
    text = (DEPLOY / "compose.yaml").read_text()
    example = re.findall(r"^([A-Z_]+)=", (DEPLOY / "example.env").read_text(), re.MULTILINE)
    assert set(re.findall(r"\$\{([A-Z_]+)", text)) == set(example)
    assert set(re.findall(r"^([A-Z_]+)=(?=.)", (DEPLOY / "example.env").read_text(), re.MULTILINE)) == set()


# -- Kubernetes


def test_kustomize_takes_every_manifest_once() -> None:
    (kustomization,) = manifests("Kustomization")
    assert sorted(kustomization["resources"]) == [path.name for path in MANIFESTS if path.name != "kustomization.yaml"]
    names = [(one["kind"], one["metadata"]["name"]) for one in manifests() if one["kind"] != "Kustomization"]
    assert len(names) == len(set(names))


def test_pods_are_confined_and_limited() -> None:
    for name, pod in pods():
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["runAsUser"] == 10001, name
        assert pod["automountServiceAccountToken"] is False, name
        volumes = {volume["name"] for volume in pod["volumes"]}
        for container in [*pod["containers"], *pod.get("initContainers", [])]:
            confined = container["securityContext"]
            assert confined["readOnlyRootFilesystem"] is True, name
            assert confined["allowPrivilegeEscalation"] is False, name
            assert confined["capabilities"] == {"drop": ["ALL"]}, name
            assert "memory" in container["resources"]["limits"], name
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes, name


def test_selectors_find_their_pods_and_references_their_objects() -> None:
    pod_labels = [one["spec"]["template"]["metadata"]["labels"] for one in manifests() if "template" in one.get("spec", {})]
    for one in manifests():
        selector = one.get("spec", {}).get("selector")
        wanted = selector.get("matchLabels", selector) if selector else None
        assert wanted is None or wanted in pod_labels, one["metadata"]["name"]
    accounts = {one["metadata"]["name"] for one in manifests("ServiceAccount")}
    assert {pod["serviceAccountName"] for _, pod in pods()} == accounts
    services = {one["metadata"]["name"] for one in manifests("Service")}
    assert {one["spec"]["serviceName"] for one in manifests("StatefulSet")} <= services


# -- systemd


@pytest.fixture
def analyze() -> str:
    return str(had(lambda: program("systemd-analyze", "systemd")))


@pytest.fixture
def staged(tmp_path: Path) -> list[Path]:
    """The units with programs that exist here."""
    out = []
    for path in UNITS:
        text = path.read_text().replace("/opt/widerow/bin/widerow", "/bin/true").replace("/usr/bin/curl", "/bin/true")
        instance = tmp_path / path.name.replace("@.", "@1.")
        instance.write_text(text)
        out.append(instance)
    return out


def test_systemd_has_nothing_to_say_about_the_units(analyze: str, staged: list[Path]) -> None:
    for path in staged:
        done = subprocess.run(
            [analyze, "verify", "--man=no", "--recursive-errors=no", str(path)],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        said = [line for line in done.stderr.splitlines() if path.name in line]
        assert (done.returncode, said) == (0, []), done.stderr


def test_systemd_finds_the_units_well_confined(analyze: str, staged: list[Path]) -> None:
    for path in staged:
        command = [analyze, "security", "--no-pager", "--offline=true", "--threshold=25", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stdout[-500:] + done.stderr


def test_units_limit_memory_and_leave_the_compiler_alone() -> None:
    for path in UNITS:
        said = unit(path)
        assert {"MemoryHigh", "MemoryMax", "LimitNOFILE", "TasksMax"} <= set(said), path.name
        assert said["User"] == ["widerow"]
        assert "MemoryDenyWriteExecute" not in said  # kernels are compiled in the process


# -- all files


def test_yaml_is_read_and_no_key_stands_twice(tmp_path: Path) -> None:
    for path in [*MANIFESTS, DEPLOY / "compose.yaml"]:
        assert all(isinstance(one, dict) for one in documents(path)), path.name
    (tmp_path / "twins.yaml").write_text("a: 1\nb:\n  - {c: 1, d: 2, c: 3}\n")
    with pytest.raises(ValueError, match=r"twins.yaml, line 3: \{'c'\} more than once"):
        documents(tmp_path / "twins.yaml")


COMPOSE_SPEC = ("check_jsonschema", "--builtin-schema", "vendor.compose-spec")
KUBERNETES = ("kubernetes_validate", "--strict")
"""Strict: what no version of the API knows is an error, as it is for `kubectl apply`."""


def judged(checker: tuple[str, ...], *paths: Path) -> tuple[int, str]:
    """What somebody else's checker makes of files: its exit code, and what it says."""
    command = [sys.executable, "-m", *checker, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout + done.stderr


def broken(path: Path, folder: Path, right: str, wrong: str) -> Path:
    """A copy with a mistake."""
    text, copy = path.read_text(), folder / f"{len(list(folder.iterdir()))}.yaml"
    assert right in text
    copy.write_text(text.replace(right, wrong, 1))
    return copy


def test_compose_is_what_its_specification_wants(tmp_path: Path) -> None:
    path = DEPLOY / "compose.yaml"
    code, said = judged(COMPOSE_SPEC, path)
    assert code == 0, said
    unknown = broken(path, tmp_path, "read_only: true", "readonly: true")
    odd = broken(path, tmp_path, "condition: service_healthy", "condition: healthy")
    code, said = judged(COMPOSE_SPEC, unknown, odd)
    assert code == 1
    assert "'readonly' was unexpected" in said
    assert "'healthy' is not one of" in said


def test_manifests_are_what_kubernetes_takes(tmp_path: Path) -> None:
    ours = [path for path in MANIFESTS if path.name != "kustomization.yaml"]  # which kubectl reads, and no server
    code, said = judged(KUBERNETES, *ours)
    assert (code, said.count(" passed for resource ")) == (0, len(manifests()) - 1), said
    worker = DEPLOY / "kubernetes" / "worker.yaml"
    unknown = broken(worker, tmp_path, "readOnlyRootFilesystem:", "readonlyRootFilesystem:")
    odd = broken(worker, tmp_path, "containerPort: 8080", "containerPort: http")
    code, said = judged(KUBERNETES, unknown, odd)
    assert code == 1
    assert "'readonlyRootFilesystem' was unexpected" in said
    assert "'http' is not of type 'integer'" in said
