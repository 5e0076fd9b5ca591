"""What mosquitto must be told: its configuration, who may connect, and who may publish and read what. Pure.

Rule 1: who has no line in the access file may do nothing. A device publishes its own telemetry, backlog and status and reads
its own errors; a tenant does that for all its devices; the gateway reads what all publish, and writes errors.
Rule 2: mosquitto lets everyone subscribe to everything, and looks at the rules when it delivers. Whoever knows the gateways'
group could join it, and would be dealt messages that are then dropped; whoever knows a gateway's client id could take its
session over. Both are therefore random, and kept like passwords.
Rule 3: topics encode names as the gateway reads them. A user name is ASCII without `:` and blanks, which the password file
could not hold: `TENANT`, or `TENANT/DEVICE` with the device percent-encoded.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

from widerow.config import Mqtt
from widerow.ingest.mqtt.settings import topic_templates
from widerow.ingest.mqtt.topics import Template, encode_name

GATEWAY = "widerow.gateway"
"""The user that gateways connect as. No tenant can have a name with a dot."""

_ITERATIONS = 101
"""As `mosquitto_passwd` does. More would help against guessing, and nobody guesses 160 random bits."""
_SALT_BYTES = 12


@dataclass(frozen=True, slots=True, order=True)
class User:
    """Who may connect: the gateway (no tenant), a tenant (no device), or a device."""

    tenant: str = ""
    device: str = ""

    @property
    def name(self) -> str:
        if not self.tenant:
            return GATEWAY
        return f"{self.tenant}/{quote(self.device, safe='')}" if self.device else self.tenant

    @classmethod
    def of(cls, name: str) -> User:
        """Whose name that is."""
        if name == GATEWAY:
            return cls()
        tenant, _, device = name.partition("/")
        return cls(tenant, unquote(device))


@dataclass(frozen=True, slots=True)
class Topics:
    """The templates of the topics, as the gateway's configuration has them."""

    telemetry: Template
    status: Template
    errors: Template
    backfill: Template | None = None

    @classmethod
    def of(cls, config: Mqtt) -> Topics:
        """Raises ConfigError for what is no template, or the same as another."""
        return cls(*topic_templates(config))


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """Where the broker listens: without a certificate on this machine only, since passwords may not cross a network bare."""

    port: int
    cert: Path | None = None
    key: Path | None = None
    ca: Path | None = None

    def moved(self, folder: Path, to: Path) -> Listener:
        """With the files that are below `folder` below `to`; others stay where they are."""
        cert, key, ca = (
            to / path.relative_to(folder) if path and path.is_relative_to(folder) else path
            for path in (self.cert, self.key, self.ca)
        )
        return Listener(port=self.port, cert=cert, key=key, ca=ca)

    def lines(self) -> str:
        if self.cert is None:
            return (
                "# Without TLS only this machine may connect: passwords would cross the network as they are.\n"
                f"listener {self.port} 127.0.0.1\n"
            )
        given = [f"listener {self.port}", f"certfile {self.cert}", f"keyfile {self.key}"]
        if self.ca is not None:
            given.append(f"cafile {self.ca}")
        return "\n".join([*given, "tls_version tlsv1.2", ""])


def configuration(folder: Path, data: Path, listener: Listener) -> str:
    """The text of mosquitto.conf. The files of who may do what are in `folder`; `data` is the broker's own. All paths are as
    the broker sees them.
    """
    return f"""\
# Mosquitto as the broker in front of Widerow. Written by `widerow mqtt config`; changes are lost when that runs again.
# The choices, and the messages that the broker can lose with them: docs/deploy/mosquitto.md.

{listener.lines()}
# Nobody without a password. After a change of these files: systemctl reload mosquitto (or SIGHUP).
allow_anonymous false
password_file {folder}/passwd
acl_file {folder}/acl

# Messages that wait for a gateway are in memory, and written to the disk as a whole every 10 seconds. A publisher is told
# that its message arrived before that. So a crash of the broker or its machine loses what came since, was acknowledged, and
# had not yet been acknowledged by a gateway. A clean stop keeps all that waits. After any stop, shared subscriptions are
# forgotten: messages published before a gateway with a group is back go to nobody.
persistence true
persistence_location {data}/
autosave_on_changes false
autosave_interval 10

# Messages that wait for one session of a gateway, which has two, one of them for backlog: each up to the first of these
# limits that is reached. Beyond that new ones are dropped, though they are acknowledged to their publisher: seen as
# "Outgoing messages are being dropped" in the log and as $SYS/broker/publish/messages/dropped. Half a million messages of
# 200 bytes take about 300 MB of memory.
max_queued_messages 500000
max_queued_bytes 268435456
# Messages of QoS 0 are not kept for a gateway that is away. Devices publish with QoS 1.
queue_qos0_messages false

# As many on the way to a gateway as it asks for (receive maximum), not 20.
max_inflight_messages 0
# The largest message that a gateway takes (mqtt.max_packet_mib). The broker could not hand on a larger one.
max_packet_size 33554432
# Sessions of devices that never came back. Longer than a gateway's own (mqtt.session_expiry_s, 7 days).
persistent_client_expiration 14d
set_tcp_nodelay true

# How often $SYS tells what was dropped.
sys_interval 10
log_dest stderr
log_type error
log_type warning
log_type notice
log_type information
log_timestamp_format %Y-%m-%dT%H:%M:%S
"""


def access(users: Iterable[User], topics: Topics) -> str:
    """The text of the access file."""
    parts = ["# Who may do what. Written by `widerow mqtt config`; changes are lost when that runs again.\n"]
    parts += [_rights(user, topics) for user in sorted(users)]
    return "\n".join(parts)


def _rights(user: User, topics: Topics) -> str:
    tenant = encode_name(user.tenant) if user.tenant else "+"
    device = encode_name(user.device) if user.device else "+"

    def filled(template: Template) -> str:
        levels = {"{tenant}": tenant, "{device}": device}
        return "/".join(levels.get(level, level) for level in template.text.split("/"))

    publish, read = ("write", "read") if user.tenant else ("read", "write")
    lines = [
        f"user {user.name}",
        f"topic {publish} {filled(topics.telemetry)}",
        *([f"topic {publish} {filled(topics.backfill)}"] if topics.backfill else []),
        f"topic {publish} {filled(topics.status)}",
        f"topic {read} {filled(topics.errors)}",
    ]
    if not user.tenant:
        lines.append("topic read $SYS/#")
    return "\n".join([*lines, ""])


# -- passwords


def new_password() -> str:
    """160 random bits; letters, digits, - and _."""
    return secrets.token_urlsafe(20)


def hashed(password: str) -> str:
    """A password as the password file holds it: `$7$`, PBKDF2 with SHA-512."""
    salt = secrets.token_bytes(_SALT_BYTES)
    return f"$7${_ITERATIONS}${_base64(salt)}${_base64(_derived(password, salt, _ITERATIONS))}"


def matches(password: str, entry: str) -> bool:
    """Whether an entry of the password file is this password's. For entries as `hashed` makes them."""
    _, kind, iterations, salt, want = entry.split("$")
    found = _derived(password, base64.b64decode(salt), int(iterations))
    return kind == "7" and hmac.compare_digest(found, base64.b64decode(want))


def _derived(password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac("sha512", password.encode(), salt, iterations)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def read_passwords(text: str) -> dict[str, str]:
    """User names and entries of a password file."""
    lines = [line.partition(":") for line in text.splitlines() if line.strip()]
    return {name: entry for name, _, entry in lines}


def write_passwords(entries: dict[str, str]) -> str:
    return "".join(f"{name}:{entries[name]}\n" for name in sorted(entries))
