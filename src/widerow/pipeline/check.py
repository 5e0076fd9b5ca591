"""What a batch must satisfy before anything of it is kept: few enough values, times that can be stored, no contradictions.

Within what was sent together a cell has one value: an identical duplicate is dropped, a report that differs from an
earlier one is refused. Pure: takes the present, gives data.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from widerow.codec.looking import TOO_MANY_VALUES, too_many_values
from widerow.model.arrays import Bytes, Codes, Flags, Hashes, Ints, lengths
from widerow.model.batch import RECEIVED_TAG, Batch, CellKind
from widerow.model.errors import Refusal
from widerow.model.hashing import mix, same_at
from widerow.model.kernel import kernel
from widerow.model.tags import has_tag
from widerow.model.tenant import FOREVER, Tenant
from widerow.model.times import END_EVENT_US, FIRST_EVENT_US, NOT_AN_EVENT, format_duration, format_time
from widerow.telemetry.store import oldest_shown_us

_TAG = int(CellKind.TAG)
_NUMBER = int(CellKind.NUMBER)


def check(
    batch: Batch,
    tenant: Tenant,
    *,
    now_us: int,
    max_future_us: int,
    only_device: str | None = None,
    apart: bool = False,
) -> tuple[Batch, list[Refusal]]:
    """The reports that may be kept, and why the others may not.

    A report must be within the retention that holds at its own event time. It stays on disk `GUARD_US` beyond that, so
    whatever is kept has a week at least to be rolled up in. `apart`: see `Decoded`.
    """
    refusals: list[Refusal] = []
    if only_device is not None:
        own = np.array([name == only_device for name in batch.device.names], np.bool_)[batch.device.codes]
        batch = _refuse(batch, ~own, refusals, "wrong-device", f"this token may write as device {only_device!r} only")
    batch = _without_crowded(batch, tenant.limits.most_values, refusals)
    time_us = batch.time_us
    if len(time_us):
        batch = _of_our_time(batch, refusals)
        time_us = batch.time_us
    if len(time_us):
        latest = now_us + max_future_us
        if time_us.max() > latest:
            seen = format_time(int(time_us.max()))
            allowed = format_duration(max_future_us)
            reason = f"time {seen} is ahead of the server's clock, {format_time(now_us)}, by more than {allowed}"
            batch = _refuse(batch, time_us > latest, refusals, "future", f"{reason} (time.max_future_s)")
        batch = _without_old(batch, tenant, now_us, refusals)
    return _without_contradictions(batch, refusals, apart=apart), refusals


def _without_crowded(batch: Batch, most: int, refusals: list[Refusal]) -> Batch:
    counts = lengths(batch.cells.offsets)
    if not (counts > most).any():
        return batch
    crowded = counts - has_tag(batch.cells, RECEIVED_TAG[0]) > most  # the sender did not give that one
    kept = _refuse(batch, crowded, refusals, TOO_MANY_VALUES, too_many_values(most))
    cells = kept.cells
    used = np.zeros(len(cells.names), np.bool_)
    used[cells.name] = True  # a million names of what is refused go no further
    codes = (np.cumsum(used) - 1).astype(np.int32)
    return kept.with_cells(replace(cells, names=cells.names.take(np.flatnonzero(used)), name=codes[cells.name]))


def _of_our_time(batch: Batch, refusals: list[Refusal]) -> Batch:
    """Without reports whose time was read in the wrong unit, or that come from a device whose clock is not set."""
    time_us = batch.time_us
    if time_us.min() >= FIRST_EVENT_US and time_us.max() < END_EVENT_US:
        return batch
    bad = (time_us < FIRST_EVENT_US) | (time_us >= END_EVENT_US)
    seen = format_time(int(time_us[np.argmax(bad)]))
    return _refuse(batch, bad, refusals, "time", f"time {seen} {NOT_AN_EVENT}")


def _without_old(batch: Batch, tenant: Tenant, now_us: int, refusals: list[Refusal]) -> Batch:
    time_us = batch.time_us
    keeps = [epoch.raw_us for epoch in tenant.raw_epochs] or [tenant.retention.raw_us]
    shortest_us = min((keep_us for keep_us in keeps if keep_us != FOREVER), default=0)
    if not len(time_us) or not shortest_us or time_us.min() >= now_us - shortest_us:
        return batch
    oldest_us = oldest_shown_us(tenant, time_us, now_us)
    old = time_us < oldest_us
    if not old.any():
        return batch
    oldest = int(np.argmin(np.where(old, time_us, now_us)))
    kept = format_duration(int(now_us - oldest_us[oldest]))
    reason = f"time {format_time(int(time_us[oldest]))} is older than the raw retention of {kept}"
    return _refuse(batch, old, refusals, "too-old", reason)


def _refuse(batch: Batch, bad: Flags, refusals: list[Refusal], code: str, reason: str) -> Batch:
    if not bad.any():
        return batch
    refusals.append(Refusal(code, reason, batch.position[bad].tolist()))
    return batch.take(~bad)


def _without_contradictions(batch: Batch, refusals: list[Refusal], *, apart: bool) -> Batch:
    n, cells = len(batch), batch.cells
    bad, dead = np.zeros(n, np.bool_), np.zeros(len(cells), np.bool_)
    slots = np.full(1 << max(4, int(2 * n).bit_length()), -1, np.int32)
    clash = np.array([n, 0, 0])
    if not _find_contradictions(
        batch.device.codes,
        batch.time_us,
        batch.position,
        apart,
        cells.offsets,
        cells.name,
        cells.kind,
        cells.number.view(np.uint64),
        cells.text,
        cells.texts.data,
        cells.texts.offsets,
        len(cells.names),
        slots,
        bad,
        dead,
        clash,
    ):
        return batch
    reason = _clash(batch, *clash.tolist()) if bad.any() else ""
    if dead.any():
        batch = batch.with_cells(cells.keep(~dead))
        empty = (lengths(batch.cells.offsets) == 0) & ~bad
        if empty.any():  # an exact repeat of an earlier report: kept once, refused never
            batch, bad = batch.take(~empty), bad[~empty]
    if bad.any():
        batch = _refuse(batch, bad, refusals, "conflict", reason)
    return batch


def _clash(batch: Batch, row: int, first: int, second: int) -> str:
    """Which cell of a report has another value than an earlier one gave it."""
    cells = batch.cells
    what = "tag" if cells.kind[second] == _TAG else "metric"
    values = [
        repr(float(cells.number[c])) if cells.kind[c] == _NUMBER else repr(cells.texts[int(cells.text[c])][:80])
        for c in (first, second)
    ]
    return (
        f"the batch gives the {what} {cells.names[int(cells.name[second])]!r} of {batch.device[row]!r} at "
        f"{format_time(int(batch.time_us[row]))} two different values, {' and '.join(values)}; the first is kept"
    )


@kernel
def _find_contradictions(
    device: Codes,
    time_us: Ints,
    position: Codes,
    apart: bool,
    offsets: Ints,
    name: Codes,
    kind: Bytes,
    number: Hashes,
    text: Codes,
    texts: Bytes,
    text_offsets: Ints,
    names: int,
    slots: Codes,
    bad: Flags,
    dead: Flags,
    clash: Ints,
) -> int:
    """Mark reports that contradict an earlier one of the same device and time, and cells that only repeat one.

    `clash` is the first of these reports, with the cell it contradicts and its own.
    """
    n = len(device)
    mask = len(slots) - 1
    text_base = texts.ctypes.data
    following = np.full(n, -1, np.int32)
    last = np.empty(n, np.int32)
    for i in range(n):  # chain the reports of one device and time, and of one message
        h = mix(np.uint64(device[i]), np.uint64(time_us[i]))
        if apart:
            h = mix(h, np.uint64(position[i]))
        p = np.int64(h & np.uint64(mask))
        while True:
            head = int(slots[p])
            if head < 0:
                slots[p] = i
                last[i] = i
                break
            if device[head] == device[i] and time_us[head] == time_us[i] and (position[head] == position[i] or not apart):
                following[last[head]] = i
                last[head] = i
                last[i] = -1
                break
            p = (p + 1) & mask
    found = 0
    owner = np.full(2 * names, -1, np.int32)
    where = np.empty(2 * names, np.int64)
    for head in range(n):
        i = head if last[head] >= 0 else -1
        while i >= 0:
            for c in range(offsets[i], offsets[i + 1]):
                slot = 2 * np.int64(name[c]) + (kind[c] == _TAG)
                if owner[slot] != head:
                    owner[slot] = head
                    where[slot] = c
                    continue
                found += 1
                o = where[slot]
                if kind[c] == _NUMBER or kind[o] == _NUMBER:
                    same = kind[c] == kind[o] and number[c] == number[o]
                else:
                    a, b = text_offsets[text[c]], text_offsets[text[o]]
                    length = text_offsets[text[c] + 1] - a
                    same = length == text_offsets[text[o] + 1] - b and same_at(text_base + a, text_base + b, length)
                if same:
                    dead[c] = True
                else:
                    bad[i] = True
                    if i < clash[0]:
                        clash[0], clash[1], clash[2] = i, o, c
            if bad[i]:  # what is refused neither claims a cell nor repeats one
                for c in range(offsets[i], offsets[i + 1]):
                    dead[c] = False
                    slot = 2 * np.int64(name[c]) + (kind[c] == _TAG)
                    if owner[slot] == head and offsets[i] <= where[slot] < offsets[i + 1]:
                        owner[slot] = -1
            i = int(following[i])
    return found
