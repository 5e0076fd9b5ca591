"""Where a server is: the text after `--server`, in WIDEROW_URL, or given to `widerow.Client`, as a URL.

Rule: what cannot be an address is refused here, before anything is sent.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from widerow.model.errors import Rejected

_SCHEMES = ("http", "https")


def server_url(given: str) -> str:
    """`localhost:8080` and `[::1]:8080` stand for `http://...`; a URL stays as it is, without slashes at its end."""
    text = given.strip()
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in _SCHEMES and parts.hostname and parts.port != 0
        is_plain = not parts.query and not parts.fragment and not any(c.isspace() for c in url)
    except ValueError:  # a port that is none, or a bracket that does not close
        is_address = is_plain = False
    if not is_address or not is_plain:
        raise Rejected(
            f"server {given!r} is no address: give HOST:PORT, [IPV6]:PORT, http://HOST:PORT or https://HOST:PORT",
            code="usage",
        )
    return url.rstrip("/")
