"""Where servers are: the texts of `--server`, `--brokers` and `--mqtt`, of their variables and settings.

Rule: what cannot be an address is refused here, before anything is sent.
"""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from widerow.model.errors import ConfigError, Rejected


def server_url(given: str) -> str:
    """`localhost:8080` and `[::1]:8080` stand for `http://...`; a URL stays as it is, without slashes at its end."""
    text = given.strip()
    url = text if "://" in text else f"http://{text}"
    parts = _parts(url)
    if parts is None or parts.scheme not in ("http", "https") or parts.query or parts.fragment:
        raise Rejected(
            f"server {given!r} is no address: give HOST:PORT, [IPV6]:PORT, http://HOST:PORT or https://HOST:PORT",
            code="usage",
        )
    return url.rstrip("/")


def mqtt_url(given: str) -> SplitResult:
    """The parts of a broker's URL."""
    parts = _parts(given)
    if parts is None or parts.scheme not in ("mqtt", "mqtts") or parts.path.strip("/") or parts.query:
        shown = given.rpartition("@")[2]  # before it there may be a password
        raise ConfigError(f"mqtt.url names no broker at {shown!r}: give mqtt://[USER@]HOST[:PORT], or mqtts:// for TLS")
    return parts


def check_brokers(given: str) -> None:
    """Kafka's: some of HOST:PORT, apart by commas."""
    for one in given.split(","):
        if _parts(one.strip() if "://" in one else f"//{one.strip()}") is None:
            raise ConfigError(f"kafka.brokers names no broker at {one!r}: give HOST:PORT of one broker or several")


def _parts(url: str) -> SplitResult | None:
    """None: it has no host, or a port that is none."""
    try:
        parts = urlsplit(url)
        good = bool(parts.hostname) and parts.port != 0 and not any(c.isspace() for c in url)
    except ValueError:
        return None
    return parts if good else None
