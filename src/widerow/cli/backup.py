"""`widerow backup` and `widerow restore`: copies of an embedded store, and a store from such a copy."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from widerow.cli import output
from widerow.cli.api import Api
from widerow.cli.connect import connect, load_config, resolve, store_folder
from widerow.cli.failure import Failed, Misused, as_misuse
from widerow.cli.session import ConfigOption, JsonOption, StoreOption
from widerow.model.errors import Corrupt
from widerow.model.system import explained

if TYPE_CHECKING:
    from widerow.backup.folder import BackupFolder, Manifest

_LOOK_S = 0.1
_GUIDE = "docs/guides/backup.md"


def add_to(app: typer.Typer) -> None:
    app.command("backup")(backup)
    app.command("restore")(restore)


def backup(
    folder: Annotated[Path, typer.Argument(metavar="DEST", help="A folder of backups; made if it is not there.")],
    keep: Annotated[
        int | None,
        typer.Option("--keep", metavar="N", min=1, help="Afterwards remove all but the newest N.", show_default=False),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read all of it, and compare every checksum.", show_default=False)
    ] = False,
    listing: Annotated[
        bool, typer.Option("--list", help="Take none: list those in DEST; with --verify, check each.", show_default=False)
    ] = False,
    store: StoreOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy an embedded store while it is in use: everything that was acknowledged before the command began is in the copy.

    DEST should be on another disk. The command copies only what changed since the last backup. If it is interrupted, run
    it again: it goes on with the files it had copied. Beside a running server the server makes the backup, so its user
    must be able to write to DEST.

    Example: widerow backup /mnt/backup/widerow --store rocksdb:/var/lib/widerow --keep 7

    Example: widerow backup --list /mnt/backup/widerow
    """
    from widerow.backup.folder import BackupFolder  # noqa: PLC0415 - everything heavy hangs on these

    backups = BackupFolder(folder.absolute())
    if listing:
        if keep is not None:
            raise Misused("--list takes no backup and removes none: leave out --keep")
        _list(backups, verify, as_json)
        return
    where = resolve(server=None, token=None, store=store, config=config)
    if where.store is None:
        raise Misused("a backup is taken on the store's machine", todo="give --store rocksdb:PATH, not WIDEROW_URL")
    if store_folder(where.store) is None:
        raise Misused(f"{where.store} is not an embedded store, which this command is for", todo=f"see {_GUIDE}")
    with connect(where) as api:
        api.command = "widerow backup"
        api.post("/v1/admin/backup", {"to": str(backups.path)})
        number = _followed(api)
    shown = _checked(backups, backups.manifest(number), thorough=verify)
    if keep is not None:
        with backups.held():
            gone = backups.prune(keep)
        if gone:
            output.note(f"removed {len(gone)} older ones")
    _show([shown], as_json)


def _list(backups: BackupFolder, verify: bool, as_json: bool) -> None:
    """All backups that are right; those that are not are named, and the command fails."""
    good, bad = [], []
    for number in backups.numbers():
        try:
            manifest = backups.manifest(number)
            good.append(_checked(backups, manifest, thorough=True) if verify else _shown(manifest))
        except Corrupt as error:
            output.note(str(error))
            bad.append(number)
    _show(good, as_json)
    if bad:
        raise Failed(f"{len(bad)} of {len(good) + len(bad)} backups are damaged", code=Corrupt.code)


def _followed(api: Api) -> int:
    """Wait for the backup that was begun; gives its number."""
    with output.progress("copied bytes", None) as advance:
        seen = 0
        while True:
            state = api.get("/v1/admin/backup")
            run = state["run"]
            if run is None:
                break
            advance(run["done_bytes"] - seen)
            seen = run["done_bytes"]
            time.sleep(_LOOK_S)
    if error := state["last_error"]:
        raise Failed(error["message"], code=error["code"])
    return int(state["last_success"]["number"])


def _checked(backups: BackupFolder, manifest: Manifest, *, thorough: bool) -> dict[str, Any]:
    """A backup that opens; `thorough`: and of which every checksum is right."""
    from widerow.backup.check import check  # noqa: PLC0415

    with output.progress("checked bytes", manifest.bytes if thorough else None) as advance:
        check(backups, manifest, thorough=thorough, advance=advance)
    return {**_shown(manifest), "verified": thorough}


def _shown(manifest: Manifest) -> dict[str, Any]:
    from widerow.backup.running import shown  # noqa: PLC0415

    return {**shown(manifest), "verified": False}


def _show(backups: Sequence[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        output.emit_json({"backups": list(backups)})
        return
    rows = [
        (b["number"], b["mark"], b["finished"], output.size(b["bytes"]), output.size(b["copied_bytes"]), b["verified"])
        for b in backups
    ]
    columns = ("backup", "mark", "finished", "size", "copied", "verified")
    output.emit_table(columns, rows, right=("backup", "size", "copied"))


def restore(
    source: Annotated[Path, typer.Argument(metavar="SRC", help="A folder of backups.")],
    store: Annotated[
        str, typer.Option("--store", metavar="URL", help="The new store: rocksdb:PATH, an empty or missing folder.")
    ],
    number: Annotated[
        int | None,
        typer.Option("--backup", metavar="N", help="The number of a backup; the newest, by default.", show_default=False),
    ] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a store from a backup, and repeat the erasures made since. No process can open it before that is done.

    If the command is interrupted, run it again: it goes on where it was.

    Example: widerow restore /mnt/backup/widerow --store rocksdb:/var/lib/widerow
    """
    from widerow.backup.folder import BackupFolder  # noqa: PLC0415
    from widerow.backup.restore import restore as restore_backup  # noqa: PLC0415
    from widerow.model.times import SystemClock, format_time  # noqa: PLC0415

    with as_misuse():
        target = store_folder(store)
    if target is None:
        raise Misused(f"{store} is not an embedded store, which this command is for", todo=f"see {_GUIDE}")
    backups = BackupFolder(source.absolute())
    manifest = backups.manifest(number)
    settings = load_config(config)
    try:
        with output.progress("copied bytes", manifest.bytes) as advance:
            done = restore_backup(backups, manifest, target, SystemClock(), advance, audit_days=settings.audit.keep_days)
    except OSError as error:
        raise Failed(explained(error, error.filename or target), code="file") from None
    mark = format_time(manifest.mark_us)
    until = None if done.erased_known_us is None else format_time(done.erased_known_us)
    if as_json:
        result = {"backup": manifest.number, "mark": mark, "erased_again": done.erased, "erasures_known_until": until}
        output.emit_json(result)
        return
    output.note(f"restored backup {manifest.number} to {target}: it has everything acknowledged before {mark}")
    output.note(f"erased again: {done.erased:,} devices, metrics or tenants, as far as is known")
    output.note(f"erasures are known up to {until or 'no time at all'}: repeat those that came later")
