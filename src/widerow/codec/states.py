"""Texts over windows of time: what a rollup says of a metric whose values are states.

Rule 1: `States.of` is a function of the texts and their times, `merged` of the states beneath it: computing again gives the
same. A state lasts from its report to the next within the window. From one window to the next it is the last state of the
earlier one that lasts: that time is added when they are merged.
Rule 2: of a group at most `MOST_VALUES` texts are told apart, and `MOST_BYTES` of them besides the first and the last, which
always are. The most frequent ones are; of equally frequent ones those that come first in the order of their bytes. The rest
is summed up as others. So counts and times are of all reports, whatever was left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from widerow.model.arrays import Codes, Ints, frozen, lengths, picked
from widerow.model.combine import in_order, united
from widerow.model.names import Coded, Names

MOST_VALUES = 64
MOST_BYTES = 4096


@dataclass(frozen=True, slots=True, eq=False)
class States:
    """What texts of many groups say, none of them empty.

    Group g has the texts `value[offsets[g]:offsets[g + 1]]`, in the order of their bytes, each once.
    """

    names: Names
    """In order, each once."""
    count: Ints
    """Reports."""
    first_us: Ints
    last_us: Ints
    first: Codes
    """A code into the names, as the next."""
    last: Codes
    other_count: Ints
    """Reports of texts that are not told apart."""
    other_us: Ints
    offsets: Ints
    value: Codes
    counts: Ints
    """How many reports said it."""
    lasted_us: Ints
    """How long it lasted, all together."""

    def __post_init__(self) -> None:
        for name in ("offsets", *_PER_GROUP, *_PER_VALUE):
            frozen(getattr(self, name))

    def __len__(self) -> int:
        return len(self.count)

    @staticmethod
    def of(time_us: Ints, text: Coded, offsets: Ints) -> States:
        """Group g has the reports `offsets[g]:offsets[g + 1]`, at least one, in order of time."""
        if (lengths(offsets) < 1).any():
            raise ValueError("a group without texts has no states")
        text = in_order(united([_used(text)]))
        ends = offsets[1:] - 1
        lasting = np.zeros(len(time_us), np.int64)
        lasting[:-1] = lengths(time_us)
        lasting[ends] = 0
        none = np.zeros(len(ends), np.int64)
        tally = _tallied(_groups(offsets), text.codes, np.ones(len(time_us), np.int64), lasting, len(ends))
        begins = offsets[:-1]
        heads = lengths(offsets), time_us[begins], time_us[ends], text.codes[begins], text.codes[ends]
        return _bounded(States(text.names, *heads, none, none.copy(), *tally))

    def merged(self, offsets: Ints) -> States:
        """One for each group of states, which come in order of time."""
        if (lengths(offsets) < 1).any():
            raise ValueError("a group without states cannot be merged")
        if len(offsets) == len(self) + 1:
            return self  # each alone stays as it is
        begins, ends, group = offsets[:-1], offsets[1:] - 1, _groups(offsets)
        # Between two windows the last state of the earlier one lasts.
        earlier = np.flatnonzero(group[1:] == group[:-1])
        between = self.first_us[earlier + 1] - self.last_us[earlier]
        tally = _tallied(
            np.concatenate([np.repeat(group, lengths(self.offsets)), group[earlier]]),
            np.concatenate([self.value, self.last[earlier]]),
            np.concatenate([self.counts, np.zeros(len(earlier), np.int64)]),
            np.concatenate([self.lasted_us, between]),
            len(ends),
        )
        return _bounded(
            States(
                self.names,
                np.add.reduceat(self.count, begins),
                self.first_us[begins],
                self.last_us[ends],
                self.first[begins],
                self.last[ends],
                np.add.reduceat(self.other_count, begins),
                np.add.reduceat(self.other_us, begins),
                *tally,
            )
        )

    def take(self, which: Ints) -> States:
        offsets, where = picked(self.offsets, which)
        columns: dict[str, Any] = {name: getattr(self, name)[which] for name in _PER_GROUP}
        columns |= {name: getattr(self, name)[where] for name in _PER_VALUE}
        return States(names=self.names, offsets=offsets, **columns)


_PER_GROUP = ("count", "first_us", "last_us", "first", "last", "other_count", "other_us")
_PER_VALUE = ("value", "counts", "lasted_us")


def no_states() -> States:
    return States.of(np.zeros(0, np.int64), Coded.of(()), np.zeros(1, np.int64))


def stacked(parts: Sequence[States]) -> States:
    """All states in order; at least one part."""
    if len(parts) == 1:
        return parts[0]

    def text(name: str) -> Coded:
        return in_order(united([Coded(part.names, getattr(part, name)) for part in parts]))

    # Codes of one dictionary: each column has all its parts' names in it, whether it uses them or not.
    columns: dict[str, Any] = {name: text(name).codes for name in ("first", "last", "value")}
    for name in ("count", "first_us", "last_us", "other_count", "other_us", "counts", "lasted_us"):
        columns[name] = np.concatenate([getattr(part, name) for part in parts])
    ends = np.cumsum([0, *(len(part.value) for part in parts)])
    cuts = [part.offsets[:-1] + end for part, end in zip(parts, ends, strict=False)]
    return States(names=text("value").names, offsets=np.concatenate([*cuts, ends[-1:]]), **columns)


def _groups(offsets: Ints) -> Ints:
    return np.repeat(np.arange(len(offsets) - 1), lengths(offsets))


def _used(text: Coded) -> Coded:
    """The same texts, with a dictionary of these alone."""
    used = np.zeros(len(text.names), np.bool_)
    used[text.codes] = True
    place = (np.cumsum(used) - 1).astype(np.int32)
    return Coded(text.names.take(np.flatnonzero(used)), place[text.codes])


def _tallied(group: Ints, code: Codes, counts: Ints, lasted_us: Ints, groups: int) -> tuple[Ints, Codes, Ints, Ints]:
    """Equal texts of a group as one, in order: where each group's begin, the texts, their counts and times."""
    if len(code) == 0:
        return np.zeros(groups + 1, np.int64), code, counts, lasted_us
    names = int(code.max()) + 1
    key = group * names + code
    order = np.argsort(key, kind="stable")  # one key: groups come in order, so that it is nearly in order as it is
    key = key[order]
    first = np.ones(len(order), np.bool_)
    first[1:] = key[1:] != key[:-1]
    heads = np.flatnonzero(first)
    offsets = np.searchsorted(key[heads], np.arange(groups + 1) * names)
    code = (key[heads] % names).astype(np.int32)
    return offsets, code, np.add.reduceat(counts[order], heads), np.add.reduceat(lasted_us[order], heads)


def _bounded(states: States) -> States:
    """With no more texts than may be told apart."""
    s = states
    if len(s) == 0:
        return s
    group, begins = _groups(s.offsets), s.offsets[:-1]
    always = (s.value == s.first[group]) | (s.value == s.last[group])
    size = np.where(always, 0, lengths(s.names.offsets)[s.value])
    if (lengths(s.offsets) <= MOST_VALUES).all() and (np.add.reduceat(size, begins) <= MOST_BYTES).all():
        return s
    order = np.lexsort((s.value, -s.counts, ~always, group))  # each group's where they were
    rank = np.arange(len(order)) - begins[group]
    spent = np.cumsum(size[order])
    spent -= (spent - size[order])[begins][group]
    kept = np.zeros(len(order), np.bool_)
    kept[order] = always[order] | ((rank < MOST_VALUES) & (spent <= MOST_BYTES))
    ends = np.zeros(len(order) + 1, np.int64)
    np.cumsum(kept, out=ends[1:])
    return States(
        s.names,
        s.count,
        s.first_us,
        s.last_us,
        s.first,
        s.last,
        s.other_count + np.add.reduceat(np.where(kept, 0, s.counts), begins),
        s.other_us + np.add.reduceat(np.where(kept, 0, s.lasted_us), begins),
        ends[s.offsets],
        s.value[kept],
        s.counts[kept],
        s.lasted_us[kept],
    )
