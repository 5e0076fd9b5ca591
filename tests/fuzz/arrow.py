"""Hostile Arrow: good streams of every form, with bytes flipped, cut, doubled and inserted. An answer is always given.

Run many with `PYTHONPATH=tests python -m fuzz.arrow 100000`.
"""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np
import pyarrow as pa

from widerow.codec.arrow import decode_arrow, encode_arrow
from widerow.codec.decoded import Decoded
from widerow.model.batch import CellKind, Report, batch_of, reports_of
from widerow.model.check import metric_fault, name_fault
from widerow.model.errors import Rejected
from widerow.model.times import MAX_TIME_US

NOW_US = VERSION_US = 1_763_193_600_000_000


def stream(table: Any, compression: str | None = None) -> bytes:
    """A table as an IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table, max_chunksize=3)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def good_streams() -> list[bytes]:
    """One of each form, plain and compressed."""
    n = 8
    head = {
        "device": pa.array(["a", "b", "c", None] * 2).dictionary_encode(),
        "time": pa.array(range(n), pa.timestamp("ms", "UTC")),
        "version_us": pa.array([1_000 * i for i in range(n)], pa.int64()),
        "tag:site": pa.array(["x", None] * 4),
    }
    wide = pa.table(
        {
            **head,
            "Temp": pa.array([i / 3 for i in range(n)]),
            "Count": pa.array(range(n), pa.int16()),
            "On": pa.array([True, None] * 4),
            "State": pa.array(["run", "stop", None, "run"] * 2, pa.string_view()),
        }
    )
    long = pa.table(
        {**head, "metric": pa.array(["t", "u"] * 4), "value": pa.array([1.0, None] * 4), "text": pa.array([None, "x"] * 4)}
    )
    reports = [Report(f"d{i % 3}", i, {"x": float(i), "s": f"t{i % 2}"}, {"k": "v"}, 1_000) for i in range(n)]
    tables = [stream(table, how) for table in (wide, long) for how in (None, "zstd", "lz4")]
    return [*tables, encode_arrow(batch_of(reports))]


def mutated(rng: random.Random, body: bytes) -> bytes:
    at = rng.randrange(len(body))
    choice = rng.randrange(5)
    if choice == 0:
        return body[:at]
    if choice == 1:
        return body[:at] + rng.randbytes(rng.choice((1, 2, 4, 8))) + body[at:]
    if choice == 2:
        return body[:at] + body[at + rng.choice((1, 2, 4, 8)) :]
    out = bytearray(body)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(len(out))
        out[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256), out[at] ^ (1 << rng.randrange(8))))
    return bytes(out)


def check_sound(decoded: Decoded) -> None:
    """What every later stage relies on."""
    batch, cells = decoded.batch, decoded.batch.cells
    assert len(cells.offsets) == len(batch) + 1
    assert cells.offsets[0] == 0
    assert cells.offsets[-1] == len(cells)
    assert (np.diff(cells.offsets) > 0).all()
    is_number = cells.kind == CellKind.NUMBER
    assert np.isfinite(cells.number[is_number]).all()
    assert (cells.text[~is_number] >= 0).all()
    assert ((batch.time_us >= 0) & (batch.time_us <= MAX_TIME_US)).all()
    assert (batch.version_us <= VERSION_US).all()
    for report in reports_of(batch):
        assert not any(name_fault(name) for name in (report.device, *report.tags))
        assert not any(metric_fault(name) for name in report.values)
        assert report.values
    refused = [position for refusal in decoded.refusals for position in refusal.positions]
    assert len(refused) == len(set(refused))
    assert not set(refused) & set(batch.position.tolist())


def fuzz_arrow(count: int, seed: int) -> int:
    """How many of the inputs could be read after all. Raises AssertionError where a decoded batch is unsound."""
    rng = random.Random(seed)
    bodies = good_streams()
    read = 0
    for _ in range(count):
        body = mutated(rng, rng.choice(bodies)) if rng.random() < 0.95 else rng.randbytes(rng.randrange(200))
        try:
            decoded = decode_arrow(body, now_us=NOW_US, version_us=VERSION_US)
        except Rejected:
            continue
        check_sound(decoded)
        read += 1
    return read


if __name__ == "__main__":
    print(fuzz_arrow(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
