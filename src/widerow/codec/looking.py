"""How much of what a kernel could not read plain Python looks into.

Plain Python takes a hundred times as long to say what is wrong with a report as a kernel takes to read a good one, and holds
the GIL. So it looks at a bounded number of wrong reports of a body. The others are refused unread; good neighbours are kept.
"""

from __future__ import annotations

MOST_BYTES = 1 << 20
"""A report that is larger, and that no kernel can read, is refused unread."""
_WRONG_BYTES = 1 << 20
_A_REPORT = 100
"""What the reason for one refusal takes, as bytes that are read."""

TOO_MANY_VALUES = "too-many-values"


class Looking:
    """Of one body: how many of its reports were found wrong, by their size."""

    def __init__(self) -> None:
        self._left = _WRONG_BYTES

    def wrong(self, size: int) -> None:
        self._left -= size + _A_REPORT

    def unread(self, size: int) -> tuple[str, str] | None:
        """With which code and reason a report is refused without being looked at; None: it is looked at."""
        if self._left <= 0:
            return "syntax", "it is not in the usual form, and was not looked at: too many reports before it are wrong"
        if size > MOST_BYTES:
            return "too-large", f"it is not in the usual form, and with {size:,} bytes too large to be looked at"
        return None


def too_many_values(most: int) -> str:
    """The reason for refusing a report."""
    return f"the report has more than {most:,} values and tags, which is what limits.values_per_report allows"
