"""Whose turn it is at the committer, and a large body in small pieces."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from widerow.model.batch import Report, batch_of, reports_of
from widerow.model.errors import Refusal, StorageFull
from widerow.model.lane import Lane
from widerow.model.tenant import Tenant
from widerow.pipeline.job import Job, Outcome
from widerow.pipeline.lanes import _AHEAD_BYTES, _IDLE_BYTES, PIECE_BYTES, Lanes
from widerow.pipeline.pieces import pieces

ACME = Tenant(name="acme")

IDLE = _IDLE_BYTES // PIECE_BYTES
"""Pieces that are committed at once when no live reports come."""
assert IDLE > 1


def job(lane: Lane, size: int = PIECE_BYTES) -> Job:
    return Job(ACME, size, lambda: pytest.fail("decoded"), lambda _: None, lane=lane)


@dataclass
class Site:
    share: float = 0.2
    now_s: float = 50.0
    lanes: Lanes = field(init=False)

    def __post_init__(self) -> None:
        self.lanes = Lanes(
            max_tenant_bytes=1 << 30,
            share=self.share,
            clock_s=lambda: self.now_s,
        )

    def put(self, lane: Lane, count: int = 1) -> None:
        for _ in range(count):
            self.lanes.put(job(lane))

    def commit(self, seconds: float) -> list[Lane]:
        """Take, and take so long for it; the lanes of what was taken."""
        work = self.lanes.take()
        self.now_s += seconds
        self.lanes.done()
        taken = [job for _, jobs in work for job in jobs]
        for one in taken:
            self.lanes.release(one)
        return [one.lane for one in taken]


def test_live_reports_go_first_and_all_at_once() -> None:
    site = Site()
    site.put(Lane.BACKFILL, 3)
    site.put(Lane.LIVE, 5)
    assert site.commit(0.001) == [Lane.LIVE] * 5
    site.now_s += 0.01
    assert site.commit(0.0001) == [Lane.BACKFILL], "a piece, when nobody else waits"


def test_of_a_busy_committer_backlog_has_its_share() -> None:
    """Live reports wait all the time."""
    site = Site()
    site.put(Lane.BACKFILL, 3000)
    spent, before, began_s = 0.0, Lane.BACKFILL, site.now_s
    site.put(Lane.LIVE)
    for _ in range(4000):
        (lane,) = site.commit(0.002)
        assert Lane.LIVE in (lane, before), "never two of backlog in a row"
        before = lane
        if lane is Lane.LIVE:
            site.put(Lane.LIVE)
        else:
            spent += 0.002
    assert spent / (site.now_s - began_s) == pytest.approx(0.2, abs=0.02)


@pytest.mark.parametrize("pieces", [1, 4])
def test_how_much_backlog_is_committed_at_once_depends_on_the_sink(pieces: int) -> None:
    lanes = Lanes(max_tenant_bytes=1 << 30, share=1.0, backlog_bytes=pieces * PIECE_BYTES)
    for _ in range(10):
        lanes.put(job(Lane.BACKFILL))
    assert sum(len(jobs) for _, jobs in lanes.take()) == pieces


def test_without_live_reports_backlog_has_all_the_time() -> None:
    site = Site()
    site.put(Lane.BACKFILL, 100)
    site.now_s += 0.3
    began_s = site.now_s
    for _ in range(10):
        assert site.commit(0.01) == [Lane.BACKFILL] * IDLE
    assert site.now_s - began_s == pytest.approx(0.1)
    site.now_s += 1
    assert len(site.commit(0.01)) > IDLE, "nobody is in a hurry"


def test_a_spent_share_waits_and_a_live_report_ends_the_waiting() -> None:
    lanes = Lanes(max_tenant_bytes=1 << 30, share=0.01)
    lanes.put(job(Lane.LIVE))
    lanes.take()
    lanes.done()
    lanes._credit_s = -1.0
    lanes.put(job(Lane.BACKFILL))
    taken: list[Lane] = []
    taker = threading.Thread(target=lambda: taken.extend(j.lane for _, jobs in lanes.take() for j in jobs))
    taker.start()
    lanes.put(job(Lane.LIVE))
    taker.join(5)
    assert taken == [Lane.LIVE]


def test_closing_gives_out_the_rest_and_then_nothing() -> None:
    site = Site()
    site.put(Lane.BACKFILL, 2)
    site.put(Lane.LIVE)
    site.lanes.close()
    taken = [lane for _ in range(3) for lane in site.commit(0.1)]
    assert taken == [Lane.LIVE, Lane.BACKFILL, Lane.BACKFILL]
    assert site.commit(0.1) == []


def test_backlog_is_decoded_ahead_only_so_far() -> None:
    site = Site()
    site.put(Lane.BACKFILL, _AHEAD_BYTES // PIECE_BYTES)
    waited = threading.Thread(target=site.lanes.await_room)
    waited.start()
    waited.join(0.1)
    assert waited.is_alive()
    site.now_s += 0.3
    site.commit(0.001)
    waited.join(5)
    assert not waited.is_alive()


# -- pieces


REPORTS = st.lists(
    st.builds(
        Report,
        st.sampled_from(["a", "b", "c", "d"]),
        st.integers(0, 10**15),
        st.dictionaries(
            st.sampled_from(["m", "n", "o"]), st.floats(-9, 9) | st.sampled_from(["on", "off", "é"]), min_size=1
        ),
        st.dictionaries(st.sampled_from(["site"]), st.sampled_from(["x", "y"])),
    ),
    min_size=1,
    max_size=40,
)


@given(reports=REPORTS, size=st.integers(1, 50 * PIECE_BYTES))
@settings(max_examples=100, deadline=None)
def test_pieces_are_the_whole_in_order_with_dictionaries_of_their_own(reports: list[Report], size: int) -> None:
    whole = Job(ACME, size, lambda: pytest.fail("decoded"), lambda _: None, lane=Lane.BACKFILL, batch=batch_of(reports))
    parts = [part.batch for part in pieces(whole, lambda _j, _o: None)]
    assert [report for part in parts if part is not None for report in reports_of(part)] == reports
    assert [p for part in parts if part is not None for p in part.position.tolist()] == list(range(len(reports)))
    if len(parts) > 1:
        for part in parts:
            assert part is not None
            assert len(part.device.names) == len(set(part.device.codes.tolist()))
            assert len(part.cells.texts) == len(set(part.cells.text.tolist()) - {-1})


def _whole(outcomes: list[Outcome]) -> list[Job]:
    batch = batch_of([Report("d", t, {"m": 1.0}, {}) for t in range(10)])
    refusals = [Refusal("future", "later", [11])]
    job = Job(
        ACME,
        4 * PIECE_BYTES,
        lambda: pytest.fail("decoded"),
        lambda _: None,
        lane=Lane.BACKFILL,
        batch=batch,
        refusals=refusals,
    )
    return pieces(job, lambda _, outcome: outcomes.append(outcome))


def test_the_sender_is_answered_once_with_the_sum() -> None:
    outcomes: list[Outcome] = []
    parts = _whole(outcomes)
    assert len(parts) == 4
    for part in parts:
        assert not outcomes
        assert part.batch is not None
        part.done(Outcome(len(part.batch), part.refusals))
    ((accepted, refused),) = [(outcome.accepted, outcome.refused) for outcome in outcomes]
    assert (accepted, refused) == (10, 1)


def test_if_one_piece_fails_nothing_is_acknowledged() -> None:
    outcomes: list[Outcome] = []
    for i, part in enumerate(_whole(outcomes)):
        part.done(Outcome(error=StorageFull("full")) if i == 1 else Outcome(3))
    ((accepted, error),) = [(outcome.accepted, outcome.error) for outcome in outcomes]
    assert accepted == 0
    assert isinstance(error, StorageFull)


def test_a_commit_that_took_long_is_paid_for() -> None:
    """Else a slow store would let backlog have as many commits as live reports."""
    site = Site()
    site.put(Lane.BACKFILL, 1000)
    site.put(Lane.LIVE)
    spent, began_s = 0.0, site.now_s
    for _ in range(500):
        (lane,) = site.commit(0.03)
        if lane is Lane.LIVE:
            site.put(Lane.LIVE)
        else:
            spent += 0.03
    assert spent / (site.now_s - began_s) == pytest.approx(0.2, abs=0.03)
