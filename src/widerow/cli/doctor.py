"""`widerow doctor`: looks at everything that tends to be wrong, and says what to do about it."""

from __future__ import annotations

import os
import re
import resource
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer

from widerow import __version__
from widerow.cli import checks, output
from widerow.cli.api import Api
from widerow.cli.checks import Check, Verdict
from widerow.cli.connect import Where, connect, resolve, store_folder
from widerow.cli.failure import Failed, Misused
from widerow.cli.session import ConfigOption, JsonOption, ServerOption, StoreOption, TokenOption
from widerow.model.errors import ConfigError, WiderowError
from widerow.model.store import is_made
from widerow.model.times import SECOND, SystemClock, parse_rfc3339

SYNCS = 20
CLOCK = "/v1/admin/clock"


def add_to(app: typer.Typer) -> None:
    app.command("doctor")(doctor)


def doctor(
    server: ServerOption = None,
    token: TokenOption = None,
    store: StoreOption = None,
    config: ConfigOption = None,
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss",
            help="Open a damaged embedded store without its unreadable parts, after a copy was kept beside it.",
            show_default=False,
        ),
    ] = False,
    as_json: JsonOption = False,
    confirm_clock: Annotated[
        bool, typer.Option("--confirm-clock", help="Say that the clock is right, so that data expires again.")
    ] = False,
) -> None:
    """Look at the store, the disk, the clocks, the memory, the settings and the rollups. Ends with 1 if something fails.

    With --store, beside the store, it sees more than with --server.

    Example: widerow doctor --store rocksdb:/var/lib/widerow
    """
    # Not a usual client command: whatever keeps us from connecting is a finding here, not the end.
    try:
        where = resolve(server=server, token=token, store=store, config=config)
    except ConfigError as error:
        found = [Check("configuration", Verdict.FAIL, str(error), "correct that setting")]
    else:
        if accept_loss:
            _accept_loss(where)
        found = list(_examine(where, confirm_clock=confirm_clock))
    counts = {verdict.value: sum(c.verdict is verdict for c in found) for verdict in Verdict}
    if as_json:
        output.emit_json({"checks": [asdict(c) for c in found], **counts})
    else:
        output.emit_table(("check", "verdict", "found", "what to do"), [(c.name, c.verdict, c.found, c.todo) for c in found])
    if counts["fail"]:
        raise Failed(f"{counts['fail']} of {len(found)} checks failed", code="doctor")


def _accept_loss(where: Where) -> None:
    folder = store_folder(where.store) if where.store is not None else None
    if folder is None or not is_made(folder):
        raise Misused("--accept-loss is for a store on this machine", todo="give --store rocksdb:PATH")
    from widerow.engine.open import rocks_settings  # noqa: PLC0415 - everything heavy hangs on these
    from widerow.engine.rocksdb.accept_loss import accept_loss  # noqa: PLC0415

    copy = folder.absolute()
    copy = copy.with_name(f"{copy.name}-damaged-{datetime.now(UTC):%Y%m%dT%H%M%SZ}")
    lost = accept_loss(folder, copy, rocks_settings(where.config))
    for sentence in lost:
        output.note(f"lost: {sentence}")
    output.note(f"a copy of the damaged files is in {copy}" if lost else "the store can be opened; nothing was changed")


def _examine(where: Where, *, confirm_clock: bool = False) -> Iterator[Check]:
    yield checks.check_settings(where.config)
    if where.store is not None:
        folder = store_folder(where.store)
        if folder is not None and folder.is_dir():
            yield from _examine_here(where, folder)
    try:
        with connect(where) as api:
            yield Check("store", Verdict.OK, f"{api.where} answers")
            if confirm_clock:
                api.post(CLOCK)
            yield from _examine_server(api, where)
    except Misused:
        raise
    except WiderowError as error:
        yield Check("store", Verdict.FAIL, f"{error.code}: {error}", "see the message")


def _examine_here(where: Where, folder: Path) -> Iterator[Check]:
    """What can be seen on the machine that has the data."""
    disk = os.statvfs(folder)
    free, total = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
    yield checks.check_disk(free, total, where.config.store.reserve_mib * checks.MIB)
    try:
        yield checks.check_sync(_sync_latencies(folder))
    except OSError as error:
        yield Check("write and sync", Verdict.FAIL, f"{folder}: {error.strerror}", "make the folder writable, free space")
    yield checks.check_clock(SystemClock().now_us())
    available = _available_bytes()
    if available is not None:
        yield checks.check_memory(available, where.config)
    yield checks.check_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _examine_server(api: Api, where: Where) -> Iterator[Check]:
    answer = api.send("GET", "/health/ready", also=(503,))
    reasons = "; ".join(answer.json().get("reasons", ["not ready"]))
    if answer.is_success and answer.json()["status"] == "ready":
        yield Check("ready", Verdict.OK, "takes reports")
    elif answer.is_success:
        yield Check("ready", Verdict.FAIL, reasons, "everything else is served; see `damage`")
    else:
        yield Check("ready", Verdict.FAIL, reasons, "reports are refused until that is over; see the server's log")
    began_us, began_s = SystemClock().now_us(), perf_counter()
    try:
        status = api.get("/v1/status")
    except Failed as error:
        # Who gives a token expects it to be good; who gives none, to see less.
        verdict = Verdict.FAIL if where.token else Verdict.SKIPPED
        yield Check("status", verdict, f"{error.code}: {error}", "use the token of an operator to see more")
        return
    trip_us = round((perf_counter() - began_s) * SECOND)
    yield checks.check_version(__version__, status["version"])
    skew_us = parse_rfc3339(status["time"]) - began_us - trip_us // 2
    yield checks.check_skew(skew_us, trip_us, where.config.time.max_future_s * SECOND)
    if clock := status.get("clock"):
        yield checks.check_trust(clock["trusted"], clock["reason"], clock["ahead_s"])
    yield from _examine_store(status.get("store"))
    yield checks.check_tenant_memory({t["name"]: t.get("memory_bytes", {}) for t in status["tenants"]})
    rollups = status.get("rollups")
    if rollups is None:
        yield Check("rollups", Verdict.SKIPPED, "only an operator may see them", "use the token of an operator")
    else:
        yield checks.check_rollups(rollups["behind_s"], rollups["margin_s"], rollups["pending"])


def _examine_store(store: dict[str, Any] | None) -> Iterator[Check]:
    if store is None:
        yield Check("compaction", Verdict.SKIPPED, "only an operator may see it", "use the token of an operator")
        return
    yield checks.check_damage(store.get("damage", ()))
    detail = store.get("detail", {})
    yield checks.check_compaction(detail.get("pending_compaction_bytes"))
    yield checks.check_size(store["disk_bytes"], store["memory_bytes"])


def _sync_latencies(folder: Path) -> list[float]:
    """How long it takes to append 4 KiB and have them on disk, which is what a small commit does."""
    taken = []
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".doctor-") as file:
        for _ in range(SYNCS):
            began_s = perf_counter()
            file.write(bytes(4096))
            file.flush()
            os.fdatasync(file.fileno())
            taken.append(perf_counter() - began_s)
    return taken


def _available_bytes() -> int | None:
    """What the system could still give, in a container what its own limit leaves; None where nobody tells."""
    found = []
    try:
        match = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
        if match:
            found.append(int(match[1]) * 1024)
        group = Path("/sys/fs/cgroup")
        found.append(int((group / "memory.max").read_text()) - int((group / "memory.current").read_text()))
    except (OSError, ValueError):
        pass  # another system, no limit ("max"), or an older kernel
    return min(found, default=None)
