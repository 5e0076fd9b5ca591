"""A glance at a body: when its first report is of."""

from __future__ import annotations

import gzip

import zstandard

from widerow.ingest.peek import first_time_us

AT_US = 1_763_000_000_000_000


def test_the_first_report_of_json_tells_the_time() -> None:
    def check(body: str, want: int | None, precision: str = "ms") -> None:
        for encoding, packed in (
            ("", body.encode()),
            ("gzip", gzip.compress(body.encode())),
            ("zstd", zstandard.compress(body.encode())),
        ):
            assert first_time_us(packed, lines=False, encoding=encoding, precision=precision) == want

    later = '{"device":"d","time":1999999999999,"values":{"x":2}}'
    check('[{"device":"d","time":1763000000000,"values":{"x":1}},' + later + "]", AT_US)
    check('{"device":"d", "time" : 1763000000 }\n' + later, AT_US, "s")
    check('[{"time":"2025-11-13T02:13:20Z","device":"d"}]', AT_US)
    check('[{"device":"d","values":{"x":1}}]', None)
    check('[{"time":"yesterday, I think"}]', None)
    check("", None)


def test_the_first_line_tells_the_time() -> None:
    def check(body: bytes, want: int | None, precision: str = "ns") -> None:
        assert first_time_us(body, lines=True, encoding="", precision=precision) == want

    check(b"m,device=d x=1 1763000000000000000\nm,device=d x=2 1\n", AT_US)
    check(b'm,device=d x="a b 12" 1763000000\n', AT_US, "s")
    check(b"m,device=d x=1\nm,device=d x=2 1763000000000000000\n", None)
    check(b"# a comment 12\nm,device=d x=2 1763000000000000000\n", None)


def test_a_line_that_is_all_there_is_needs_no_end() -> None:
    assert first_time_us(b"m,device=d x=1 1763000000", lines=True, encoding="", precision="s") == AT_US
    cut = b"m,device=" + b"d" * (4096 - len(b"m,device= x=1 1763")) + b" x=1 1763000000\n"
    assert cut[:4096].endswith(b" x=1 1763"), "where it is cut, another time stands"
    assert first_time_us(cut, lines=True, encoding="", precision="s") is None


def test_broken_packing_is_somebody_elses_to_report() -> None:
    for encoding in ("gzip", "zstd", "br"):
        assert first_time_us(b"\x00" * 100, lines=False, encoding=encoding, precision="ms") is None
