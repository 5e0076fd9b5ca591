"""Tokens: who may do what. The secret is shown once, when it is made; the store keeps its SHA-256."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    WRITE = "write"
    READ = "read"
    ADMIN = "admin"
    DEVICE = "device"
    OPERATOR = "operator"
    SCRAPE = "scrape"


OF_ALL_TENANTS = frozenset({Role.OPERATOR, Role.SCRAPE})
"""Roles whose tokens belong to no tenant; only operators make them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A known token, without its secret."""

    id: str
    """The first 16 hex digits of the secret's SHA-256: names the token without giving it away."""
    role: Role
    tenant: str = ""
    """Whose it is; empty for operators only, who see all."""
    device: str = ""
    """For role `device`: the only device it may write as."""
    description: str = ""
    created_us: int = 0
    expires_us: int = 0
    """0: never."""
