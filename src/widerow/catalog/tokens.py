"""Tokens in the store: who may do what.

Rule 1: a secret is 32 random bytes; the store has its SHA-256 only. Whoever reads the store cannot act as anyone.
Rule 2: a malformed, an unknown and a revoked token get the same answer. Only the owner of a token that was good once learns
that it has expired.
Rule 3: `verify` may trust what was read `refresh_us` ago; what this process revokes is refused at once.
Rule 4: unknown secrets are remembered apart from good ones, briefly and in bounded number: guessing cannot drive good tokens
out of the cache, and one bad client does not read the store with each request.
"""

from __future__ import annotations

import re
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

from widerow.catalog.forms import check_description
from widerow.catalog.recent import GRACE_US, Recent
from widerow.catalog.records import Records, Stored
from widerow.engine.port import Engine, Span
from widerow.engine.rows import Row
from widerow.model.check import check_name, check_tenant
from widerow.model.errors import NotFound, Rejected, Unauthorized
from widerow.model.times import SECOND, Clock, format_time
from widerow.model.token import OF_ALL_TENANTS, Role, Token
from widerow.schema.shards import SHARDS
from widerow.schema.tables import TOKENS

ID_DIGITS = 16
_SECRET = re.compile(r"wr_[A-Za-z0-9_-]{43}")
_ID = re.compile(rf"[0-9a-f]{{{ID_DIGITS}}}")


class Tokens:
    """Safe to share between threads. Whether a token's tenant and device exist is for the caller to check."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        *,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
        refresh_us: int = 5 * SECOND,
        capacity: int = 100_000,
    ) -> None:
        self.clock, self._random_bytes = clock, random_bytes
        self._records = Records(engine, TOKENS, Token, "token", _left_out)
        self._good: Recent[Token] = Recent(capacity, refresh_us)
        self._bad: Recent[bool] = Recent(max(1, capacity // 10), refresh_us)

    def create(
        self, role: Role, *, tenant: str = "", device: str = "", description: str = "", expires_us: int = 0
    ) -> tuple[str, Token]:
        """A new secret, which is shown this once, and what is known of it."""
        now_us = self.clock.now_us()
        _check(role, tenant, device)
        check_description(description)
        if expires_us and expires_us <= now_us:
            raise Rejected(f"the token would expire at {format_time(expires_us)}, which has passed", code="token")
        secret = "wr_" + urlsafe_b64encode(self._random_bytes(32)).decode().rstrip("=")
        digest = _digest(secret)
        token = Token(
            id=digest[:ID_DIGITS],
            role=role,
            tenant=tenant,
            device=device,
            description=description,
            created_us=now_us,
            expires_us=expires_us,
        )
        self._records.create((), digest, token)
        self._bad.forget(digest)
        return secret, token

    def verify(self, secret: str, now_us: int) -> Token:
        """Whose secret this is; `Unauthorized` if it is nobody's or has expired."""
        if not _SECRET.fullmatch(secret):
            raise _not_known()
        # Found by its hash, never compared with a secret: how long that takes says something about hashes of guesses, and
        # nothing about a secret. So no comparison in constant time is needed.
        digest = _digest(secret)
        token = self._good.get(digest, now_us)
        if token is None:
            token = self._read(digest, now_us)
        if token.expires_us and now_us >= token.expires_us:
            raise Unauthorized(f"the token expired at {format_time(token.expires_us)}")
        return token

    def remembered(self, secret: str, now_us: int) -> Token | None:
        """What `verify` can say of it without asking the store, whether or not it has expired; None: nothing."""
        return self._good.get(_digest(secret), now_us)

    def trust(self, secret: str, now_us: int) -> bool:
        """The store does not answer: go by what it said of the secret last, if that was not long ago."""
        return self._good.renew(_digest(secret), now_us, GRACE_US)

    def list(self, tenant: str | None = None) -> Sequence[Token]:
        """The tokens of a tenant, or all, operators' included; oldest first."""
        tokens = [s.value for s in self._records.scan(()) if tenant is None or s.value.tenant == tenant]
        return sorted(tokens, key=lambda token: (token.created_us, token.id))

    def revoke(self, token_id: str, tenant: str | None = None) -> Token:
        """Make a token unknown. With a `tenant`, it must be one of that tenant's: others are not found."""
        if _ID.fullmatch(token_id):
            # "g" is behind the hexadecimal digits: the span holds every hash that begins with the id.
            for stored in self._records.scan((), range(SHARDS), Span(token_id, token_id + "g")):
                if tenant is None or stored.value.tenant == tenant:
                    self._remove(stored)
                    return stored.value
        raise NotFound(f"no token {token_id[:80]!r}")

    def revoke_all(self, tenant: str) -> int:
        """Make every token of a tenant unknown, as when it is deleted; how many there were. Repeating is harmless."""
        check_tenant(tenant)
        doomed = [stored for stored in self._records.scan(()) if stored.value.tenant == tenant]
        for stored in doomed:
            self._remove(stored)
        return len(doomed)

    def _read(self, digest: str, now_us: int) -> Token:
        if self._bad.get(digest, now_us):
            raise _not_known()
        good, bad = self._good.mark(), self._bad.mark()
        found = self._records.find((), digest)
        if found is None:
            self._bad.put(digest, True, now_us, bad)
            raise _not_known()
        self._good.put(digest, found.value, now_us, good)
        return found.value

    def _remove(self, stored: Stored[Token]) -> None:
        try:
            self._records.remove((), stored.name)
        except NotFound:
            pass  # another process was faster
        finally:
            self._good.forget(stored.name)


def _check(role: Role, tenant: str, device: str) -> None:
    if role in OF_ALL_TENANTS:
        if tenant or device:
            raise Rejected(f"a token of role {role} is for all tenants: give it none, and no device", code="token")
        return
    if not tenant:
        raise Rejected(f"a token of role {role} needs a tenant", code="token")
    check_tenant(tenant)
    if (role is Role.DEVICE) != bool(device):
        raise Rejected(
            "a token of role device needs the device" if role is Role.DEVICE else f"a token of role {role} has no device",
            code="token",
        )
    if device:
        check_name("device", device)


def _digest(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()


def _left_out(digest: str, _row: Row) -> dict[str, Any]:
    return {"id": digest[:ID_DIGITS]}


def _not_known() -> Unauthorized:
    return Unauthorized("token is not known")
