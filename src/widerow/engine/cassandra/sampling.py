"""A sample of a table of somebody else: random partitions, how many rows they have, and rows to be packed.

Rule 1: see `look`: every statement is a SELECT, and none is prepared.
Rule 2: what is read is bounded in partitions, rows, bytes and time.
Rule 3: partitions are chosen at random over the ring of tokens, so that those which were read stand for all.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import sqrt
from time import monotonic
from typing import Any

from cassandra.encoder import Encoder
from cassandra.metadata import protect_name
from cassandra.query import SimpleStatement

from widerow.engine.cassandra.cluster import Connection, reported
from widerow.model.errors import Unavailable
from widerow.plan.sampled import Bounds, Estimate, Partition, Sample, Stratum, times_us
from widerow.plan.shape import CLUSTERING, REGULAR, ForeignTable, Shape, shape_of

AT_ONCE = 8
RING, _FIRST_TOKEN = 1 << 64, -(1 << 63)
_RANGES = 32
"""Pieces of the ring that are looked into."""
_LISTED = 4
"""For each partition that is read so many keys are listed, which tell how many partitions there are."""
_PAGE = 5000
_SHALLOW, _DEEP, _DEEPEST = 100, 2_000, 50_000
"""Rows that are read whole of a partition: of most, and of those that are packed."""
_MOST_LARGE = 16
"""A device with a larger part of all rows is packed by itself."""
_COUNTED = 10
"""For each row that is read whole so many are counted."""
_LEAST_COUNTED = 1_000
_WITH_TIMES = 8
"""Value columns whose write times and TTLs are asked for."""
_MOST_METRICS = 100
_FAILED_IN_A_ROW = 20
_MIB = 1 << 20
_SHALLOW_BLOBS = 10
"""Rows read of a partition where they may have megabytes each."""
_PAGE_BYTES, _PACKED_BYTES = 4 * _MIB, 512 * _MIB
"""A page of an answer, and all rows that are read to be packed, are about so large at most."""
_TIME_TO_READ, _TIME_TO_COUNT = 0.5, 0.7
"""Shares of the time after which the newest rows have been read, and then rows counted. The rest is for packing."""
_ENCODER = Encoder()


class Sampling:
    """One table. It is run once."""

    def __init__(self, connection: Connection, table: ForeignTable, bounds: Bounds, step: Callable[[float], None]) -> None:
        self._connection, self._table, self._bounds, self._step = connection, table, bounds, step
        self._shape = shape_of(table)
        self._random = random.Random(bounds.seed)  # noqa: S311 - a sample, no secret
        self._start_s, self._deadline_s, self._page = monotonic(), 0.0, _PAGE
        self._unread, self._in_a_row = 0, 0
        clustering, values = table.of(CLUSTERING), table.of(REGULAR)
        timed = [c for c in values if not c.is_collection and c.type != "counter"][:_WITH_TIMES]
        self._cuts = len(clustering), len(clustering) + len(values), len(clustering) + len(values) + len(timed)
        self._key = ", ".join(protect_name(c.name) for c in table.key)
        names = [protect_name(c.name) for c in (*clustering, *values)]
        for function in ("WRITETIME", "TTL"):
            names += [f"{function}({protect_name(c.name)})" for c in timed]
        self._columns = ", ".join(names) or self._key
        self._by_time = bool(self._shape and clustering and self._shape.time == clustering[0].name)
        first = clustering[0] if clustering else None
        self._order = f" ORDER BY {protect_name(first.name)} DESC" if first and self._by_time else ""
        self._oldest = f" ORDER BY {protect_name(first.name)} ASC" if first and self._by_time else ""

    @property
    def _late(self) -> bool:
        return monotonic() > self._deadline_s

    def _until(self, share: float) -> None:
        """So much of the time is over at the next deadline."""
        self._deadline_s = self._start_s + share * self._bounds.seconds

    def run(self) -> Sample:
        keys, of = self._listed()
        if len(keys) > self._bounds.partitions:
            keys = self._random.sample(keys, self._bounds.partitions)
        else:
            self._random.shuffle(keys)
        self._until(_TIME_TO_READ)
        few = _SHALLOW_BLOBS if any(c.type == "blob" for c in self._table.columns) else _SHALLOW
        found = {p.key: p for p in self._read(keys, few, self._step)}
        in_time = len(found) + self._unread >= len(keys)
        self._page = max(1, min(_PAGE, _PAGE_BYTES // _mean_bytes(found.values())))
        self._until(_TIME_TO_COUNT)
        self._count_all(found)
        self._until(1.0)
        strata = self._packed(found, [] if len(keys) == of.value else self._metrics(keys))
        for p in (p for stratum in strata for p in stratum.partitions if p.key in found):
            found[p.key] = replace(p, rows=max(p.rows, found[p.key].rows), counted=found[p.key].counted or p.counted)
        return Sample(
            table=self._table,
            shape=self._shape,
            partitions=list(found.values()),
            packed=strata,
            of=of,
            unread=self._unread,
            in_time=in_time and not self._late,
        )

    # -- which partitions there are

    def _listed(self) -> tuple[list[tuple[Any, ...]], Estimate]:
        """Keys of random partitions, or of all if they are few; and how many there are.

        In each piece of the ring the first ones are asked for. Where they do not fill it, these are all; otherwise their
        tokens tell how close they lie.
        """
        each = max(2, _LISTED * self._bounds.partitions // _RANGES)
        width = RING // _RANGES
        starts = [_FIRST_TOKEN + i * width for i in range(_RANGES)]
        keys: list[tuple[Any, ...]] = []
        count, variance = 0.0, 0.0
        for start in starts:
            end = start + width - 1
            token = f"token({self._key})"
            where = f"{token} >= {start} AND {token} <= {end} LIMIT {each}"
            rows = list(self._rows(f"SELECT DISTINCT {self._key}, {token} FROM {self._name} WHERE {where}", each))  # noqa: S608
            keys += [tuple(row[:-1]) for row in rows]
            if len(rows) < each:
                count += len(rows)
                continue
            density = (len(rows) - 1) / (int(rows[-1][-1]) - start + 1)
            count += density * width
            variance += (density * width) ** 2 / max(1, len(rows) - 2)
        return keys, Estimate(count, 2 * sqrt(variance))

    def _grouped(self, keys: Sequence[tuple[Any, ...]]) -> list[list[tuple[Any, ...]]]:
        """Partitions that differ in the metric alone belong together. The groups are in random order."""
        places = self._places(lambda shape, name: name != shape.metric)
        groups: dict[tuple[Any, ...], list[tuple[Any, ...]]] = defaultdict(list)
        for key in keys:
            groups[tuple(key[i] for i in places)].append(key)
        shuffled = list(groups.values())
        self._random.shuffle(shuffled)
        return shuffled

    def _places(self, wanted: Callable[[Shape, str], bool]) -> list[int]:
        shape = self._shape
        return [i for i, column in enumerate(self._table.key) if shape is None or wanted(shape, column.name)]

    def _metrics(self, keys: Sequence[tuple[Any, ...]]) -> list[Any]:
        """The metrics in these keys, if metrics are part of them."""
        places = self._places(lambda shape, name: name == shape.metric) if self._shape else []
        return sorted({key[i] for i in places for key in keys})[:_MOST_METRICS]

    # -- their rows

    def _read(
        self, keys: Iterable[tuple[Any, ...]], rows: int, step: Callable[[float], None] = lambda _: None
    ) -> Iterator[Partition]:
        """The newest rows of partitions, until the time is over."""
        waiting: deque[tuple[tuple[Any, ...], Any]] = deque()
        following = iter(keys)
        while True:
            while len(waiting) < AT_ONCE and not self._late and (key := next(following, None)) is not None:
                waiting.append((key, self._send(self._of_key(self._columns, key, self._order, rows), rows)))
            if not waiting:
                return
            key, future = waiting.popleft()
            partition = self._partition(key, rows, future)
            step(1)
            if partition is not None:
                yield partition

    def _packed(self, found: Mapping[tuple[Any, ...], Partition], metrics: Sequence[Any]) -> list[Stratum]:
        """More rows of some of them, to be packed. Each device that has a large part of all rows is looked at by itself."""
        if self._shape is None:
            return []
        groups = self._grouped(list(found))
        rows = [sum(found[key].rows for key in group) for group in groups]
        large = [group for group, count in zip(groups, rows, strict=True) if count > sum(rows) / _MOST_LARGE]
        rest = [group for group in groups if group not in large]
        left = min(self._bounds.rows, _PACKED_BYTES // _mean_bytes(found.values()))
        strata: list[Stratum] = []
        for some, all_of_it in [*((group, [group]) for group in large), ([key for group in rest for key in group], rest)]:
            if not some:
                continue
            share = left // max(1, len(large) - len(strata) + bool(rest))
            cut = sum(not found[key].read_to_its_end for key in some)
            depth = min(_DEEPEST, max(_DEEP, share // max(1, cut)))
            read: list[Partition] = []
            for group in all_of_it:
                if share <= 0 or self._late:
                    break
                whole = [found[key] for key in group if found[key].read_to_its_end]
                more = [key for key in self._with_others(group, metrics) if key not in {p.key for p in whole}]
                read += [*whole, *(p for p in self._read(more, depth) if p.rows)]
                share -= sum(len(p.values) for p in read[-len(whole) - len(more) :])
            left -= sum(len(p.values) for p in read)
            strata.append(Stratum(keys=frozenset(some), partitions=read))
        return strata

    def _with_others(self, group: Sequence[tuple[Any, ...]], metrics: Sequence[Any]) -> list[tuple[Any, ...]]:
        """The partitions of a device and bucket, with those of metrics that were met elsewhere."""
        place = next(iter(self._places(lambda shape, name: name == shape.metric)), None)
        if place is None:
            return list(group)
        one = group[0]
        return list(dict.fromkeys([*group, *((*one[:place], metric, *one[place + 1 :]) for metric in metrics)]))

    def _count_all(self, found: dict[tuple[Any, ...], Partition]) -> None:
        """How many rows there are in those that were not read to their end."""
        cut = [key for key, p in found.items() if not p.counted]
        budget = self._bounds.rows * _COUNTED
        for left, key in zip(range(len(cut), 0, -1), cut, strict=True):
            if self._late:
                return
            found[key] = self._count(found[key], max(_LEAST_COUNTED, budget // left))
            budget = max(0, budget - found[key].rows)

    def _partition(self, key: tuple[Any, ...], most: int, future: Any) -> Partition | None:
        a, b, c = self._cuts
        try:
            rows = [row for row in self._pages(future) if not a or row[0] is not None]  # static columns may stand alone
        except Unavailable:
            self._unread, self._in_a_row = self._unread + 1, self._in_a_row + 1
            if self._in_a_row >= _FAILED_IN_A_ROW:
                raise
            return None
        self._in_a_row = 0
        return Partition(
            key=key,
            rows=len(rows),
            counted=len(rows) < most,
            clustering=[row[:a] for row in rows],
            values=[row[a:b] for row in rows],
            written_us=[max((time for time in row[b:c] if time), default=0) for row in rows],
            expires=any(ttl for row in rows[:1] for ttl in row[c:]),
        )

    def _count(self, partition: Partition, most: int) -> Partition:
        """Its rows: counted, or where they are more, about as many as the part that was counted tells by its times."""
        clustering = self._table.of(CLUSTERING)
        if not clustering:
            return replace(partition, counted=True)
        column, rows, first, last = protect_name(clustering[0].name), 0, None, None
        try:
            for row in self._rows(self._of_key(column, partition.key, self._order, most), most):
                rows, first, last = rows + 1, row if first is None else first, row
                if self._late and rows % _PAGE == 0:
                    break
            else:
                if rows < most:
                    return replace(partition, rows=max(rows, partition.rows), counted=True)
            oldest = next(self._rows(self._of_key(column, partition.key, self._oldest, 1), 1)) if self._by_time else None
        except Unavailable:
            return partition
        if self._shape is None or first is None or last is None or oldest is None:
            return replace(partition, rows=max(rows, partition.rows))
        newest_us, reached_us, oldest_us = times_us(self._shape.unit, [first[0], last[0], oldest[0]])
        share = (newest_us - reached_us) / max(1, newest_us - oldest_us)
        return replace(partition, rows=round(rows / share) if 0 < share < 1 else rows)

    # -- statements

    @property
    def _name(self) -> str:
        return f"{protect_name(self._table.keyspace)}.{protect_name(self._table.name)}"

    def _of_key(self, columns: str, key: Sequence[Any], order: str, most: int) -> str:
        where = " AND ".join(
            f"{protect_name(c.name)} = {literal(value)}" for c, value in zip(self._table.key, key, strict=True)
        )
        return f"SELECT {columns} FROM {self._name} WHERE {where}{order} LIMIT {most}"  # noqa: S608

    def _send(self, cql: str, most: int) -> Any:
        return self._connection.send(SimpleStatement(cql, fetch_size=min(most + 1, self._page), is_idempotent=True))

    def _rows(self, cql: str, most: int) -> Iterator[tuple[Any, ...]]:
        return self._pages(self._send(cql, most))

    def _pages(self, future: Any) -> Iterator[tuple[Any, ...]]:
        with reported():
            result = future.result()
        while True:
            yield from result.current_rows
            if not result.has_more_pages:
                return
            with reported():
                result.fetch_next_page()


def _mean_bytes(partitions: Iterable[Partition]) -> int:
    """Of a row, by its longest values."""
    rows = [row for p in partitions for row in p.values]
    sizes = [sum(len(value) for value in row if isinstance(value, str | bytes)) + 8 * len(row) for row in rows]
    return max(1, sum(sizes) // max(1, len(sizes)))


def literal(value: Any) -> str:
    text: str = _ENCODER.cql_encode_all_types(value)
    return text
