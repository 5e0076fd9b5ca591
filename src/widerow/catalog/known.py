"""Tenants for those who go on while the store does not answer, and must not wait for it.

Rule 1: a store that did not answer is not asked again for `AWAY_US`. Asking one that hangs takes as long as it may, for each
tenant, of a thread that has other things to do.
Rule 2: meanwhile what was known of a tenant lately counts. Of one that was not, nothing is said, and that at once.
"""

from __future__ import annotations

from widerow.catalog.recent import GRACE_US
from widerow.catalog.tenants import Tenants
from widerow.model.errors import Unavailable
from widerow.model.tenant import Tenant
from widerow.model.times import SECOND, Clock

AWAY_US = 10 * SECOND


class KnownTenants:
    """Safe to share between threads."""

    def __init__(self, tenants: Tenants, clock: Clock, trust_us: int = GRACE_US) -> None:
        """`trust_us`: for how long what was read of a tenant counts while the store does not answer."""
        self._tenants, self._clock, self._trust_us = tenants, clock, trust_us
        self._away_us = -AWAY_US
        """When it did not answer."""

    def get(self, name: str) -> Tenant:
        """Raises `NotFound`, and `Unavailable` where nothing is known."""
        if self._away():
            return self.at_hand(name)
        now_us = self._clock.now_us()
        try:
            return self._tenants.current(name, now_us)
        except Unavailable:
            self._away_us = self._clock.now_us()
            if tenant := self._trusted(name):
                return tenant
            raise

    def at_hand(self, name: str) -> Tenant:
        """The same without asking the store. Raises `Unavailable` where it would have to be asked."""
        tenant = self._trusted(name) if self._away() else self._tenants.at_hand(name, self._clock.now_us())
        if tenant is None:
            raise Unavailable(f"the store would have to be asked about tenant {name!r}")
        return tenant

    def _away(self) -> bool:
        # A clock that was set back must not make it longer, hence the absolute value.
        return abs(self._clock.now_us() - self._away_us) < AWAY_US

    def _trusted(self, name: str) -> Tenant | None:
        now_us = self._clock.now_us()
        return self._tenants.at_hand(name, now_us) if self._tenants.trust(name, now_us, self._trust_us) else None
