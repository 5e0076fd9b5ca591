"""Simulated tablets: ranges of atoms that split when they are large or busy, and move between nodes.

The rules are those that Bigtable documents in words: a tablet is split when it grows too large or takes too much load, and a
balancer moves tablets from busy nodes to idle ones, minutes after it saw the load. The numbers are ours; see the guide.
On Cassandra there is nothing to split and nothing to move: token ranges belong to nodes.
"""

from __future__ import annotations

import numpy as np

from widerow.keylab.design import Design
from widerow.model.arrays import Floats, Ints

TABLET_BYTES = 10e9
"""A tablet is split when it has grown to this."""
MOST_TABLETS = 2_000
TOKEN_RANGES = 256
_BUSY = 0.25
"""A tablet is split when it alone takes this share of what a node should take,"""
BUSY_PER_S = 1_000
"""and at least so many rows or questions a second."""
_MOVES = 64


class Tablets:
    """The tablets of one table. Atoms are numbers; a tablet is the atoms from its start to the next one's."""

    def __init__(self, stored: Floats, nodes: int) -> None:
        self.nodes, self.splits = nodes, 0
        self._bytes = stored.copy()
        wanted = int(np.clip(stored.sum() / TABLET_BYTES, nodes, MOST_TABLETS))
        filled = np.cumsum(stored)
        cuts = np.searchsorted(filled, np.arange(1, wanted) / wanted * filled[-1]) if filled[-1] else np.zeros(0, np.int64)
        self.starts = np.unique(np.concatenate([[0], cuts[cuts > 0]])).astype(np.int64)
        self.node = np.arange(len(self.starts)) % nodes

    def tablet_of(self, atoms: Ints) -> Ints:
        return np.searchsorted(self.starts, atoms, "right") - 1

    def touched(self, first: Ints, last: Ints) -> int:
        """How many tablets hold these ranges of atoms, both ends included."""
        marks = np.zeros(len(self.starts) + 1, np.int64)
        np.add.at(marks, self.tablet_of(first), 1)
        np.add.at(marks, self.tablet_of(last) + 1, -1)
        return int((np.cumsum(marks)[:-1] > 0).sum())

    def adapt(self, load: Floats, written: Floats, seconds: float) -> None:
        """After an interval: split what is large or busy, then move tablets by the load just seen. All by atom."""
        self._bytes += written
        total = load.sum()
        loads, sizes = np.add.reduceat(load, self.starts), np.add.reduceat(self._bytes, self.starts)
        busy = (loads > _BUSY * total / self.nodes) & (loads > BUSY_PER_S * seconds)
        for tablet in np.flatnonzero(busy | (sizes > TABLET_BYTES))[::-1].tolist():
            self._split(tablet, load if busy[tablet] else self._bytes)
        self._balance(np.add.reduceat(load, self.starts))

    def _split(self, tablet: int, by: Floats) -> None:
        start = int(self.starts[tablet])
        stop = int(self.starts[tablet + 1]) if tablet + 1 < len(self.starts) else len(by)
        if stop - start < 2 or len(self.starts) >= MOST_TABLETS * 2:
            return
        running = np.cumsum(by[start:stop])
        cut = start + int(np.clip(np.searchsorted(running, running[-1] / 2) + 1, 1, stop - start - 1))
        self.starts = np.insert(self.starts, tablet + 1, cut)
        self.node = np.insert(self.node, tablet + 1, self.node[tablet])
        self.splits += 1

    def _balance(self, loads: Floats) -> None:
        """Move the largest tablet that helps from the busiest node to the idlest, a few dozen times."""
        of_node = np.bincount(self.node, loads, self.nodes)
        for _ in range(_MOVES):
            busiest, idlest = int(of_node.argmax()), int(of_node.argmin())
            gap = of_node[busiest] - of_node[idlest]
            if gap <= 0.02 * of_node.mean():
                return
            own = np.flatnonzero((self.node == busiest) & (loads > 0) & (loads <= gap / 2))
            if not len(own):
                return
            moved = own[loads[own].argmax()]
            self.node[moved] = idlest
            of_node[busiest] -= loads[moved]
            of_node[idlest] += loads[moved]


class TokenRanges(Tablets):
    """Cassandra's: fixed ranges of tokens, spread evenly over the nodes. `keys` begin with the token in hex."""

    def __init__(self, keys: np.ndarray, nodes: int) -> None:
        self.nodes, self.splits = nodes, 0
        ranges = TOKEN_RANGES * nodes
        bounds = np.array([b"%04x" % (i * 65536 // ranges) for i in range(ranges)])
        self.starts = np.searchsorted(keys, bounds).astype(np.int64)
        self.starts[0] = 0
        self.node = np.arange(ranges) % nodes

    def adapt(self, load: Floats, written: Floats, seconds: float) -> None:
        del load, written, seconds


def tablets_for(design: Design, keys: np.ndarray, stored: Floats, nodes: int) -> Tablets:
    """Token ranges for a table of Cassandra, tablets for all else."""
    return TokenRanges(keys, nodes) if design.partition else Tablets(stored, nodes)
