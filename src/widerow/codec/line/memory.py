"""What a decoder has seen: a bounded table from bytes of lines to what they mean.

One open-addressing table holds strings of several scopes: whole series prefixes, devices, names of metrics and tags,
texts of tags, families (a measurement with its labels), tag keys, and the field keys of each family. An entry has a
dense id and four words of meaning. A regular line then costs one lookup of its prefix, and one comparison for each field
key, because each key remembers which one followed it last.
Decoders share a table. The prefixes, families and tag keys of each are in scopes of its own: they depend on its naming.
Rule 1: entries are only ever added, by whoever holds `lock`; reading needs no lock. An entry is published (release) after
its content, and looked up with acquire, so a reader never sees half of one.
Rule 2: nothing grows. When there is no room the owner starts a new memory; those who still read the old one keep it.
Rule 3: all arrays are allocated at their full size but zeroed by the operating system on first touch, so an unused table
costs no memory. A full one takes about 400 bytes for each series of its capacity.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from widerow.codec.line.naming import LineNaming
from widerow.codec.line.slow import Fault, read_family, read_metric, read_series
from widerow.model.arrays import PAD, Bytes, Ints
from widerow.model.batch import RECEIVED_TAG
from widerow.model.hashing import hash_at, same_at
from widerow.model.kernel import inlined, kernel
from widerow.model.labels import Labels
from widerow.model.machine import copy_bytes, peek, peek_acquire, poke, poke_release, signed

U = np.uint64

# What an entry is; the field keys of family f have the scope KEYS + f. SERIES, FAMILY and TAG_KEY are those of a decoder.
SERIES, DEVICE, NAME, TEXT, FAMILY, TAG_KEY, KEYS = 0, 1, 2, 3, 4, 5, 16

# The words of an entry, as byte offsets: a cache line each.
ENTRY_BYTES = 64
HASH, START, LENGTH, SCOPE, MEANING = 0, 8, 16, 24, 32
DEVICE_ID, FAMILY_ID, FIRST_TAG, TAG_COUNT = 32, 40, 48, 56  # of a series; DEVICE_ID -1: every such line is odd
FIRST_KEY = 32  # of a family: the key its lines began with last, 0 for none
KEPT, RANK, TAG_NAME = 32, 40, 48  # of a tag key: 1 for an attribute; its place among the tags that name devices
METRIC, NEXT_KEY, FIRST_BYTES, MASK = 32, 40, 48, 56  # of a field key; METRIC -1: every such line is odd
NO_DEVICE = 1 << 30  # the rank of a tag that names none

# The words of `Memory.head`, as byte offsets.
SLOTS, SLOT_MASK, ENTRIES, ARENA, COUNT, USED, ROOM, ARENA_ROOM = 0, 8, 16, 24, 32, 40, 48, 56
TAGS, TAGS_USED, TAGS_ROOM, RECEIVED, WORK = 64, 72, 80, 88, 96

MAX_PREFIX_BYTES = 4096
"""Longer prefixes are not remembered: their lines take the plain path."""
MAX_KEY_BYTES = 1024
MAX_TAGS = 64
"""Prefixes with more tags are learned by plain Python."""

_SPARE_ENTRIES = 64
_ID_BITS = U(0xFFFFFFFF)


class Memory:
    """One bounded table. `head` is what kernels take; its words are addresses of the other arrays, and counts."""

    def __init__(self, capacity: int) -> None:
        self.lock = threading.Lock()
        self.entries_room = entries_room(capacity)
        slots = np.zeros(1 << (2 * self.entries_room - 1).bit_length(), np.int64)
        entries = np.zeros((self.entries_room + 1) * ENTRY_BYTES // 8, np.int64)
        arena = np.zeros(160 * capacity + 4 * MAX_PREFIX_BYTES, np.uint8)
        tags = np.zeros(8 * capacity + MAX_PREFIX_BYTES, np.int64)
        work = np.zeros(2 * MAX_PREFIX_BYTES + 8 * MAX_TAGS * 4, np.uint8)
        self._keep_alive = (slots, entries, arena, tags, work)
        self.head = np.zeros(16, np.int64)
        first = -entries.ctypes.data % ENTRY_BYTES + entries.ctypes.data
        for word, value in (
            (SLOTS, slots.ctypes.data),
            (SLOT_MASK, len(slots) - 1),
            (ENTRIES, first),
            (ARENA, arena.ctypes.data),
            (COUNT, 1),  # id 0 means none
            (ROOM, self.entries_room),
            (ARENA_ROOM, len(arena) - PAD),
            (TAGS, tags.ctypes.data),
            (TAGS_ROOM, len(tags)),
            (WORK, work.ctypes.data),
        ):
            self.head[word // 8] = value
        name, text = (self._add(s.encode(), scope) for s, scope in zip(RECEIVED_TAG, (NAME, TEXT), strict=True))
        self.head[RECEIVED // 8] = name << 32 | text

    def learn_series(self, prefix: bytes, naming: LineNaming, scope: int) -> bool:
        """Remember a prefix the kernel could not take apart, good or bad. False when there is no room. Needs the lock."""
        try:
            series = read_series(prefix, naming)
        except Fault:
            return self._add(prefix, scope | SERIES, -1) >= 0
        family = self._add(series.family, scope | FAMILY)
        device = self._add(series.device.encode(), DEVICE)
        for tag in (*naming.device_tags, *naming.attribute_tags, *series.labels):
            self._learn_tag_key(tag, naming, scope)
        tags = [(self._add(t.encode(), NAME), self._add(value.encode(), TEXT)) for t, value in series.attributes.items()]
        used, room = int(self.head[TAGS_USED // 8]), int(self.head[TAGS_ROOM // 8])
        if min((family, device, *(i for tag in tags for i in tag))) < 0 or used + len(tags) > room:
            return False
        _set_words(int(self.head[TAGS // 8]) + 8 * used, np.array([n << 32 | t for n, t in tags], np.int64))
        self.head[TAGS_USED // 8] += len(tags)
        return self._add(prefix, scope | SERIES, device, family, used, len(tags)) >= 0

    def learn_keys(self, family: int, keys: Sequence[bytes], naming: LineNaming) -> bool:
        """Remember field keys (with their equals signs) of a family. False when there is no room. Needs the lock."""
        data, offsets = np.zeros(MAX_PREFIX_BYTES + PAD, np.uint8), np.zeros(2, np.int64)
        gather(self.head, np.array([family]), 1, data, offsets)
        measurement, labels = read_family(data[: offsets[1]].tobytes())
        return all(self._learn_key(family, key, measurement, labels, naming) for key in keys)

    def _learn_key(self, family: int, key: bytes, measurement: str, labels: Labels, naming: LineNaming) -> bool:
        try:
            metric = self._add(read_metric(key[:-1], measurement, labels, naming).encode(), NAME)
            if metric < 0:
                return False
        except Fault:
            metric = -1
        first = int.from_bytes(key[:8].ljust(8, b"\0"), "little", signed=True)
        mask = -1 if len(key) >= 8 else (1 << 8 * len(key)) - 1
        return self._add(key, KEYS + family, metric, 0, first, mask) >= 0

    def _learn_tag_key(self, tag: str, naming: LineNaming, scope: int) -> None:
        """What the tag is for. Without room nothing is learned, and the prefix with the tag is learned by plain Python."""
        kept = tag in naming.attribute_tags
        rank = naming.device_tags.index(tag) if tag in naming.device_tags else NO_DEVICE
        name = self._add(tag.encode(), NAME) if kept else 0
        if name >= 0:
            self._add(tag.encode(), scope | TAG_KEY, kept, rank, name)

    def _add(self, text: bytes, scope: int, a: int = 0, b: int = 0, c: int = 0, d: int = 0) -> int:
        padded = np.frombuffer(text + bytes(PAD), np.uint8)
        return _add(self.head, padded, len(text), scope, np.array((a, b, c, d), np.int64))


def entries_room(capacity: int) -> int:
    """How many entries the memory of that many series has: for each series itself and one string it alone needs."""
    return 2 * capacity + _SPARE_ENTRIES


@inlined
def scoped(h: Any, scope: Any) -> Any:
    """The hash of a string in a scope."""
    return h ^ (U(scope) * U(0x9E3779B97F4A7C15))


@inlined
def find(head: Any, h: Any, address: Any, length: Any, scope: Any) -> Any:
    """The id of the string at an address, whose scoped hash is h, or -1."""
    slots, mask, entries, arena = peek(head + SLOTS), U(peek(head + SLOT_MASK)), peek(head + ENTRIES), peek(head + ARENA)
    p = h & mask
    while True:
        slot = U(peek_acquire(slots + 8 * signed(p)))
        if slot == U(0):
            return np.int64(-1)
        if (slot ^ h) >> U(32) == U(0):
            i = signed(slot & _ID_BITS)
            entry = entries + ENTRY_BYTES * i
            same = peek(entry + LENGTH) == length and peek(entry + SCOPE) == scope
            if same and same_at(address, arena + peek(entry + START), length):
                return i
        p = (p + U(1)) & mask


@inlined
def add(head: Any, address: Any, length: Any, scope: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """The id of the string at an address, added with that meaning if it is new; -1 without room. One writer at a time."""
    h = scoped(hash_at(address, length), scope)
    i = find(head, h, address, length, scope)
    if i >= 0:
        return i
    i, start = peek(head + COUNT), peek(head + USED)
    if i > peek(head + ROOM) - 1 or start + length > peek(head + ARENA_ROOM):
        return np.int64(-1)
    copy_bytes(peek(head + ARENA) + start, address, length)
    entry = peek(head + ENTRIES) + ENTRY_BYTES * i
    poke(entry + HASH, signed(h))
    poke(entry + START, start)
    poke(entry + LENGTH, length)
    poke(entry + SCOPE, scope)
    poke(entry + MEANING, a)
    poke(entry + MEANING + 8, b)
    poke(entry + MEANING + 16, c)
    poke(entry + MEANING + 24, d)
    poke(head + COUNT, i + 1)
    poke(head + USED, start + length)
    slots, mask = peek(head + SLOTS), U(peek(head + SLOT_MASK))
    p = h & mask
    while peek(slots + 8 * signed(p)) != 0:
        p = (p + U(1)) & mask
    poke_release(slots + 8 * signed(p), signed((h & ~_ID_BITS) | U(i)))
    return i


@kernel
def _add(head: Ints, text: Bytes, length: int, scope: int, meaning: Ints) -> int:
    return add(  # type: ignore[no-any-return]
        head.ctypes.data, text.ctypes.data, length, scope, meaning[0], meaning[1], meaning[2], meaning[3]
    )


@kernel
def _set_words(address: int, words: Ints) -> None:
    for i in range(len(words)):
        poke(address + 8 * i, words[i])


@kernel
def gather(head: Ints, ids: Ints, count: int, data: Bytes, offsets: Ints) -> None:
    """Copy the strings of the first `count` ids; `data` has spare bytes, which are cleared."""
    entries, arena = peek(head.ctypes.data + ENTRIES), peek(head.ctypes.data + ARENA)
    to, at = data.ctypes.data, 0
    for k in range(count):
        entry = entries + ENTRY_BYTES * ids[k]
        length = peek(entry + LENGTH)
        copy_bytes(to + at, arena + peek(entry + START), length)
        offsets[k] = at
        at += length
    offsets[count] = at
    data[at:] = 0
