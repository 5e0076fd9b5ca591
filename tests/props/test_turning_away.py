"""Bodies that are refused before they are decoded: who is told what, against looking at each of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from widerow.admit.admission import Admission
from widerow.admit.controls import Controls
from widerow.engine.memory import MemoryEngine
from widerow.model.batch import Report, batch_of
from widerow.model.errors import QuotaExceeded
from widerow.model.lane import Lane
from widerow.model.tenant import Limits, Tenant
from widerow.model.times import SECOND, ManualClock
from widerow.ops.counters import Counters
from widerow.schema.tables import DEVICE_CONTROLS

LATER_US = st.one_of(st.integers(0, SECOND), st.integers(0, 20 * SECOND))
REPORTS = st.integers(1, 60)
LIMITS = st.builds(Limits, writes_per_s=st.integers(1, 50), writes_burst=st.integers(1, 100))


class Gate:
    """A tenant's limits, asked as the front of lines does it."""

    def __init__(self, limits: Limits) -> None:
        self.clock = ManualClock(1_000 * SECOND)
        engine = MemoryEngine(self.clock)
        engine.apply([DEVICE_CONTROLS])
        controls = Controls(engine, self.clock, refresh_us=10 * SECOND)
        self.weighed = 0
        self.admission = Admission(controls, self.clock, Counters(), weigh=self._weigh, chance=lambda: 1.0)
        self.tenant = Tenant(name="acme", limits=limits)
        self.looks = 0

    def _weigh(self, _tenant: str, _lane: Lane, count: int) -> None:
        self.weighed += count

    def ask(self, lines: int, reports: int, *, look: bool = False) -> QuotaExceeded | None:
        """Why lines are refused; None: they are kept. `look`: they are decoded, whatever was known before."""
        if not look and self.admission.is_over("acme") and (turned_away := self.admission.turned_away(self.tenant, lines)):
            return turned_away[0]
        self.looks += 1
        batch = batch_of([Report("d", i, {"x": 1.0}, {}) for i in range(reports)])
        try:
            self.admission.admit(self.tenant, batch, Lane.LIVE, whole=True, lines=lines)
        except QuotaExceeded as error:
            return error
        return None


@given(LIMITS, st.integers(1, 10), st.lists(st.tuples(LATER_US, REPORTS), min_size=1, max_size=40))
def test_bodies_that_are_alike_are_told_the_same_without_a_look(
    limits: Limits, lines: int, bodies: list[tuple[int, int]]
) -> None:
    quick, thorough = Gate(limits), Gate(limits)
    for later_us, reports in bodies:
        told = []
        for gate in (quick, thorough):
            gate.clock.time_us += later_us
            told.append(gate.ask(lines * reports, reports, look=gate is thorough))
        assert str(told[0]) == str(told[1])
    assert quick.weighed == thorough.weighed


@given(LIMITS, st.lists(st.tuples(LATER_US, st.integers(60, 600), REPORTS), min_size=1, max_size=40))
def test_whoever_waits_as_it_is_told_is_kept_whatever_others_were_like(
    limits: Limits, bodies: list[tuple[int, int, int]]
) -> None:
    """Told by a guess the first time, and by what it has the second."""
    gate = Gate(limits)
    for later_us, lines, reports in bodies:
        gate.clock.time_us += later_us
        gate.ask(lines, reports)
    _, lines, reports = bodies[-1]
    for _ in range(2):
        if (error := gate.ask(lines, reports)) is None:
            return
        gate.clock.time_us += round(error.retry_after_s * SECOND) + 1
    assert gate.ask(lines, reports) is None
