"""Some devices of a described fleet, with the values that a key may show of them.

Rule 1: the same fleet gives the same devices. Hot devices are always among them.
Rule 2: `stands_for` says how many devices of the fleet each of them is; together they are all of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import md5
from re import sub

import numpy as np

from widerow.keys.scan import shard_of
from widerow.keys.spec import Column
from widerow.model.arrays import Codes, Floats, Ints
from widerow.model.names import Coded, Names
from widerow.plan.fleet import DeviceClass, Fleet

_GOLDEN = 0.6180339887498949


@dataclass(frozen=True)
class Sample:
    """Columns with a row for each device."""

    fleet: Fleet
    kinds: Ints
    """Which class each is of."""
    stands_for: Floats
    hot: Codes
    """Which of `fleet.hot` each belongs to; -1: none."""
    columns: Mapping[str, Column]

    def __len__(self) -> int:
        return len(self.kinds)

    def rows(self, chosen: Ints) -> dict[str, Column]:
        """The columns of some of them."""
        return {name: _taken(column, chosen) for name, column in self.columns.items()}

    def values(self, row: int) -> dict[str, str]:
        """What is known of one device, as texts."""
        return {name: column[row] for name, column in self.columns.items() if isinstance(column, Coded)}


def sample_of(fleet: Fleet, most: int) -> Sample:
    """About `most` devices of the fleet, or all of a smaller one."""
    numbers, kinds, stands_for, hot = list[Ints](), list[Ints](), list[Floats](), list[Codes]()
    share = min(1.0, most / fleet.devices)
    for k, kind in enumerate(fleet.classes):
        chosen = np.unique(np.linspace(0, kind.devices - 1, max(1, round(kind.devices * share))).astype(np.int64))
        mark = np.full(len(chosen), -1, np.int32)
        for h, spell in enumerate(fleet.hot):
            if spell.kind == kind.name:
                count = min(spell.devices, kind.devices, 1000)
                special = ((np.arange(count) + 0.5) * kind.devices / count).astype(np.int64)
                chosen, mark = _with(chosen, mark, special, h)
        weight = np.where(mark >= 0, 1.0, 0.0)
        if (mark < 0).any():
            weight[mark < 0] = (kind.devices - weight.sum()) / (mark < 0).sum()
        numbers.append(chosen)
        kinds.append(np.full(len(chosen), k, np.int64))
        stands_for.append(weight)
        hot.append(mark)
    kind_of, number = np.concatenate(kinds), np.concatenate(numbers)
    names = [name_of(fleet.classes[k], n) for k, n in zip(kind_of.tolist(), number.tolist(), strict=True)]
    return Sample(
        fleet, kind_of, np.concatenate(stands_for), np.concatenate(hot), _columns(fleet, kind_of, number, Names.of(names))
    )


def _with(chosen: Ints, mark: Codes, special: Ints, h: int) -> tuple[Ints, Codes]:
    merged = np.union1d(chosen, special)
    marks = np.full(len(merged), -1, np.int32)
    marks[np.searchsorted(merged, chosen)] = mark
    marks[np.searchsorted(merged, special)] = h
    return merged, marks


def name_of(kind: DeviceClass, number: int) -> str:
    """How a device is called: the pattern of its class, filled in."""
    name = sub(r"\{n(?::0?(\d))?\}", lambda found: f"{number:0{int(found[1] or 1)}d}", kind.id)
    return sub(
        r"\{hex:(\d+)\}",
        lambda f: md5(f"{kind.name}{number}".encode(), usedforsecurity=False).hexdigest()[: int(f[1])],
        name,
    )


def tenant_name(number: int) -> str:
    return f"tenant-{number + 1:02d}"


def metric_name(number: int) -> str:
    return f"metric-{number + 1:02d}"


def _columns(fleet: Fleet, kinds: Ints, numbers: Ints, devices: Names) -> dict[str, Column]:
    draw = (numbers * _GOLDEN + kinds * 0.37) % 1.0
    tenants = np.minimum((draw * fleet.tenants).astype(np.int64), fleet.tenants - 1)
    if fleet.largest_tenant and fleet.tenants > 1:
        rest = (draw - fleet.largest_tenant) / max(1e-9, 1.0 - fleet.largest_tenant)
        others = 1 + np.clip((rest * (fleet.tenants - 1)).astype(np.int64), 0, fleet.tenants - 2)
        tenants = np.where(draw < fleet.largest_tenant, 0, others)
    types = numbers % np.array([kind.types for kind in fleet.classes])[kinds]
    places = (numbers // 7) % np.array([kind.locations for kind in fleet.classes])[kinds]
    n = len(numbers)
    return {
        "tenant": _coded([tenant_name(i) for i in range(fleet.tenants)], tenants),
        "device": Coded(devices, np.arange(n, dtype=np.int32)),
        "type": _coded([f"type-{i + 1}" for i in range(int(types.max(initial=0)) + 1)], types),
        "location": _coded([f"site-{i + 1:02d}" for i in range(int(places.max(initial=0)) + 1)], places),
        "metric": _coded([metric_name(0)], np.zeros(n, np.int64)),
    }


def shards(column: Column, width: int) -> Ints:
    """The shard of each device."""
    assert isinstance(column, Coded)
    return np.array([shard_of(name, width) for name in column.to_list()], np.int64)


def _coded(names: Sequence[str], codes: Ints) -> Coded:
    return Coded(Names.of(names), codes.astype(np.int32))


def _taken(column: Column, rows: Ints) -> Column:
    return column.take(rows) if isinstance(column, Coded) else column[rows]
