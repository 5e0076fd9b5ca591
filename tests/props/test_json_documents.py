"""Laws of many documents in one go: each comes out as it would alone, whatever its neighbours are."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.documents import fates, one_by_one, together
from fuzz.json import NOW_US, VERSION_US, flat
from props.test_json import anything, good, names, odd, plain, styles
from widerow.codec.json import JsonDecoder
from widerow.model.batch import Report, reports_of
from widerow.model.errors import Rejected
from widerow.model.names import Coded

DECODER = JsonDecoder(seed=7)
GOOD = b'{"time":1,"values":{"m":1}}'

pieces = st.lists(st.sampled_from([b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"1", b"\x00", b"\xc3", b"\xbc", b" "]))
broken = pieces.map(b"".join)


def without_device(report: Report) -> dict[str, Any]:
    fields = plain(report)
    del fields["device"]
    return fields


@given(st.lists(st.tuples(names, st.lists(good, max_size=3)), max_size=6), styles, st.booleans())
def test_a_document_is_decoded_as_if_alone_with_its_device_put_in(
    messages: list[tuple[str, list[Report]]], style: dict[str, Any], said: bool
) -> None:
    documents, want = [], []
    for i, (device, reports) in enumerate(messages):
        put_in = [{**plain(report), "device": device} for report in reports]
        alone = DECODER.decode(json.dumps(put_in, **style).encode(), ndjson=False, now_us=NOW_US, version_us=VERSION_US)
        want += [(i, cells, report) for _, cells, report in flat(alone)]
        bare = put_in if said else [without_device(report) for report in reports]
        documents.append(json.dumps(bare[0] if len(bare) == 1 else bare, **style).encode())
    decoded = together(DECODER, documents, [device for device, _ in messages])
    assert decoded.refusals == ()
    assert flat(decoded) == want


@given(
    st.lists(
        st.tuples(
            st.lists(good.map(plain) | good.map(without_device) | odd | anything, max_size=3) | good.map(plain) | anything,
            st.none() | names,
        ),
        max_size=5,
    ),
    styles,
    st.sampled_from(["s", "ms", "us", "ns"]),
)
def test_mixed_documents_agree_with_the_reference(
    messages: list[tuple[Any, str | None]], style: dict[str, Any], precision: str
) -> None:
    documents = [json.dumps(content, **style).encode("utf-8", "surrogatepass") for content, _ in messages]
    devices = [device for _, device in messages]
    assert fates(together(DECODER, documents, devices, precision)) == one_by_one(documents, devices, precision)


@given(broken, broken, st.integers(0, len(GOOD)))
def test_a_broken_document_leaves_its_neighbours_as_they_are(before: bytes, behind: bytes, cut: int) -> None:
    documents = [GOOD, before, GOOD, GOOD[:cut], GOOD, GOOD[cut:], behind, GOOD]
    decoded = together(DECODER, documents, ["d"] * len(documents))
    assert fates(decoded) == one_by_one(documents, ["d"] * len(documents))
    assert {0, 2, 4, 7} <= set(decoded.batch.position.tolist())


def test_a_bad_report_is_refused_without_the_others_of_its_document() -> None:
    array = b'[{"time":1,"values":{"m":1}},{"time":1,"values":{}},{"time":2,"values":{"m":2}}]'
    decoded = together(DECODER, [GOOD, array, GOOD], ["a", "b", "c"])
    assert [(r.code, list(r.positions)) for r in decoded.refusals] == [("no-values", [1])]
    assert decoded.batch.position.tolist() == [0, 1, 1, 2]
    assert decoded.batch.device.to_list() == ["a", "b", "b", "c"]


def test_an_array_that_breaks_off_is_refused_whole_and_once() -> None:
    array = b'[{"time":1,"values":{"m":1}},{"time":1,"values":{}},{"time":2,"val'
    decoded = together(DECODER, [GOOD, array, GOOD], ["a", "b", "c"])
    assert [(r.code, list(r.positions)) for r in decoded.refusals] == [("syntax", [1])]
    assert decoded.batch.device.to_list() == ["a", "c"]


def test_a_report_of_another_device_is_refused() -> None:
    other = b'{"device":"a2","time":1,"values":{"m":1}}'
    same = b'{"device":"a\\u0031","time":1,"values":{"m":1}}'
    decoded = together(DECODER, [other, same, other], ["a1", "a1", None])
    assert [(r.code, list(r.positions)) for r in decoded.refusals] == [("wrong-device", [0])]
    assert "'a2'" in decoded.refusals[0].reason
    assert "'a1'" in decoded.refusals[0].reason
    assert decoded.batch.device.to_list() == ["a1", "a2"]


def test_a_document_of_too_many_reports_is_refused_alone() -> None:
    decoder = JsonDecoder(max_reports=3)
    documents = [b"[" + b",".join([GOOD] * count) + b"]" for count in (3, 4, 3)]
    decoded = together(decoder, documents, ["a", "b", "c"])
    assert [(r.code, list(r.positions)) for r in decoded.refusals] == [("too-large", [1])]
    assert decoded.batch.position.tolist() == [0, 0, 0, 2, 2, 2]


def test_no_documents_are_no_reports() -> None:
    decoded = together(DECODER, [], [])
    assert len(decoded.batch) == 0
    assert decoded.refusals == ()


def test_an_unknown_precision_rejects_all() -> None:
    with pytest.raises(Rejected, match="minutes"):
        together(DECODER, [GOOD], ["d"], "minutes")


def test_buffers_that_may_be_written_to_are_read_like_others() -> None:
    data, offsets = np.frombuffer(GOOD * 2, np.uint8).copy(), np.array([0, len(GOOD), 2 * len(GOOD)])
    decoded = DECODER.decode_documents(data, offsets, Coded.of(["a", "b"]), now_us=NOW_US, version_us=VERSION_US)
    assert [report.device for report in reports_of(decoded.batch)] == ["a", "b"]
    assert data.flags.writeable
    assert offsets.flags.writeable
