"""The laws of an engine, as tests that any runner can run. Test names are the laws; docstrings of `engine.port` say more.

An engine's own test module subclasses `EngineContract` and gives two pytest fixtures:
- `clock`: a `ManualClock(START_US)`, new for each test;
- `engine`: open, on that clock, with `TABLES` applied and nothing in them; closed afterwards.
Where `features.durable` is set it also overrides `reopen()`, which closes the engine and returns it opened again on what it
stored. Nothing else: a missing feature is data, and its tests skip themselves, visibly, with `unittest.SkipTest`.

Left open, on purpose, so callers must not rely on it: which of two different values of one version wins; what a cell shows
whose newest version expires before an older one; whether a row that should outlive its window is shown until `expire`; the
order of the fragments of a row; what `first` shows beyond first appearances, or together with `limit`; the versions of
conditional rows; a key asked for twice, keys of different lengths, or a span beside longer keys in one scan.
"""

from __future__ import annotations

from widerow.engine.contract.by_column import AllByColumn, ByColumnLaws
from widerow.engine.contract.conditional import ConditionalLaws
from widerow.engine.contract.keys import KeyLaws
from widerow.engine.contract.lifetimes import DeleteLaws, DurabilityLaws, ExpiryLaws
from widerow.engine.contract.plain import (
    CellName,
    Fragment,
    Live,
    Logical,
    LogicalRow,
    Plain,
    Shape,
    Tag,
    fixed_rows,
    gather,
    keys,
    logical,
    merged,
    rows_from,
    sparse_rows,
    values,
)
from widerow.engine.contract.races import RaceLaws
from widerow.engine.contract.scans import ScanLaws, check_first
from widerow.engine.contract.tables import START_US, TABLES
from widerow.engine.contract.writes import WriteLaws

__all__ = [
    "START_US",
    "TABLES",
    "AllByColumn",
    "CellName",
    "EngineContract",
    "Fragment",
    "Live",
    "Logical",
    "LogicalRow",
    "Plain",
    "Shape",
    "Tag",
    "check_first",
    "fixed_rows",
    "gather",
    "keys",
    "logical",
    "merged",
    "rows_from",
    "sparse_rows",
    "values",
]


class EngineContract(
    WriteLaws, KeyLaws, ScanLaws, ByColumnLaws, ConditionalLaws, DeleteLaws, ExpiryLaws, DurabilityLaws, RaceLaws
):
    """Every law. A subclass gives the fixtures named above and nothing else."""
