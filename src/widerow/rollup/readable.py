"""Going on beside bytes that cannot be read: what they are of is found by halving, and the rest is done."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from widerow.model.arrays import Ints
from widerow.model.errors import Corrupt


class Unreadable:
    """The parts of a piece of work that met `Corrupt` and were left out. `trouble`: the first error's text."""

    def __init__(self) -> None:
        self.trouble = ""

    def beside(self, which: Ints, work: Callable[[Ints], object]) -> Ints:
        """Do the work for these; gives those for which it cannot be done. It changes nothing before all of it was read."""
        try:
            if len(which):
                work(which)
        except Corrupt as error:
            self.trouble = self.trouble or str(error)
            if len(which) == 1:
                return which
            middle = len(which) // 2
            return np.concatenate([self.beside(which[:middle], work), self.beside(which[middle:], work)])
        return which[:0]
