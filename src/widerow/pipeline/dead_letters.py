"""Filing what was refused, within caps, so that nobody can fill the store or slow it down by sending rubbish.

Rule 1: filed is what the sender can change or the tenant can allow: bodies that cannot be read, reports that are invalid.
Not filed: what is to be sent again unchanged (overload, a spent limit, a store that is down), who had no business here
(tokens), and what was erased, which must not come back this way.
Rule 2: a tenant has so many letters a second, with bursts, and so many bytes a day. What is over that is dropped and
counted. The first is checked before anything is done for a letter. The second is counted from the store when a process
files its first letter of a day, and in the process after that: with several processes each has the cap to itself. A write
that failed costs nothing: its letters are given back, and bytes are counted from the store again, which may have them.
Rule 3: callers do not wait. Letters are cut and written by a thread of their own, behind a bounded queue; what does not fit
is dropped and counted. Only letters of an origin that is `durable` are written by the caller, and a failure is raised: it
is the caller who tries again, or gives up and counts it.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from widerow.engine.port import Engine
from widerow.model.errors import (
    INTERNAL,
    REFUSAL_CODES,
    Forbidden,
    NotFound,
    QueryLimit,
    QuotaExceeded,
    Rejected,
    Unauthorized,
    WiderowError,
)
from widerow.model.times import DAY, MS, SECOND, Clock, bucket_start
from widerow.ops.counters import Counters
from widerow.pipeline.letter import Filed, Letter, new_id
from widerow.pipeline.letter_store import LetterStore, weight
from widerow.pipeline.origin import Origin
from widerow.pipeline.parts import Kept, Part, parts, whole

log = logging.getLogger(__name__)

FILED_CODES = (
    frozenset(REFUSAL_CODES) - {"erased", "writes-limit", "device-rate", "storage-limit", "hot-rate", "sampled"}
) | {INTERNAL}
"""Of refused reports. Not of those that were too many: a sender is told when to send them again."""
_NOT_FILED = (Unauthorized, Forbidden, NotFound, QuotaExceeded, QueryLimit)
"""Of errors about a whole body."""

_BURST_S = 10
_MOST_WAITING = 1024
_MOST_WAITING_BYTES = 32 << 20
_AT_ONCE = 64
"""Letters in one write."""
_LEAST_BYTES = 512
"""With less than this left of a day, nothing more is tried."""
_MOST_POSITIONS = 100
_MOST_TEXT = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterSettings:
    enabled: bool = True
    max_per_s: int = 10
    max_bytes_per_day: int = 16 << 20
    max_body_bytes: int = 64 << 10
    max_unpacked_bytes: int = 32 << 20
    """Of compressed bodies, when single reports are looked for in them."""
    keep_us: int = 7 * DAY


@dataclass(slots=True)
class _Budget:
    """What a tenant has left."""

    tokens: float
    at_us: int
    day_us: int = -1
    """The day that `bytes` were filed in."""
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Refused:
    """Something to be filed; its first letter is paid for."""

    tenant: str
    origin: Origin
    code: str
    reason: str
    positions: Sequence[int]


class DeadLetters:
    """The dead letters of all tenants. Safe to share between threads; `close` writes what waits."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        counters: Counters,
        settings: DeadLetterSettings | None = None,
        *,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self.settings = settings or DeadLetterSettings()
        self.store = LetterStore(engine, clock)
        self._clock, self._counters, self._random_bytes = clock, counters, random_bytes
        self._budgets: dict[str, _Budget] = {}
        self._counting = threading.Lock()
        self._changed = threading.Condition()
        self._waiting: deque[_Refused] = deque()
        self._waiting_bytes, self._busy, self._closed = 0, 0, False
        self._thread = threading.Thread(target=self._run, name="dead-letters", daemon=True)
        self._thread.start()

    # -- filing

    def file(self, tenant: str, origin: Origin, code: str, reason: str, positions: Sequence[int] = ()) -> None:
        """Keep the reports at ascending positions of a body; without positions, the body as a whole.

        Raises only for an origin that is `durable`: what the store raises. What is over a cap is no error.
        """
        if not self.settings.enabled:
            return
        if not self._take(tenant):
            self._dropped(tenant)
            return
        if not positions:  # a body may be large, and what is kept of it is not
            origin = whole(origin, self.settings.max_body_bytes + 1).origin
        refused = _Refused(tenant, origin, code, reason, positions)
        if origin.durable:
            self._write([refused])
            return
        with self._changed:
            size = len(origin.body)
            full = self._waiting and self._waiting_bytes + size > _MOST_WAITING_BYTES
            if not full and len(self._waiting) < _MOST_WAITING and not self._closed:
                self._waiting.append(refused)
                self._waiting_bytes += size
                self._changed.notify_all()
                return
        self._dropped(tenant)

    def file_error(self, tenant: str, origin: Origin, error: WiderowError) -> None:
        """Keep a body that could not be taken, if that is the sender's fault and there is something to keep."""
        if origin.body and isinstance(error, Rejected) and not isinstance(error, _NOT_FILED):
            self.file(tenant, origin, error.code, str(error))

    def settle(self, timeout_s: float = 30.0) -> bool:
        """Wait until everything that was filed before is written or dropped; whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and not self._busy, timeout_s)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    # -- what becomes of letters

    def refused_again(self, tenant: str, filed: Filed, code: str, reason: str, positions: Sequence[int]) -> Filed:
        """A letter that was sent again and refused again, with the new reason.

        With positions, only the reports at them were: the others are let go, if these fit into one letter by themselves.
        """
        now_us = self._clock.now_us()
        letter = structs.replace(
            filed.letter, code=code, reason=_short(reason), replays=filed.letter.replays + 1, replayed_us=now_us
        )
        body = filed.body
        part = next(self._parts(letter.origin(body), positions), None) if positions else None
        if part is not None and part.kept is Kept.WHOLE and len(part.positions) == len(positions):
            body = part.origin.body
            letter = structs.replace(letter, reports=len(positions), positions=(), encoding="", size=len(body))
        after = Filed(filed.id, letter, max(self._clock.version_us(), filed.version_us + MS), body)
        self.store.put([(tenant, after)], self.settings.keep_us)
        return after

    def forget(self, tenant: str, *, device: str = "") -> None:
        """Remove the letters of a tenant, or those that are known to be of a device: whose token or topic named it."""
        self.settle()
        if not device:
            self.store.remove_all(tenant)
            self._budgets.pop(tenant, None)
            return
        for filed in self.store.newest(tenant):
            if filed.letter.device == device:
                self.store.remove(tenant, filed)

    # -- caps

    def _take(self, tenant: str) -> bool:
        """Whether the tenant may file one more letter now."""
        rate, now_us = self.settings.max_per_s, self._clock.now_us()
        most = float(rate * _BURST_S)
        with self._changed:
            budget = self._budgets.get(tenant)
            if budget is None:
                budget = self._budgets[tenant] = _Budget(most, now_us)
            passed_us = max(0, now_us - budget.at_us)
            budget.tokens, budget.at_us = min(most, budget.tokens + passed_us * rate / SECOND), now_us
            spent = budget.day_us == bucket_start(now_us, DAY) and self._left(budget) < _LEAST_BYTES
            if budget.tokens < 1 or spent:
                return False
            budget.tokens -= 1
            return True

    def _left(self, budget: _Budget) -> int:
        return self.settings.max_bytes_per_day - budget.bytes

    def _charge(self, tenant: str, size: int, now_us: int) -> bool:
        """Whether that many bytes more fit into the tenant's day."""
        day_us = bucket_start(now_us, DAY)
        with self._counting:
            budget = self._budgets.get(tenant) or self._budgets.setdefault(tenant, _Budget(0.0, now_us))
            known = budget.day_us == day_us
        stored = 0 if known else self.store.weight_of_day(tenant, now_us)  # others do not wait for the store
        with self._counting:
            if not known and budget.day_us != day_us:
                budget.bytes, budget.day_us = stored, day_us
            if size > self._left(budget):
                return False
            budget.bytes += size
            return True

    def _refund(self, taken: Mapping[str, int]) -> None:
        """So many letters of tenants were paid for, and are not known to be written."""
        most = float(self.settings.max_per_s * _BURST_S)
        with self._changed, self._counting:
            for tenant, count in taken.items():
                if budget := self._budgets.get(tenant):
                    budget.tokens = min(most, budget.tokens + count)
                    budget.day_us = -1

    def _dropped(self, tenant: str) -> None:
        self._counters.dead_letters_dropped.labels(tenant).inc()

    # -- writing

    def _run(self) -> None:
        while refused := self._next():
            try:
                self._write(refused)
            except WiderowError as error:
                log.warning("dead letters are not written: %s", error)
            except Exception:
                log.exception("dead letters are not written")
            with self._changed:
                self._busy = 0
                self._changed.notify_all()

    def _next(self) -> list[_Refused]:
        """What waits, in pieces; empty: closed, and nothing does."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            taken = [self._waiting.popleft() for _ in range(min(_AT_ONCE, len(self._waiting)))]
            self._waiting_bytes -= sum(len(refused.origin.body) for refused in taken)
            self._busy = len(taken)
            return taken

    def _write(self, refused: Sequence[_Refused]) -> None:
        letters: list[tuple[str, Filed]] = []
        taken = Counter(one.tenant for one in refused)
        over: list[str] = []
        try:
            for one in refused:
                for k, filed in enumerate(self._letters(one)):
                    allowed = not k or self._take(one.tenant)
                    taken[one.tenant] += k > 0 and allowed
                    if not allowed or not self._charge(one.tenant, weight(filed), filed.filed_us):
                        over.append(one.tenant)  # and whatever would follow with it
                        break
                    letters.append((one.tenant, filed))
            if letters:
                self.store.put(letters, self.settings.keep_us)
        except BaseException:
            self._refund(taken)
            for one in refused:
                if not one.origin.durable:
                    self._dropped(one.tenant)
            raise
        for tenant in over:
            self._dropped(tenant)
        for tenant, filed in letters:
            self._counters.dead_letters.labels(tenant, filed.letter.code).inc()

    def _letters(self, refused: _Refused) -> Iterator[Filed]:
        """The letters of something refused."""
        for part in self._parts(refused.origin, refused.positions):
            now_us = self._clock.now_us()
            origin = part.origin
            letter = Letter(
                code=refused.code,
                reason=_short(refused.reason),
                source=_short(origin.source),
                media_type=_short(origin.media_type),
                precision=_short(origin.precision),
                encoding=_short(origin.encoding),
                device=_short(origin.device),
                reports=len(part.positions),
                positions=tuple(part.positions[:_MOST_POSITIONS]),
                kept=part.kept,
                size=len(origin.body),
                version_us=origin.version_us,
            )
            yield Filed(new_id(now_us, self._random_bytes(4)), letter, self._clock.version_us(), origin.body)

    def _parts(self, origin: Origin, positions: Sequence[int]) -> Iterator[Part]:
        most = self.settings.max_body_bytes
        if not positions:
            yield whole(origin, most)
            return
        try:
            yield from parts(origin, positions, max_bytes=most, max_unpacked=self.settings.max_unpacked_bytes)
        except WiderowError:  # it was read once, so this is a fault of ours; the refusal is worth keeping all the same
            log.exception("the reports of a body are not found again")
            yield Part(replace(origin, body=b""), positions, Kept.NOTHING)


def _short(text: str) -> str:
    """A text that can be stored, whatever a sender has put into it."""
    return text[:_MOST_TEXT].encode(errors="replace").decode()
