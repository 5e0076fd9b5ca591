"""Backups of a served store under load: killed half-way, resumed, restored elsewhere, and compared value by value.

`make backup-drill N=500000` does the same with half a million reports in the store before it begins.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx
import numpy as np
import pytest

from system.conftest import config_at
from system.processes import Process
from widerow.backup.folder import BackupFolder, Manifest
from widerow.model.errors import ConfigError
from widerow.model.tenant import Tenant
from widerow.model.times import DAY, HOUR, MS, SystemClock, TimeSpan
from widerow.model.token import Role
from widerow.server.sockets import SOCKET, reachable
from widerow.service import Service

STORED = int(os.environ.get("WIDEROW_DRILL_REPORTS", "20000"))
"""Reports in the store before the first backup."""
SENDERS, BATCH = 2, 100
WINDOWS = 25
"""Days over which stored reports are spread: each has files of its own."""
WIDEROW = [sys.executable, "-m", "widerow.cli.main"]

Point = tuple[str, int]
"""A device, and a time in milliseconds."""


@dataclass
class Sent:
    """Everything that was sent, and when it was acknowledged."""

    values: dict[Point, float] = field(default_factory=dict)
    acknowledged_us: dict[Point, int] = field(default_factory=dict)
    erased: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def send(self, client: httpx.Client, points: dict[Point, float]) -> None:
        with self.lock:
            self.values |= points
        body = [{"device": device, "time": at, "values": {"n": value}} for (device, at), value in points.items()]
        if client.post("/v1/write", json=body).status_code == 204:
            now_us = SystemClock().now_us()
            with self.lock:
                self.acknowledged_us |= dict.fromkeys(points, now_us)

    def erase(self, client: httpx.Client, device: str) -> None:
        assert client.delete(f"/v1/devices/{device}").status_code == 204
        self.erased.add(device)


class Site:
    """A server on a store of its own, and those who send to it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store, self.sent = folder, folder / "store", Sent()
        with Service.open(config_at(folder)) as service:
            service.create_tenant(Tenant(name="acme"))
            self.token, _ = service.catalog.tokens.create(Role.ADMIN, tenant="acme")
        self.server = Process("serve", ["serve", "--store", f"rocksdb:{self.store}"], {}, folder)
        self._stopping = threading.Event()
        self._senders = [threading.Thread(target=self._go_on, args=(n,)) for n in range(SENDERS)]

    def __enter__(self) -> Self:
        return self

    def begin(self) -> None:
        """Store what is to be there before, and send from now on."""
        self.server.start()
        with self.client() as client:
            now_ms = SystemClock().now_us() // MS
            for first in range(0, STORED, 2_000):
                points = {
                    (f"old-{i % 20}", now_ms - (i % WINDOWS) * DAY // MS - HOUR // MS - i): float(i)
                    for i in range(first, min(first + 2_000, STORED))
                }
                self.sent.send(client, points)
            for n in range(6):
                self.sent.send(client, {(f"gone-{n}", now_ms - 1_000 - k): float(k) for k in range(100)})
        assert len(self.sent.acknowledged_us) == len(self.sent.values)
        for sender in self._senders:
            sender.start()

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for sender in self._senders:
            if sender.ident is not None:
                sender.join()
        self.server.kill()

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.server.url, headers={"Authorization": f"Bearer {self.token}"}, timeout=120)

    def state(self) -> Any:
        """What the server says of its backups."""
        with reachable(self.store / SOCKET) as path, httpx.Client(transport=httpx.HTTPTransport(uds=path)) as local:
            return local.get("http://localhost/v1/admin/backup").json()

    def _go_on(self, number: int) -> None:
        """Send without a pause, also while nobody answers."""
        count = 0
        at_ms = SystemClock().now_us() // MS - HOUR // MS
        while not self._stopping.is_set():
            try:
                with self.client() as client:
                    while not self._stopping.is_set():
                        points = {(f"live-{number}-{k % 5}", at_ms + count + k): float(count + k) for k in range(BATCH)}
                        count += BATCH
                        self.sent.send(client, points)
            except httpx.HTTPError:
                time.sleep(0.01)

    def command(self, *arguments: str) -> list[str]:
        return [*WIDEROW, *arguments, "--store", f"rocksdb:{self.store}"]

    def started(self, *arguments: str) -> subprocess.Popen[str]:
        return begun(self.command(*arguments))


def begun(command: list[str]) -> subprocess.Popen[str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("WIDEROW_")}
    return subprocess.Popen(command, env=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def done(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    answer: dict[str, Any] = json.loads(out)
    return answer


def kill_when(process: subprocess.Popen[str], ready: Callable[[], bool], pid: int) -> None:
    """Kill a process half-way through what the command does."""
    until_s = time.monotonic() + 120
    while not ready():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until_s
        time.sleep(0.0002)
    os.kill(pid, signal.SIGKILL)


def names_in(folder: Path, pattern: str = "*") -> list[str]:
    return [path.name for path in folder.glob(pattern) if not path.name.endswith(".part")] if folder.exists() else []


def killed_half_way(site: Site, path: Path) -> set[str]:
    """Begin a backup and kill the server that makes it; gives the objects that it left."""
    objects = path / "objects"
    command = site.started("backup", str(path))
    kill_when(command, lambda: len(names_in(objects)) >= 5, site.server.pid)
    site.server.kill()
    command.communicate(timeout=60)
    assert command.returncode == 1
    assert BackupFolder(path).numbers() == [], "it was over before it was killed"
    return set(names_in(objects))


@pytest.mark.rest
def test_a_backup_under_load_survives_kills_and_is_restored_elsewhere(tmp_path: Path) -> None:
    dest, copy = BackupFolder(tmp_path / "backups"), tmp_path / "elsewhere"
    with Site(tmp_path) as site:
        site.begin()
        with site.client() as client:
            site.sent.erase(client, "gone-0")
        left = killed_half_way(site, dest.path)
        assert left
        site.server.start()
        assert not (site.store / "backup-links").exists()
        made = done(site.started("backup", str(dest.path), "--json"))["backups"][0]
        resumed = dest.manifest(made["number"])
        assert left & {file.sha256 for file in resumed.files.values()}, "nothing of the killed run was used"
        assert resumed.copied_bytes < resumed.bytes
        with site.client() as client:
            site.sent.erase(client, "gone-1")
            assert site.state()["last_success"]["number"] == made["number"]
            last = done(site.started("backup", str(dest.path), "--keep", "1", "--verify", "--json"))["backups"][0]
            assert last["number"] == made["number"] + 1
            assert last["verified"]
            site.sent.erase(client, "gone-2")
    assert dest.numbers() == [last["number"]]
    manifest = dest.manifest()

    restore = [*WIDEROW, "restore", str(dest.path), "--store", f"rocksdb:{copy}", "--json"]
    first = begun(restore)
    kill_when(first, lambda: len(names_in(copy, "*.sst")) >= 3, first.pid)
    first.communicate()
    with pytest.raises(ConfigError):
        Service.open(config_of(copy))
    said = done(begun(restore))
    assert said["erased_again"] == 1  # the others were erased before the backup
    compare(site.sent, manifest, copy)


def config_of(path: Path) -> Any:
    config = config_at(path.parent)
    return type(config)(store=type(config.store)(url=f"rocksdb:{path}", reserve_mib=0), http=config.http)


def compare(sent: Sent, manifest: Manifest, copy: Path) -> None:
    """Everything acknowledged before the mark is there, nothing is that was not sent, nothing that was erased."""
    found: dict[Point, float] = {}
    with Service.open(config_of(copy)) as service:
        tenant = service.catalog.tenants.get("acme")
        now_us = service.clock.now_us()
        for device in {device for device, _ in sent.values}:
            for _, some in service.telemetry.read(tenant, device, TimeSpan(now_us - (WINDOWS + 3) * DAY, now_us + DAY)):
                for rows in some:
                    times = (np.asarray(rows.keys["event_us"]) // MS).tolist()
                    found |= {(device, at): value for at, value in zip(times, rows.cells.number.tolist(), strict=True)}
        listed = {device.name for device in service.catalog.devices.list("acme").devices}
    wanted = {
        point: sent.values[point]
        for point, acknowledged_us in sent.acknowledged_us.items()
        if acknowledged_us <= manifest.mark_us and point[0] not in sent.erased
    }
    live = sum(device.startswith("live") for device, _ in wanted)
    print(f"{len(wanted):,} values acknowledged before the mark, {live:,} of them under load; {len(found):,} restored")
    assert live
    assert {point: found.get(point) for point in wanted} == wanted
    assert {point: sent.values.get(point) for point in found} == found
    assert sent.erased == {"gone-0", "gone-1", "gone-2"}
    assert not sent.erased & ({device for device, _ in found} | listed)
    assert {"gone-3", "gone-4", "gone-5"} <= listed
