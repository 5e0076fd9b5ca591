"""The parts of the write path: bodies within bounds, outcomes on their way back, refusals as answers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest
from starlette.types import Message, Receive

from widerow.model.errors import Overloaded, Refusal, Rejected, Stalled, TenantBusy, TooLarge
from widerow.pipeline.job import Outcome
from widerow.server.completions import Completions
from widerow.server.intake import LEAST_BYTES_PER_S, Disconnected, Intake
from widerow.server.write import partial_write, refused


def pieces(parts: Sequence[bytes], *, cut: bool = False) -> Receive:
    """A connection that gives these; `cut`: and breaks off."""
    messages: list[Message] = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    if cut:
        messages.append({"type": "http.disconnect"})
    else:
        messages[-1]["more_body"] = False

    async def receive() -> Message:
        await asyncio.sleep(0)
        return messages.pop(0)

    return receive


def an_intake(*, max_bytes: int, in_all: int = 100, of_one: int = 100, pause_s: float = 60) -> Intake:
    return Intake(max_bytes=max_bytes, max_bytes_in_all=in_all, max_bytes_of_one=of_one, pause_s=pause_s)


def read(intake: Intake, parts: Sequence[bytes], *, cut: bool = False) -> bytes:
    return asyncio.run(intake.read(pieces(parts, cut=cut), "acme"))


def test_a_body_is_read_whole_up_to_its_limit() -> None:
    intake = an_intake(max_bytes=10)
    assert read(intake, [b"0123456789"]) == b"0123456789"
    assert read(intake, [b"01234", b"", b"56789"]) == b"0123456789"
    for parts in ([b"0123456789x"], [b"0123456789", b"x"]):
        with pytest.raises(TooLarge):
            read(intake, parts)
    with pytest.raises(Disconnected):
        read(intake, [b"01"], cut=True)
    assert intake.held == 0


def test_a_body_that_announces_too_much_is_refused_unread() -> None:
    intake = an_intake(max_bytes=10)
    intake.announced(b"10")
    with pytest.raises(TooLarge):
        intake.announced(b"11")
    with pytest.raises(Rejected):
        intake.announced(b"ten")


def test_all_bodies_together_are_bounded_but_one_alone_comes_in() -> None:
    intake = an_intake(max_bytes=100, in_all=10)
    assert len(read(intake, [b"x" * 30, b"y" * 30])) == 60

    async def two() -> list[bytes | BaseException]:
        both = (intake.read(pieces([b"x" * 4] * 2), "acme") for _ in range(2))
        return await asyncio.gather(*both, return_exceptions=True)

    results = asyncio.run(two())
    assert [type(result) for result in results].count(Overloaded) == 1
    assert intake.held == 0


def test_the_first_pieces_of_many_bodies_are_bounded_too() -> None:
    async def statuses(intake: Intake) -> list[type]:
        async def never() -> Message:
            await asyncio.sleep(60)
            raise AssertionError

        async def first_then_nothing(tenant: str) -> bytes:
            first: list[Message] = [{"type": "http.request", "body": b"x" * 4, "more_body": True}]

            async def receive() -> Message:
                return first.pop() if first else await never()

            return await intake.read(receive, tenant)

        reading = [asyncio.create_task(first_then_nothing(tenant)) for tenant in ("acme", "acme", "umbra", "umbra")]
        done, pending = await asyncio.wait(reading, timeout=0.1)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        assert intake.held == 0
        return [type(task.exception()) for task in done]

    assert asyncio.run(statuses(an_intake(max_bytes=100, in_all=14))) == [Overloaded]
    assert asyncio.run(statuses(an_intake(max_bytes=100, of_one=7))) == [TenantBusy, TenantBusy]


def test_a_body_may_be_slow_but_not_stand_still_or_trickle() -> None:
    def check(part_bytes: int, pause_s: float, *, comes: bool) -> None:
        intake = an_intake(max_bytes=1 << 20, in_all=1 << 20, of_one=1 << 20, pause_s=0.2)
        give = pieces([b"x" * part_bytes] * 10)

        async def slowly() -> Message:
            await asyncio.sleep(pause_s)
            return await give()

        if comes:
            assert len(asyncio.run(intake.read(slowly, "acme"))) == 10 * part_bytes
        else:
            with pytest.raises(Stalled, match=r"http\.body_timeout_s"):
                asyncio.run(intake.read(slowly, "acme"))
        assert intake.held == 0

    check(LEAST_BYTES_PER_S, 0.05, comes=True)
    check(1, 0.05, comes=False)
    check(LEAST_BYTES_PER_S, 0.4, comes=False)


def test_outcomes_from_many_threads_all_arrive() -> None:
    async def run() -> list[Outcome]:
        completions = Completions(asyncio.get_running_loop())
        futures = [completions.future() for _ in range(400)]

        def put(part: int) -> None:
            for i in range(part, 400, 4):
                completions.put(futures[i], Outcome(i))

        threads = [threading.Thread(target=put, args=(part,)) for part in range(4)]
        for thread in threads:
            thread.start()
        outcomes = await asyncio.wait_for(asyncio.gather(*futures), 10)
        for thread in threads:
            thread.join()
        return outcomes

    assert [outcome.accepted for outcome in asyncio.run(run())] == list(range(400))


def test_an_outcome_that_nobody_waits_for_harms_nothing() -> None:
    async def cancelled() -> Completions:
        completions = Completions(asyncio.get_running_loop())
        future = completions.future()
        future.cancel()
        completions.put(future, Outcome(1))
        await asyncio.sleep(0)
        return completions

    loop = asyncio.new_event_loop()
    completions = loop.run_until_complete(cancelled())
    future = completions.future()
    loop.close()
    completions.put(future, Outcome(1))  # the loop has ended


def test_refusals_are_listed_by_position() -> None:
    outcome = Outcome(3, [Refusal("name", "bad name", [1, 5]), Refusal("time", "bad time", [0, 4])])
    said = refused(outcome)
    assert (said["accepted"], said["refused"]) == (3, 4)
    assert [(r["index"], r["code"]) for r in said["refusals"]] == [(0, "time"), (1, "name"), (4, "time"), (5, "name")]
    assert "more" not in said
    assert str(partial_write(outcome)) == "partial write: bad time dropped=4"


def test_a_long_list_of_refusals_is_cut_and_counted() -> None:
    outcome = Outcome(0, [Refusal("name", "bad", list(range(0, 3000, 2))), Refusal("time", "bad", list(range(1, 3000, 2)))])
    said = refused(outcome)
    assert [r["index"] for r in said["refusals"]] == list(range(1000))
    assert said["more"] == 2000
