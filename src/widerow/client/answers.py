"""What a client gets back: tables for questions, counts and refusals for writes.

Rule: nothing that is partial looks whole. A stream without its end is an error, and what an answer leaves out it names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

import httpx
import pyarrow as pa

from widerow.model.errors import Unavailable, WiderowError

if TYPE_CHECKING:
    import polars as pl

ARROW = "application/vnd.apache.arrow.stream"
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
"""How a whole Arrow stream ends. Readers take the end of the bytes for it as well, which a broken connection also is."""
_WHOLE = ("count", "devices")
"""Aggregates whose values are whole numbers."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Answer:
    """A table of points, one a row: whose (`device`, or what it was grouped by), `time`, `metric`, over steps `agg` and
    `kind` (number or text), then `value` for numbers and `text` for texts.
    """

    table: Any
    """The same as `arrow()`."""
    used: Mapping[str, int] = field(default_factory=dict)
    """Over steps: how many rows of which level were read, such as `{"hour": 24, "raw": 12}`."""
    missing: Sequence[tuple[datetime, datetime]] = ()
    """Over steps: spans that can no longer be answered, because nothing is kept that is fine enough."""
    next: str | None = None
    """There is more, behind what was asked for (`limit`): ask again `after` this. None: that is all."""

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __repr__(self) -> str:
        return (
            f"<Answer: {len(self):,} rows of {', '.join(self.table.schema.names)}; used {dict(self.used)}, next {self.next}>"
        )

    def arrow(self) -> pa.Table:
        """A pyarrow.Table."""
        return self.table

    def polars(self) -> pl.DataFrame:
        """A polars.DataFrame; names are plain strings. Needs Polars: `pip install 'widerow[polars]'`."""
        try:
            import polars as pl  # noqa: PLC0415 - it need not be installed
        except ImportError:
            raise WiderowError(
                "Polars is not installed: `pip install 'widerow[polars]'` brings it; arrow() and rows() work without"
            ) from None
        frame = pl.from_arrow(self.table)
        assert isinstance(frame, pl.DataFrame)
        return frame.with_columns(pl.col(pl.Categorical).cast(pl.String))

    def rows(self) -> list[dict[str, Any]]:
        """A dict a row. `value` is the number, the text, or None; `states` is a dict; `time` is a datetime in UTC."""
        rows: list[dict[str, Any]] = self.table.to_pylist()
        for row in rows:
            text, agg = row.pop("text", None), row.get("agg")
            if text is not None:
                row["value"] = json.loads(text) if agg == "states" else text
            elif agg in _WHOLE and row["value"] is not None:
                row["value"] = int(row["value"])
        return rows

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows())


@dataclass(frozen=True, slots=True)
class Refused:
    """A report that was not stored, and why; docs/reference/errors.md lists the codes."""

    index: int
    """Its place in what was given to `write`, from 0."""
    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class Written:
    """What became of the reports of a `write`. Those that are accepted are durable."""

    accepted: int
    """In a long table, where a report may be several rows: rows if all were accepted, else reports."""
    refused: int
    refusals: Sequence[Refused] = ()
    """The first 1,000 of each request; fewer than `refused` if there were more."""

    def __add__(self, other: Written) -> Written:
        return Written(self.accepted + other.accepted, self.refused + other.refused, (*self.refusals, *other.refusals))


def answer_of(response: httpx.Response, where: str) -> Answer:
    """A response with an Arrow stream."""
    headers = response.headers
    return Answer(
        table_of(response, where),
        used={level: int(rows) for level, _, rows in _parts(headers.get("widerow-used"), "=")},
        missing=[
            (datetime.fromisoformat(start), datetime.fromisoformat(end))
            for start, _, end in _parts(headers.get("widerow-missing"), "/")
        ],
        next=headers.get("widerow-next"),
    )


def table_of(response: httpx.Response, where: str) -> pa.Table:
    """The table of a response; `Unavailable` if it is none, or not all of it came."""
    body = response.content
    if not response.headers.get("content-type", "").startswith(ARROW):
        raise Unavailable(f"{where} answered with something other than Arrow: is it a Widerow server?", code="unreachable")
    if not body.endswith(_END_OF_STREAM):
        raise Unavailable(f"the answer of {where} was cut off after {len(body):,} bytes", code="unreachable")
    try:
        return pa.ipc.open_stream(body).read_all()
    except (pa.ArrowException, OSError) as error:
        raise Unavailable(f"the answer of {where} cannot be read: {error}", code="unreachable") from None


def whole(answers: Sequence[Answer]) -> Answer:
    """Pages as one answer, which goes on where the last one does."""
    tables = [answer.table for answer in answers if len(answer)] or [answers[0].table]
    return Answer(pa.concat_tables(tables).unify_dictionaries(), answers[-1].used, answers[-1].missing, answers[-1].next)


def _parts(header: str | None, between: str) -> list[tuple[str, str, str]]:
    return [part.partition(between) for part in header.split(", ")] if header else []
