"""From a request's body to a decoded batch: which decoder reads what, and the stamp of the version.

The version is stamped here, once, when the body has arrived: by the clock of the store that it is for. So are reports of
JSON and Arrow without a time, a microsecond each. Lines without one have the time of receipt: several make one report.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from widerow.codec.arrow import decode_arrow
from widerow.codec.body import decompress
from widerow.codec.decoded import Decoded
from widerow.codec.json import JsonDecoder
from widerow.codec.line import LineDecoders
from widerow.ingest.stamps import Stamps, dated, timeless
from widerow.model.errors import Rejected, Unsupported
from widerow.model.names import Coded
from widerow.model.tenant import ANY_NUMBER, Tenant
from widerow.model.times import Clock, whole_ms
from widerow.pipeline.origin import ARROW_TYPE, JSON_TYPES, LINE_TYPE, NDJSON_TYPES, Origin

REPORT_TYPES = ("application/json", "application/x-ndjson", ARROW_TYPE)
"""What `POST /v1/write` takes."""
PRECISIONS = ("s", "ms", "us", "ns")
LINE_PRECISIONS = ("n", "ns", "u", "us", "µ", "ms", "s", "m", "h")


class Bodies:
    """The decoders of a process. Safe to share between threads."""

    def __init__(self, line: LineDecoders, json: JsonDecoder, clock: Clock) -> None:
        self._line, self._json, self._clock, self._stamps = line, json, clock, Stamps()

    def reports(
        self,
        body: bytes,
        *,
        content_type: str,
        encoding: str,
        precision: str,
        max_bytes: int,
        max_values: int = ANY_NUMBER,
        received_us: int | None = None,
        version_us: int | None = None,
    ) -> Callable[[], Decoded]:
        """How to decode a body of `POST /v1/write`. Raises at once for what no decoder reads.

        `received_us` is when it arrived: reports that bring no time get the microseconds before. `version_us` is the version
        of those without one. Both are now, unless they are given. `max_values`: of one report. `pipeline.check` refuses it
        for all forms; decoders that are told need not read the rest of such a report.
        """
        media_type = media_type_of(content_type)
        if precision not in PRECISIONS:
            raise Rejected(f"precision {precision!r} is not known: give one of {', '.join(PRECISIONS)}", code="precision")
        now_us, version_us = self._received(received_us, version_us)
        if media_type not in REPORT_TYPES + JSON_TYPES + NDJSON_TYPES:
            raise Unsupported(f"content type {media_type[:80]!r} is not known here: send {', '.join(REPORT_TYPES)}")

        def decode() -> Decoded:
            plain = decompress(body, encoding, max_bytes)
            if media_type == ARROW_TYPE:
                return decode_arrow(plain, precision=precision, now_us=now_us, version_us=version_us)
            is_ndjson = media_type in NDJSON_TYPES
            return self._json.decode(
                plain, precision=precision, ndjson=is_ndjson, now_us=now_us, version_us=version_us, max_values=max_values
            )

        stamps = self._stamps if received_us is None else Stamps()  # what is sent again gets the same times again
        return lambda: _dated(decode(), now_us, stamps)

    def lines(
        self,
        body: bytes,
        *,
        encoding: str,
        precision: str,
        max_bytes: int,
        max_values: int = ANY_NUMBER,
        tenant: Tenant | None = None,
        received_us: int | None = None,
        version_us: int | None = None,
    ) -> Callable[[], Decoded]:
        """How to decode a body of line protocol. The tenant says which tags name devices, and which are attributes."""
        if precision not in LINE_PRECISIONS:
            raise Rejected(f"precision {precision!r} is not known: give one of ns, us, ms, s, m, h", code="precision")
        now_us, version_us = self._received(received_us, version_us)
        return lambda: self._line.of(tenant).decode(
            decompress(body, encoding, max_bytes),
            precision=precision,
            now_us=now_us,
            version_us=version_us,
            max_values=max_values,
        )

    def again(self, tenant: Tenant, origin: Origin, *, received_us: int, max_bytes: int) -> Callable[[], Decoded]:
        """How to decode a body that came before, and is sent again now: with the version of its receipt, so that it does not
        undo what corrected it since.
        """
        max_values = tenant.limits.most_values
        version_us = min(origin.version_us or whole_ms(received_us), self.version_us())  # a clock may have been set back
        if origin.is_document:
            return self._document(origin, received_us, version_us, max_bytes, max_values)
        if origin.media_type == LINE_TYPE:
            return self.lines(
                origin.body,
                encoding=origin.encoding,
                precision=origin.precision,
                max_bytes=max_bytes,
                max_values=max_values,
                tenant=tenant,
                received_us=received_us,
                version_us=version_us,
            )
        return self.reports(
            origin.body,
            content_type=origin.media_type,
            encoding=origin.encoding,
            precision=origin.precision,
            max_bytes=max_bytes,
            max_values=max_values,
            received_us=received_us,
            version_us=version_us,
        )

    def _document(
        self, origin: Origin, received_us: int, version_us: int, max_bytes: int, max_values: int
    ) -> Callable[[], Decoded]:
        def decode() -> Decoded:
            body = decompress(origin.body, origin.encoding, max_bytes)
            decoded = self._json.decode_documents(
                np.frombuffer(body, np.uint8),
                np.array([0, len(body)]),
                Coded.of([origin.device]),
                precision=origin.precision,
                now_us=received_us,
                version_us=version_us,
                max_values=max_values,
            )
            return _dated(decoded, received_us, Stamps())

        return decode

    def version_us(self) -> int:
        """Of what is received now."""
        return self._clock.version_us()

    def _received(self, received_us: int | None, version_us: int | None) -> tuple[int, int]:
        """When a body arrived, and the version of what is in it."""
        return (
            self._clock.now_us() if received_us is None else received_us,
            self.version_us() if version_us is None else version_us,
        )


def media_type_of(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _dated(decoded: Decoded, received_us: int, stamps: Stamps) -> Decoded:
    rows = timeless(decoded.batch, received_us)
    if not len(rows):
        return decoded
    first_us = np.array([stamps.take(received_us, len(rows))])
    return replace(decoded, batch=dated(decoded.batch, rows, np.zeros(len(rows), np.int64), first_us))
