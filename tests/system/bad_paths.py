"""Every command, with each of its paths put wrongly, one after the other in one process that obeys permissions.

    PYTHONPATH=tests python -m system.bad_paths FOLDER      prints a JSON line for each

Rule: the options and arguments that take a path are read from the commands, so that none is forgotten.
"""

from __future__ import annotations

import ctypes
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from typer.main import get_command

from widerow.cli.commands import app

STORES = ("--store", "FROM", "TO")
READ = ("--config", "--fleet", "--limits", "--prices", "FILE", "SRC")
WRITTEN = ("--data", "--html", "--out", "--output", "--svg", "DEST")
NEVER_OPENED = {("mqtt config", name) for name in ("--as", "--data", "--tls-cert", "--tls-key", "--tls-ca")}
"""The broker's own paths: the command writes them into the broker's settings."""
MAKERS = (("tenant", "create"), ("token", "create"), ("schema", "apply"))
_OF_METAVAR = ("FILE", "DIR", "SRC", "DEST", "FROM", "TO")
_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH = 24, 1, 2


@dataclass(frozen=True, slots=True)
class Tried:
    line: list[str]
    exit_code: int
    stdout: str
    stderr: str
    raised: str
    """The exception that the command let through."""
    made: bool = False
    """Whether there is something now where nothing was."""


def tried(folder: Path) -> list[Tried]:
    """All of them. `folder` is empty."""
    done = subprocess.run(
        [sys.executable, "-m", "system.bad_paths", folder],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        preexec_fn=_obey_permissions,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.returncode == 0, done.stderr
    return [Tried(**json.loads(line)) for line in done.stdout.splitlines()]


def _obey_permissions() -> None:
    """Root reads and writes everything; a program that it starts after this does not."""
    if os.geteuid() == 0:
        for capability in (_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH):
            ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)


def commands(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    command = command or get_command(app)
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path, command
        return
    for name, one in inner.items():
        yield from commands(one, (*path, name))


def lines(good: str, bad: Bad) -> Iterator[list[str]]:
    """Command lines of which one path is bad. `good`: the URL of a store."""
    for path, command in commands():
        parameters = {_name(p): p for p in command.params}
        for name, parameter in parameters.items():
            if not _takes_a_path(name, parameter) or (" ".join(path), name) in NEVER_OPENED:
                continue
            for value in bad.of(name):
                given = {n: _sample(n, good) for n, p in parameters.items() if p.required} | {name: value}
                if "--store" in parameters:
                    given.setdefault("--store", good)
                if path[0] in ("query", "device", "metric", "deadletters", "fleet") and "--tenant" in parameters:
                    given["--tenant"] = "acme"
                if path == ("query",):
                    given["--all"] = ""
                yield [*path, *(text for n, v in given.items() for text in ((n, v) if n.startswith("-") else (v,)) if text)]


class Bad:
    """Paths that cannot be used, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        (folder / "file").write_bytes(b"\xff\xfe[")
        (folder / "loop").symlink_to("loop")
        for name, mode in (("closed", 0), ("unwritable", 0o500)):
            (folder / name).mkdir()
            (folder / name).chmod(mode)
        (folder / "unreadable").touch(mode=0)
        long = "/".join(["long" * 60] * 20)
        below = [f"{folder}/{name}/below" for name in ("file", "loop", "closed")]
        below += [f"{folder}/unwritable/below/below", "/proc/below", "/sys/below", "/dev/null/below", f"{folder}/{long}"]
        plain = [f"{folder}/{name}" for name in ("missing", "unreadable", "file/below", "closed/below")]
        self.config = [*plain, "/proc/self/mem"]
        self.read = [*below, *plain, f"{folder}/closed", f"{folder}/loop", "/proc/self/mem"]
        self.stores = [f"rocksdb:{path}" for path in (*below, f"{folder}/file", f"{folder}/closed", "/proc", "/dev/null")]
        self.stores.append(f"rocksdb:{folder}/unwritable")
        self.written = [*below, f"{folder}/closed/", f"{folder}/unwritable/below"]

    def of(self, name: str) -> list[str]:
        if name == "--config":
            return self.config
        return self.stores if name in STORES else self.read if name in READ else self.written


def made_by(line: list[str]) -> bool:
    """Whether to make a store is what this command is for."""
    if line[0] == "migrate":
        return line[1].endswith("/good")
    return line[0] in ("serve", "worker", "demo", "restore") or tuple(line[:2]) in MAKERS


def _name(parameter: Any) -> str:
    opt: str = parameter.opts[0]
    return opt if opt.startswith("-") else parameter.metavar or opt


def _takes_a_path(name: str, parameter: Any) -> bool:
    return name in STORES or parameter.metavar in _OF_METAVAR


def _sample(name: str, good: str) -> str:
    known = {"--limits": __file__, "--out": good.removeprefix("rocksdb:") + "-out", "--hardware": "pump"}
    known |= {"SRC": "missing", "DEST": good.removeprefix("rocksdb:") + "-backup", "FROM": good, "TO": good + "-copy"}
    return known.get(name, "acme")


def run(command: Any, line: list[str]) -> Tried:
    """What `CliRunner` does, which puts all commands together anew for every line."""
    out, err = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2))
    exit_code, raised = 0, ""
    with redirect_stdout(out), redirect_stderr(err):
        try:
            command(line, prog_name="widerow")
        except SystemExit as end:
            exit_code = end.code if isinstance(end.code, int) else 1
        except BaseException as error:  # noqa: BLE001
            raised = repr(error)
    stdout, stderr = (bytes(stream.buffer.getvalue()).decode() for stream in (out, err))
    return Tried(line, exit_code, stdout, stderr, raised)


def main(folder: Path) -> None:
    good = f"rocksdb:{folder}/good"
    command = get_command(app)
    run(command, ["tenant", "create", "acme", "--store", good])
    place = folder / "bad"
    place.mkdir()
    bad = Bad(place)
    for line in lines(good, bad):
        print(json.dumps(asdict(run(command, line))), flush=True)
    new, empty = folder / "new", folder / "empty"
    empty.mkdir()
    for where in (new, empty):
        bad.stores = [f"rocksdb:{where}"]
        for line in lines(good, bad):
            if bad.stores[0] in line and not made_by(line):
                done = run(command, line)
                made = new.exists() or any(empty.iterdir())
                print(json.dumps(asdict(replace(done, made=made))), flush=True)
                shutil.rmtree(new, ignore_errors=True)
                shutil.rmtree(empty)
                empty.mkdir()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
