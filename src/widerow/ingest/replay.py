"""Dead letters sent again, on the path that every report takes.

Rule 1: a letter is removed after what it held is durable. What is refused again stays, with the new reason: of a letter with
several reports, those that still are.
Rule 2: reports have the version of their receipt, so what was corrected since stays so. One that brings no time has that of
its first arrival.
Rule 3: which of two contradicting values is right nobody knows: what was refused as `conflict` is sent again when asked for
by its id, or with all such letters, and not among others.
Rule 4: a letter is read as it came: what was allowed for one device only still is.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from time import monotonic

from widerow.ingest.bodies import Bodies
from widerow.model.errors import Rejected, Unavailable, WiderowError
from widerow.model.tenant import Tenant
from widerow.model.times import MS, whole_ms
from widerow.pipeline.dead_letters import DeadLetters
from widerow.pipeline.job import Job, Outcome
from widerow.pipeline.letter import Filed
from widerow.pipeline.parts import Kept
from widerow.pipeline.pipeline import INLINE_BYTES, Pipeline

MOST_AT_ONCE = 1000
"""Letters that one call sends again."""
_CONFLICT = "conflict"
_UNPACKED = 8
_ANSWER_S = 60.0


@dataclass(frozen=True, slots=True)
class Replayed:
    """What became of a letter: `stored` and gone, or `refused` again, and why; or `not-found`."""

    id: str
    outcome: str
    accepted: int = 0
    code: str = ""
    reason: str = ""


class Replay:
    """Sends letters again. Safe to share between threads; two who send the same letter store the same reports."""

    def __init__(self, letters: DeadLetters, pipeline: Pipeline, bodies: Bodies, *, max_bytes: int) -> None:
        self._letters, self._pipeline, self._bodies, self._max_bytes = letters, pipeline, bodies, max_bytes

    def all(self, tenant: Tenant, letters: Sequence[str], *, within_s: float) -> Iterator[Replayed]:
        """Letters by their ids, one after the other, for about that long.

        Raises what is nobody's fault, such as `Overloaded`: the letter it happened to is as it was.
        """
        deadline = monotonic() + within_s
        for letter_id in letters:
            filed = self._letters.store.find(tenant.name, letter_id)
            yield Replayed(letter_id, "not-found") if filed is None else self.one(tenant, filed)
            if monotonic() > deadline:
                return

    def oldest(
        self,
        tenant: str,
        *,
        code: str = "",
        start_us: int = 0,
        stop_us: int | None = None,
        after: str = "",
        conflicts: bool = False,
    ) -> tuple[list[str], list[str]]:
        """The ids of the letters that match, the oldest first, behind `after`; as many as one call sends again. And of those
        that match and are left, as they were refused as conflict and these are not asked for (`conflicts`).
        """
        found, left = deque[str](maxlen=MOST_AT_ONCE), list[str]()
        for filed in self._letters.store.newest(tenant, start_us=start_us, stop_us=stop_us):
            if filed.id <= after:
                break
            if code and filed.letter.code != code:
                continue
            if conflicts or filed.letter.code != _CONFLICT:
                found.append(filed.id)
            else:
                left.append(filed.id)
        return list(reversed(found)), left

    def one(self, tenant: Tenant, filed: Filed) -> Replayed:
        letter = filed.letter
        if letter.kept is not Kept.WHOLE:
            reason = f"only a part of it is kept: {letter.reason}" if letter.kept is Kept.CUT else "its bytes are not kept"
            return Replayed(filed.id, "refused", code=letter.code, reason=reason)
        outcome = self._sent(tenant, filed)
        if isinstance(outcome.error, Rejected):
            return self._again(tenant, filed, outcome.error.code, str(outcome.error), ())
        if outcome.error is not None:
            raise outcome.error
        if outcome.refusals:
            first = outcome.refusals[0]
            apart = outcome.accepted and not filed.letter.origin(b"").is_document
            positions = sorted(at for refusal in outcome.refusals for at in refusal.positions) if apart else ()
            return self._again(tenant, filed, first.code, first.reason, positions, outcome.accepted)
        if not outcome.accepted:
            return self._again(tenant, filed, "no-reports", "the body holds no report", ())
        self._letters.store.remove(tenant.name, filed)
        return Replayed(filed.id, "stored", outcome.accepted)

    def _again(
        self, tenant: Tenant, filed: Filed, code: str, reason: str, positions: Sequence[int], accepted: int = 0
    ) -> Replayed:
        self._letters.refused_again(tenant.name, filed, code, reason, positions)
        return Replayed(filed.id, "refused", accepted, code, reason)

    def _sent(self, tenant: Tenant, filed: Filed) -> Outcome:
        """What the pipeline makes of it."""
        origin = filed.letter.origin(filed.body)
        if filed.letter.code == _CONFLICT:  # it is asked for: what it contradicted came with it, and has its version
            origin = replace(origin, version_us=(origin.version_us or whole_ms(filed.filed_us)) + MS)
        done, outcomes = threading.Event(), list[Outcome]()

        def finish(outcome: Outcome) -> None:
            outcomes.append(outcome)
            done.set()

        try:
            decode = self._bodies.again(tenant, origin, received_us=filed.filed_us, max_bytes=self._max_bytes)
        except WiderowError as error:
            return Outcome(error=error)
        size = max(_UNPACKED * len(origin.body), INLINE_BYTES + 1) if origin.encoding else len(origin.body) or 1
        self._pipeline.submit(Job(tenant, size, decode, finish, origin.device or None))
        if not done.wait(_ANSWER_S):
            raise Unavailable("no answer from the pipeline: the letter is kept, try again later")
        return outcomes[0]
