"""The socket of a served store, `PATH/serve.sock`: who answers there, and how to reach it whatever its path.

Light, because every command looks there before it knows what it needs.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from widerow.model.errors import Forbidden, Unavailable

SOCKET = "serve.sock"


def is_served(owner: Path) -> bool:
    """Whether somebody answers at the socket. One that is left over from a process that was killed does not."""
    try:
        if not owner.exists():
            return False
        with reachable(owner) as path, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(5)
            probe.connect(path)
    except ConnectionRefusedError:
        return False
    except PermissionError:
        raise Forbidden(
            f"{owner} belongs to another user; run as the user that serves it, or use the server's URL", code="permission"
        ) from None
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTSOCK):
            return False
        raise Unavailable(f"{owner}: {error.strerror}", code="unreachable") from None
    return True


@contextmanager
def reachable(owner: Path) -> Iterator[str]:
    """A path to the socket that fits: the system allows 107 bytes, and a folder that is held open has a short name."""
    if len(os.fsencode(owner)) <= 100:
        yield str(owner)
        return
    folder = os.open(owner.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{owner.name}"
    finally:
        os.close(folder)
