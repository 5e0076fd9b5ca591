"""The log of what was changed by those who may: by whom, when, what, and how it ended.

Rule 1: insert-only. Every action is in the log of the whole store, under no tenant's name, and in that of the tenant it was
about, which stays when the tenant is gone.
Rule 2: it is bounded: kept so many days, and so many actions of a tenant in a day, for each process. What is over that is
not written, but counted, and the last that was written says so.
Rule 3: what cannot be written is logged and counted, and nothing else: an action that was done is not undone.
Rule 4: no secrets. What people gave is shortened, and what goes by the name of a secret is left out (`shown_changes`).
"""

from __future__ import annotations

import logging
import re
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from widerow.engine.port import Engine, Span
from widerow.engine.rows import Key, rows_of
from widerow.model.errors import Corrupt, WiderowError
from widerow.model.times import DAY, Clock, bucket_start
from widerow.model.token import Role
from widerow.ops.counters import Counters
from widerow.schema.tables import AUDIT, MOST_AUDIT_DAYS

log = logging.getLogger(__name__)

EVERYTHING = ""
"""The tenant under whose name the log of the whole store is kept."""
MOST_CHANGES, MOST_TEXT = 50, 200
_MORE = "from here on nothing is recorded today: there is too much"
_ACTION = "action"
_SECRET = re.compile(r"secret|passw|authorization|credential|(^|[._])(token|key)$", re.IGNORECASE)
_ID = re.compile(r"[0-9]{16}-[0-9a-f]{8}")


class Action(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Something that somebody did, or tried to do."""

    by: str
    """`token ID`, or how else they came: `local socket`, `command line`, `in process`."""
    role: str
    what: str
    """The route, or the command where there is none."""
    outcome: str
    """`done`, or the code of the error."""
    tenant: str = ""
    about: str = ""
    """The device, token, metric or whatever else it was done to."""
    command: str = ""
    """The command that asked for it, as it says itself."""
    changes: tuple[str, ...] = ()
    before: int | None = None
    """Revisions, where there are any."""
    after: int | None = None
    reason: str = ""


_ACTION_DECODER = msgspec.json.Decoder(Action)


@dataclass(frozen=True, slots=True)
class Recorded:
    id: str
    action: Action

    @property
    def time_us(self) -> int:
        return int(self.id[:16])


class Audit:
    """Safe to share between threads. `keep_us` 0: nothing is recorded."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        counters: Counters,
        *,
        keep_us: int = 365 * DAY,
        most_a_day: int = 10_000,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._engine, self._clock, self._counters, self._random_bytes = engine, clock, counters, random_bytes
        self._keep_us, self._most_a_day = keep_us, most_a_day
        self._lock = threading.Lock()
        self._day_us, self._counts = -1, dict[tuple[str, bool], int]()

    def record(self, action: Action) -> None:
        """Write it down; durable on return, unless there is trouble, which is logged. Never raises."""
        if not self._keep_us:
            return
        now_us = self._clock.now_us()
        try:
            rows = self._rows(action, now_us)
            if rows:
                written = rows_of(AUDIT, rows, version_us=self._clock.version_us(), expire_us=now_us + self._keep_us)
                self._engine.write([(AUDIT, written)])
        except Exception as error:
            self._counters.audit_failures.inc()
            detail = f"{error}" if isinstance(error, WiderowError) else "unexpectedly"
            log.warning(
                "an action was not recorded (%s): %s", detail, _pack(action), exc_info=not isinstance(error, WiderowError)
            )

    def _rows(self, action: Action, now_us: int) -> list[tuple[Key, dict[str, float | str]]]:
        day, action_id = bucket_start(now_us, DAY), f"{now_us:016d}-{self._random_bytes(4).hex()}"
        rows: list[tuple[Key, dict[str, float | str]]] = []
        with self._lock:
            if day != self._day_us:
                self._day_us, self._counts = day, {}
            for tenant in dict.fromkeys((EVERYTHING, action.tenant)):
                # What tenants do must not use up the room that operators have.
                of = tenant, action.role == Role.OPERATOR.value
                count = self._counts[of] = self._counts.get(of, 0) + 1
                if count > self._most_a_day:
                    self._counters.audit_dropped.inc()
                    continue
                last = msgspec.structs.replace(action, reason=_MORE) if count == self._most_a_day else action
                rows.append(((tenant, day, action_id), {_ACTION: _pack(last)}))
        return rows

    def newest(self, tenant: str, *, start_us: int, stop_us: int, before: str = "") -> Iterator[Recorded]:
        """Actions of a tenant, or of all (`EVERYTHING`), in [start, stop), behind the id `before`; the newest first."""
        now_us = self._clock.now_us()
        start_us = max(start_us, now_us - min(self._keep_us, MOST_AUDIT_DAYS * DAY))
        stop_us = min(stop_us, now_us + DAY)  # clocks differ
        if before:
            stop_us = min(stop_us, int(before[:16]) + 1)
        high = min(filter(None, (before, f"{stop_us:016d}")))
        for day in range(bucket_start(stop_us, DAY), bucket_start(start_us, DAY) - 1, -DAY):
            for rows in self._engine.scan(AUDIT, [(tenant, day)], Span(f"{start_us:016d}", high)):
                for i in range(len(rows)):
                    yield Recorded(str(rows.key(AUDIT, i)[-1]), _unpack(str(rows.row(i)[_ACTION])))


def record_command(engine: Engine, clock: Clock, command: str, changes: Sequence[str], *, keep_us: int) -> None:
    """An action of a command that has the store open itself."""
    action = Action(by="command line", role=Role.OPERATOR.value, what=command, outcome="done", changes=tuple(changes))
    Audit(engine, clock, Counters(), keep_us=keep_us).record(action)


def is_id(text: str) -> bool:
    """Whether an action could have it."""
    return bool(_ID.fullmatch(text))


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What changed between two forms of a thing, as `limits.devices: 0 -> 5`."""
    before, after = dict(_flat(old)), dict(_flat(new))
    names = [name for name in dict.fromkeys((*before, *after)) if name not in ("revision", "created")]
    changed = [name for name in names if before.get(name) != after.get(name)]
    return shown_changes({name: (before.get(name), after.get(name)) for name in changed})


def shown_changes(given: Mapping[str, Any]) -> list[str]:
    """What was asked for, as texts that may be kept. A pair is what it was and what it is."""
    texts = []
    for name, value in _flat(given):
        if _SECRET.search(name):
            texts.append(f"{name[:MOST_TEXT]}: (left out)")
        elif isinstance(value, tuple):
            texts.append(f"{name}: {_short(value[0])} -> {_short(value[1])}")
        else:
            texts.append(f"{name[:MOST_TEXT]}: {_short(value)}")
    return texts if len(texts) <= MOST_CHANGES else [*texts[:MOST_CHANGES], f"and {len(texts) - MOST_CHANGES} more"]


def _flat(form: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in form.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _short(value: Any) -> str:
    if isinstance(value, list) and (len(value) > 5 or any(isinstance(one, Mapping) for one in value)):
        return f"{len(value)} entries"
    text = "-" if value is None else value if isinstance(value, str) and value else msgspec.json.encode(value).decode()
    return text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT - 1]}…"


def _pack(action: Action) -> str:
    return msgspec.json.encode(action).decode()


def _unpack(text: str) -> Action:
    try:
        return _ACTION_DECODER.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Corrupt(f"{AUDIT.name}: an action cannot be read: {error}") from error
