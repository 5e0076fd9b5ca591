"""Errors and limits of the operating system, in words that say how to go on."""

from __future__ import annotations

import errno
import os
import resource

from widerow.model.errors import ConfigError

_ADVICE = {
    errno.EACCES: "check the permissions, or give another path",
    errno.EPERM: "check the permissions, or give another path",
    errno.EROFS: "give a path on a disk that can be written to",
    errno.ENOSPC: "free some space on the disk",
    errno.EDQUOT: "free some space, or raise the quota",
    errno.EMFILE: "allow more open files (ulimit -n)",
    errno.ENFILE: "allow the machine more open files (fs.file-max)",
    errno.ENOTDIR: "a part of the path is a file: give another path",
    errno.EEXIST: "a file or a link is in the way: give another path",
    errno.EIO: "the disk fails: see the system's log",
}


_ADDRESS_SPACE = 3 << 30
"""A process with a store and the compiler reserves this much, and never touches most of it."""


def check_address_space() -> None:
    """`ConfigError`: it is limited to less than is needed. Libraries that meet the limit end the process as they like."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < _ADDRESS_SPACE:
        raise ConfigError(
            f"the address space of this process is limited to {limit >> 20:,} MiB, and a store reserves "
            f"{_ADDRESS_SPACE >> 20:,} MiB of it: remove the limit, or raise it (ulimit -v {_ADDRESS_SPACE >> 10})"
        )


def explained(error: OSError, path: object = None) -> str:
    """`PATH: Permission denied; check the permissions`. `path`: the one that the user knows, if the error's is another."""
    named = path if path is not None else error.filename
    where = f"{os.fsdecode(named) if isinstance(named, bytes) else named}: " if named is not None else ""
    number = error.errno or 0
    said = os.strerror(number) if number else str(error)
    return f"{where}{said}; {_ADVICE.get(number, 'check the path')}"
