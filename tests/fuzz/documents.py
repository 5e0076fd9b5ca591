"""Hostile JSON documents in one buffer: each must come out as the oracle reads it alone, whatever its neighbours are.

Run many with `PYTHONPATH=tests python -m fuzz.documents 100000`.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence

import numpy as np

from fuzz.json import NOW_US, PRECISIONS, VERSION_US, flat, make_body
from reference import json as reference
from widerow.codec.decoded import Decoded
from widerow.codec.json import JsonDecoder
from widerow.model.batch import Report
from widerow.model.errors import Rejected
from widerow.model.names import Coded, Names

DEVICES = ("a", "a", "press-7", "Conveyor/Batch Qty", "Temp°C", "ns=2;s=Temp", "", "x\ny", "\x85", "n" * 256, "n" * 257)
NONE_SAID = -1

Fates = tuple[list[tuple[int, int, Report]], list[tuple[int, str]]]
"""Kept reports and refused ones: positions with number of cells and content, positions with codes."""


def coded(devices: Sequence[str | None]) -> Coded:
    """A column of texts, some of them not there."""
    names = list(dict.fromkeys(device for device in devices if device is not None))
    return Coded(Names.of(names), np.array([NONE_SAID if d is None else names.index(d) for d in devices], np.int32))


def together(
    decoder: JsonDecoder, documents: Sequence[bytes], devices: Sequence[str | None], precision: str = "ms"
) -> Decoded:
    """The documents decoded in one go, in a buffer that has other things before and behind them."""
    offsets = np.cumsum([3, *map(len, documents)], dtype=np.int64)
    data = np.frombuffer(b'"a[' + b"".join(documents) + b'"}]', np.uint8)
    return decoder.decode_documents(data, offsets, coded(devices), precision=precision, now_us=NOW_US, version_us=VERSION_US)


def fates(decoded: Decoded) -> Fates:
    refused = [(int(position), refusal.code) for refusal in decoded.refusals for position in refusal.positions]
    return flat(decoded), sorted(refused)


def one_by_one(documents: Sequence[bytes], devices: Sequence[str | None], precision: str = "ms") -> Fates:
    """The same by the oracle."""
    kept: list[tuple[int, int, Report]] = []
    refused: list[tuple[int, str]] = []
    for i, (document, device) in enumerate(zip(documents, devices, strict=True)):
        try:
            found = reference.decode(
                document, precision=precision, ndjson=False, now_us=NOW_US, version_us=VERSION_US, device=device
            )
        except Rejected as error:
            refused.append((i, error.code))
            continue
        kept += [(i, cells, report) for _, cells, report in found.reports]
        refused += [(i, code) for _, code in found.refusals]
    return kept, sorted(refused)


def fuzz_documents(count: int, seed: int) -> None:
    """Raises AssertionError with the documents on the first disagreement."""
    rng = random.Random(seed)
    decoder = JsonDecoder()
    for _ in range(count):
        documents = [make_body(rng, ndjson=False) for _ in range(rng.choice((0, 1, 2, 5, 12)))]
        own = rng.choice(DEVICES)
        devices = [rng.choice((own, own, None, rng.choice(DEVICES))) for _ in documents]
        precision = rng.choice(PRECISIONS)
        found, wanted = fates(together(decoder, documents, devices, precision)), one_by_one(documents, devices, precision)
        assert found == wanted, f"{precision=} {devices=} {documents!r}: got {found}, want {wanted}"


if __name__ == "__main__":
    fuzz_documents(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
