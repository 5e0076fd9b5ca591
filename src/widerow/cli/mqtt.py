"""`widerow mqtt`: what the MQTT broker in front of Widerow must know, from the catalog.

Rule 1: passwords are made here and written once, to files that only their owner may read. The broker has hashes of them.
Rule 2: running it again changes nothing that works: who has a password keeps it, who has none gets one, and who is no longer
in the catalog is removed. A file is replaced whole, and keeps its owner and rights.
"""

from __future__ import annotations

import csv
import io
import os
import re
import secrets
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from widerow.cli import output
from widerow.cli.api import Api
from widerow.cli.device import DEVICES
from widerow.cli.failure import Failed, Misused
from widerow.cli.session import Session, operator_client
from widerow.cli.tenant import TENANTS

if TYPE_CHECKING:  # it brings NumPy with it, which `--help` need not wait for
    from widerow.ingest.mqtt.mosquitto import User

app = typer.Typer(help="The MQTT broker: its configuration and users.", no_args_is_help=True)

CONFIGURATION, ACCESS, PASSWORDS = "mosquitto.conf", "acl", "passwd"
CREDENTIALS, GATEWAY_ENV = "credentials.csv", "gateway.env"
_SECRET, _PUBLIC = 0o600, 0o644
_COLUMNS = ("user", "password", "tenant", "device")


@app.command("config")
@operator_client
def config(
    session: Session,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder to write to.", show_default=False)],
    seen_as: Annotated[
        Path | None,
        typer.Option(
            "--as",
            metavar="DIR",
            help="The path of that folder for the broker, if it runs in a container.",
            show_default=False,
        ),
    ] = None,
    tenants: Annotated[
        list[str] | None,
        typer.Option("--tenant", metavar="NAME", help="Only for this one; several times for several. All otherwise."),
    ] = None,
    devices: Annotated[
        str | None,
        typer.Option(
            "--devices",
            metavar="MATCH",
            help="Users for single devices, too: `all`, or those whose names match, `press-*`.",
            show_default=False,
        ),
    ] = None,
    rotate: Annotated[
        list[str] | None,
        typer.Option("--rotate", metavar="USER", help="Give this user a new password. Can be given several times."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", min=1, max=65_535, help="The broker's port; 8883 with TLS, 1883 without.", show_default=False
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", metavar="FILE", help="The broker's certificate.", show_default=False)
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="The key of --tls-cert.", show_default=False)
    ] = None,
    tls_ca: Annotated[
        Path | None,
        typer.Option("--tls-ca", metavar="FILE", help="The authority that signed --tls-cert.", show_default=False),
    ] = None,
    data: Annotated[
        Path, typer.Option("--data", metavar="DIR", help="The folder for waiting messages, as the broker sees it.")
    ] = Path("/var/lib/mosquitto"),
) -> None:
    """Write mosquitto's configuration, access rules and passwords, and credentials for new users.

    Example: widerow mqtt config --out /etc/mosquitto/widerow --tls-cert broker.pem --tls-key broker.key --devices all
    """
    from widerow.ingest.mqtt import mosquitto  # noqa: PLC0415

    if (tls_cert is None) != (tls_key is None) or (tls_ca is not None and tls_cert is None):
        raise Misused("--tls-cert and --tls-key go together, and --tls-ca with them")
    listener = mosquitto.Listener(
        port=port or (8883 if tls_cert else 1883), cert=_absolute(tls_cert), key=_absolute(tls_key), ca=_absolute(tls_ca)
    )
    folder = out.absolute()
    if seen_as is not None and not seen_as.is_absolute():
        raise Misused(f"--as {seen_as}: give the whole path, from / on")
    for path in filter(None, (folder, seen_as, data, listener.cert, listener.key, listener.ca)):
        if "\n" in str(path):
            raise Misused(f"{str(path)!r}: mosquitto cannot be told of a path with a line break")
    topics = mosquitto.Topics.of(session.config.mqtt)
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    entries = mosquitto.read_passwords(_text(folder / PASSWORDS))
    kept = _kept(folder / CREDENTIALS)
    users = _users(session.api, tenants or [], devices, [mosquitto.User.of(name) for name in entries])
    plan = _plan(users, entries, kept, set(rotate or ()))
    # Credentials first: a hash whose password was never written would lock its user out.
    _replace(folder / CREDENTIALS, _csv(plan.credentials), _SECRET)
    if mosquitto.GATEWAY in plan.new:
        password = plan.new[mosquitto.GATEWAY]
        _replace(folder / GATEWAY_ENV, _gateway_env(_text(folder / GATEWAY_ENV), password, listener.ca, entries), _SECRET)
    _replace(folder / PASSWORDS, mosquitto.write_passwords(plan.entries), _SECRET)
    _replace(folder / ACCESS, mosquitto.access(users, topics), _PUBLIC)
    seen = seen_as or folder
    _replace(folder / CONFIGURATION, mosquitto.configuration(seen, data, listener.moved(folder, seen)), _PUBLIC)
    if plan.removed:
        output.note(f"no longer in the catalog, and removed: {output.printable(', '.join(plan.removed))}")
    session.done(
        {"folder": str(folder), "users": len(users), "new": sorted(plan.new), "removed": plan.removed},
        f"{len(users):,} users, {len(plan.new):,} with a new password ({folder / CREDENTIALS}); start or reload mosquitto",
    )


# -- who


def _users(api: Api, chosen: list[str], match: str | None, known: list[User]) -> list[User]:
    """All that are to have a password: those who have one and still exist, and those who are chosen now."""
    from widerow.ingest.mqtt.mosquitto import User  # noqa: PLC0415

    existing = [tenant["name"] for tenant in api.get(TENANTS)["tenants"]]
    for name in chosen:
        if name not in existing:
            raise Failed(f"there is no tenant {name}", code="not-found", todo="see widerow tenant list")
    users = {User()}
    for tenant in existing:
        mine = {user.device for user in known if user.tenant == tenant}
        wanted = tenant in (chosen or existing)
        users |= {User(tenant)} if wanted or "" in mine else set()
        if mine - {""} or (wanted and match is not None):
            for device in api.pages(DEVICES, "devices", tenant=tenant, limit=1000):
                name = device["name"]
                if name in mine or (wanted and match is not None and _matches(name, match)):
                    users.add(User(tenant, name))
    return sorted(users)


def _matches(name: str, match: str) -> bool:
    """`all`, a name, or one with `*` for any text."""
    return match == "all" or bool(re.fullmatch(".*".join(map(re.escape, match.split("*"))), name))


@dataclass(slots=True)
class _Plan:
    """What the files will say."""

    entries: dict[str, str] = field(default_factory=dict)
    credentials: list[tuple[str, ...]] = field(default_factory=list)
    new: dict[str, str] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)


def _plan(users: list[User], entries: dict[str, str], kept: dict[str, tuple[str, ...]], rotate: set[str]) -> _Plan:
    from widerow.ingest.mqtt.mosquitto import hashed, new_password  # noqa: PLC0415

    names = {user.name for user in users}
    if unknown := rotate - names:
        raise Failed(f"there is no user {min(unknown)} to rotate", code="not-found", todo="see the file acl")
    plan = _Plan(removed=sorted(set(entries) - names))
    for user in users:
        name = user.name
        if name in entries and name not in rotate:
            plan.entries[name] = entries[name]
            if name in kept:
                plan.credentials.append(kept[name])
            continue
        password = plan.new[name] = new_password()
        plan.entries[name] = hashed(password)
        plan.credentials.append((name, password, user.tenant, user.device))
    return plan


# -- files


def _kept(path: Path) -> dict[str, tuple[str, ...]]:
    """The credentials that were written before, unless they were taken away since, as they should be."""
    rows = list(csv.reader(io.StringIO(_text(path))))
    return {row[0]: tuple(row) for row in rows[1:] if len(row) == len(_COLUMNS)}


def _csv(rows: list[tuple[str, ...]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([_COLUMNS, *rows])
    return text.getvalue()


def _gateway_env(before: str, password: str, ca: Path | None, entries: dict[str, str]) -> str:
    """The environment of gateways. Sessions have names nobody can guess, made once: by them what waits is found."""
    from widerow.ingest.mqtt.mosquitto import GATEWAY  # noqa: PLC0415

    names = {line.partition("=")[0]: line for line in before.splitlines() if "=" in line and not line.startswith("#")}
    lines = names | {
        "WIDEROW_MQTT_USERNAME": f"WIDEROW_MQTT_USERNAME={GATEWAY}",
        "WIDEROW_MQTT_PASSWORD": f"WIDEROW_MQTT_PASSWORD={password}",
    }
    if ca is not None:
        lines["WIDEROW_MQTT_TLS_CA"] = f"WIDEROW_MQTT_TLS_CA={ca}"
    if GATEWAY not in entries:
        lines["WIDEROW_MQTT_GROUP"] = f"WIDEROW_MQTT_GROUP=widerow-{secrets.token_hex(12)}"
        lines["WIDEROW_MQTT_CLIENT_ID"] = f"WIDEROW_MQTT_CLIENT_ID=widerow-{secrets.token_hex(12)}-{{host}}"
    return "\n".join(
        [
            "# For `widerow gateway` or `widerow serve --mqtt`. Group and client id are as secret as the password: anyone",
            "# that knows them can take messages away. {host} stands for a gateway's host: each has its own session.",
            *lines.values(),
            "",
        ]
    )


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


def _replace(path: Path, text: str, mode: int) -> None:
    """The whole file, on the disk before it has its name. One that was there keeps its owner and rights."""
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    before = path.stat() if path.exists() else None
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    if before is not None:
        draft.chmod(before.st_mode & 0o7777)
        with suppress(PermissionError):  # only root gives files away
            os.chown(draft, before.st_uid, before.st_gid)
    draft.replace(path)


def _absolute(path: Path | None) -> Path | None:
    if path is not None and not path.is_file():
        raise Misused(f"there is no file {path}")
    return path.absolute() if path is not None else None
