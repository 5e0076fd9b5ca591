"""Where webhooks may be. A tenant names an address, and our process connects to it: it must not reach what is behind us.

Rule 1: public addresses are allowed. Loopback, private, link-local, multicast and reserved ones are not, unless they are in
one of the networks of `alerts.webhook_networks`. Addresses of IPv6 that wrap one of IPv4 are judged by that one; of the
others those in 2000::/3 are public.
Rule 2: a name is resolved once. All its addresses must be allowed, and the connection is made to one of them, not to the
name. The message of a refusal does not say the address: it would tell a tenant what our resolver knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias
from urllib.parse import SplitResult, urlsplit

from widerow.model.errors import ConfigError, Forbidden, Rejected

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

MOST_URL_BYTES = 1024
_NAT64 = ip_network("64:ff9b::/96")
_PUBLIC = ip_network("2000::/3")
"""All that was ever given out of IPv6."""


def networks(texts: Sequence[str]) -> tuple[Network, ...]:
    """The networks of a setting."""
    found = []
    for text in texts:
        try:
            found.append(ip_network(text))
        except ValueError as error:
            raise ConfigError(f"alerts.webhook_networks has {text!r}: {error}") from None
    return tuple(found)


def check_url(url: str) -> str:
    """Raise `Rejected` unless a webhook may have this address, as far as it can be seen without resolving it."""
    parts = _parts(url)
    if parts.scheme not in ("http", "https"):
        raise Rejected("url: give one that begins with https:// or http://", code="field")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise Rejected("url: it must have neither a user nor a fragment (#)", code="field")
    if not parts.hostname:
        raise Rejected("url: it names no host", code="field")
    return url


def _parts(url: str) -> SplitResult:
    if len(url.encode(errors="replace")) > MOST_URL_BYTES or not url.isascii() or not url.isprintable() or " " in url:
        raise Rejected(f"url: give at most {MOST_URL_BYTES} ASCII characters without spaces", code="field")
    try:
        parts = urlsplit(url)
        _ = parts.port  # read to check it
    except ValueError as error:
        raise Rejected(f"url: {error}", code="field") from None
    return parts


def host_and_port(url: str) -> tuple[str, int]:
    parts = _parts(url)
    return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


def chosen(host: str, resolved: Sequence[str], allowed: Sequence[Network]) -> Address:
    """The address to connect to, of those that a host has. `Forbidden`: one of them is not allowed."""
    addresses = [ip_address(text.partition("%")[0]) for text in resolved]
    if not addresses:
        raise Rejected(f"{host} has no address", code="field")
    for address in addresses:
        if not is_allowed(address, allowed):
            raise Forbidden(f"{host} has an address that is not public: alerts.webhook_networks can allow it for webhooks")
    return addresses[0]


def is_allowed(address: Address, allowed: Sequence[Network]) -> bool:
    if any(address.version == network.version and address in network for network in allowed):
        return True
    inner = _wrapped(address)
    if inner is not None:
        return is_allowed(inner, allowed)
    if isinstance(address, IPv6Address) and address not in _PUBLIC:
        return False
    return address.is_global and not address.is_multicast


def _wrapped(address: Address) -> IPv4Address | None:
    """The address of IPv4 that one of IPv6 leads to."""
    if isinstance(address, IPv4Address):
        return None
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    if address.teredo:
        return address.teredo[1]
    if int(address) >> 32 == 0 and int(address) > 1:  # ::a.b.c.d, long out of use
        return IPv4Address(int(address))
    return address.ipv4_mapped or address.sixtofour
