"""Eclipse Mosquitto, the system's package: an MQTT broker.

Rule 1: who may connect (`users`) and what they may do (`acl`, in mosquitto's own words) are files beside the configuration;
`allow` adds to both while it runs. Nobody is let in without a name, unless `settings` say so.
Rule 2: `settings` add to the configuration or replace parts of it, by mosquitto's own names. A test of a configuration that
is a file gives a function that makes it, `configuration`, and then nothing here adds to it.
Rule 3: queues have no limit here: what is lost is lost by who is tested. Where it is the broker that must lose, set
`max_queued_messages`.
Rule 4: it keeps sessions, queued and retained messages in memory, and writes them when it is stopped, and when `save` asks.
`kill` loses what came since, though it was acknowledged: that is mosquitto, with `autosave_interval` for how much.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final
from urllib.parse import quote

from .cache import Missing, Say, say
from .process import Failed, Server, free_ports

USER: Final = "widerow"
PASSWORD: Final = "secret"
"""Of the one that may do everything, unless a test gives `users`."""
EVERYTHING: Final = "topic readwrite #"

_WHERE: Final = "/usr/sbin:/usr/local/sbin"
"""Where Debian has the broker, which is not on everyone's PATH."""
_CONNECT: Final = bytes([0x10, 13, 0, 4, *b"MQTT", 5, 2, 0, 5, 0, 0, 0])
"""A client of version 5 without a name or a password, with a clean start."""
_CONNACK: Final = 0x20
_SAVE_S: Final = 10.0


def fetch(_tell: Say = say) -> Path:
    """The program. It is the system's to install. Raises Missing."""
    return program("mosquitto")


def program(name: str, package: str = "mosquitto") -> Path:
    """A program of the system. Raises Missing."""
    found = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", os.defpath), _WHERE]))
    if found is None:
        raise Missing(f"{name} is not installed: install the package {package}")
    return Path(found)


class Mosquitto(Server):
    """One broker. `url()` names it."""

    name: ClassVar = "mosquitto"
    version: ClassVar = "2"
    start_within_s: ClassVar = 20.0
    stop_within_s: ClassVar = 20.0

    def __init__(
        self,
        *,
        users: Mapping[str, str] | None = None,
        acl: str | None = None,
        settings: Mapping[str, str | int] | None = None,
        configuration: Callable[[Mosquitto], str] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`configuration` is called at every start, and may write files into `folder`. `tls` is to look whether it is up,
        if its listener speaks nothing else. Raises Missing.
        """
        self._program, self._passwords = fetch(), program("mosquitto_passwd")
        super().__init__()
        self.host = "127.0.0.1"
        (self.port,) = free_ports(1)
        self.users = dict(users) if users is not None else {USER: PASSWORD}
        self.acl = acl if acl is not None else "".join(f"user {name}\n{EVERYTHING}\n" for name in self.users)
        self._given = dict(settings or {})
        self._configuration = configuration
        self._tls = tls

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def url(self, user: str | None = USER) -> str:
        """Where it is, for a user that it knows, or for none."""
        who = f"{quote(user, safe='')}:{quote(self.users[user], safe='')}@" if user is not None else ""
        return f"mqtt{'s' if self._tls else ''}://{who}{self.address}"

    def allow(self, user: str, password: str, *acl: str) -> None:
        """A further user, with lines of what it may do. Takes effect before it returns; those connected stay so."""
        self.users[user] = password
        self.acl += "\n".join([f"\nuser {user}", *acl, ""])
        if self.runs():
            self._write_users()
            self._tell(signal.SIGHUP, "Reloading config")

    def save(self) -> None:
        """It writes what it has in memory, and has on return."""
        self._tell(signal.SIGUSR1, "Saving in-memory database")

    # -- the process

    def command(self) -> Sequence[str]:
        path = self.folder / "mosquitto.conf"
        if self._configuration is None:
            self._write_users()
            settings = self._settings() | self._given
            path.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
        else:
            path.write_text(self._configuration(self))
        return [str(self._program), "-c", str(path)]

    def answers(self) -> bool:
        """It says whether a client may connect, or that it may not."""
        with socket.create_connection((self.host, self.port), timeout=2) as plain:
            connection = self._tls.wrap_socket(plain, server_hostname="localhost") if self._tls else plain
            with connection:  # TLS takes the plain one over
                connection.sendall(_CONNECT)
                return connection.recv(2)[:1] == bytes([_CONNACK])

    def _tell(self, number: signal.Signals, answer: str) -> None:
        """Signal it, and wait until its log has one answer more."""
        before = self.log().count(answer)
        self._signal(number)
        deadline_s = time.monotonic() + _SAVE_S
        while self.log().count(answer) == before:
            if time.monotonic() >= deadline_s:
                raise Failed(f"mosquitto did not say {answer!r} within {_SAVE_S:g} s:\n{self.log()[-3000:]}")
            time.sleep(0.01)
        self.answers()  # it has one thread: one that answers has done what it said it would

    def _write_users(self) -> None:
        path = self.folder / "passwords"
        path.write_text("".join(f"{name}:{password}\n" for name, password in self.users.items()))
        path.chmod(0o600)
        done = subprocess.run([self._passwords, "-U", path], capture_output=True, text=True, check=False, timeout=60)
        if done.returncode:
            raise Failed(f"mosquitto_passwd ended with {done.returncode}: {done.stdout}{done.stderr}")
        (self.folder / "acl").write_text(self.acl)
        (self.folder / "acl").chmod(0o600)

    def _settings(self) -> dict[str, str | int]:
        return {
            "listener": f"{self.port} {self.host}",
            "user": "root",  # where that is who starts it: its folder is nobody else's
            "allow_anonymous": "false",
            "password_file": f"{self.folder}/passwords",
            "acl_file": f"{self.folder}/acl",
            "persistence": "true",
            "persistence_location": f"{self.folder}/",
            "max_inflight_messages": 0,
            "max_queued_messages": 0,
            "max_queued_bytes": 0,
            "set_tcp_nodelay": "true",
            "log_dest": "stderr",
            "log_timestamp_format": "%H:%M:%S",
        }
