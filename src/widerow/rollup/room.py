"""Who holds how much of the memory for open minutes, and who gives way when it is full.

Rule: as long as there is room everybody may take it. When there is none, the tenant that holds most gives way: it lets go of
all it has, and until it has done so it gets no more. Others go on meanwhile, up to `_SLACK` beyond the bound.
So a tenant that holds less than another is never turned away because of it. By whoever holds the lock of what it counts for.
"""

from __future__ import annotations

_SLACK = 1.125


class Room:
    """Bytes, by tenant."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held: dict[str, int] = {}
        self._giving_way: set[str] = set()
        self.bytes = 0

    def take(self, tenant: str, size: int) -> bool:
        """Whether there is room, which is taken then."""
        if tenant in self._giving_way:
            return False
        held = self._held.get(tenant, 0)
        if self.bytes >= self._max_bytes:
            most = max(self._held, key=lambda name: self._held[name], default=tenant)
            if self._held.get(most, 0) <= held + size:
                return False
            self._giving_way.add(most)
            if self.bytes >= _SLACK * self._max_bytes:
                return False
        self._held[tenant] = held + size
        self.bytes += size
        return True

    def free(self, tenant: str, size: int) -> None:
        left = self._held.get(tenant, 0) - size
        self.bytes -= size
        if left > 0:
            self._held[tenant] = left
        else:
            self._held.pop(tenant, None)

    def must_let_go(self, tenant: str) -> bool:
        """Whether the tenant is to let go of all it has, which whoever asks sees to. Asked once, it may take room again."""
        gives_way = tenant in self._giving_way
        self._giving_way.discard(tenant)
        return gives_way

    def held(self) -> dict[str, int]:
        return dict(self._held)

    def clear(self) -> None:
        self._held.clear()
        self._giving_way.clear()
        self.bytes = 0
