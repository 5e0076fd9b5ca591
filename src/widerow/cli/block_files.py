"""Files of reports, and files of blocks: what `widerow blocks` reads, writes and compares."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from widerow.blocks.arrange import of_batch, to_batch
from widerow.blocks.block import Block, blocks_in
from widerow.blocks.merge import merge
from widerow.blocks.pack import pack
from widerow.cli.failure import Failed, Misused
from widerow.codec.arrow.decode import decode_table
from widerow.codec.decoded import Decoded
from widerow.codec.line import LineDecoder
from widerow.model.batch import Batch, CellKind
from widerow.model.errors import Corrupt
from widerow.model.merge import merge as merged
from widerow.model.sizes import batch_bytes
from widerow.simulate.encode import encode_arrow_long, encode_arrow_wide, encode_line

SUFFIXES = (".parquet", ".lp")
_MEASUREMENT = "report"
"""Of lines that are written: blocks have none."""


def read_reports(path: Path, now_us: int) -> Decoded:
    """The reports of a Parquet file or of a file of line protocol. They are received now unless they say otherwise."""
    received_us, data = now_us - now_us % 1000, path.read_bytes()
    if path.suffix == ".lp":
        return LineDecoder().decode(data, now_us=now_us, version_us=received_us)
    try:
        table = pq.ParquetFile(pa.BufferReader(data)).read()
    except pa.ArrowException as error:
        raise Failed(f"{path} is no Parquet file: {str(error)[:200]}", code="file") from None
    return decode_table(table, now_us=now_us, version_us=received_us, latest_us=received_us)


def checked_suffix(path: Path) -> Path:
    if path.suffix not in SUFFIXES:
        raise Misused(f"{path}: the name of a file of reports ends in {' or '.join(SUFFIXES)}")
    return path


def apart(path: Path, out: Path) -> Path:
    """The path, if writing `out` leaves the file as it is."""
    if out.exists() and path.exists() and out.samefile(path):
        raise Misused(f"{out} would replace {path}, which is read", todo="give OUT another name")
    return path


def reports_as(path: Path, batch: Batch) -> bytes:
    """The reports as a file of the kind that the name asks for."""
    if path.suffix == ".lp":
        return encode_line(batch, [_MEASUREMENT] * len(batch.device.names))
    sink = pa.BufferOutputStream()
    pq.write_table(_table(batch), sink, compression="zstd", compression_level=3)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def _table(batch: Batch) -> Any:
    """A column for each metric; a row for each value where a metric is both number and text. Versions stand beside."""
    try:
        body, rows = encode_arrow_wide(batch), np.arange(len(batch))
    except ValueError:
        body, rows = encode_arrow_long(batch), batch.cells.rows()[batch.cells.kind != CellKind.TAG]
    table = pa.ipc.open_stream(body).read_all()
    return table.append_column("version_us", pa.array(batch.version_us[rows]))


@contextmanager
def blocks_of_file(path: Path) -> Iterator[Iterator[Block]]:
    """The blocks of a file. What is wrong with them is said with its name."""
    try:
        yield blocks_in(path.read_bytes())
    except Corrupt as error:
        raise Failed(f"{path}: {error}", code=error.code) from None


def blocks_of(batch: Batch, *, dense: bool) -> list[bytes]:
    """The reports as blocks, each cell with the value that wins."""
    return [block for columns in merge([of_batch(batch)]) for block in pack(columns, dense=dense)]


def batch_of_blocks(path: Path) -> Batch:
    """All blocks of a file merged, as reports in order of device and time."""
    with blocks_of_file(path) as blocks:
        parts = [to_batch(columns) for columns in merge(list(blocks))]
    if not parts:
        raise Failed(f"{path} has no reports", code="file")
    return merged(parts)


def sizes(batch: Batch, blocks: list[bytes]) -> dict[str, int]:
    """What the reports take as rows of a store before compression, as Parquet, and as blocks."""
    parquet = reports_as(Path("compared.parquet"), batch)
    return {"rows": batch_bytes("tenant", batch), "Parquet": len(parquet), "blocks": sum(map(len, blocks))}
