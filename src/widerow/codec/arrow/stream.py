"""From the bytes of an IPC stream to a table that can be trusted.

Rule 1: nothing is allocated on the sender's word. What compressed buffers claim to hold is added up before they are opened.
Rule 2: every offset, index and UTF-8 text is validated, so that what follows may index without looking.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa

from widerow.model.errors import Rejected, TooLarge

MAX_REPORTS = 1_000_000
MAX_BYTES = 256 << 20
"""What the buffers of a stream may hold once decompressed."""
MAX_COLUMNS = 10_000

_RECORD_BATCH, _DICTIONARY_BATCH = 3, 2
_BROKEN = (pa.ArrowException, OSError, ValueError, OverflowError, struct.error)


def read_table(body: bytes, max_rows: int, max_bytes: int) -> Any:
    """The stream as one table. Raises Rejected (`syntax`) and TooLarge."""
    try:
        _check_claims(body, max_bytes)
        with pa.ipc.open_stream(body) as reader:
            if len(reader.schema) > MAX_COLUMNS:
                raise TooLarge(f"the stream has {len(reader.schema)} columns; up to {MAX_COLUMNS} are read")
            batches, rows = [], 0
            for batch in reader:
                rows += batch.num_rows
                if rows > max_rows:
                    raise TooLarge(f"the stream has more than {max_rows} rows; send several smaller ones")
                batch.validate(full=True)
                batches.append(batch)
            return pa.Table.from_batches(batches, reader.schema).unify_dictionaries()
    except _BROKEN as error:
        raise Rejected(f"the body is no Arrow IPC stream: {str(error)[:200]}", code="syntax") from None


def _check_claims(body: bytes, max_bytes: int) -> None:
    """Refuse a stream whose compressed buffers claim to hold too much."""
    claimed = 0
    for message in pa.ipc.MessageReader.open_stream(body):
        if message.type in {"record batch", "dictionary"} and message.body is not None:
            claimed += _claimed_bytes(message.metadata.to_pybytes(), memoryview(message.body))
        if claimed > max_bytes:
            raise TooLarge(f"the stream decompresses to more than {max_bytes} bytes; send several smaller ones")


def _claimed_bytes(metadata: bytes, content: memoryview) -> int:
    """How much the compressed buffers of a message hold, by their own account (Arrow's Message.fbs, BodyCompression)."""
    message = _follow(metadata, 0)
    header = _follow(metadata, _field(metadata, message, 2))
    if metadata[_field(metadata, message, 1)] == _DICTIONARY_BATCH:
        header = _follow(metadata, _field(metadata, header, 1))
    buffers = _field(metadata, header, 2)
    if not buffers or not _field(metadata, header, 3):
        return 0
    vector = _follow(metadata, buffers)
    (count,) = struct.unpack_from("<I", metadata, vector)
    places = np.frombuffer(metadata, "<i8", 2 * count, vector + 4).reshape(-1, 2).tolist()
    return sum(max(0, struct.unpack_from("<q", content, start)[0]) for start, length in places if length >= 8)


def _follow(data: bytes, at: int) -> int:
    """Where the offset at a place of a flatbuffer points to."""
    return at + int(struct.unpack_from("<I", data, at)[0])


def _field(data: bytes, table: int, number: int) -> int:
    """The place of a field of a flatbuffer's table, 0 where it is absent."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    (size,) = struct.unpack_from("<H", data, vtable)
    entry = 4 + 2 * number
    if entry >= size:
        return 0
    (offset,) = struct.unpack_from("<H", data, vtable + entry)
    return table + offset if offset else 0
