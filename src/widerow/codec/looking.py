"""How much of what a kernel could not read plain Python looks into.

Plain Python takes a hundred times as long to say what is wrong with a report as a kernel takes to read a good one, and holds
the GIL. So it looks at a bounded number of wrong reports of a body. The others are refused unread; good neighbours are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from widerow.model.arrays import Ints

CROWDED = -1
"""Stands for the end of a report with too many values in the list that a kernel leaves: it is not read again."""
MOST_BYTES = 1 << 20
"""A report that is larger is refused unread."""
_WRONG_BYTES = 1 << 20
_STEP = 1024
_A_REPORT = 100
"""What the reason for one refusal takes, as bytes that are read."""

TOO_MANY_VALUES = "too-many-values"

Refuse = Callable[[str, str, Sequence[int]], None]
"""Takes a code, a reason, and the places of the reports."""


class Looking:
    """The allowance of one body."""

    def __init__(self, max_values: int, refuse: Refuse) -> None:
        self._max_values, self._refuse = max_values, refuse
        self._left = _WRONG_BYTES

    def wrong(self, size: int) -> None:
        """Charge the last report that `at` gave: it was wrong, and had so many bytes."""
        self._left -= size + _A_REPORT

    def at(self, odd: Ints) -> Iterator[list[int]]:
        """Of reports, each (start, stop, place), those to look at. The others are refused here."""
        for i in range(0, len(odd), _STEP):
            for report in odd[i : i + _STEP].tolist():
                start, stop, place = report
                if stop == CROWDED:
                    self._refuse(TOO_MANY_VALUES, too_many_values(self._max_values), [place])
                elif stop - start > MOST_BYTES:
                    reason = f"it is not in the usual form, and with {stop - start:,} bytes too large to be looked at"
                    self._refuse("too-large", reason, [place])
                elif self._left > 0:
                    yield report
                else:
                    self._refuse_unread([place])
            if self._left <= 0:
                self._refuse_unread(odd[i + _STEP :, 2].tolist())
                return

    def _refuse_unread(self, places: list[int]) -> None:
        if places:
            reason = "it is not in the usual form, and was not looked at: too many reports before it are wrong"
            self._refuse("syntax", reason, places)


def too_many_values(most: int) -> str:
    """The reason for refusing a report."""
    return f"the report has more than {most:,} values and tags, which is what limits.values_per_report allows"
