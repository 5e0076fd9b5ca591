"""What was recorded of tenants' use, read again: the processes of an hour together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from widerow.codec.seconds import SECONDS, decode_seconds
from widerow.engine.port import Engine, Span
from widerow.engine.rows import Key
from widerow.model.arrays import Ints
from widerow.model.batch import CellKind, Cells
from widerow.model.names import Coded
from widerow.model.times import DAY, Clock, TimeSpan, bucket_start
from widerow.schema.usage import MOST_USAGE_DAYS, USAGE
from widerow.usage.record import BACKLOG, LIVE

_DAYS_AT_ONCE = 64


@dataclass(frozen=True, slots=True, eq=False)
class OfferedSeconds:
    """The reports that were offered in each second of an hour, all processes together."""

    hour_us: int
    live: Ints
    backlog: Ints


class Recorded:
    """Safe to share between threads. Spans are by whole hours: those that begin within are meant."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine, self._clock = engine, clock

    def hours(self, tenant: str, span: TimeSpan, *, without: str = "") -> dict[int, dict[str, float]]:
        """The numbers of each hour that has any, in order; `without` those of one process."""
        found: dict[int, dict[str, float]] = {}
        for rows_hour_us, names, cells in self._cells(tenant, span, None, without):
            row, name = cells.rows().tolist(), cells.name.tolist()
            number = (cells.kind == CellKind.NUMBER).tolist()
            values = cells.number.tolist()
            for i in range(len(name)):
                if number[i]:
                    hour = found.setdefault(rows_hour_us[row[i]], {})
                    hour[names[name[i]]] = hour.get(names[name[i]], 0.0) + values[i]
        return dict(sorted(found.items()))

    def seconds(self, tenant: str, span: TimeSpan) -> Iterator[OfferedSeconds]:
        """Hours of which that is still known, in order."""
        found: dict[int, OfferedSeconds] = {}
        for rows_hour_us, names, cells in self._cells(tenant, span, (LIVE, BACKLOG)):
            row, name, text = cells.rows().tolist(), cells.name.tolist(), cells.text.tolist()
            for i in range(len(name)):
                if names[name[i]] not in (LIVE, BACKLOG):
                    continue
                hour_us = rows_hour_us[row[i]]
                if hour_us not in found:
                    found[hour_us] = OfferedSeconds(hour_us, np.zeros(SECONDS, np.int64), np.zeros(SECONDS, np.int64))
                counts = decode_seconds(cells.texts.bytes_at(text[i]))
                of_lane = found[hour_us].live if names[name[i]] == LIVE else found[hour_us].backlog
                of_lane += counts
        yield from (found[hour_us] for hour_us in sorted(found))

    def _cells(
        self, tenant: str, span: TimeSpan, columns: Sequence[str] | None, without: str = ""
    ) -> Iterator[tuple[list[int], list[str], Cells]]:
        now_us = self._clock.now_us()
        start_us = max(span.start_us, now_us - MOST_USAGE_DAYS * DAY, 0)
        stop_us = min(span.stop_us, now_us + DAY)
        days = range(bucket_start(start_us, DAY), stop_us, DAY)
        for i in range(0, len(days), _DAYS_AT_ONCE):
            keys: list[Key] = [(tenant, day) for day in days[i : i + _DAYS_AT_ONCE]]
            for rows in self._engine.scan(USAGE, keys, Span(start_us, stop_us), columns=columns):
                process = rows.keys["process"]
                assert isinstance(process, Coded)
                if without in process.names.to_list():
                    rows = rows.take(np.array([name != without for name in process.to_list()], np.bool_))  # noqa: PLW2901
                yield np.asarray(rows.keys["hour_us"]).tolist(), rows.cells.names.to_list(), rows.cells

    def forget(self, tenant: str) -> None:
        """Everything of a tenant that is gone. May be repeated, and interrupted, at will."""
        now_us = self._clock.now_us()
        version_us = self._clock.version_us()
        days = range(bucket_start(now_us, DAY) - (MOST_USAGE_DAYS + 1) * DAY, max(now_us, version_us) + 2 * DAY, DAY)
        keys: list[Key] = [(tenant, day) for day in days if day >= 0]
        self._engine.delete(USAGE, keys, version_us=version_us)
