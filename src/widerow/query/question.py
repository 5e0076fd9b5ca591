"""A question about steps of time, as it is put: checked before anything is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from widerow.model.errors import Rejected
from widerow.model.labels import Selectors
from widerow.model.times import TimeSpan
from widerow.query.across import ACROSS
from widerow.query.fill import FILLS
from widerow.query.labels import GROUPS, LABEL, called
from widerow.query.stepped import AGGREGATES, QUANTILES
from widerow.query.steps import Steps, steps_of, whole_span
from widerow.query.texts import STATES, TEXT_AGGREGATES

DEFAULT_AGGREGATE = "avg"
ORDERS = ("desc", "asc")
MOST_TOP = 10_000


@dataclass(frozen=True, slots=True)
class Question:
    span: TimeSpan
    steps: Steps
    aggregates: tuple[str, ...]
    fill: str = "none"
    metrics: Selectors | None = None
    """None: all."""

    @property
    def quantiles(self) -> bool:
        """Whether any is asked for."""
        return not QUANTILES.isdisjoint(self.aggregates)

    @property
    def numbers(self) -> tuple[str, ...]:
        """The aggregates that numbers have, ..."""
        return tuple(name for name in self.aggregates if name in AGGREGATES)

    @property
    def texts(self) -> tuple[str, ...]:
        """... those that texts have, ..."""
        return tuple(name for name in self.aggregates if name in TEXT_AGGREGATES)

    @property
    def states(self) -> bool:
        """... and whether it is asked how long each lasted."""
        return STATES in self.aggregates


@dataclass(frozen=True, slots=True)
class Top:
    """Only the devices with the greatest (or smallest) value of one aggregate over the whole span."""

    count: int
    by: str = DEFAULT_AGGREGATE
    ascending: bool = False


def question_of(
    span: TimeSpan,
    *,
    step: str | None,
    aggregates: Sequence[str] | None,
    fill: str | None = None,
    tz: str | None = None,
    metrics: Sequence[str] | None = None,
) -> Question:
    """Without a step the whole span is one. `Rejected` says what cannot be asked."""
    if tz and not step:
        raise Rejected("tz: it is for steps, and no step is given", code="tz")
    chosen = tuple(dict.fromkeys(aggregates or (DEFAULT_AGGREGATE,)))
    for name in chosen:
        _check_aggregate(name, (*AGGREGATES, STATES))
    if fill is not None and fill not in FILLS:
        raise Rejected(f"fill {fill[:40]!r}: give one of {', '.join(FILLS)}", code="fill")
    steps = steps_of(step, span, tz or "") if step else whole_span(span)
    return Question(span, steps, chosen, fill or "none", Selectors.of(metrics))


def check_groups(group_by: Sequence[str], aggregates: Sequence[str]) -> list[str]:
    """What to group devices and variants of metrics by. None of them: all devices are one group, each variant for itself."""
    for name in group_by:
        if name in ("", "tag:", LABEL):
            known = ", ".join((*GROUPS, "metric", "tag:NAME", "label:NAME"))
            raise Rejected(f"group_by {name[:80]!r}: give some of {known}", code="group")
    for name in aggregates:
        if name not in ACROSS:
            raise Rejected(f"agg {name} has no meaning across devices: leave group_by out, or ask for another", code="agg")
    return [name for name in dict.fromkeys(map(called, group_by)) if name != "metric"]


def check_top(top: Top, question: Question) -> None:
    _check_aggregate(top.by, AGGREGATES)
    if question.metrics is None or len(question.metrics) != 1:
        raise Rejected("top: name one metric that devices are compared by", code="top")


def _check_aggregate(name: str, known: Sequence[str]) -> None:
    if name not in known:
        raise Rejected(f"agg {name[:40]!r}: give some of {', '.join(known)}", code="agg")
