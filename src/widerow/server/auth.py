"""Who is asking, and what they may do.

Rule 1: the token decides the tenant. An operator's names one with `?tenant=`; whoever else names another than their own is
refused, so a request that means the wrong tenant never goes to the right one.
Rule 2: a token comes as `Authorization: Bearer T` or `Token T`, or as the password of Basic (any user name); for InfluxDB
1.x also as the query parameter `p`.
Rule 3: over the local socket, which only the owner of the process can open, no token is an operator's. A token that is sent
there counts all the same.
Rule 4: on a store that is reached over a network, what the caches do not know is asked by a thread (`fetch`), once for all
requests that wait for it: a store that stands still must not stop the event loop.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode
from binascii import Error as Base64Error
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from widerow.model.errors import Forbidden, NotFound, Overloaded, Rejected, Unauthorized, Unavailable
from widerow.model.store import is_shared
from widerow.model.tenant import Tenant
from widerow.model.token import Role
from widerow.service import Service

WRITERS = frozenset({Role.WRITE, Role.DEVICE, Role.ADMIN, Role.OPERATOR})
READERS = frozenset({Role.READ, Role.ADMIN, Role.OPERATOR})
ADMINS = frozenset({Role.ADMIN, Role.OPERATOR})
OPERATORS = frozenset({Role.OPERATOR})
SCRAPERS = frozenset({Role.SCRAPE, Role.OPERATOR})
_THREADS = 2
_Asked: TypeAlias = tuple[bytes | None, str | None, str | None]
_PATIENCE_S = 1.0
"""How long the store may take to say whose a token is, if it has said so before."""
_MOST_ASKED = 1_000
"""Tokens that are being asked for."""


@dataclass(frozen=True, slots=True)
class Caller:
    """What is known of whoever sent a request."""

    role: Role
    tenant: str = ""
    """Empty for operators and scrapers."""
    device: str = ""
    """The only one it may write as; empty: any."""
    token: str = ""
    """The id of its token; empty: it came by a way that needs none."""


OPERATOR = Caller(Role.OPERATOR)


def secret_of(header: bytes) -> str:
    """The token in an `Authorization` header."""
    scheme, _, rest = header.strip().partition(b" ")
    scheme, rest = scheme.lower(), rest.strip()
    if scheme in (b"bearer", b"token"):
        return rest.decode("latin-1")
    if scheme == b"basic":
        try:
            _, found, password = b64decode(rest, validate=True).partition(b":")
        except (Base64Error, ValueError):
            found = b""
        if found:
            return password.decode("latin-1")
    raise Unauthorized("authorization: give Bearer TOKEN, Token TOKEN, or Basic with the token as password")


def allow(caller: Caller, roles: frozenset[Role]) -> None:
    if caller.role not in roles:
        wanted = " or ".join(sorted(roles - OPERATORS) or ["operator"])
        raise Forbidden(f"this needs a token of role {wanted}; yours has role {caller.role}")


class Auth:
    """Callers and tenants of requests. What it knows is as fresh as the catalog's caches."""

    def __init__(self, service: Service, *, local: bool) -> None:
        self._tokens, self._tenants = service.catalog.tokens, service.catalog.tenants
        self._clock, self._local = service.clock, local
        self._threads = (
            ThreadPoolExecutor(_THREADS, thread_name_prefix="auth") if is_shared(service.config.store.url) else None
        )
        self._asked: dict[_Asked, asyncio.Future[None]] = {}

    def close(self) -> None:
        if self._threads:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def at_hand(self, header: bytes | None, password: str | None, named: str | None) -> bool:
        """Whether `caller` and `tenant` answer without waiting for a network."""
        if not self._threads:
            return True
        secret, now_us, tenant = self._secret(header, password), self._clock.now_us(), named
        if secret is not None:
            token = self._tokens.remembered(secret, now_us)
            if token is None:
                return False
            tenant = token.tenant or named
        return not tenant or self._tenants.at_hand(tenant, now_us) is not None

    async def fetch(self, header: bytes | None, password: str | None, named: str | None) -> None:
        """Read what `at_hand` misses. Raises what `caller` and `tenant` do, and Unavailable. For the event loop alone.

        While the store does not answer, what it said in the last minutes counts: a front of Kafka goes on, and metrics are
        there when they are needed most. A token that was revoked meanwhile is good for so much longer.
        """
        key = header, password, named
        asked = self._asked.get(key)
        if asked is None:
            if len(self._asked) >= _MOST_ASKED:
                raise Overloaded(f"{len(self._asked)} tokens are being looked up, which is as many as may be")
            loop = asyncio.get_running_loop()
            asked = self._asked[key] = loop.run_in_executor(self._threads, self._look_up, header, password, named)
            asked.add_done_callback(partial(self._answered, key))
        try:
            await asyncio.wait_for(asyncio.shield(asked), _PATIENCE_S)
        except (TimeoutError, Unavailable):
            if not self._trusted(header, password, named):
                await asyncio.shield(asked)

    def _answered(self, key: _Asked, done: asyncio.Future[None]) -> None:
        del self._asked[key]
        if not done.cancelled():
            done.exception()  # perhaps nobody waits for it any more, and that is no news

    def _trusted(self, header: bytes | None, password: str | None, named: str | None) -> bool:
        """Whether what was read before is to be relied on a while longer."""
        secret, now_us = self._secret(header, password), self._clock.now_us()
        if secret is not None and not self._tokens.trust(secret, now_us):
            return False
        token = None if secret is None else self._tokens.remembered(secret, now_us)
        tenant = (token.tenant if token else "") or named
        return not tenant or self._tenants.trust(tenant, now_us)

    def _look_up(self, header: bytes | None, password: str | None, named: str | None) -> None:
        if name := self.tenant_name(self.caller(header, password), named):
            self.existing(name)

    def caller(self, header: bytes | None, password: str | None = None) -> Caller:
        """Whose request it is; `password` is the parameter `p` of InfluxDB 1.x. Raises `Unauthorized`."""
        secret = self._secret(header, password)
        if secret is None:
            return OPERATOR
        token = self._tokens.verify(secret, self._clock.now_us())
        return Caller(token.role, token.tenant, token.device, token.id)

    def _secret(self, header: bytes | None, password: str | None) -> str | None:
        """The token of a request; None: it needs none."""
        if header is not None:
            return secret_of(header)
        if password is not None:
            return password
        if self._local:
            return None
        raise Unauthorized("no token: send `Authorization: Bearer TOKEN`")

    def tenant_name(self, caller: Caller, named: str | None) -> str | None:
        """The tenant that is meant; None where an operator named none."""
        if caller.role is Role.OPERATOR:
            return named
        if named is not None and named != caller.tenant:
            raise Forbidden(f"this token is for the tenant {caller.tenant!r} only")
        return caller.tenant

    def tenant(self, caller: Caller, named: str | None) -> Tenant:
        """The tenant that is meant, as it was a moment ago at most."""
        name = self.tenant_name(caller, named)
        if not name:
            raise Rejected("an operator's token is for all tenants: say which with ?tenant=NAME", code="tenant")
        return self.existing(name)

    def existing(self, name: str) -> Tenant:
        try:
            return self._tenants.current(name, self._clock.now_us())
        except NotFound:
            raise NotFound(f"no tenant {name[:80]!r}") from None
