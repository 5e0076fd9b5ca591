"""Points from the server, page after page, in the form that was asked for.

Rule 1: pages are followed until the limit is reached or there are none; the last page is asked for no more than is wanted.
Rule 2: several pages make one well-formed result: one CSV header, one JSON value, one Arrow stream.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from widerow.cli import output
from widerow.cli.api import Api, in_path
from widerow.cli.failure import Failed
from widerow.model.labels import cut_names
from widerow.model.times import parse_rfc3339

PAGE = 10_000
"""Points of one request: an instant of waiting, and little to hold."""
CURSOR_HEADER = "widerow-next"
SAMPLED_HEADER = "widerow-sampled"
METRICS_HELP = (
    "Only these, separated by commas outside braces. Given several times, each is one name, commas and all. "
    "disk_used means all its variants, disk_used{path=/} those with that label."
)

Write = Callable[[bytes], None]


class Form(Protocol):
    """A way to write points. `page` takes a page's body and gives how many points it had; `end` writes what is left."""

    accept: str

    def page(self, body: bytes, write: Write) -> int: ...

    def end(self, write: Write) -> None: ...


def names(given: list[str] | None) -> list[str] | None:
    """As the parameters of the API are read: one text is a list, several are names."""
    return list(cut_names(given[0])) if given and len(given) == 1 else given


@dataclass(frozen=True, slots=True)
class Fetched:
    points: int
    more: bool
    """The limit ended it, not the data."""
    sampled: str = ""
    """Of which spans part of the reports was kept."""


def fetch(
    api: Api,
    device: str,
    *,
    metrics: list[str] | None,
    start: str,
    end: str,
    limit: int,
    tags: bool,
    form: Form,
    write: Write,
) -> Fetched:
    """Write the points of a device to `write`."""
    params: dict[str, Any] = {"start": start, "end": end, "metrics": metrics or None, "tags": "true" if tags else None}
    done, cursor, sampled = 0, None, ""
    with output.progress("points", limit) as advance:
        while True:
            asked = {**params, "limit": min(PAGE, limit - done), "after": cursor}
            answer = api.send("GET", f"/v1/devices/{in_path(device)}/series", params=asked, accept=form.accept)
            count = form.page(answer.content, write)
            cursor = answer.headers.get(CURSOR_HEADER)
            sampled = answer.headers.get(SAMPLED_HEADER, sampled)
            done += count
            advance(count)
            if cursor is None or done >= limit:
                break
    form.end(write)
    return Fetched(done, cursor is not None, sampled)


def note_sampled(sampled: str) -> None:
    """Say that an answer is about spans of which part was kept."""
    if sampled:
        output.note(f"sampled, part of the reports was kept: {output.printable(sampled)} (see widerow hot)")


class JsonForm:
    """`{"series": [{"device", "metric", "points": [[time, value], ...]}]}`, the pages of a series joined."""

    accept = "application/json"

    def __init__(self) -> None:
        self.series: dict[tuple[str, str], list[list[Any]]] = {}
        self.sampled: list[dict[str, Any]] = []

    def page(self, body: bytes, _write: Write) -> int:
        count = 0
        answer = json.loads(body)
        self.sampled = answer.get("sampled", self.sampled)
        for one in answer["series"]:
            self.series.setdefault((one["device"], one["metric"]), []).extend(one["points"])
            count += len(one["points"])
        return count

    def end(self, write: Write) -> None:
        series = [{"device": d, "metric": m, "points": points} for (d, m), points in sorted(self.series.items())]
        whole = {"series": series, **({"sampled": self.sampled} if self.sampled else {})}
        write(json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")


class TableForm(JsonForm):
    """A line for each report, a column for each metric."""

    def end(self, write: Write) -> None:
        metrics = sorted({metric for _, metric in self.series})
        rows: dict[str, dict[str, Any]] = {}
        for (_, metric), points in self.series.items():
            for time, value, *_ in points:
                rows.setdefault(time, {})[metric] = value
        if rows:
            # Not by text: pages may write their times with different decimals.
            in_order = sorted(rows.items(), key=lambda row: parse_rfc3339(row[0]))
            lines = [(time, *(values.get(m, "") for m in metrics)) for time, values in in_order]
            write(output.table(("time", *metrics), lines, right=metrics).encode())


class CsvForm:
    accept = "text/csv"

    def __init__(self) -> None:
        self._begun = False

    def page(self, body: bytes, write: Write) -> int:
        header, _, rows = body.partition(b"\r\n")
        if not self._begun:
            write(header + b"\r\n")
            self._begun = True
        write(rows)
        return _records(rows)

    def end(self, _write: Write) -> None:
        pass


def _records(rows: bytes) -> int:
    """How many lines, not counting breaks inside of quotes: those have an odd number of quotes before them."""
    if b'"' not in rows:
        return rows.count(b"\r\n")
    return sum(part.count(b"\r\n") for part in rows.split(b'"')[::2])


class ArrowForm:
    accept = "application/vnd.apache.arrow.stream"

    def __init__(self) -> None:
        self._writer: Any = None

    def page(self, body: bytes, write: Write) -> int:
        import pyarrow as pa  # noqa: PLC0415 - a third of a second

        try:
            table = pa.ipc.open_stream(body).read_all()
        except pa.ArrowInvalid as error:
            raise Failed(f"the server's answer is not an Arrow stream: {error}") from None
        if self._writer is None:
            self._writer = pa.ipc.new_stream(_Sink(write), table.schema)
        self._writer.write_table(table)
        return int(table.num_rows)

    def end(self, _write: Write) -> None:
        if self._writer is not None:
            self._writer.close()


class _Sink:
    """What Arrow takes for a file."""

    closed = False

    def __init__(self, write: Write) -> None:
        self._write = write

    def write(self, data: Any) -> int:
        self._write(bytes(data))
        return len(data)

    def flush(self) -> None:
        pass
