"""Grouping by labels: variants of a metric that have the same values of some labels are merged.

Rule 1: `label:NAME` in `group_by` is always a label. NAME alone is one, too, unless it has another meaning there: `device`,
`type`, `location`, `metric` and `tag:NAME` have.
Rule 2: while variants are merged, a metric is named by the labels asked for alone: `disk_used{fstype=ext4,path=/}` is
`disk_used{path=/}`. In the answer it is `disk_used`, and `path` is what its group has in common.
Labels that are named as a column of answers (`agg`, `kind`, `value`, ...) are called `label:NAME` there.
Rule 3: metrics that lack one of the labels are left out. When that is all of them, the question is refused: it is a typo.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from widerow.model.arrays import Flags, Ints
from widerow.model.combine import in_order
from widerow.model.errors import Rejected
from widerow.model.labels import labelled, parted
from widerow.model.names import Coded

GROUPS = ("device", "type", "location")
"""What devices can be grouped by, beside `tag:NAME`; and `metric`, which series are apart by in any case."""
LABEL = "label:"
_COLUMNS = ("time", "agg", "kind", "value", "text")


def labels_in(group_by: Sequence[str]) -> dict[str, str]:
    """The labels among what is grouped by, each under the name by which the question calls it."""
    return {name: name.removeprefix(LABEL) for name in group_by if not _is_of_devices(name)}


def _is_of_devices(name: str) -> bool:
    return name in (*GROUPS, "metric") or name.startswith("tag:")


def called(name: str) -> str:
    """What the answer calls something that it is grouped by: a label is told apart from the answer's own columns."""
    return LABEL + name if name in _COLUMNS else name


def kept_labels(metric: Coded, labels: Sequence[str]) -> tuple[Coded, Flags]:
    """Metrics with these labels alone, and which entries have all of them."""
    short = Coded.of([_short(stored, labels) for stored in metric.names])
    has = np.array([bool(name) for name in short.names], np.bool_)
    codes = short.codes[metric.codes]
    return Coded(short.names, codes), has[codes]


def _short(stored: str, labels: Sequence[str]) -> str:
    """Empty: one of the labels is not there."""
    name, has = parted(stored)
    return labelled(name, {label: has[label] for label in labels}) if all(label in has for label in labels) else ""


def apart(metric: Coded, labels: Mapping[str, str]) -> tuple[Coded, dict[str, Coded]]:
    """The plain names, and the values of each label, of metrics that have just these labels."""
    parts = [parted(stored) for stored in metric.names]
    columns = {asked: Coded.of([has.get(label, "") for _, has in parts]) for asked, label in labels.items()}
    plain = Coded.of([name for name, _ in parts])
    return (
        Coded(plain.names, plain.codes[metric.codes]),
        {asked: Coded(column.names, column.codes[metric.codes]) for asked, column in columns.items()},
    )


def by_owner(owners: Mapping[str, Coded], metric: Coded, start_us: Ints) -> tuple[Ints, Ints]:
    """The order of entries by owner, metric and step; and of each entry in that order the number of its owner."""
    ranks = [in_order(column).codes.astype(np.int64) for column in (metric, *reversed([*owners.values()]))]
    order: Ints = np.lexsort((start_us, *ranks))
    changes = np.zeros(len(order), np.bool_)
    for rank in ranks[1:]:
        sorted_rank = rank[order]
        changes[1:] |= sorted_rank[1:] != sorted_rank[:-1]
    return order, np.cumsum(changes)


def refuse_unknown(labels: Mapping[str, str]) -> None:
    """For when all metrics lack what they should be grouped by."""
    raise Rejected(
        f"group_by {', '.join(labels)[:80]!r}: no metric of the answer has that label; "
        f"give labels, or some of {', '.join((*GROUPS, 'metric', 'tag:NAME'))}",
        code="group",
    )
