"""Bytes of what is stored, by engine and layout. Each figure is measured or follows from a format, and says which.

Rule 1: `plain` is before compression, as Cassandra and `sstablepartitions` count it; `stored` is on the disk, compacted.
Rule 2: names of metrics are taken to have 12 bytes, of tenants and devices 20 together.
`docs/guides/plan-a-cluster.md` tells where each figure comes from, and how to measure one's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from widerow.model.device import VALUE_BYTES
from widerow.model.sizes import REPORT_BYTES

NAME_BYTES = 12
OWNER_BYTES = 20
_KEY_BYTES = 42 + OWNER_BYTES
"""Of a row of reports on Bigtable: salt, tenant, device, bucket, sub-bucket and reversed time (docs/format/bigtable.md)."""
_CELL_BYTES = NAME_BYTES + 8
"""Of a cell on Bigtable besides its value: the qualifier and the timestamp."""


def record_bytes(values: float, most: float = 193.0) -> float:
    """A rollup's record of so many values of two decimals: the values themselves, or statistics where that is shorter.

    6 values take 18.4 bytes, 360 take 193 (docs/adr/0010-rollups.md); fewer bytes lie between.
    """
    return min(6.4 + 2.0 * values, most)


@dataclass(frozen=True, slots=True)
class Footprint:
    """`plain(level, metrics, values)`: the bytes of one report, or of one window, of one device."""

    plain: Callable[[str, int, float], float]
    kept: Mapping[str, float]
    """The share of them that compression leaves, by level."""
    row_per_metric: bool
    source: str
    values_per_row: float = 1.0
    """Values in a row where it holds those of many devices."""
    metric_bytes: float | None = None

    def rows(self, metrics: int) -> float:
        """Of one report or window."""
        if self.values_per_row > 1:
            return metrics / self.values_per_row
        return metrics if self.row_per_metric else 1.0

    def plain_bytes(self, level: str, metrics: int, values: float, text_bytes: int) -> float:
        return self.plain(level, metrics, values) + (text_bytes if level == "raw" else 0)

    def stored_bytes(self, level: str, metrics: int, values: float, text_bytes: int) -> float:
        if level == "raw" and self.metric_bytes is not None:
            return metrics * self.metric_bytes + text_bytes
        return self.plain_bytes(level, metrics, values, text_bytes) * self.kept[level]


def footprint(engine: str, layout: str, metric_bytes: float | None = None) -> Footprint:
    if layout == "packed":
        return Footprint(
            _packed, _ALL, row_per_metric=False, source=_PACKED, values_per_row=100_000, metric_bytes=metric_bytes
        )
    plain, kept, row_per_metric, source = _ROWS[engine]
    return Footprint(plain, kept, row_per_metric, source, metric_bytes=metric_bytes)


def _cassandra(level: str, metrics: int, values: float) -> float:
    return metrics * (float(VALUE_BYTES) if level == "raw" else 179 + record_bytes(values, 230))


def _rocksdb(level: str, metrics: int, values: float) -> float:
    key = REPORT_BYTES + OWNER_BYTES
    if level == "raw":
        return key + 8.0 * metrics
    if level == "minute":
        return key + metrics * (4 + record_bytes(values))
    return metrics * (key + NAME_BYTES + 4 + record_bytes(values))


def _bigtable(level: str, metrics: int, values: float) -> float:
    return _KEY_BYTES + metrics * (_CELL_BYTES + (8.0 if level == "raw" else record_bytes(values)))


def _packed(level: str, metrics: int, values: float) -> float:
    return metrics * (1.08 if level == "raw" else record_bytes(values, 128 if level == "day" else 113))


_ALL = dict.fromkeys(("raw", "minute", "hour", "day"), 1.0)
_ROWS: Mapping[str, tuple[Callable[[str, int, float], float], Mapping[str, float], bool, str]] = {
    "cassandra": (
        _cassandra,
        {"raw": 0.27, "minute": 0.48, "hour": 0.40, "day": 0.63},
        True,
        "on disk, measured on Cassandra 5.0 with LZ4, its default, after compaction",
    ),
    "rocksdb": (
        _rocksdb,
        {"raw": 0.257, "minute": 0.30, "hour": 0.25, "day": 0.37},
        False,
        "on disk, measured on RocksDB after compaction",
    ),
    "bigtable": (
        _bigtable,
        _ALL,
        False,
        "keys and values before compression: the service was not measured, so this is more than it bills",
    ),
}
_PACKED = "raw values measured on files of blocks, rollups counted as records without keys; stores of this release hold rows"
