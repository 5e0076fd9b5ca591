"""What is kept of a refused report is what was sent: read by itself, it is the same report, or refused likewise."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from widerow.codec.decoded import Decoded
from widerow.codec.json import JsonDecoder
from widerow.codec.line import LineDecoder
from widerow.pipeline.origin import LINE_TYPE, Origin
from widerow.pipeline.parts import Kept, parts

LINES, JSON = LineDecoder(), JsonDecoder(seed=0)
LINE = st.sampled_from(
    [
        "m,device=a x=1 5",
        'm,device=b t="two\nlines",x=2 6',
        'm,device=c t="open',
        "# a remark",
        "",
        "  ",
        "\r",
        "m x=1",
        "m,device=d x=nan\r",
        ' m,device=e,u=\\,v t="a \\" \n\n b" 7',
        "\tm,device=f x=1i,x=2i 8",
        'm,device=g t="closed"x 9',
    ]
)
REPORT: st.SearchStrategy[object] = st.one_of(
    st.fixed_dictionaries(
        {
            "device": st.sampled_from(["a", "", 'b"]', "\N{SNOWMAN}", 7]),
            "values": st.dictionaries(
                st.text(max_size=3), st.sampled_from([1, "x,]", None, [1, [2]], {"}": 1}]), max_size=2
            ),
        }
    ),
    st.sampled_from([1, "],", None, [[]], {}]),
)
SPACE = st.sampled_from(["", " ", "\n\t"])


def outcomes(decoded: Decoded) -> dict[int, str]:
    """What became of each report: a code, or the device."""
    batch = decoded.batch
    kept = {int(at): batch.device[i] for i, at in enumerate(batch.position)}
    return kept | {at: r.code for r in decoded.refusals for at in r.positions}


def check(body: bytes, media_type: str, ndjson: bool, max_bytes: int) -> None:
    def decode(content: bytes) -> dict[int, str]:
        if media_type == LINE_TYPE:
            return outcomes(LINES.decode(content, precision="us", now_us=9, version_us=0))
        return outcomes(JSON.decode(content, ndjson=ndjson, now_us=9, version_us=0))

    whole = decode(body)
    found: list[int] = []
    for part in parts(Origin("test", media_type, "us", "", body), sorted(whole), max_bytes=max_bytes, max_unpacked=1 << 20):
        assert len(part.origin.body) <= max_bytes
        found += part.positions
        if part.kept is Kept.WHOLE:
            assert [said for _, said in sorted(decode(part.origin.body).items())] == [whole[at] for at in part.positions]
    assert found == sorted(whole)


@given(st.lists(LINE, max_size=12), st.integers(30, 200))
@settings(max_examples=150)
def test_lines(lines: list[str], max_bytes: int) -> None:
    check("\n".join(lines).encode(), LINE_TYPE, ndjson=False, max_bytes=max_bytes)


@given(st.lists(st.tuples(SPACE, REPORT, SPACE), max_size=8), st.integers(30, 200))
@settings(max_examples=150)
def test_elements_of_an_array(reports: list[tuple[str, object, str]], max_bytes: int) -> None:
    body = "[" + ",".join(before + json.dumps(report) + after for before, report, after in reports) + "]"
    check(body.encode(), "application/json", ndjson=False, max_bytes=max_bytes)


@given(st.lists(st.one_of(REPORT.map(json.dumps), st.sampled_from(["", "broken", "{"])), max_size=8), st.integers(30, 200))
@settings(max_examples=150)
def test_lines_of_ndjson(lines: list[str], max_bytes: int) -> None:
    check("\n".join(lines).encode(), "application/x-ndjson", ndjson=True, max_bytes=max_bytes)
