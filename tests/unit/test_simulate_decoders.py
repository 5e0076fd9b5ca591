"""What the simulated fleet writes, the server's decoders read: the same reports, none refused.

The two sides share no code, so each is a check of the other.
"""

from dataclasses import replace

import pytest

from widerow.codec.arrow import decode_arrow
from widerow.codec.decoded import Decoded
from widerow.codec.json import JsonDecoder
from widerow.codec.line import LineDecoder, LineNaming
from widerow.model.batch import Batch, Report, batch_of, reports_of
from widerow.simulate.encode import FORMATS
from widerow.simulate.fleet import Fleet

TRUCKS = Fleet(5, 40, start_us=1_760_000_000_000_000, kinds=("truck",))
FLEET = Fleet(11, 300, start_us=1_760_000_000_000_000, duplicates=0.05, out_of_order=0.05)
ODD = [
    Report("Halle 3/Presse #7", 1_760_000_000_000_001, {"a b": 0.1, "x=y": 5e-324, "q,r": 'say "no"\\'}, {"t,1": "a = b"}),
    Report("back\\slash", 1_760_000_000_000_002, {"v": 1.7976931348623157e308, "n": -0.5681260027821038}, {"b": "\\o/"}),
    Report("Öl;ß", 3, {"state": "läuft\nnicht", "w": 123456789.123}, {"x": "ü", "y": "1"}),
]
NOW_US = 1_760_000_100_000_000
ATTRIBUTES = LineNaming(attribute_tags=("tool", "trailer", "t,1", "b", "x", "y"))


def decode(name: str, body: bytes) -> Decoded:
    if name == "line":
        return LineDecoder(ATTRIBUTES).decode(body, now_us=NOW_US, version_us=0)
    if "json" in name:
        return JsonDecoder().decode(body, precision="us", ndjson=name == "ndjson", now_us=NOW_US, version_us=0)
    return decode_arrow(body, now_us=NOW_US, version_us=0)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    ("batch", "types"),
    [(FLEET.batch(30), FLEET.types()), (TRUCKS.batch(9), TRUCKS.types()), (batch_of(ODD), ["a b", "c,d", "e"])],
)
def test_bodies_read_back(name: str, batch: Batch, types: list[str]) -> None:
    decoded = decode(name, FORMATS[name].encode(batch, types))
    assert decoded.refusals == ()
    want = reports_of(batch)
    if name == "line":
        measured = [types[code] for code in batch.device.codes]
        want = [
            replace(r, values={f"{measurement}_{metric}": value for metric, value in r.values.items()})
            for r, measurement in zip(want, measured, strict=True)
        ]
    order = decoded.batch.position.argsort(kind="stable")
    got = reports_of(decoded.batch.take(order))
    assert distinct(got) == distinct(want)


def distinct(reports: list[Report]) -> list[Report]:
    """In order, without exact repeats: the long form joins rows of one device and time into one report."""
    return list({repr(replace(r, values=dict(sorted(r.values.items())))): r for r in reports}.values())
