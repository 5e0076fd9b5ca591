"""Bodies as they were before somebody compressed them.

Rule: what a few kilobytes unpack to is the sender's choice. They are fed in pieces so small that none unpacks to more than
16 MB (deflate: 1 to 1,032; zstd: a block of 128 KiB from 4 bytes), and unpacking stops once the limit is passed.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import zstandard

from widerow.model.errors import Rejected, TooLarge, Unsupported

ENCODINGS = ("identity", "gzip", "zstd")
"""What `Content-Encoding` may name."""

MAX_BODY = "http.max_body_mib"
"""What says how large a body may be, unless its route says less."""

_GZIP_PIECE, _ZSTD_PIECE = 4096, 512
_GZIP_WINDOW = 16 + zlib.MAX_WBITS
_MAX_ZSTD_WINDOW = 8 << 20
"""What a zstd frame may make us allocate before it gives a byte; RFC 8878 asks decoders for 8 MB."""


def decompress(body: bytes, encoding: str, max_bytes: int, by: str = MAX_BODY) -> bytes:
    """The body without its encoding. Raises TooLarge beyond max_bytes, Rejected (`syntax`), and Unsupported.

    `by`: what allows so many.
    """
    encoding = encoding.strip().lower()
    if encoding in {"", "identity"}:
        if len(body) > max_bytes:
            raise too_large(max_bytes, by)
        return body
    try:
        if encoding in {"gzip", "x-gzip"}:
            return _unpack(body, lambda: zlib.decompressobj(_GZIP_WINDOW), _GZIP_PIECE, max_bytes, by)
        if encoding == "zstd":
            zstd = zstandard.ZstdDecompressor(max_window_size=_MAX_ZSTD_WINDOW)
            return _unpack(body, zstd.decompressobj, _ZSTD_PIECE, max_bytes, by)
    except (zlib.error, zstandard.ZstdError) as error:
        raise Rejected(f"the {encoding} body is broken: {error}", code="syntax") from None
    raise Unsupported(f"content encoding {encoding[:40]!r}: give one of {', '.join(ENCODINGS)}")


def _unpack(body: bytes, new_member: Callable[[], Any], piece_bytes: int, max_bytes: int, by: str) -> bytes:
    """One or more members (gzip) or frames (zstd), one behind the other."""
    parts: list[bytes] = []
    size = at = 0
    while at < len(body) or not parts:
        member = new_member()
        while not member.eof:
            piece = body[at : at + piece_bytes]
            if not piece:
                raise Rejected("the compressed body breaks off", code="syntax")
            part = member.decompress(piece)
            parts.append(part)
            size += len(part)
            if size > max_bytes:
                raise too_large(max_bytes, by)
            at += len(piece) - len(member.unused_data)
    return b"".join(parts)


def too_large(max_bytes: int, by: str = MAX_BODY) -> TooLarge:
    return TooLarge(f"the body has more than {max_bytes} bytes, as {by} allows; send several smaller ones")
