"""The dashboard: its page at `/`, and the files that the page asks for, at `/ui/FILE`.

Rule 1: the page runs the scripts and styles it was shipped with and nothing else. The policy names this server as their only
source and allows none within the page, so no text that finds its way into the page can become code.
Rule 2: a file is looked up among those that were shipped; a path is never joined with what a client sent.
Rule 3: browsers keep a file and ask each time whether it has changed: a page never runs with files of another version.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files

from widerow.model.errors import NotFound
from widerow.server.call import Answer, Call

_POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self' data:",
    "connect-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
}
POLICY = "; ".join(f"{kind} {sources}" for kind, sources in _POLICY.items())
PAGE = "index.html"
_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}
_FOLDERS = ("ui", "ui/packages")
"""Ours, and what `make assets` puts beside it."""


@dataclass(frozen=True, slots=True)
class Asset:
    """A file of the page, as it is sent."""

    body: bytes
    packed: bytes
    """The same, compressed: every browser takes that."""
    media_type: str
    etag: str


@cache
def assets() -> dict[str, Asset]:
    """All files that were shipped, by name."""
    found = {}
    for folder in _FOLDERS:
        place = files("widerow.server").joinpath(folder)
        for file in place.iterdir() if place.is_dir() else ():
            media_type = _TYPES.get(file.name.rpartition(".")[2])
            if media_type and file.is_file():
                body = file.read_bytes()
                etag = f'"{sha256(body).hexdigest()[:32]}"'
                found[file.name] = Asset(body, gzip.compress(body, 9, mtime=0), media_type, etag)
    return found


def page(call: Call) -> Answer:
    return _sent(call, assets()[PAGE])


def page_file(call: Call) -> Answer:
    name = call.path["file"]
    asset = assets().get(name)
    if asset is None:
        raise NotFound(f"the dashboard has no file {name[:80]!r}", code="route")
    return _sent(call, asset)


def _sent(call: Call, asset: Asset) -> Answer:
    headers = {
        "Content-Security-Policy": POLICY,
        "ETag": asset.etag,
        "Cache-Control": "no-cache",
        "Vary": "Accept-Encoding",
    }
    if asset.etag in call.headers.get("if-none-match", ""):
        return Answer(304, b"", None, headers)
    if "gzip" in call.headers.get("accept-encoding", ""):
        return Answer(200, asset.packed, asset.media_type, {**headers, "Content-Encoding": "gzip"})
    return Answer(200, asset.body, asset.media_type, headers)
