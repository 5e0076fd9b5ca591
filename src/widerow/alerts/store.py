"""Alerts in the store: what they are now, and what became of them.

Rule 1: a change of an alert is one `put_if` on the row that was read. Of several processes that see the same, one wins, and
only the winner tells people. The others adopt what it wrote.
Rule 2: a tenant has `MOST_ALERTS` alerts at the most. When there are more, the oldest resolved ones go; if there are none,
the new one is not stored, but counted.
Rule 3: an alert that was resolved stays for a day. Its history (`ALERT_EVENTS`) stays for `alerts.keep_days`, and has
`MOST_EVENTS` events of a tenant in a day, for each process.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from widerow.alerts.alert import OPERATOR, RESOLVED, Alert
from widerow.catalog.records import Records, Stored
from widerow.engine.port import Engine, Span
from widerow.engine.rows import Key, Row, rows_of
from widerow.model.errors import Corrupt, NotFound, Unavailable
from widerow.model.times import DAY, Clock, bucket_start
from widerow.ops.counters import Counters
from widerow.schema.shards import shard_of
from widerow.schema.tables import ALERT_EVENTS, ALERTS, MOST_ALERT_DAYS

MOST_ALERTS = 1_000
MOST_EVENTS = 10_000
RESOLVED_US = DAY
_TRIES = 16
_EVENT = "event"


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that became of an alert."""

    tenant: str
    name: str
    state: str
    device: str = ""
    metric: str = ""
    process: str = ""
    value: float | None = None
    threshold: float | None = None
    severity: str = "warning"
    summary: str = ""


_EVENT_DECODER = msgspec.json.Decoder(Event)


class AlertStore:
    """Safe to share between threads."""

    def __init__(self, engine: Engine, clock: Clock, counters: Counters, *, keep_us: int) -> None:
        self._engine, self._clock, self._counters, self._keep_us = engine, clock, counters, keep_us
        self._records = Records(engine, ALERTS, Alert, "alert", _nothing_left_out)
        self._lock = threading.Lock()
        self._known: dict[str, dict[str, Stored[Alert]]] = {}
        self._day_us, self._events = -1, dict[str, int]()

    # -- what they are

    def load(self) -> None:
        """Learn what is stored. A change that this process makes meanwhile may be forgotten until the next time."""
        found: dict[str, dict[str, Stored[Alert]]] = {}
        for rows in self._engine.scan(ALERTS, None):
            for i in range(len(rows)):
                tenant, _, name = rows.key(ALERTS, i)
                found.setdefault(str(tenant), {})[str(name)] = self._records.decoded(str(name), rows.row(i))
        with self._lock:
            self._known = found

    def known(self, tenant: str | None = None) -> list[Alert]:
        """Those of a tenant, or all, as this process knows them; the newest first."""
        with self._lock:
            some = self._known.values() if tenant is None else [self._known.get(tenant, {})]
            alerts = [stored.value for each in some for stored in each.values()]
        return sorted(alerts, key=lambda alert: (-alert.since_us, alert.tenant, alert.rule, alert.device, alert.metric))

    def get(self, tenant: str, name: str) -> Alert | None:
        with self._lock:
            stored = self._known.get(tenant, {}).get(name)
        return stored.value if stored else None

    # -- changing them

    def change(self, tenant: str, name: str, change: Callable[[Alert | None], Alert | None]) -> tuple[bool, Alert | None]:
        """Store what `change` makes of the alert (None: there is none), and say whether that was new, and what it is now.

        `change` is asked again with what another process stored, if that was faster.
        """
        for _ in range(_TRIES):
            with self._lock:
                old = self._known.get(tenant, {}).get(name)
            before = old.value if old else None
            after = change(before)
            if after == before:
                return False, before
            if before is None and not self._has_room(tenant):
                self._counters.alerts_dropped.labels(tenant).inc()
                return False, None
            row = self._records.row(after, 1) if after else None
            if self._engine.put_if(ALERTS, self._key(tenant, name), row, old.row if old else None):
                self._learn(tenant, name, row)
                return True, after
            self._learn(tenant, name, self._engine.get(ALERTS, self._key(tenant, name)))
        raise Unavailable(f"alert {name} of tenant {tenant!r} keeps changing")

    def edit(self, tenant: str, name: str, change: Callable[[Alert], Alert]) -> Alert:
        """Change one that there must be, as it is in the store."""
        self._learn(tenant, name, self._engine.get(ALERTS, self._key(tenant, name)))

        def changed(old: Alert | None) -> Alert | None:
            if old is None:
                raise NotFound(f"no alert {name[:80]!r}")
            return change(old)

        _, after = self.change(tenant, name, changed)
        assert after is not None
        return after

    def forget(self, tenant: str) -> None:
        """Its tenant is gone."""
        self._records.remove_all((tenant,), self._clock.version_us())
        with self._lock:
            self._known.pop(tenant, None)

    def _has_room(self, tenant: str) -> bool:
        with self._lock:
            known = self._known.get(tenant, {})
            if len(known) < MOST_ALERTS:
                return True
            resolved = [stored for stored in known.values() if stored.value.state == RESOLVED]
        over = min(resolved, key=lambda stored: stored.value.since_us, default=None)
        if over is None:
            return False
        self._engine.put_if(ALERTS, self._key(tenant, over.name), None, over.row)
        self._learn(tenant, over.name, None)
        return True

    def _learn(self, tenant: str, name: str, row: Row | None) -> None:
        stored = self._records.decoded(name, row) if row else None
        with self._lock:
            known = self._known.setdefault(tenant, {})
            if stored:
                known[name] = stored
            else:
                known.pop(name, None)

    def _key(self, tenant: str, name: str) -> Key:
        return (tenant, shard_of(name), name)

    # -- what became of them

    def record(self, alert: Alert) -> None:
        """Write down the state that it is in now: in its tenant's history, and in that of the whole store."""
        now_us = self._clock.now_us()
        event = Event(
            tenant=alert.tenant,
            name=alert.rule,
            state=alert.state,
            device=alert.device,
            metric=alert.metric,
            process=alert.process,
            value=alert.value,
            threshold=alert.threshold,
            severity=alert.severity,
            summary=alert.summary,
        )
        day, event_id = bucket_start(now_us, DAY), f"{now_us:016d}-{secrets.token_hex(4)}"
        cell: Row = {_EVENT: msgspec.json.encode(event).decode()}
        tenants = [tenant for tenant in dict.fromkeys((alert.tenant, OPERATOR)) if self._may_record(tenant, day)]
        if tenants:
            keys: list[tuple[Key, Row]] = [((tenant, day, event_id), cell) for tenant in tenants]
            rows = rows_of(ALERT_EVENTS, keys, version_us=self._clock.version_us(), expire_us=now_us + self._keep_us)
            self._engine.write([(ALERT_EVENTS, rows)])

    def _may_record(self, tenant: str, day_us: int) -> bool:
        with self._lock:
            if day_us != self._day_us:
                self._day_us, self._events = day_us, {}
            self._events[tenant] = self._events.get(tenant, 0) + 1
            return self._events[tenant] <= MOST_EVENTS

    def history(self, tenant: str, *, start_us: int, stop_us: int, before: str = "") -> Iterator[tuple[str, Event]]:
        """Events of a tenant in [start, stop), behind the id `before`, with their ids; the newest first. `OPERATOR`: all."""
        now_us = self._clock.now_us()
        start_us = max(start_us, now_us - min(self._keep_us, MOST_ALERT_DAYS * DAY))
        stop_us = min(stop_us, now_us + DAY)  # clocks differ
        if before:
            stop_us = min(stop_us, int(before[:16]) + 1)
        high = min(filter(None, (before, f"{stop_us:016d}")))
        for day in range(bucket_start(stop_us, DAY), bucket_start(start_us, DAY) - 1, -DAY):
            for rows in self._engine.scan(ALERT_EVENTS, [(tenant, day)], Span(f"{start_us:016d}", high)):
                for i in range(len(rows)):
                    yield str(rows.key(ALERT_EVENTS, i)[-1]), _read(str(rows.row(i)[_EVENT]))


def _nothing_left_out(_name: str, _row: Row) -> dict[str, Any]:
    return {}


def _read(text: str) -> Event:
    try:
        return _EVENT_DECODER.decode(text)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"alert_events: an event cannot be read: {error}") from error
