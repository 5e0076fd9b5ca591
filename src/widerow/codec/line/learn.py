"""Learning a series prefix inside the kernel.

A fleet of new devices, or a tag that changes with every line, brings new prefixes at the rate of lines: plain Python
would cost 20 us for each. This takes prefixes that are new only in their device and in the values of attributes; a new
measurement, label or tag key, escapes, and everything that will be refused is left to `Memory.learn_series`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from widerow.codec.line.memory import (
    DEVICE,
    ENTRIES,
    ENTRY_BYTES,
    FAMILY,
    KEPT,
    LENGTH,
    MAX_TAGS,
    NO_DEVICE,
    RANK,
    SERIES,
    TAG_KEY,
    TAG_NAME,
    TAGS,
    TAGS_ROOM,
    TAGS_USED,
    TEXT,
    WORK,
    add,
    find,
    scoped,
)
from widerow.codec.line.text import BACKSLASH, COMMA, EQUALS, text_flags
from widerow.model.check import MAX_NAME_BYTES
from widerow.model.hashing import hash_at
from widerow.model.kernel import inlined
from widerow.model.machine import copy_bytes, peek, peek8, poke

ASK, FULL = -2, -1

_TAG_BYTES = 24  # of the work area, for each tag: the entry of its key, the address of its value, its length
_JOINED = 8 * MAX_TAGS * 4  # where in the work area the name of a family is put together


@inlined
def _split_tags(head: Any, address: Any, stop: Any, scope: Any) -> Any:
    """List the tags in the work area; how many there are, or ASK."""
    work, entries = peek(head + WORK), peek(head + ENTRIES)
    count = 0
    while address < stop:
        address += 1  # the comma
        equals = address
        while equals < stop and peek8(equals) != EQUALS and peek8(equals) != COMMA:
            equals += 1
        if equals >= stop or peek8(equals) == COMMA or count == MAX_TAGS:
            return np.int64(ASK)
        key = find(head, scoped(hash_at(address, equals - address), scope), address, equals - address, scope)
        if key < 0:
            return np.int64(ASK)
        key = entries + ENTRY_BYTES * key
        for t in range(count):
            if peek(work + _TAG_BYTES * t) == key:
                return np.int64(ASK)
        end = equals + 1
        while end < stop and peek8(end) != COMMA:
            if peek8(end) == EQUALS:
                return np.int64(ASK)
            end += 1
        if end == equals + 1:
            return np.int64(ASK)
        tag = work + _TAG_BYTES * count
        poke(tag, key)
        poke(tag + 8, equals + 1)
        poke(tag + 16, end - equals - 1)
        count += 1
        address = end
    return np.int64(count)


@inlined
def _find_family(head: Any, address: Any, length: Any, count: Any, device_tag: Any, scope: Any) -> Any:
    """The family of the measurement at an address with the labels among the tags listed, or -1."""
    work = peek(head + WORK)
    joined = work + _JOINED
    copy_bytes(joined, address, length)
    at = joined + length
    for t in range(count):
        tag = work + _TAG_BYTES * t
        if t != device_tag and peek(peek(tag) + KEPT) == 0:
            start = peek(tag + 8) - peek(peek(tag) + LENGTH) - 2  # the comma, the key and the equals sign come first
            size = peek(tag + 8) + peek(tag + 16) - start
            copy_bytes(at, start, size)
            at += size
    return find(head, scoped(hash_at(joined, at - joined), scope), joined, at - joined, scope)


@inlined
def learn_series(head: Any, address: Any, length: Any, scope: Any) -> Any:
    """The id of the new series whose prefix is at an address; FULL, or ASK for plain Python. One writer at a time.

    `scope` is that of the decoder.
    """
    if text_flags(address, length) != 0:
        return np.int64(ASK)
    stop = address + length
    comma = stop
    for at in range(address, stop):
        ch = peek8(at)
        if ch == BACKSLASH:
            return np.int64(ASK)
        if ch == COMMA and at < comma:
            comma = at
    count = _split_tags(head, comma, stop, scope | TAG_KEY)
    if count < 0:
        return np.int64(ASK)
    work = peek(head + WORK)
    device_tag, best = -1, NO_DEVICE
    for t in range(count):
        rank = peek(peek(work + _TAG_BYTES * t) + RANK)
        if rank < best:
            device_tag, best = t, rank
    family = _find_family(head, address, comma - address, count, device_tag, scope | FAMILY)
    if family < 0 or device_tag < 0 or peek(work + _TAG_BYTES * device_tag + 16) > MAX_NAME_BYTES:
        return np.int64(ASK)
    tag = work + _TAG_BYTES * device_tag
    device = add(head, peek(tag + 8), peek(tag + 16), DEVICE, 0, 0, 0, 0)
    first = peek(head + TAGS_USED)
    if device < 0 or first + count > peek(head + TAGS_ROOM):
        return np.int64(FULL)
    kept = 0
    for t in range(count):
        tag = work + _TAG_BYTES * t
        if t == device_tag or peek(peek(tag) + KEPT) == 0:
            continue
        text = add(head, peek(tag + 8), peek(tag + 16), TEXT, 0, 0, 0, 0)
        if text < 0:
            return np.int64(FULL)
        poke(peek(head + TAGS) + 8 * (first + kept), peek(peek(tag) + TAG_NAME) << 32 | text)
        kept += 1
    poke(head + TAGS_USED, first + kept)
    return add(head, address, length, scope | SERIES, device, family, first, kept)
