"""The devices of a tenant with their facts in memory, in the order of their names: for searching, sorting and counting.

Rule 1: a directory is made when it is first asked for, and again when devices were registered, changed or deleted. A small
one is made at once. A large one takes seconds: it is made in the background, with a twentieth of a core at most, while the
old one answers.
Rule 2: so a directory proposes, and the store decides: readers fetch what it finds, and drop what no longer matches.
Rule 3: all directories together hold `MOST_BYTES`; the one that was used least recently goes first.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from widerow.catalog.match import Match, words_of
from widerow.model.arrays import PAD, Bytes, Codes, Flags, Ints
from widerow.model.errors import Unavailable
from widerow.model.hashing import same_at
from widerow.model.intern import NameTable
from widerow.model.kernel import kernel
from widerow.model.machine import peek64
from widerow.model.names import Names
from widerow.ops.recurring import tried

log = logging.getLogger(__name__)

MOST_BYTES = 512 << 20
_SMALL = 10_000
"""Devices of a directory that is made while the question waits: about 0.1 s."""
_PATIENCE_S = 2.0
"""How long a question waits for a directory to be made."""
_SHORTEST_S, _RESTS = 5.0, 20.0

Described = tuple[Sequence[str], Sequence[str]]
"""Names of devices, and the bodies of their rows."""


class _Facts(msgspec.Struct):
    type: str = ""
    location: str = ""
    display_name: str = ""
    tags: dict[str, str] = {}


class Directory:
    """Devices by index, which is the order of their names. Immutable but for what it remembers of `ids_in`."""

    def __init__(self, names: Names, says: Names, kinds: Sequence[Facet]) -> None:
        self.names, self._says = names, says
        self.types, self.locations = kinds
        self.bytes = sum(one.data.nbytes + one.offsets.nbytes for one in (names, says)) + 12 * len(names)
        self._ids: tuple[NameTable, int, Codes] | None = None

    def __len__(self) -> int:
        return len(self.names)

    def find(self, name: str) -> int:
        """The index of the first device that does not come before this name."""
        wanted, low, high = name.encode(), 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self.names.bytes_at(middle) < wanted:
                low = middle + 1
            else:
                high = middle
        return low

    def ids_in(self, table: NameTable) -> Codes:
        """The ids that the devices have in a table of names, -1 for those it lacks. Looked up once, as long as they are the
        same.
        """
        known, size = self._ids, len(table)
        if known is None or known[0] is not table:
            known = table, size, table.find(self.names)
        elif known[1] != size:
            ids = known[2].copy()
            missing = np.flatnonzero(ids < 0)
            ids[missing] = table.find(self.names.take(missing))
            known = table, size, ids
        self._ids = known
        return known[2]

    def matching(self, match: Match) -> Flags | None:
        """Those that may match, by index; None: all do."""
        texts = [*words_of(match.text), *(_tag(name, value) for name, value in match.tags.items())]
        if match.everything() and not match.prefix:
            return None
        found = np.ones(len(self), np.bool_)
        for facet, wanted in ((self.types, match.type), (self.locations, match.location)):
            if wanted is not None:
                found &= facet.codes == facet.names.get(wanted, -1)
        if match.prefix:
            found[: self.find(match.prefix)] = False
            found[self.find(match.stop() or "") :] = False
        for text in sorted(texts, key=len, reverse=True):  # a long one leaves fewer devices to the others
            wanted_bytes = np.frombuffer(text.encode() + bytes(PAD), np.uint8)
            _keep_saying(self._says.data, self._says.offsets, wanted_bytes, len(wanted_bytes) - PAD, found)
        return found


@dataclass(frozen=True, slots=True)
class Facet:
    """A fact of each device, as a code."""

    names: dict[str, int]
    codes: Codes

    def counts(self, chosen: Flags | None, most: int) -> list[tuple[str, int]]:
        """The most frequent first; not of devices without that fact."""
        found = np.bincount(self.codes if chosen is None else self.codes[chosen], minlength=len(self.names))
        some = [(name, int(found[code])) for name, code in self.names.items() if name and found[code]]
        return sorted(some, key=lambda one: (-one[1], one[0]))[:most]


def directory_of(chunks: Iterable[Described]) -> Directory:
    """Of devices in any order."""
    names, says = list[str](), list[str]()
    types, locations = dict[str, int](), dict[str, int]()
    codes: tuple[list[int], list[int]] = ([], [])
    decode = msgspec.json.Decoder(_Facts).decode
    for some, bodies in chunks:
        names += some
        for name, body in zip(some, bodies, strict=True):
            facts = decode(body)
            codes[0].append(types.setdefault(facts.type, len(types)))
            codes[1].append(locations.setdefault(facts.location, len(locations)))
            words = [name, facts.display_name, facts.type, facts.location]
            tags = [_tag(*pair) for pair in facts.tags.items()] if facts.tags else ()
            says.append("\n".join(words).casefold() + "".join(tags))
    order: Ints = pc.sort_indices(pa.array(names, pa.large_string())).to_numpy().astype(np.int64)
    facets = [Facet(known, np.array(mine, np.int32)[order]) for known, mine in zip((types, locations), codes, strict=True)]
    return Directory(Names.of(names).take(order), Names.of(says).take(order), facets)


@kernel
def _keep_saying(data: Bytes, offsets: Ints, text: Bytes, length: int, found: Flags) -> None:
    """Of the strings that are marked, those stay marked that have the text somewhere."""
    base, wanted = data.ctypes.data, text.ctypes.data
    short = min(length, 8)
    mask = ~np.uint64(0) if short == 8 else (np.uint64(1) << np.uint64(8 * short)) - np.uint64(1)
    first = peek64(wanted) & mask
    for i in range(len(found)):
        if not found[i]:
            continue
        found[i] = False
        for p in range(offsets[i], offsets[i + 1] - length + 1):
            if peek64(base + p) & mask == first and same_at(base + p, wanted, length):
                found[i] = True
                break


def _tag(name: str, value: str) -> str:
    """How a tag is found as a whole."""
    return f"\n{name}:{value}\n".casefold()


@dataclass(frozen=True, slots=True)
class _Made:
    directory: Directory
    version: int
    at_s: float
    took_s: float


class Directories:
    """Of all tenants. Safe to share between threads."""

    def __init__(
        self,
        read: Callable[[str], Iterator[Described]],
        version: Callable[[str], int],
        *,
        reload_s: float | None,
        small: int = _SMALL,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`version`: grows when this process changes devices of a tenant. `reload_s`: how old a directory may be where other
        processes do; None: they do not.
        """
        self._read, self._version, self._reload_s, self._clock_s = read, version, reload_s, clock_s
        self._small, self._lock = small, threading.Lock()
        self._made: OrderedDict[str, _Made] = OrderedDict()
        self._making = dict[str, threading.Event]()
        self._closing = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="directory")

    def close(self) -> None:
        self._closing = True
        self._thread.shutdown(cancel_futures=True)

    def held(self) -> dict[str, int]:
        """Bytes by tenant."""
        with self._lock:
            return {tenant: made.directory.bytes for tenant, made in self._made.items()}

    def forget(self, tenant: str) -> None:
        with self._lock:
            self._made.pop(tenant, None)

    def of(self, tenant: str) -> Directory:
        """Raises `Unavailable` while the first one of a large tenant is being made."""
        found = self.at_hand(tenant)
        if found is None:
            raise Unavailable(
                f"the devices of {tenant} are being read, to be searched and sorted: try again in some seconds"
            )
        return found

    def at_hand(self, tenant: str, patience_s: float = _PATIENCE_S) -> Directory | None:
        """None while the first one of a large tenant is being made, which this call begins."""
        with self._lock:
            made = self._made.get(tenant)
            if made is not None:
                self._made.move_to_end(tenant)
                if self._is_fresh(tenant, made) or (len(made.directory) > self._small and not self._is_due(made)):
                    return made.directory
            done = self._making.get(tenant)
            if done is None and self._closing:
                return made.directory if made else None
            if done is None:
                done = self._making[tenant] = threading.Event()
                self._thread.submit(self._make, tenant, done)
        if made is None or len(made.directory) <= self._small:
            done.wait(patience_s)
            with self._lock:
                made = self._made.get(tenant)
        return made.directory if made else None

    def _is_fresh(self, tenant: str, made: _Made) -> bool:
        aged = self._reload_s is not None and self._clock_s() - made.at_s >= self._reload_s
        return made.version == self._version(tenant) and not aged

    def _is_due(self, made: _Made) -> bool:
        return self._clock_s() - made.at_s >= max(_SHORTEST_S, _RESTS * made.took_s)

    def _make(self, tenant: str, done: threading.Event) -> None:
        tried(lambda: self._remake(tenant), "the devices of a tenant could not be read to be searched", log)
        with self._lock:
            del self._making[tenant]
        done.set()

    def _remake(self, tenant: str) -> None:
        started_s, version = self._clock_s(), self._version(tenant)
        directory = directory_of(self._chunks(tenant))
        now_s = self._clock_s()
        with self._lock:
            self._made[tenant] = _Made(directory, version, now_s, now_s - started_s)
            self._made.move_to_end(tenant)
            while len(self._made) > 1 and sum(made.directory.bytes for made in self._made.values()) > MOST_BYTES:
                self._made.popitem(last=False)

    def _chunks(self, tenant: str) -> Iterator[Described]:
        for chunk in self._read(tenant):
            if self._closing:
                raise Unavailable("the process stops")
            yield chunk
