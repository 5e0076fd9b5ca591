"""What deploy/ says, as plain data: each process of ours with its arguments, environment and writable folders.

Rule 1: nothing is guessed: a key that is not there is an error, so that a file that changed its shape is noticed.
Rule 2: a process has the environment that it would have: the image's, then the file's, with what systemd, Kubernetes and
compose put in place of `%i`, `$(NAME)` and `${NAME:?...}`.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

ROOT = Path(__file__).resolve().parents[1]
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))


@dataclass(frozen=True, slots=True)
class Process:
    """One of ours, as somebody would start it."""

    where: str
    arguments: list[str]
    """After `widerow`."""
    environment: dict[str, str] = field(default_factory=dict)
    writable: list[str] = field(default_factory=list)
    """Folders that it can write to."""

    @property
    def port(self) -> str:
        """That it listens on."""
        options = dict(zip(self.arguments, self.arguments[1:], strict=False))
        return options.get("--port", self.environment.get("WIDEROW_HTTP_PORT", ""))


@cache
def documents(path: Path) -> list[Any]:
    """Of a file of YAML, in which a key may stand once: of two, most readers silently take the second."""
    text = path.read_text()
    for root in yaml.compose_all(text, yaml.SafeLoader):
        _refuse_twins(root, path)
    return list(yaml.safe_load_all(text))


def _refuse_twins(node: Any, path: Path) -> None:
    if isinstance(node, yaml.MappingNode):
        keys = [key.value for key, _ in node.value]
        if twins := {key for key in keys if keys.count(key) > 1}:
            raise ValueError(f"{path.name}, line {node.start_mark.line + 1}: {twins} more than once")
        for _, value in node.value:
            _refuse_twins(value, path)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _refuse_twins(value, path)


def compose() -> Any:
    (document,) = documents(DEPLOY / "compose.yaml")
    return document


def manifests(kind: str | None = None) -> list[Any]:
    found = [one for path in MANIFESTS for one in documents(path)]
    return [one for one in found if kind is None or one["kind"] == kind]


def pods() -> list[tuple[str, Any]]:
    """The pod of everything that makes some, with the name of what does."""
    return [
        (one["metadata"]["name"], one["spec"]["template"]["spec"])
        for one in manifests()
        if "template" in one.get("spec", {})
    ]


def unit(path: Path) -> dict[str, list[str]]:
    """The lines of a unit by their names; sections do not share any in ours."""
    out: dict[str, list[str]] = {}
    for line in path.read_text().splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith(("#", ";")):
            out.setdefault(name, []).append(value)
    return out


def containerfile() -> list[tuple[str, str]]:
    """Instructions and what follows them, lines that go on joined."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Containerfile").read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\\\n", " ", text).splitlines()
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in lines if line.strip())]


def image_environment() -> dict[str, str]:
    """Of the image that is the result: what stands after the last FROM."""
    lines = containerfile()
    last = max(number for number, (name, _) in enumerate(lines) if name == "FROM")
    return dict(part.split("=", 1) for name, rest in lines[last:] if name == "ENV" for part in shlex.split(rest))


# -- processes


def processes() -> list[Process]:
    return [*_of_image(), *_of_compose(), *_of_systemd(), *_of_kubernetes()]


def _of_image() -> Iterator[Process]:
    said = dict(containerfile())
    yield Process("image", json.loads(said["CMD"]), image_environment(), [*json.loads(said["VOLUME"]), "/tmp"])


def _of_compose() -> Iterator[Process]:
    for name, service in compose()["services"].items():
        if service["image"].startswith("widerow:"):
            own = {key: re.sub(r"\$\{[^}]+\}", "secret", value) for key, value in service["environment"].items()}
            mounts = [*service["volumes"], *service["tmpfs"]]
            # A volume is NAME:FOLDER, a tmpfs FOLDER:OPTIONS.
            parts = [mount.split(":") for mount in mounts if not mount.endswith(":ro")]
            writable = [part[0] if part[0].startswith("/") else part[1] for part in parts]
            arguments = [*service.get("entrypoint", ["widerow"])[1:], *service["command"]]
            yield Process(f"compose {name}", arguments, image_environment() | own, writable)


def _of_systemd() -> Iterator[Process]:
    for path in UNITS:
        said = {name: [value.replace("%i", "1") for value in values] for name, values in unit(path).items()}
        environment = dict(part.split("=", 1) for value in said["Environment"] for part in shlex.split(value))
        for value in said["EnvironmentFile"]:
            if (file := DEPLOY / "systemd" / Path(value).name).exists():
                environment |= environment_file(file)
        writable = [f"/var/cache/{name}" for name in said["CacheDirectory"]]
        writable += [f"/var/lib/{name}" for name in said.get("StateDirectory", [])]
        writable += ["/tmp"] if said["PrivateTmp"] == ["true"] else []
        (command,) = said["ExecStart"]
        yield Process(f"systemd {path.name}", shlex.split(command)[1:], environment, writable)


def _of_kubernetes() -> Iterator[Process]:
    maps = {one["metadata"]["name"]: one["data"] for one in manifests("ConfigMap")}
    for name, pod in pods():
        for container in pod["containers"]:
            environment = image_environment()
            for source in container["envFrom"]:
                environment |= maps[source["configMapRef"]["name"]] if "configMapRef" in source else {}
            environment |= {one["name"]: one["valueFrom"]["secretKeyRef"]["key"] for one in container.get("env", [])}
            arguments = [expanded(text, environment) for text in container["args"]]
            yield Process(f"kubernetes {name}", arguments, environment, [m["mountPath"] for m in container["volumeMounts"]])


def environment_file(path: Path) -> dict[str, str]:
    lines = [line for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def expanded(text: str, environment: Mapping[str, str]) -> str:
    return re.sub(r"\$\((\w+)\)", lambda found: environment[found[1]], text)
