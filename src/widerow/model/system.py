"""What the operating system refuses, in words that say what to do."""

from __future__ import annotations

import errno
import os

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


def explained(error: OSError, path: object = None) -> str:
    """`PATH: Permission denied; check the permissions`. `path`: the one that the user knows, if the error's is another."""
    named = path if path is not None else error.filename
    where = f"{os.fsdecode(named) if isinstance(named, bytes) else named}: " if named is not None else ""
    number = error.errno or 0
    said = os.strerror(number) if number else str(error)
    return f"{where}{said}; {_ADVICE.get(number, 'check the path')}"
