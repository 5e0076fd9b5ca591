"""Where fetched servers are kept, and how they get there.

Rule 1: one folder, outside the source tree: `$WIDEROW_CACHE`, else `$XDG_CACHE_HOME/widerow`, else `~/.cache/widerow`.
Rule 2: a thing is there completely or not at all: it is made in a temporary folder beside, which is then renamed.
Rule 3: two that want the same thing at once fetch it once; the second waits for the first. A lock ends with its process.
Rule 4: a name carries the version, so that a new version is a new thing and an old one is never touched.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

Say = Callable[[str], None]
"""Takes a line of progress."""


class Missing(Exception):
    """A server cannot be had here. The message says why, and what to install or allow."""


def cache_folder() -> Path:
    if named := os.environ.get("WIDEROW_CACHE"):
        return Path(named).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache").absolute() / "widerow"


def say(line: str) -> None:
    """To standard error, at once."""
    print(line, file=sys.stderr, flush=True)


def kept(name: str, make: Callable[[Path], None]) -> Path:
    """The folder `name` of the cache. If it is not there, `make` fills an empty folder that becomes it."""
    root = cache_folder()
    folder = root / name
    if folder.is_dir():
        return folder
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Missing(f"no place for fetched servers: {error}; name a folder with WIDEROW_CACHE") from error
    with _locked(root / f"{name}.lock"):
        if folder.is_dir():
            return folder  # made by whom we waited for
        for left in root.glob(f"{name}.part-*"):
            shutil.rmtree(left, ignore_errors=True)  # of one that was killed: we hold its lock
        part = Path(tempfile.mkdtemp(prefix=f"{name}.part-", dir=root))
        try:
            make(part)
            part.rename(folder)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
    return folder


def run(label: str, command: Sequence[str], *, environment: Mapping[str, str] | None = None, tell: Say = say) -> None:
    """Run a fetching command to its end, saying every few seconds where it is. Raises Missing with its last words."""
    every_s = 2.0 if sys.stderr.isatty() else 15.0
    words: deque[str] = deque(maxlen=15)
    began_s = said_s = time.monotonic()
    tell(f"{label}: fetching into {cache_folder()}, once")
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=os.environ | dict(environment or {}),
    ) as process:
        assert process.stdout is not None
        try:
            for count, line in enumerate(process.stdout, 1):
                words.append(line.rstrip())
                if time.monotonic() - said_s >= every_s:
                    said_s = time.monotonic()
                    tell(f"{label}: {said_s - began_s:.0f} s, step {count}: {_brief(line)}")
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        last = "\n  ".join(words)
        raise Missing(f"{label}: `{Path(command[0]).name}` ended with {process.returncode}. Is there a network?\n  {last}")
    tell(f"{label}: there after {time.monotonic() - began_s:.0f} s")


def _brief(line: str) -> str:
    """Of a line about an address, the end: that is the part that changes."""
    text = line.strip()
    return text if len(text) <= 90 else f"...{text[-87:]}"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{path.stem}: another process is fetching it; waiting")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
