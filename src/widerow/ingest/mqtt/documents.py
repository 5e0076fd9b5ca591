"""Many payloads into one batch, while the decoder reads them one by one. Gone as soon as it reads many."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from widerow.codec.decoded import Decoded
from widerow.codec.json import JsonDecoder
from widerow.model.arrays import Bytes, Ints
from widerow.model.batch import Batch
from widerow.model.errors import Refusal
from widerow.model.names import Coded


def decode_documents(
    decoder: JsonDecoder, data: Bytes, offsets: Ints, devices: Coded, *, now_us: int, version_us: int
) -> Decoded:
    """Positions are numbers of documents."""
    many = getattr(decoder, "decode_documents", None)
    if many is not None:
        found: Decoded = many(data, offsets, devices, now_us=now_us, version_us=version_us)
        return found
    reports: list[Any] = []
    owner: list[int] = []
    refusals: list[Refusal] = []
    for i, device in enumerate(devices.to_list()):
        try:
            content = json.loads(data[offsets[i] : offsets[i + 1]].tobytes())
            if not isinstance(content, (dict, list)):
                raise TypeError("neither an object nor an array")
        except (ValueError, TypeError, RecursionError) as error:
            refusals.append(Refusal("syntax", str(error), [i]))
            continue
        for report in content if isinstance(content, list) else [content]:
            if isinstance(report, dict) and report.setdefault("device", device) != device:
                refusals.append(Refusal("wrong-device", f"the topic is of {device!r}, the report of another", [i]))
                continue
            reports.append(report)
            owner.append(i)
    body = json.dumps(reports).encode()
    decoded = decoder.decode(body, ndjson=False, now_us=now_us, version_us=version_us)
    places = np.array(owner, np.int32)
    refusals += [Refusal(r.code, r.reason, places[np.asarray(r.positions)].tolist()) for r in decoded.refusals]
    batch = decoded.batch
    mapped = Batch(batch.device, batch.time_us, batch.version_us, places[batch.position], batch.cells)
    return Decoded(mapped, tuple(refusals))
