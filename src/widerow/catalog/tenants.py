"""Tenants in the store.

Rule 1: `current` may be as old as `refresh_us`, never older; changes made by this process show at once.
Rule 2: retention is a history of epochs. A new one starts so far ahead that every process has read it before a report of
that event time can be accepted (the allowed future skew, and twice the refresh); those that exist are never altered.
Removing a tenant removes its row alone: erasing what it owns is the work of others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from widerow.catalog.forms import check
from widerow.catalog.recent import GRACE_US, Recent
from widerow.catalog.records import Records
from widerow.engine.port import Engine
from widerow.model.errors import Rejected
from widerow.model.tenant import Retention, RetentionEpoch, RollupEpoch, Tenant
from widerow.model.times import MINUTE, MS, SECOND, Clock, whole_ms
from widerow.schema.tables import TENANTS

MAX_EPOCHS = 256
"""A tenant's row is read as a whole, so its history is bounded."""

_MOST_CACHED = 100_000


class Tenants:
    """Safe to share between threads. Raises `NotFound`, `Conflict`, and `Rejected` for what may not be stored."""

    def __init__(
        self, engine: Engine, clock: Clock, *, refresh_us: int = 10 * SECOND, max_future_us: int = 5 * MINUTE
    ) -> None:
        self.clock, self.refresh_us, self.max_future_us = clock, refresh_us, max_future_us
        self._records = Records(engine, TENANTS, Tenant, "tenant")
        self._recent: Recent[Tenant] = Recent(_MOST_CACHED, refresh_us)

    def create(self, tenant: Tenant) -> Tenant:
        """Its revision, time of creation and epochs are made here, whatever `tenant` says."""
        check(tenant)
        made = replace(
            tenant,
            raw_epochs=(RetentionEpoch(0, tenant.retention.raw_us),),
            rollup_epochs=(_rollup_epoch(0, tenant.retention),),
            created_us=self.clock.now_us(),
        )
        return self._records.create((), tenant.name, made)

    def get(self, name: str) -> Tenant:
        """As it is in the store now."""
        return self._records.get((), name).value

    def find(self, name: str) -> Tenant | None:
        """The same; None if there is none."""
        found = self._records.find((), name)
        return None if found is None else found.value

    def current(self, name: str, now_us: int) -> Tenant:
        """As it was at most `refresh_us` ago: what the path of a report asks, once a batch."""
        tenant = self._recent.get(name, now_us)
        if tenant is None:
            mark = self._recent.mark()
            tenant = self.get(name)
            self._recent.put(name, tenant, now_us, mark)
        return tenant

    def at_hand(self, name: str, now_us: int) -> Tenant | None:
        """The same if it can be said without asking the store: for those who must not wait."""
        return self._recent.get(name, now_us)

    def trust(self, name: str, now_us: int, within_us: int = GRACE_US) -> bool:
        """The store does not answer: go by what it said of the tenant last, if that was not long ago."""
        return self._recent.renew(name, now_us, within_us)

    def read_all(self) -> None:
        """Read all there are: should the store not answer, what it said of each can be trusted (`trust`)."""
        now_us, mark = self.clock.now_us(), self._recent.mark()
        for tenant in self.list()[:_MOST_CACHED]:
            self._recent.put(tenant.name, tenant, now_us, mark)

    def update(self, name: str, change: Callable[[Tenant], Tenant], *, expected: int | None = None) -> Tenant:
        """Store what `change` makes of it; with an `expected` revision, only if it is still at that one.

        `change` may be called again when another process was faster, so it must be a function of its argument.
        """

        def checked(old: Tenant) -> Tenant:
            new = replace(change(old), created_us=old.created_us)
            check(new)
            return replace(
                new,
                raw_epochs=self._raw_epochs(old, new.retention.raw_us),
                rollup_epochs=self._rollup_epochs(old, new.retention),
            )

        try:
            return self._records.update((), name, checked, expected)
        finally:
            # Also after an error: a write that timed out may have happened.
            self._recent.forget(name)

    def delete(self, name: str, *, expected: int | None = None) -> Tenant:
        try:
            return self._records.remove((), name, expected)
        finally:
            self._recent.forget(name)

    def list(self) -> Sequence[Tenant]:
        """All, by name."""
        return sorted((stored.value for stored in self._records.scan(())), key=lambda tenant: tenant.name)

    def _raw_epochs(self, old: Tenant, raw_us: int) -> tuple[RetentionEpoch, ...]:
        epochs = old.raw_epochs or (RetentionEpoch(0, old.retention.raw_us),)
        if raw_us == epochs[-1].raw_us:
            return epochs
        return (*epochs, RetentionEpoch(self._next_us([e.from_us for e in epochs]), raw_us))

    def _rollup_epochs(self, old: Tenant, retention: Retention) -> tuple[RollupEpoch, ...]:
        epochs = old.rollups_kept()
        if _rollup_epoch(epochs[-1].from_us, retention) == epochs[-1]:
            return epochs
        return (*epochs, _rollup_epoch(self._next_us([e.from_us for e in epochs]), retention))

    def _next_us(self, starts: Sequence[int]) -> int:
        """Where an epoch may start that follows these."""
        if len(starts) >= MAX_EPOCHS:
            raise Rejected(f"retention was changed {len(starts)} times, which is as often as it may be", code="retention")
        ready_us = self.clock.now_us() + self.max_future_us + 2 * self.refresh_us
        # Behind the last one, also when the clock was set back or two changes follow each other closely.
        return max(whole_ms(ready_us + MS - 1), starts[-1] + MS)


def _rollup_epoch(from_us: int, retention: Retention) -> RollupEpoch:
    return RollupEpoch(from_us, retention.minute_us, retention.hour_us, retention.day_us)
