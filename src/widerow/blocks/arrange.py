"""From values in any order to columns: rows are grouped by device and ordered, and each cell gets the value that wins.

A cell is one metric (or one tag) of one device at one time. Of its values those with the greatest version win, with all
parts of a rollup that have this version. Where values of one version differ, the greater kind wins, then the greater bytes.
So it does not matter in which order values come, nor how often.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from widerow.blocks.columns import CODED, NO_COLUMNS, PLAIN, Columns, Head, Kind, Picked, picked
from widerow.model.arrays import Bytes, Codes, Ints, frozen, lengths
from widerow.model.batch import Batch, CellKind, Cells
from widerow.model.combine import byte_order, concatenated, each_once
from widerow.model.kernel import kernel
from widerow.model.names import NO_NAMES, Coded, Names

Strand = list[tuple[Codes, Ints]]
"""Values of one head: rows and values, in pieces."""


@dataclass(frozen=True, slots=True, eq=False)
class Loose:
    """Rows in any order, with their values. A name may stand in a dictionary several times."""

    devices: Names
    device: Codes
    time_us: Ints
    version_us: Ints
    names: Names
    strands: dict[tuple[int, int, Kind], Strand]
    texts: Names

    def __post_init__(self) -> None:
        for column in (self.device, self.time_us, self.version_us):
            frozen(column)


def arranged(loose: Loose) -> Columns:
    """The columns. Rows of the same device, time and version become one; a row may be left without values."""
    n = len(loose.device)
    if not n:
        return NO_COLUMNS
    names, name = byte_order(loose.devices)
    device = name[loose.device]
    frozen(device)
    offsets, place = np.zeros(len(names) + 1, np.int64), np.empty(n, np.int32)
    time_us, version_us, group = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int32)
    count, groups = _order(device, loose.time_us, loose.version_us, offsets, place, time_us, version_us, group)
    named, rank = byte_order(loose.names)
    texts, text = each_once(loose.texts)
    heads = tuple(_greatest_each(_heads(loose.strands, place, rank, text), texts))
    if groups < count:
        heads = _newest(heads, group[:count], groups)
    some = np.flatnonzero(lengths(offsets))
    devices, offsets = loose.devices.take(names[some]), np.append(offsets[some], count)
    return Columns(devices, offsets, time_us[:count], version_us[:count], loose.names.take(named), heads, texts)


@kernel
def _order(
    device: Codes, time_us: Ints, version_us: Ints, offsets: Ints, place: Codes, times: Ints, versions: Ints, group: Codes
) -> tuple[int, int]:
    """The place of each row, and the rows in order. A group is the rows of a device and time. Numbers of rows and groups."""
    n, devices = len(device), len(offsets) - 1
    starts = np.zeros(devices + 1, np.int64)
    for i in range(n):
        starts[device[i] + 1] += 1
    for d in range(devices):
        starts[d + 1] += starts[d]
    fill, order = starts.copy(), np.empty(n, np.int32)
    for i in range(n):
        order[fill[device[i]]] = i
        fill[device[i]] += 1
    row, groups = -1, 0
    for d in range(devices):
        begin, stop = starts[d], starts[d + 1]
        for j in range(begin + 1, stop):
            a, b = order[j - 1], order[j]
            if time_us[b] < time_us[a] or (time_us[b] == time_us[a] and version_us[b] < version_us[a]):
                mine = order[begin:stop].copy()
                mine = mine[np.argsort(version_us[mine], kind="mergesort")]
                order[begin:stop] = mine[np.argsort(time_us[mine], kind="mergesort")]
                break
        for j in range(begin, stop):
            i = order[j]
            same = j > begin and time_us[i] == times[row]
            if not same:
                groups += 1
            if not same or version_us[i] != versions[row]:
                row += 1
                times[row], versions[row], group[row] = time_us[i], version_us[i], groups - 1
            place[i] = row
        offsets[d + 1] = row + 1
    return row + 1, groups


def _heads(strands: dict[tuple[int, int, Kind], Strand], place: Codes, rank: Codes, text: Codes) -> list[tuple[Head, bool]]:
    """Heads in order, with their rows in order; and whether a row of one occurs twice."""
    keys: dict[tuple[int, int, Kind], Strand] = {}
    for (name, part, kind), strand in strands.items():
        key = int(rank[name]), PLAIN if part == PLAIN else int(rank[part]), kind
        keys[key] = [*keys[key], *strand] if key in keys else strand
    known: dict[tuple[int, ...], tuple[Codes, Ints | None, bool]] = {}
    shared: dict[tuple[int, int, int], list[Codes]] = {}
    out = []
    for name, part, kind in sorted(keys):
        strand = [piece for piece in keys[name, part, kind] if len(piece[0])]
        if not strand:
            continue
        of = tuple([id(rows) for rows, _ in strand])
        if of not in known:
            rows = place[np.concatenate([rows for rows, _ in strand]) if len(strand) > 1 else strand[0][0]]
            steps = rows[1:] - rows[:-1]
            least, order = int(steps.min(initial=1)), None
            if least < 0:
                order = np.argsort(rows, kind="stable")
                rows = rows[order]
                least = int((rows[1:] - rows[:-1]).min(initial=1))
            alike = shared.setdefault((len(rows), int(rows[0]), int(rows[-1])), [])
            same = next((other for other in alike if np.array_equal(other, rows)), None)
            if same is None:
                alike.append(rows)
            known[of] = rows if same is None else same, order, least == 0
        rows, order, twice = known[of]
        values = np.concatenate([values for _, values in strand]) if len(strand) > 1 else strand[0][1]
        if kind in CODED:
            values = text[values].astype(np.int64)
        out.append((Head(name, part, kind, rows, values if order is None else values[order]), twice))
    return out


def _greatest_each(found: Sequence[tuple[Head, bool]], texts: Names) -> list[Head]:
    """Each row once in the heads of a metric: of several values the one of the greatest kind, then of the greatest bytes."""
    heads: list[Head] = []
    rank: Codes | None = None
    for head, twice in found:
        if twice:
            rank = byte_order(texts)[1] if rank is None and head.kind in CODED else rank
            bits = head.values.view(np.uint64) if rank is None or head.kind not in CODED else rank[head.values]
            where = np.lexsort((bits, head.rows))[np.append(head.rows[1:] != head.rows[:-1], True)]
            head = Head(*head.key, head.rows[where], head.values[where])  # noqa: PLW2901
        heads.append(head)
    kinds: dict[tuple[int, int], list[Head]] = {}
    for head in reversed(heads):
        if head.kind != Kind.TAG:
            kinds.setdefault((head.name, head.part), []).append(head)
    lesser = {greater[i].key: greater[:i] for greater in kinds.values() for i in range(1, len(greater))}
    out = []
    for head in heads:
        taken = [greater.rows for greater in lesser.get(head.key, ())]
        free = ~np.isin(head.rows, np.concatenate(taken)) if taken else None
        if free is None or free.any():
            out.append(head if free is None else Head(*head.key, head.rows[free], head.values[free]))
    return out


def _newest(heads: Sequence[Head], group: Codes, groups: int) -> tuple[Head, ...]:
    """Of the values of a cell those of the last of its rows, which has the greatest version."""
    cells: dict[tuple[int, bool], list[Head]] = {}
    for head in heads:
        cells.setdefault((head.name, head.kind == Kind.TAG), []).append(head)
    alike: dict[frozenset[int], list[Head]] = {}
    for mine in cells.values():
        alike.setdefault(frozenset(id(head.rows) for head in mine), []).extend(mine)
    out: list[Head] = []
    for mine in alike.values():
        last = np.full(groups, -1, np.int32)
        for rows in {id(head.rows): head.rows for head in mine}.values():
            last[group[rows]] = np.maximum(last[group[rows]], rows)

        def pick(rows: Codes, last: Codes = last) -> Picked:
            won = last[group[rows]] == rows
            return (rows, slice(None)) if won.all() else (rows[won], won)

        out += picked(mine, pick)
    return tuple(sorted(out, key=lambda head: head.key))


_KINDS = {CellKind.NUMBER: Kind.NUMBER, CellKind.TEXT: Kind.TEXT, CellKind.TAG: Kind.TAG, CellKind.RECORD: Kind.BYTES}
_CELL_KINDS = {**{kind: cell for cell, kind in _KINDS.items()}, Kind.INTEGER: CellKind.NUMBER, Kind.FLAG: CellKind.NUMBER}


def of_batch(batch: Batch) -> Columns:
    """Reports as columns. Reports of one device, time and version become one."""
    cells = batch.cells
    starts = np.zeros(len(_KINDS) * len(cells.names) + 1, np.int64)
    rows, values = np.empty(len(cells), np.int32), np.empty(len(cells), np.int64)
    _sort_out(cells.offsets, cells.name, cells.kind, cells.number.view(np.int64), cells.text, starts, rows, values)
    strands: dict[tuple[int, int, Kind], Strand] = {}
    cuts = starts.tolist()
    for key in np.flatnonzero(lengths(starts)).tolist():
        name, cell = divmod(key, len(_KINDS))
        mine = slice(cuts[key], cuts[key + 1])
        strands[name, PLAIN, _KINDS[CellKind(cell)]] = [(rows[mine], values[mine])]
    return arranged(
        Loose(batch.device.names, batch.device.codes, batch.time_us, batch.version_us, cells.names, strands, cells.texts)
    )


@kernel
def _sort_out(
    offsets: Ints, name: Codes, kind: Bytes, bits: Ints, text: Codes, starts: Ints, rows: Codes, values: Ints
) -> None:
    """Cells by name and kind, in order of their rows."""
    for c in range(len(name)):
        starts[4 * np.int64(name[c]) + kind[c] + 1] += 1
    for k in range(1, len(starts)):
        starts[k] += starts[k - 1]
    fill = starts.copy()
    for row in range(len(offsets) - 1):
        for c in range(offsets[row], offsets[row + 1]):
            key = 4 * np.int64(name[c]) + kind[c]
            rows[fill[key]] = row
            values[fill[key]] = text[c] if kind[c] else bits[c]
            fill[key] += 1


def to_batch(columns: Columns) -> Batch:
    """The columns as reports, each row one; integers and flags become numbers. Rollups are no reports."""
    if any(head.part != PLAIN for head in columns.heads):
        raise ValueError("rollups are no reports")
    base, offsets = columns.first_row, np.zeros(len(columns) + 1, np.int64)
    for head in columns.heads:
        offsets[head.rows - (base - 1)] += 1
    np.cumsum(offsets, out=offsets)
    fill, n = offsets.copy(), int(offsets[-1])
    name, kind, number = np.empty(n, np.int32), np.empty(n, np.uint8), np.full(n, np.nan)
    text = np.full(n, -1, np.int32)
    for head in columns.heads:
        where = fill[head.rows - base]
        fill[head.rows - base] += 1
        name[where], kind[where] = head.name, _CELL_KINDS[head.kind]
        if head.kind in CODED:
            text[where] = head.values
        else:
            number[where] = head.values.view(np.float64) if head.kind == Kind.NUMBER else head.values
    device, position = Coded(columns.devices, columns.device_rows()), np.arange(len(columns), dtype=np.int32)
    cells = Cells(offsets, columns.names, name, kind, number, columns.texts, text)
    return Batch(device, columns.time_us, columns.version_us, position, cells)


Given = tuple[str, str, Kind, Codes, Ints | Coded]
"""A name, the part of a rollup or "", a kind; the rows that have a value, and these: words, or texts."""


def of_values(device: Coded, time_us: Ints, version_us: Ints, given: Sequence[Given]) -> Columns:
    """Rows of any kinds of values, rollups among them, as columns."""
    names: dict[str, int] = {}
    strands: dict[tuple[int, int, Kind], Strand] = {}
    texts: list[Names] = [NO_NAMES]
    base = 0
    for name, part, kind, rows, values in given:
        if isinstance(values, Coded):
            texts.append(values.names)
            words, base = values.codes.astype(np.int64) + base, base + len(values.names)
        else:
            words = values
        key = names.setdefault(name, len(names)), names.setdefault(part, len(names)) if part else PLAIN, kind
        strands.setdefault(key, []).append((rows, words))
    return arranged(Loose(device.names, device.codes, time_us, version_us, Names.of(names), strands, concatenated(texts)))
