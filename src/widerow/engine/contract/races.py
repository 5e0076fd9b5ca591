"""Laws of threads: an engine is shared, and nothing is lost or done twice."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from threading import Barrier
from typing import TypeVar

from widerow.engine.contract.plain import fixed_rows, keys, logical, sparse_rows
from widerow.engine.contract.tables import CONDITIONAL, SPARSE, V1, V2, A
from widerow.engine.port import Engine
from widerow.engine.rows import rows_of

T = TypeVar("T")

THREADS = 8


def at_once(work: Callable[[int], T]) -> list[T]:
    """What each of 8 threads made of it, all started together."""
    barrier = Barrier(THREADS)

    def run(me: int) -> T:
        barrier.wait(timeout=30)
        return work(me)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(run, range(THREADS)))


class RaceLaws:
    def test_of_many_inserters_exactly_one_wins_each_key(self, engine: Engine) -> None:
        names = [f"n{i:03}" for i in range(200)]

        def insert_all(me: int) -> list[str]:
            order = Random(me).sample(names, len(names))  # noqa: S311
            won = []
            for i in range(0, len(order), 20):
                mine = order[i : i + 20]
                rows = rows_of(CONDITIONAL, [(("p", name), {"revision": float(me)}) for name in mine], version_us=V1)
                won += [name for name, new in zip(mine, engine.insert(CONDITIONAL, rows).tolist(), strict=True) if new]
            return won

        winners = {name: me for me, won in enumerate(at_once(insert_all)) for name in won}
        assert sorted(winners) == names
        assert fixed_rows(engine, CONDITIONAL, None) == {("p", name): {"revision": float(winners[name])} for name in names}

    def test_put_if_loses_no_increment(self, engine: Engine) -> None:
        each = 12
        key = ("p", "counter")
        assert engine.put_if(CONDITIONAL, key, {"revision": 0.0}, None)

        def increment(_: int) -> int:
            tries = 0
            for _ in range(each):
                while True:
                    tries += 1
                    seen = fixed_rows(engine, CONDITIONAL, [("p",)])[key]
                    if engine.put_if(CONDITIONAL, key, {"revision": float(seen["revision"]) + 1}, seen):
                        break
            return tries

        assert sum(at_once(increment)) >= THREADS * each
        assert fixed_rows(engine, CONDITIONAL, None) == {key: {"revision": float(THREADS * each)}}

    def test_threads_write_side_by_side(self, engine: Engine) -> None:
        def write(me: int) -> int:
            for n in range(20):
                rows = [((*A, n), {f"t{me}": 1.0, "all": float(me)}), (("own", me, n), {"t": 1.0})]
                engine.write([(SPARSE, sparse_rows(SPARSE, rows, version_us=V1 if me % 2 else V2))])
                assert ("own", me) in logical(engine, SPARSE, [("own", me), A]), "a thread sees its own writes"
            return me

        at_once(write)
        found = logical(engine, SPARSE, None)
        assert {at: keys(rows) for at, rows in found.items()} == {
            at: [(n,) for n in reversed(range(20))] for at in (A, *(("own", me) for me in range(THREADS)))
        }
        for _, cells in found[A]:
            assert set(cells) == {"all", *(f"t{me}" for me in range(THREADS))}
            assert cells["all"].version_us == V2

    def test_a_scan_is_whole_while_others_write(self, engine: Engine) -> None:
        rows = [((*A, n), {"t": 1.0}) for n in range(1000)]
        engine.write([(SPARSE, sparse_rows(SPARSE, rows, version_us=V1))])

        def work(me: int) -> set[int]:
            if me % 2:
                for n in range(10):
                    new = [((*A, 1000 + 100 * n + me), {"t": 2.0}), ((*A, n), {"u": 2.0})]
                    engine.write([(SPARSE, sparse_rows(SPARSE, new, version_us=V2))])
                return set(range(1000))
            return {int(key[0]) for _ in range(3) for key in keys(logical(engine, SPARSE, [A])[A])}

        assert all(seen >= set(range(1000)) for seen in at_once(work))
