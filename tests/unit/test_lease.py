"""The writer's lease: one at a time, never for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from widerow.catalog.lease import KEY, Lease, Process, keep, wait_for, writer_of
from widerow.engine.memory import MemoryEngine
from widerow.engine.rows import Key, Row
from widerow.model.errors import ConfigError, Corrupt, NotTheWriter, Unavailable
from widerow.model.times import HOUR, MS, SECOND, ManualClock, SystemClock
from widerow.schema.table import Table
from widerow.schema.tables import META

LENGTH = 30 * SECOND
START = 1_760_000_000 * SECOND


class Store(MemoryEngine):
    """A store that answers, does not answer, or does what it is asked and fails to say so."""

    def __init__(self, clock: ManualClock | SystemClock) -> None:
        super().__init__(clock)
        self.apply([META])
        self.down = False
        self.loses_answers = False
        self.before_put: Callable[[], None] = lambda: None

    def get(self, table: Table, key: Key, *, may_lag: bool = False) -> Row | None:
        if self.down:
            raise Unavailable("down")
        return super().get(table, key, may_lag=may_lag)

    def put_if(self, table: Table, key: Key, row: Row | None, expected: Row | None) -> bool:
        if self.down:
            raise Unavailable("down")
        before, self.before_put = self.before_put, lambda: None
        before()
        done = super().put_if(table, key, row, expected)
        if self.loses_answers:
            raise Unavailable("no answer")
        return done


@dataclass
class World:
    clock: ManualClock = field(default_factory=lambda: ManualClock(START))
    store: Store = field(init=False)
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = Store(self.clock)

    def lease(self, host: str, *, clock: ManualClock | None = None, length_us: int = LENGTH) -> Lease:
        return Lease(self.store, clock or self.clock, Process(f"id-{host}", host, 4711), length_us=length_us)

    def wait_for(self, lease: Lease, meanwhile: Callable[[], None] = lambda: None) -> int:
        """How long it took, by the clock."""
        began_us = self.clock.time_us

        def sleep(seconds: float) -> None:
            self.clock.time_us += round(seconds * SECOND)
            assert self.clock.time_us < began_us + HOUR, "it waits for ever"
            meanwhile()

        wait_for(lease, self.said.append, sleep)
        return self.clock.time_us - began_us


@pytest.fixture
def world() -> World:
    return World()


def refusal(lease: Lease) -> str:
    with pytest.raises(NotTheWriter) as caught:
        lease.check()
    assert caught.value.code == "no-lease"
    assert caught.value.retry_after_s == pytest.approx(10)
    assert str(caught.value) == lease.trouble()
    return str(caught.value)


def test_before_it_is_taken_nothing_may_be_written(world: World) -> None:
    refusal(world.lease("alpha"))


def test_one_that_nobody_has_is_taken_and_says_who_has_it(world: World) -> None:
    lease = world.lease("alpha")
    assert lease.take()
    lease.check()
    assert lease.trouble() == ""
    holder = writer_of(world.store, world.clock.now_us())
    assert holder is not None
    assert (holder.host, holder.pid, holder.from_us, holder.until_us) == ("alpha", 4711, START, START + LENGTH)
    assert str(holder) == ("process 4711 on alpha, since 2025-10-09T08:53:20Z, with a lease until 2025-10-09T08:53:50Z")


def test_one_that_another_has_is_not_taken_before_it_ran_out(world: World) -> None:
    alpha, beta = world.lease("alpha"), world.lease("beta")
    assert alpha.take()
    world.clock.time_us += LENGTH - 1
    assert not beta.take()
    assert beta.other is not None
    assert beta.other.host == "alpha"
    assert "another process" in refusal(beta)
    world.clock.time_us += 1
    assert writer_of(world.store, world.clock.now_us()) is None
    assert beta.take()
    beta.check()


def test_a_renewed_one_lasts_longer_and_began_when_it_began(world: World) -> None:
    lease = world.lease("alpha")
    for _ in range(10):
        assert lease.take()
        world.clock.time_us += LENGTH // 3
        lease.check()
    holder = writer_of(world.store, world.clock.now_us())
    assert holder is not None
    assert (holder.from_us, holder.until_us) == (START, START + 3 * LENGTH + LENGTH)


def test_its_holder_stops_a_tenth_before_others_may_begin(world: World) -> None:
    lease = world.lease("alpha")
    lease.take()
    world.clock.time_us = START + LENGTH - LENGTH // 10 - 1
    lease.check()
    world.clock.time_us += 1
    assert "ran out" in refusal(lease)


def test_it_counts_from_before_the_request(world: World) -> None:
    def slow() -> None:
        world.clock.time_us += LENGTH

    lease = world.lease("alpha")
    world.store.before_put = slow
    assert lease.take()
    refusal(lease)


def test_a_store_that_does_not_answer_ends_it_and_one_that_does_again_brings_it_back(world: World) -> None:
    lease = world.lease("alpha")
    returned: list[bool] = []
    lease.on_return = lambda: returned.append(True)
    lease.take()
    term = lease.check()
    world.store.down = True
    world.clock.time_us += LENGTH // 3
    with pytest.raises(Unavailable):
        lease.take()
    lease.check()
    world.clock.time_us += LENGTH
    assert "did not answer" in refusal(lease)
    world.store.down = False
    assert lease.take()
    assert lease.check() == term
    assert not returned, "nobody else wrote meanwhile"


def test_who_lost_it_has_it_again_when_the_other_is_gone_and_has_forgotten_what_it_knew(world: World) -> None:
    def check(end: Callable[[Lease], object]) -> None:
        alpha, beta = world.lease("alpha"), world.lease("beta")
        returned: list[bool] = []
        alpha.on_return = lambda: returned.append(alpha.held())
        assert alpha.take()
        term = alpha.check()
        world.clock.time_us += LENGTH
        assert beta.take()
        assert not alpha.take()
        assert "another process" in refusal(alpha)
        end(beta)
        assert alpha.take()
        assert alpha.check() != term
        assert returned == [False], "once, and before it may write"
        assert alpha.take()
        assert len(returned) == 1
        alpha.give_up()

    def wait(_: Lease) -> None:
        world.clock.time_us += LENGTH

    check(Lease.give_up)
    check(wait)


def test_a_return_whose_answer_was_lost_is_a_return(world: World) -> None:
    alpha, beta = world.lease("alpha"), world.lease("beta")
    returned: list[bool] = []
    alpha.on_return = lambda: returned.append(True)
    assert alpha.take()
    world.clock.time_us += LENGTH
    assert beta.take()
    world.clock.time_us += LENGTH
    world.store.loses_answers = True
    with pytest.raises(Unavailable):
        alpha.take()
    world.store.loses_answers = False
    assert alpha.take()
    assert returned == [True]


def test_who_meets_another_when_it_renews_stops_at_once(world: World) -> None:
    ahead = ManualClock(START + LENGTH)
    alpha, beta = world.lease("alpha"), world.lease("beta", clock=ahead)
    assert alpha.take()
    assert beta.take(), "by its clock the lease ran out"
    alpha.check()
    assert not alpha.take()
    assert "another process" in refusal(alpha)


def test_a_renewal_whose_answer_was_lost_is_no_other_process(world: World) -> None:
    lease = world.lease("alpha")
    lease.take()
    world.store.loses_answers = True
    with pytest.raises(Unavailable):
        lease.take()
    world.store.loses_answers = False
    assert lease.take()
    assert lease.other is None


def test_of_two_that_take_it_at_once_one_has_it(world: World) -> None:
    alpha, beta = world.lease("alpha"), world.lease("beta")
    world.store.before_put = lambda: assert_taken(beta)
    assert not alpha.take()
    beta.check()
    refusal(alpha)


def assert_taken(lease: Lease) -> None:
    assert lease.take()


def test_who_gives_it_up_leaves_nothing_behind(world: World) -> None:
    alpha, beta = world.lease("alpha"), world.lease("beta")
    alpha.take()
    alpha.give_up()
    refusal(alpha)
    assert world.store.get(META, KEY) is None
    assert beta.take()
    alpha.give_up()
    assert not world.lease("gamma").take(), "only its own"


def test_giving_up_never_fails(world: World, caplog: pytest.LogCaptureFixture) -> None:
    lease = world.lease("alpha")
    lease.take()
    world.store.down = True
    lease.give_up()
    assert "left to run out, in 30s" in caplog.text


def test_one_that_a_killed_process_left_is_waited_for(world: World) -> None:
    world.lease("alpha").take()
    world.clock.time_us += 10 * SECOND
    beta = world.lease("beta")
    assert world.wait_for(beta) == 20 * SECOND
    beta.check()
    (said,) = world.said
    assert "process 4711 on alpha" in said
    assert "up to 20s" in said


def test_one_that_is_free_is_not_waited_for(world: World) -> None:
    assert world.wait_for(world.lease("alpha")) == 0
    assert world.said == []


def test_one_that_is_given_up_meanwhile_is_taken(world: World) -> None:
    alpha = world.lease("alpha")
    alpha.take()
    assert world.wait_for(world.lease("beta"), alpha.give_up) == SECOND


def test_whoever_starts_beside_a_living_writer_is_refused_and_told_whom_it_met(world: World) -> None:
    alpha = world.lease("alpha")
    alpha.take()

    def renew() -> None:
        if world.clock.time_us >= START + LENGTH // 3:
            alpha.take()

    with pytest.raises(ConfigError) as caught:
        world.wait_for(world.lease("beta"), renew)
    assert world.clock.time_us == START + LENGTH // 3, "at its first renewal"
    words = ("process 4711 on alpha", "since 2025-10-09T08:53:20Z", "until 2025-10-09T08:54:00Z", "stop it")
    assert all(word in str(caught.value) for word in words), str(caught.value)
    alpha.check()


def test_of_two_that_wait_for_a_dead_one_the_slower_is_refused(world: World) -> None:
    world.lease("alpha").take()
    beta = world.lease("beta")

    def take() -> None:
        if world.clock.time_us >= START + LENGTH:
            beta.take()

    with pytest.raises(ConfigError, match="on beta"):
        world.wait_for(world.lease("gamma"), take)


def test_a_clock_that_was_ahead_costs_its_successor_one_length(world: World) -> None:
    world.lease("alpha", clock=ManualClock(START + HOUR)).take()
    assert world.wait_for(world.lease("beta")) == LENGTH
    assert "up to 30s" in world.said[0]


def test_clocks_that_differ_by_less_than_a_tenth_never_let_two_write(world: World) -> None:
    apart_us = LENGTH // 10
    ahead = ManualClock(START + apart_us)
    alpha, beta = world.lease("alpha"), world.lease("beta", clock=ahead)
    assert alpha.take()
    for _ in range(40):
        world.clock.time_us += SECOND
        ahead.time_us = world.clock.time_us + apart_us
        if beta.take():
            break
    beta.check()
    refusal(alpha)


def test_a_row_that_cannot_be_read_is_corrupt(world: World) -> None:
    assert world.store.put_if(META, KEY, {"body": '{"host": 5}'}, None)
    with pytest.raises(Corrupt, match="lease"):
        world.lease("alpha").take()


# -- with threads, and a clock that runs


SHORT = 600 * MS


@pytest.fixture
def store() -> Store:
    return Store(SystemClock())


def eventually(true: Callable[[], bool]) -> None:
    for _ in range(1000):
        if true():
            return
        threading.Event().wait(0.01)
    pytest.fail("it never came")


def test_a_kept_lease_is_renewed_until_it_is_stopped(store: Store) -> None:
    keeper = keep(store, SystemClock(), length_us=SHORT, say=pytest.fail)
    first = writer_of(store, 0)
    assert first is not None
    eventually(lambda: (now := writer_of(store, 0)) is not None and now.until_us > first.until_us + 2 * SHORT)
    keeper.stop()
    assert writer_of(store, 0) is None
    with pytest.raises(NotTheWriter):
        keeper.lease.check()


def test_a_store_that_goes_away_is_logged_once_and_so_is_its_return(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    keeper = keep(store, SystemClock(), length_us=SHORT, say=pytest.fail)
    store.down = True
    eventually(lambda: not keeper.lease.held() and bool(caplog.messages))
    (failed,) = caplog.messages
    assert "could not be renewed" in failed
    store.down = False
    eventually(keeper.lease.held)
    keeper.stop()
    _, back = caplog.messages
    assert "has it again" in back


def test_another_writer_is_named_in_the_log(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    keeper = keep(store, SystemClock(), length_us=SHORT, say=pytest.fail)
    row = store.get(META, KEY)
    assert row is not None
    # As if its clock were ahead. If a renewal comes in between, this fails, and the next try does not.
    theirs: Row = {"body": str(row["body"]).replace(Process.this().host, "beta").replace('"id":"', '"id":"not')}
    eventually(lambda: store.put_if(META, KEY, theirs, store.get(META, KEY)))
    eventually(lambda: keeper.lease.other is not None)
    eventually(keeper.lease.held)
    keeper.stop()
    taken, back = caplog.messages
    assert f"process {Process.this().pid} on beta" in taken
    assert "has it again" in back


def member(world: World, number: int, crew: str = "workers") -> Lease:
    return Lease(world.store, world.clock, Process(f"crew:{crew}", f"host-{number}", number, crew=True), length_us=LENGTH)


def test_a_crew_has_the_lease_together_and_nobody_else_has_it() -> None:
    world = World()
    first, second, serve = member(world, 1), member(world, 2), world.lease("serve")
    assert first.take()
    assert second.take()
    assert first.held()
    assert second.held()
    assert not serve.take()
    other = member(world, 3, crew="others")
    assert not other.take()
    world.clock.time_us += LENGTH // 2
    assert second.take(), "any of them renews it"
    world.clock.time_us += LENGTH // 2
    assert not first.held(), "who did not look for so long does not know"
    assert first.take()
    assert not serve.take()


def test_a_crews_lease_runs_out_when_the_last_of_it_is_gone() -> None:
    world = World()
    first, second, serve = member(world, 1), member(world, 2), world.lease("serve")
    assert first.take()
    assert second.take()
    first.give_up()
    assert not first.held()
    assert second.held()
    assert not serve.take()
    second.give_up()
    world.clock.time_us += LENGTH
    assert serve.take()
    assert not first.take()


def test_two_of_a_crew_that_renew_at_once_both_have_it() -> None:
    world = World()
    first, second = member(world, 1), member(world, 2)
    assert first.take()
    world.clock.time_us += LENGTH // 2
    world.store.before_put = lambda: None if second.take() else pytest.fail("it is of the crew")
    assert first.take()
    assert first.held()
    assert second.held()
