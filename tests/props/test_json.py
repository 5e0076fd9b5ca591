"""Laws of the JSON decoder: it agrees with the plain reference, whatever the body."""

from __future__ import annotations

import json
import struct
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.json import NOW_US, VERSION_US, differs
from widerow.codec.json import JsonDecoder
from widerow.model.batch import Report, reports_of

DECODER = JsonDecoder(seed=7)

names = st.text(st.characters(blacklist_categories=["Cc", "Cs"]), min_size=1, max_size=20)
floats = st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(blacklist_categories=["Cs"]), max_size=30)
good = st.builds(
    Report,
    device=names,
    time_us=st.integers(0, 1 << 43).map(lambda ms: ms * 1_000),
    values=st.dictionaries(names, floats | texts, min_size=1, max_size=6),
    tags=st.dictionaries(names, texts, max_size=3),
    version_us=st.just(VERSION_US),
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
odd = st.dictionaries(
    st.sampled_from(["device", "time", "values", "tags", "Values"]), anything | st.dictionaries(names, anything)
)
styles = st.fixed_dictionaries(
    {
        "ensure_ascii": st.booleans(),
        "indent": st.sampled_from([None, 0, 2]),
        "separators": st.sampled_from([None, (",", ":")]),
    }
)


def plain(report: Report) -> dict[str, Any]:
    return {"device": report.device, "time": report.time_us // 1_000, "values": report.values, "tags": report.tags}


@given(st.lists(good, max_size=5), styles)
def test_good_reports_come_back_equal(reports: list[Report], style: dict[str, Any]) -> None:
    body = json.dumps([plain(report) for report in reports], **style).encode()
    decoded = DECODER.decode(body, ndjson=False, now_us=NOW_US, version_us=VERSION_US)
    assert decoded.refusals == ()
    assert reports_of(decoded.batch) == reports


@given(
    st.lists(good.map(plain) | odd | anything, max_size=5), styles, st.sampled_from(["s", "ms", "us", "ns"]), st.booleans()
)
def test_mixed_reports_agree_with_the_reference(
    reports: list[Any], style: dict[str, Any], precision: str, ndjson: bool
) -> None:
    if ndjson:
        style["indent"] = None
    parts = [json.dumps(report, **style).encode("utf-8", "surrogatepass") for report in reports]
    body = b"\n".join(parts) if ndjson else b"[" + b",".join(parts) + b"]"
    assert differs(DECODER, body, precision, ndjson) is None


@given(good.map(plain), st.data())
def test_mutated_bodies_agree_with_the_reference(report: dict[str, Any], data: st.DataObject) -> None:
    body = bytearray(json.dumps([report, report], ensure_ascii=data.draw(st.booleans())).encode())
    for at, byte in data.draw(st.lists(st.tuples(st.integers(0, len(body) - 1), st.integers(0, 255)), max_size=3)):
        body[at] = byte
    assert differs(DECODER, bytes(body), "ms", ndjson=False) is None
    assert differs(DECODER, bytes(body[1:-1]), "ms", ndjson=True) is None


@settings(max_examples=300)
@given(
    st.lists(
        floats | st.integers(0, 2**64 - 1).map(lambda bits: struct.unpack("<d", struct.pack("<Q", bits))[0]), min_size=1
    )
)
def test_floats_are_exact(numbers: list[float]) -> None:
    for text in (repr, "{:.17g}".format, "{:.16e}".format, "{:.20g}".format):
        finite = [n for n in numbers if n == n and abs(n) != float("inf")]  # noqa: PLR0124 - NaN is not itself
        values = ",".join(f'"m{i}":{text(n)}' for i, n in enumerate(finite) if abs(n) < 2**53)
        body = f'{{"device":"d","time":1,"values":{{"first":1{"," if values else ""}{values}}}}}'.encode()
        assert differs(DECODER, body, "ms", ndjson=False) is None
