"""The scan: lines of a body become rows and cells, without the GIL and without a Python statement for a regular line.

Rule 1: the scan never refuses. A line it cannot read for whatever reason is listed as odd, and plain Python decides.
Rule 2: a line is taken as a whole or not at all. Names get their place in the batch's dictionaries only when the line is
complete, so the dictionaries hold what the batch uses and nothing else.
Rule 3: the scan stops where something must be learned and resumes at the same line; `state` says where that was.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from widerow.codec.line.floats import number_at, whole_at
from widerow.codec.line.learn import ASK, FULL, learn_series
from widerow.codec.line.memory import (
    ARENA,
    DEVICE_ID,
    ENTRIES,
    ENTRY_BYTES,
    FAMILY_ID,
    FIRST_BYTES,
    FIRST_KEY,
    FIRST_TAG,
    KEYS,
    LENGTH,
    MASK,
    MAX_KEY_BYTES,
    MAX_PREFIX_BYTES,
    METRIC,
    NEXT_KEY,
    RECEIVED,
    SERIES,
    START,
    TAG_COUNT,
    TAGS,
    find,
    scoped,
)
from widerow.codec.line.text import (
    COMMA,
    HASH,
    NEWLINE,
    NOT_UTF8,
    QUOTE,
    RETURN,
    SPACE,
    TAB,
    count_newlines,
    ends_value,
    key_end,
    line_end,
    newline_after,
    quote_end,
    series_end,
    text_flags,
    unescape_text,
)
from widerow.codec.looking import CROWDED
from widerow.model.arrays import Bytes, Codes, Floats, Ints
from widerow.model.batch import CellKind
from widerow.model.check import MAX_TEXT_BYTES
from widerow.model.hashing import hash_at, same_at
from widerow.model.kernel import inlined, kernel
from widerow.model.machine import copy_bytes, peek, peek8, peek64, peek_acquire, poke, poke_release, signed
from widerow.model.times import MAX_TIME_US

U = np.uint64

# What `scan` returns: the body is done, or why it stopped before the line at state[AT].
DONE, NEEDS_LOCK, NEW_SERIES, NEW_KEY, NO_ROOM, TOO_MANY = 0, 1, 2, 3, 4, 5

# The words of `state`: where the scan is, what it has made so far, and what it was asked to do.
AT, LINE, ROWS, CELLS, ODD, DEVICES, DEVICE_BYTES, NAMES, NAME_BYTES = 0, 1, 2, 3, 4, 5, 6, 7, 8
SIZE, EPOCH, UNIT_US, NOW_US, MAY_LEARN, SKIP, NEWS, NEW_FAMILY, MAX_VALUES, OWN = 9, 10, 11, 12, 13, 14, 15, 16, 17, 18
STATE_WORDS = 19

MAX_ODD = 1_000_000
"""A body with more odd lines is no line protocol."""

MAX_NEWS = 1024
"""So many new field keys of a line are learned at once. A line with more takes the plain path that time."""

# The words of `texts`, the batch's own table of texts, as byte offsets: addresses, then counts.
TEXT_SLOTS, TEXT_SLOT_MASK, TEXT_HASHES, TEXT_OFFSETS, TEXT_BYTES, TEXT_COUNT, TEXT_USED = 0, 8, 16, 24, 32, 40, 48
TEXTS_WORDS = 7

_NUMBER, _TEXT, _TAG = int(CellKind.NUMBER), int(CellKind.TEXT), int(CellKind.TAG)
_LOW = 0xFFFFFFFF


@inlined
def _local_code(stamps: Any, epoch: Any, entry: Any, count: Any) -> Any:
    """The code of an entry in this batch; `count`, which the caller then raises, where it is new."""
    stamp = peek(stamps + 8 * entry)
    if stamp >> 32 == epoch:
        return stamp & _LOW
    poke(stamps + 8 * entry, epoch << 32 | count)
    return count


@inlined
def _text_code(texts: Any, epoch: Any, length: Any) -> Any:
    """The code of the text that was just put at the end of the batch's texts; it stays there only if it is new."""
    slots, mask, stale = peek(texts + TEXT_SLOTS), U(peek(texts + TEXT_SLOT_MASK)), np.int64(-1)
    hashes, offsets, base = peek(texts + TEXT_HASHES), peek(texts + TEXT_OFFSETS), peek(texts + TEXT_BYTES)
    count, used = peek(texts + TEXT_COUNT), peek(texts + TEXT_USED)
    h = hash_at(base + used, length)
    p = h & mask
    while True:
        slot = peek(slots + 8 * signed(p))
        if slot >> 32 != epoch:
            break
        code = slot & _LOW
        if code >= count:  # the line that put it there was given up
            stale = signed(p)
        elif peek64(hashes + 8 * code) == h:
            start = peek(offsets + 8 * code)
            if peek(offsets + 8 * code + 8) - start == length and same_at(base + start, base + used, length):
                return code
        p = (p + U(1)) & mask
    poke(slots + 8 * (stale if stale >= 0 else signed(p)), epoch << 32 | count)
    poke(hashes + 8 * count, signed(h))
    poke(offsets + 8 * count + 8, used + length)
    poke(texts + TEXT_COUNT, count + 1)
    poke(texts + TEXT_USED, used + length)
    return count


@inlined
def _tag_text_code(head: Any, texts: Any, stamps: Any, epoch: Any, entry: Any) -> Any:
    """The code of a tag's text in this batch."""
    stamp = peek(stamps + 8 * entry)
    if stamp >> 32 == epoch:
        return stamp & _LOW
    at = peek(head + ENTRIES) + ENTRY_BYTES * entry
    length = peek(at + LENGTH)
    copy_bytes(peek(texts + TEXT_BYTES) + peek(texts + TEXT_USED), peek(head + ARENA) + peek(at + START), length)
    code = _text_code(texts, epoch, length)
    poke(stamps + 8 * entry, epoch << 32 | code)
    return code


@inlined
def _quoted_code(texts: Any, epoch: Any, address: Any, stop: Any) -> Any:
    """The code of the text between quotes, or -1 where it must be refused."""
    if stop - address > 2 * MAX_TEXT_BYTES:
        return np.int64(-1)
    to = peek(texts + TEXT_BYTES) + peek(texts + TEXT_USED)
    length = unescape_text(to, address, stop)
    if length > MAX_TEXT_BYTES or text_flags(to, length) == NOT_UTF8:
        return np.int64(-1)
    return _text_code(texts, epoch, length)


@inlined
def _boolean_at(address: Any) -> Any:
    """The address after the boolean that starts here, and its value; address 0 where there is none."""
    word = peek64(address)
    first = word & U(0xDF)
    value = 1.0 if first == U(0x54) else 0.0
    if first != U(0x54) and first != U(0x46):
        return np.int64(0), value
    if ends_value(address + 1):
        return address + 1, value
    four, five = word & U(0xFFFFFFFF), word & U(0xFFFFFFFFFF)
    if four == U(0x65757274) or four == U(0x65757254) or four == U(0x45555254):  # true True TRUE
        return address + 4, value
    if five == U(0x65736C6166) or five == U(0x65736C6146) or five == U(0x45534C4146):  # false False FALSE
        return address + 5, value
    return np.int64(0), value


@inlined
def _blanks_end(address: Any) -> Any:
    while peek8(address) == SPACE or peek8(address) == TAB:
        address += 1
    return address


@inlined
def _time_at(address: Any, unit_us: Any) -> Any:
    """The address after the time that starts here, and the time; address 0 where plain Python must look at it."""
    end, count = whole_at(address)
    if end == address or end - address > 19:
        return np.int64(0), np.int64(0)
    if unit_us == 0:
        count = count // U(1000)
    elif count > U(MAX_TIME_US // unit_us):
        return np.int64(0), np.int64(0)
    else:
        count = count * U(unit_us)
    if count > U(MAX_TIME_US):
        return np.int64(0), np.int64(0)
    return end, np.int64(count)


@kernel
def scan(
    body: Bytes,
    memory: Ints,
    state: Ints,
    odd: Ints,
    news: Ints,
    stamps_: Ints,
    texts_: Ints,
    devices: Ints,
    names: Ints,
    device: Codes,
    time_us: Ints,
    position: Codes,
    offsets: Ints,
    name: Codes,
    kind: Bytes,
    number: Floats,
    text: Codes,
) -> int:
    """Read on from state[AT]. See `Scratch` for the arrays; each has room for whatever the body can hold."""
    head, stamps, texts = memory.ctypes.data, stamps_.ctypes.data, texts_.ctypes.data
    entries, arena, tags = peek(head + ENTRIES), peek(head + ARENA), peek(head + TAGS)
    base = body.ctypes.data
    stop, p, line = base + state[SIZE], base + state[AT], state[LINE]
    row, first_cell, epoch, unit_us = state[ROWS], state[CELLS], state[EPOCH], state[UNIT_US]
    prefixes = state[OWN] | SERIES
    device_count, name_count = state[DEVICES], state[NAMES]
    status = DONE
    while p < stop:
        start = p
        p = _blanks_end(p)
        ch = peek8(p)
        if ch == HASH:
            p = newline_after(p)
            ch = NEWLINE
        elif ch == RETURN and peek8(p + 1) == NEWLINE:
            p += 1
            ch = NEWLINE
        if ch == NEWLINE:
            p += 1
            line += 1
            continue

        # The series.
        q = series_end(p)
        fine = peek8(q) == SPACE and q - p <= MAX_PREFIX_BYTES and state[SKIP] == 0
        state[SKIP] = 0
        series = np.int64(0)
        crowded = False
        if fine:
            series = find(head, scoped(hash_at(p, q - p), prefixes), p, q - p, prefixes)
            if series < 0 and state[MAY_LEARN] == 0:
                status = NEEDS_LOCK
            elif series < 0:
                series = learn_series(head, p, q - p, state[OWN])
                if series == ASK:
                    status, state[NEWS], news[0], news[1] = NEW_SERIES, 1, p - base, q - base
                elif series == FULL:
                    status = NO_ROOM
            if status != DONE:
                p = start
                break
            series = entries + ENTRY_BYTES * series
            fine = peek(series + DEVICE_ID) >= 0

        # The fields.
        cell, newlines, missing = first_cell, 0, 0
        text_count, text_used = peek(texts + TEXT_COUNT), peek(texts + TEXT_USED)
        if fine:
            family, last_cell = peek(series + FAMILY_ID), first_cell + state[MAX_VALUES] - peek(series + TAG_COUNT)
            hint = entries + ENTRY_BYTES * family + FIRST_KEY
            q = _blanks_end(q)
            while True:
                if cell >= last_cell:
                    crowded = True
                    break
                guess = peek_acquire(hint)
                key = entries + ENTRY_BYTES * guess
                length = peek(key + LENGTH)
                known = guess > 0 and (peek64(q) ^ peek64(key + FIRST_BYTES)) & peek64(key + MASK) == U(0)
                if known and length > 8:
                    known = same_at(q + 8, arena + peek(key + START) + 8, length - 8)
                if not known:
                    equals = key_end(q)
                    length = equals + 1 - q
                    if equals == 0 or length > MAX_KEY_BYTES:
                        fine = False
                        break
                    guess = find(head, scoped(hash_at(q, length), KEYS + family), q, length, KEYS + family)
                    if guess < 0 and state[MAY_LEARN] == 0:
                        status = NEEDS_LOCK
                        break
                    if guess < 0:  # list it, and see whether the rest of the line is worth learning
                        if missing < MAX_NEWS:
                            news[2 * missing], news[2 * missing + 1] = q - base, q + length - base
                            missing += 1
                        guess = 0
                    if missing == 0:
                        poke_release(hint, guess)
                    key = entries + ENTRY_BYTES * guess
                hint = key + NEXT_KEY
                q += length
                ch = peek8(q)
                code = np.int64(-1)
                value = np.nan
                if ch == QUOTE:
                    close = quote_end(q + 1, stop)
                    if close > 0:
                        code = _quoted_code(texts, epoch, q + 1, close)
                        newlines += count_newlines(q, close)
                    q = close + 1 if code >= 0 else np.int64(0)
                    kind[cell] = _TEXT
                else:
                    if ch <= 57:
                        q, value = number_at(q)
                    else:
                        q, value = _boolean_at(q)
                    kind[cell] = _NUMBER
                metric = peek(key + METRIC)
                fine = q > 0 and metric >= 0
                if not fine:
                    break
                name[cell], number[cell], text[cell] = metric, value, code
                cell += 1
                ch = peek8(q)
                if ch != COMMA:
                    break
                q += 1
            if crowded:
                fine, status = False, DONE
            if fine and missing > 0:
                status, state[NEWS], state[NEW_FAMILY] = NEW_KEY, missing, family
            if status != DONE:
                poke(texts + TEXT_COUNT, text_count)
                poke(texts + TEXT_USED, text_used)
                p = start
                break

        # The time.
        received = True
        if fine:
            time_us[row] = state[NOW_US]
            if ch == SPACE:
                q = _blanks_end(q)
                ch = peek8(q)
                if ch != NEWLINE and ch != RETURN:  # noqa: PLR1714
                    q, time_us[row] = _time_at(q, unit_us)
                    received = False
                    if q > 0:
                        q = _blanks_end(q)
                        ch = peek8(q)
            if q > 0 and ch == RETURN:
                q += 1
                ch = peek8(q)
            fine = q > 0 and ch == NEWLINE

        if not fine:
            poke(texts + TEXT_COUNT, text_count)
            poke(texts + TEXT_USED, text_used)
            if state[ODD] == MAX_ODD:
                status, p = TOO_MANY, start
                break
            q = line_end(p, stop)
            k = 3 * state[ODD]
            odd[k], odd[k + 1], odd[k + 2] = p - base, CROWDED if crowded else q - base, line
            state[ODD] += 1
            line += 1 + count_newlines(p, q)
            p = q + 1
            continue

        # The line is good: its names get their places in the batch.
        entry = peek(series + DEVICE_ID)
        code = _local_code(stamps, epoch, entry, device_count)
        if code == device_count:
            devices[code] = entry
            device_count += 1
            state[DEVICE_BYTES] += peek(entries + ENTRY_BYTES * entry + LENGTH)
        device[row], position[row], offsets[row] = code, line, first_cell
        tag, more = tags + 8 * peek(series + FIRST_TAG), peek(series + TAG_COUNT)
        for k in range(more + received):
            pair = peek(tag + 8 * k) if k < more else peek(head + RECEIVED)
            name[cell], kind[cell], number[cell] = pair >> 32, _TAG, np.nan
            text[cell] = _tag_text_code(head, texts, stamps, epoch, pair & _LOW)
            cell += 1
        for k in range(first_cell, cell):
            entry = np.int64(name[k])
            code = _local_code(stamps, epoch, entry, name_count)
            if code == name_count:
                names[code] = entry
                name_count += 1
                state[NAME_BYTES] += peek(entries + ENTRY_BYTES * entry + LENGTH)
            name[k] = code
        first_cell = cell
        row += 1
        line += 1 + newlines
        p = q + 1
    offsets[row] = first_cell
    state[AT], state[LINE], state[ROWS], state[CELLS] = p - base, line, row, first_cell
    state[DEVICES], state[NAMES] = device_count, name_count
    return status
