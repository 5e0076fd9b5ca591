"""What blocks cost: bytes and core-microseconds per metric, reading in part and whole, beside Parquet and Arrow.

    python -m bench.blocks [--quick] [--only mixed|trucks]

Two fleets of the simulator, an hour of reports each 10 s: the machines of a factory, and trucks. No store, no server. Files
of the other formats are in memory, too, with the same rows in the same order. Costs are of one core; medians of some rounds.
"""

from __future__ import annotations

import argparse
import io
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from bench.lib.figures import Figures

from widerow.blocks.arrange import of_batch
from widerow.blocks.block import Block
from widerow.blocks.columns import CODED, Columns
from widerow.blocks.merge import merge
from widerow.blocks.pack import pack
from widerow.simulate.fleet import Fleet

START_US = 1_700_035_200_000_000  # a working day at noon
REPORTS = 360
GROUP = 64
FLEETS: dict[str, tuple[str, ...] | None] = {"mixed": None, "trucks": ("truck",)}
ONE = {"mixed": "temperature", "trucks": "velocity"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.blocks", description="What blocks cost.")
    parser.add_argument("--quick", action="store_true", help="small and once, to see that it works")
    parser.add_argument("--only", choices=sorted(FLEETS), help="one of the fleets")
    options = parser.parse_args()
    figures = Figures("blocks", vars(options))
    rounds, devices = (1, 256) if options.quick else (7, 10_000)
    for name, kinds in FLEETS.items():
        if options.only in (None, name):
            measure(figures, "" if name == "mixed" else f"{name}_", name, kinds, rounds, devices)
    print(f"saved to {figures.save()}")


def measure(figures: Figures, prefix: str, name: str, kinds: tuple[str, ...] | None, rounds: int, devices: int) -> None:
    def add(figure: str, value: float, unit: str) -> None:
        figures.add(f"blocks_{prefix}{figure}", value, unit)

    fleet = Fleet(1, GROUP, start_us=START_US, kinds=kinds)
    columns = of_batch(fleet.made(range(REPORTS)))
    metrics = columns.count
    dense, quick = pack(columns, dense=True), pack(columns, dense=False)
    add("dense_bytes_per_metric", total(dense) / metrics, "B")
    add("quick_bytes_per_metric", total(quick) / metrics, "B")
    add("encode_us_per_metric", core_us(rounds, lambda: pack(columns, dense=True)) / metrics, "us")
    add("read_us_per_metric", core_us(rounds, lambda: [Block(block).read() for block in dense]) / metrics, "us")
    small = of_batch(Fleet(1, 50, start_us=START_US, kinds=kinds).made(range(1)))
    add("quick_50_bytes_per_metric", total(pack(small, dense=False)) / small.count, "B")
    add("quick_50_us_per_metric", core_us(20 * rounds, lambda: pack(small, dense=False)) / small.count, "us")
    one = small.part(0, 1).compacted()
    add("quick_1_us", core_us(50 * rounds, lambda: pack(one, dense=False)), "us")
    of_devices(add, columns, dense, rounds)
    of_others(add, columns, rounds)
    of_merging(add, kinds, rounds)
    add("threads_ratio", threads_ratio(rounds, lambda: pack(columns, dense=True)), "times")
    add("threads_read_ratio", threads_ratio(rounds, lambda: [Block(block).read() for block in dense]), "times")
    of_one_metric(add, name, kinds, rounds, devices)


def of_devices(add: Any, columns: Columns, dense: list[bytes], rounds: int) -> None:
    """One device-hour, opening its block each time; and opening alone."""
    homes = {device: block for block in dense for device in Block(block).devices}
    names = list(columns.devices)[::3]
    add("one_device_ms", median(1e3 * seconds(partial(read_one, homes, name)) for name in names * rounds), "ms")
    opened = {device: Block(block) for device, block in homes.items()}
    add("one_device_opened_ms", median(1e3 * seconds(partial(read_one, opened, name)) for name in names * rounds), "ms")
    add("open_us", 1e6 * median(seconds(lambda: Block(dense[0])) for _ in range(20 * rounds)), "us")


def read_one(homes: Mapping[str, bytes | Block], device: str) -> Columns:
    home = homes[device]
    return (home if isinstance(home, Block) else Block(home)).read([device])


def of_others(add: Any, columns: Columns, rounds: int) -> None:
    """The same rows in Parquet at its best in size, and as an Arrow file with zstd."""
    table, metrics = table_of(columns), columns.count
    parquet, arrow = parquet_of(table), arrow_of(table)
    add("parquet_bytes_per_metric", len(parquet) / metrics, "B")
    add("arrow_bytes_per_metric", len(arrow) / metrics, "B")
    add("parquet_encode_us_per_metric", core_us(rounds, lambda: parquet_of(table)) / metrics, "us")
    add("arrow_encode_us_per_metric", core_us(rounds, lambda: arrow_of(table)) / metrics, "us")
    name = columns.devices[5]

    def one_device() -> Any:
        return pq.read_table(io.BytesIO(parquet), filters=ds.field("device") == name, use_threads=False)

    assert one_device().num_rows == columns.offsets[6] - columns.offsets[5]
    add("parquet_one_device_ms", 1e3 * median(seconds(one_device) for _ in range(5 * rounds)), "ms")
    add(
        "parquet_read_us_per_metric",
        core_us(rounds, lambda: pq.read_table(io.BytesIO(parquet), use_threads=False)) / metrics,
        "us",
    )


def of_merging(add: Any, kinds: tuple[str, ...] | None, rounds: int) -> None:
    """A hundred blocks of 5,000 reports each in order of arrival, into columns by device; and these as blocks."""
    count, reports = (10, 500) if rounds == 1 else (100, 5_000)
    fleet = Fleet(2, 2 * reports, start_us=START_US, kinds=kinds)
    arrived = [
        block
        for part in range(count)
        for block in pack(of_batch(fleet.batch(part // 2, slice(part % 2 * reports, (part % 2 + 1) * reports))), dense=True)
    ]
    metrics = sum(Block(block).header.values for block in arrived)
    rounds = min(rounds, 3)
    add("merge_us_per_metric", core_us(rounds, lambda: list(merge([Block(block) for block in arrived]))) / metrics, "us")
    whole = list(merge([Block(block) for block in arrived]))
    packing = core_us(rounds, lambda: [pack(columns, dense=True) for columns in whole])
    add("merged_pack_us_per_metric", packing / metrics, "us")


def of_one_metric(add: Any, name: str, kinds: tuple[str, ...] | None, rounds: int, devices: int) -> None:
    """One metric of the whole fleet, hour of each device, from blocks of some devices each."""
    fleet, blocks = Fleet(3, devices, start_us=START_US, kinds=kinds), []
    for first in range(0, devices, 4 * GROUP):
        blocks += pack(of_batch(fleet.made(range(REPORTS), slice(first, first + 4 * GROUP))), dense=True)
    opened = [Block(block) for block in blocks]
    found = sum(block.read(metrics=[ONE[name]]).count for block in opened)
    add("one_metric_values", found, "values")
    add("one_metric_ms", core_us(min(rounds, 3), lambda: [Block(b).read(metrics=[ONE[name]]) for b in blocks]) / 1e3, "ms")


def table_of(columns: Columns) -> Any:
    """A column for each metric, null where a report has none; devices are a dictionary."""
    devices = pa.DictionaryArray.from_arrays(pa.array(columns.device_rows()), pa.array(list(columns.devices)))
    found = {
        "device": devices,
        "time": pa.array(columns.time_us, pa.timestamp("us")),
        "version": pa.array(columns.version_us),
    }
    texts = columns.texts.to_list()
    for head in columns.heads:
        missing = np.ones(len(columns), np.bool_)
        missing[head.rows] = False
        if head.kind in CODED:
            codes = np.zeros(len(columns), np.int32)
            codes[head.rows] = head.values
            values = pa.DictionaryArray.from_arrays(pa.array(codes, mask=missing), pa.array(texts))
        else:
            numbers = np.zeros(len(columns))
            numbers[head.rows] = head.values.view(np.float64)
            values = pa.array(numbers, mask=missing)
        found[f"{head.kind.name}:{columns.names[head.name]}"] = values
    return pa.table(found)


def parquet_of(table: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, compression="zstd", compression_level=3, use_dictionary=True)
    return out.getvalue()


def arrow_of(table: Any) -> bytes:
    out = io.BytesIO()
    with pa.ipc.new_file(out, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)) as writer:
        writer.write_table(table)
    return out.getvalue()


def threads_ratio(rounds: int, work: Callable[[], object]) -> float:
    """How much more two threads do than one, each all of the work."""
    ratios = []
    with ThreadPoolExecutor(2) as pool:
        for _ in range(max(1, rounds // 2)):
            alone = seconds(lambda: [work(), work()])
            both = seconds(lambda: list(pool.map(lambda _: work(), range(2))))
            ratios.append(alone / both)
    return median(ratios)


def total(blocks: list[bytes]) -> int:
    return sum(map(len, blocks))


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def core_us(rounds: int, work: Callable[[], object]) -> float:
    """Microseconds of processor time, those of libraries' own threads among them."""
    taken = []
    for _ in range(rounds):
        began = time.process_time()
        work()
        taken.append(1e6 * (time.process_time() - began))
    return median(taken)


if __name__ == "__main__":
    main()
