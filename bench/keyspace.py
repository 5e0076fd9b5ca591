"""What it costs to sample the live key space: by batch, by question, by interval, and in pairs of commits with and without.

    python -m bench.keyspace [--quick] [--pairs 300]

Batches are of 1, 50 and 5,000 reports of 10,000 devices, and of 5,000 of 1,000,000. Intervals are the busiest there are: as
many samples as are kept. Pairs are commits of 5,000 reports of 10 metrics to RocksDB, each synced; which of a pair samples
is drawn, so that whatever drifts hits both alike. Means and pairs are the thread's own time, since others want the
processors, too.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from statistics import fmean, median, stdev

import numpy as np
from bench.lib.figures import Figures

from widerow.config import Config, Store
from widerow.model.batch import Batch, Cells
from widerow.model.errors import Refusal, WiderowError
from widerow.model.names import Coded, Names
from widerow.model.tenant import Tenant
from widerow.model.times import MS, SECOND
from widerow.ops.keyspace import EVERY_S, KeySpace
from widerow.pipeline.job import Job
from widerow.pipeline.store_sink import StoreSink
from widerow.service import Service

METRICS = Names.of([f"metric_{n}" for n in range(10)])
MOST_US = 20.0
"""What sampling a batch may take."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.keyspace", description="What it costs to sample the live key space.")
    parser.add_argument("--rounds", type=int, default=20_000, help="batches and questions of each kind")
    parser.add_argument("--pairs", type=int, default=300, help="pairs of commits")
    parser.add_argument("--quick", action="store_true", help="few of all: to see that it works")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.pairs = 500, 10
    figures, chance = Figures("keyspace", vars(options)), np.random.default_rng(1)
    space = KeySpace(0, seed=1)
    for name, reports, devices in (
        ("1", 1, 10_000),
        ("50", 50, 10_000),
        ("5k", 5_000, 10_000),
        ("5k_of_1m", 5_000, 1_000_000),
    ):
        batches = [batch_of(chance, reports, devices, i) for i in range(4)]
        mean_us = timed(figures, f"keyspace_batch_{name}", options.rounds, partial(write, space, batches))
        assert mean_us < MOST_US, f"sampling a batch of {name} takes {mean_us:.1f} us"
    timed(figures, "keyspace_question_1", options.rounds, lambda _: space.read("acme", ["press-000017"]))
    many = [f"press-{i:06d}" for i in range(10_000)]
    timed(figures, "keyspace_question_10k", options.rounds // 20, lambda _: space.read("acme", many))
    intervals(figures, chance)
    pairs(figures, chance, options.pairs)
    print(f"written to {figures.save()}")


def write(space: KeySpace, batches: list[Batch], i: int) -> None:
    space.wrote("acme", batches[i % len(batches)])


def timed(figures: Figures, name: str, rounds: int, work: Callable[[int], None]) -> float:
    for i in range(50):
        work(i)
    took, began_ns = [], time.thread_time_ns()
    for i in range(rounds):
        began = time.perf_counter_ns()
        work(i)
        took.append((time.perf_counter_ns() - began) / 1000)
    mean_us = (time.thread_time_ns() - began_ns) / 1000 / rounds
    figures.add(f"{name}_mean_us", mean_us, "us")
    figures.add(f"{name}_p99_us", float(np.percentile(took, 99)), "us")
    return mean_us


def intervals(figures: Figures, chance: np.random.Generator) -> None:
    space, batches, took = KeySpace(0, seed=1), [batch_of(chance, 5_000, 1_000_000, i) for i in range(8)], []
    for turn in range(15):
        for i in range(160):
            space.wrote("acme", batches[i % 8])
        began_ns = time.thread_time_ns()
        space.fold(turn * EVERY_S * SECOND)
        took.append((time.thread_time_ns() - began_ns) / 1e6)
    figures.add("keyspace_interval_mean_ms", fmean(took[1:]), "ms")
    began_ns = time.thread_time_ns()
    space.view(15 * EVERY_S * SECOND)
    figures.add("keyspace_view_ms", (time.thread_time_ns() - began_ns) / 1e6, "ms")


def pairs(figures: Figures, chance: np.random.Generator, count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        config = Config(store=Store(url=f"rocksdb:{folder}/store", reserve_mib=0))
        with Service.open(config) as service:
            tenant, sink = service.create_tenant(Tenant(name="acme")), service.pipeline._sink  # noqa: SLF001
            assert isinstance(sink, StoreSink)
            heard, now_us = sink._heard, service.clock.now_us() // MS * MS  # noqa: SLF001

            def commit(i: int, *, sampled: bool) -> float:
                sink._heard = heard if sampled else lambda _tenant, _batch: None  # noqa: SLF001
                batch = batch_of(chance, 5_000, 10_000, now_us - i * SECOND)
                job = Job(tenant, 1, lambda: None, lambda _: None, batch=batch)  # type: ignore[arg-type, return-value]
                began_ns = time.thread_time_ns()
                sink.commit([("acme", [job])], check)
                return (time.thread_time_ns() - began_ns) / 1e6

            for i in range(5):
                commit(i, sampled=True)
            took: dict[bool, list[float]] = {True: [], False: []}
            for i in range(count):
                first = random.random() < 0.5
                for sampled in (first, not first):
                    took[sampled].append(commit(5 + i, sampled=sampled))
    for sampled, name in ((True, "with"), (False, "without")):
        figures.add(f"keyspace_commit_{name}_ms", median(took[sampled]), "ms")
    differences = [a - b for a, b in zip(took[True], took[False], strict=True)]
    figures.add("keyspace_commit_difference_ms", median(differences), "ms")
    figures.add("keyspace_commit_difference_error_ms", 1.25 * stdev(differences) / len(differences) ** 0.5, "ms")


def check(job: Job, refused: Sequence[Refusal], error: WiderowError | None) -> None:  # noqa: ARG001
    assert not refused
    assert error is None, error


def batch_of(chance: np.random.Generator, reports: int, devices: int, time_us: int) -> Batch:
    """Reports of some of the devices, a batch's dictionary with those alone."""
    chosen, codes = np.unique(chance.integers(0, devices, reports), return_inverse=True)
    names = Names.of([f"press-{i:07d}" for i in chosen.tolist()])
    n, cells = len(codes), 10 * len(codes)
    times = np.full(n, time_us, np.int64) + np.arange(n)
    return Batch(
        Coded(names, codes.astype(np.int32)),
        times,
        np.full(n, time_us // MS * MS, np.int64),
        np.arange(n, dtype=np.int32),
        Cells.numbers(
            np.arange(0, cells + 1, 10, dtype=np.int64),
            METRICS,
            np.tile(np.arange(10, dtype=np.int32), n),
            chance.random(cells),
        ),
    )


if __name__ == "__main__":
    main()
