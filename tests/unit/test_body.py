"""Bodies without their content encoding."""

from __future__ import annotations

import gzip
import os
import tracemalloc

import pytest
import zstandard

from widerow.codec.body import decompress
from widerow.model.errors import Rejected, TooLarge, Unsupported

TEXT = b"weather,device=a temp=21.5 1\n" * 1_000
LIMIT = 1 << 20


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


def test_what_was_compressed_comes_back() -> None:
    def check(body: bytes, encoding: str, want: bytes) -> None:
        assert decompress(body, encoding, LIMIT) == want

    noise = os.urandom(100_000)
    check(TEXT, "", TEXT)
    check(TEXT, "identity", TEXT)
    check(gzip.compress(TEXT), "gzip", TEXT)
    check(gzip.compress(TEXT), " GZip ", TEXT)
    check(gzip.compress(TEXT), "x-gzip", TEXT)
    check(gzip.compress(TEXT) + gzip.compress(noise) + gzip.compress(b""), "gzip", TEXT + noise)
    check(gzip.compress(b""), "gzip", b"")
    check(zstd(TEXT), "zstd", TEXT)
    check(zstd(TEXT) + zstd(noise), "zstd", TEXT + noise)
    check(zstd(b""), "zstd", b"")


def test_broken_bodies_are_rejected() -> None:
    def check(body: bytes, encoding: str) -> None:
        with pytest.raises(Rejected) as caught:
            decompress(body, encoding, LIMIT)
        assert caught.value.code == "syntax"

    for encoding, packed in (("gzip", gzip.compress(TEXT)), ("zstd", zstd(TEXT))):
        check(b"", encoding)
        check(TEXT, encoding)
        check(packed[:-1], encoding)
        check(packed[:10], encoding)
        check(packed + b"junk", encoding)
        check(packed[:4] + b"\xff\xff" + packed[6:-9] + b"\x00" * 9, encoding)


def test_unknown_encodings_are_unsupported() -> None:
    for encoding in ("br", "deflate", "gzip, zstd"):
        with pytest.raises(Unsupported, match=encoding):
            decompress(b"", encoding, LIMIT)


def test_the_limit_is_exact() -> None:
    for encoding, pack in (("", bytes), ("gzip", gzip.compress), ("zstd", zstd)):
        assert decompress(pack(TEXT), encoding, len(TEXT)) == TEXT
        with pytest.raises(TooLarge):
            decompress(pack(TEXT), encoding, len(TEXT) - 1)


def test_bombs_stop_soon_after_the_limit() -> None:
    zeros = bytes(200 << 20)
    for encoding, bomb in (("gzip", gzip.compress(zeros, 1)), ("zstd", zstd(zeros))):
        tracemalloc.start()
        with pytest.raises(TooLarge):
            decompress(bomb, encoding, LIMIT)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 40 << 20


def test_many_small_members_take_linear_time() -> None:
    assert decompress(gzip.compress(b"") * 50_000, "gzip", LIMIT) == b""
    assert decompress(zstd(b"") * 50_000, "zstd", LIMIT) == b""
