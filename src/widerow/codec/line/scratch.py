"""The working arrays of one thread, kept from call to call, so that a small body costs no large allocation.

Sizes follow from the body: a cell needs at least 3 bytes of it, a text 4, a row 8, an odd line 2. Arrays are allocated
for the largest body that may come but touched only as far as they are used.
"""

from __future__ import annotations

import numpy as np

from widerow.codec.line.kernel import (
    AT,
    CELLS,
    DEVICE_BYTES,
    DEVICES,
    EPOCH,
    MAX_NEWS,
    MAX_ODD,
    MAX_VALUES,
    MAY_LEARN,
    NAME_BYTES,
    NAMES,
    NEW_FAMILY,
    NEWS,
    NOW_US,
    ODD,
    OWN,
    ROWS,
    SIZE,
    SKIP,
    STATE_WORDS,
    TEXT_BYTES,
    TEXT_COUNT,
    TEXT_HASHES,
    TEXT_OFFSETS,
    TEXT_SLOT_MASK,
    TEXT_SLOTS,
    TEXT_USED,
    TEXTS_WORDS,
    TOO_MANY,
    UNIT_US,
    scan,
)
from widerow.codec.line.memory import Memory, gather
from widerow.model.arrays import PAD, Ints
from widerow.model.batch import Batch, Cells
from widerow.model.errors import TooLarge
from widerow.model.names import NO_NAMES, Coded, Names

_MAX_EPOCH = (1 << 31) - 1


class Scratch:
    """Room for one body at a time. Belongs to one thread."""

    def __init__(self, body_bytes: int, entries_room: int) -> None:
        self.body_bytes = body_bytes
        rows, cells, texts = body_bytes // 8 + 2, body_bytes // 3 + 8, body_bytes // 4 + 8
        self._body = np.empty(body_bytes + 1 + PAD, np.uint8)
        self._state = np.zeros(STATE_WORDS, np.int64)
        self._odd = np.empty(3 * min(body_bytes // 2 + 2, MAX_ODD), np.int64)
        self._news = np.zeros(2 * MAX_NEWS, np.int64)
        self._stamps = np.zeros(entries_room, np.int64)
        self._devices, self._names = np.empty(rows, np.int64), np.empty(cells, np.int64)
        self._device, self._position = np.empty(rows, np.int32), np.empty(rows, np.int32)
        self._time_us, self._offsets = np.empty(rows, np.int64), np.empty(rows + 1, np.int64)
        self._name, self._text = np.empty(cells, np.int32), np.empty(cells, np.int32)
        self._kind, self._number = np.empty(cells, np.uint8), np.empty(cells, np.float64)
        self._text_slots = np.zeros(1 << (4 * texts - 1).bit_length(), np.int64)
        self._text_hashes, self._text_offsets = np.empty(texts, np.uint64), np.zeros(texts + 1, np.int64)
        self._text_bytes = np.empty(body_bytes + 64 + PAD, np.uint8)
        self._texts = np.zeros(TEXTS_WORDS, np.int64)
        for word, value in (
            (TEXT_SLOTS, self._text_slots.ctypes.data),
            (TEXT_SLOT_MASK, len(self._text_slots) - 1),
            (TEXT_HASHES, self._text_hashes.ctypes.data),
            (TEXT_OFFSETS, self._text_offsets.ctypes.data),
            (TEXT_BYTES, self._text_bytes.ctypes.data),
        ):
            self._texts[word // 8] = value

    def begin(self, body: bytes | bytearray | memoryview, unit_us: int, now_us: int, max_values: int, scope: int) -> None:
        """Take a body in; it must fit. `scope` is that of the decoder."""
        content = np.frombuffer(body, np.uint8)
        size = len(content)
        self._body[:size] = content
        self._body[size] = ord("\n")
        self._body[size + 1 : size + 1 + PAD] = 0
        epoch = int(self._state[EPOCH])
        self._state[:] = 0
        self._state[SIZE], self._state[EPOCH], self._state[UNIT_US], self._state[NOW_US] = size, epoch, unit_us, now_us
        self._state[MAX_VALUES], self._state[OWN] = max_values, scope
        self._begin_part()

    def _begin_part(self) -> None:
        """Forget the codes given so far."""
        state = self._state
        if state[EPOCH] >= _MAX_EPOCH:
            self._stamps[:] = 0
            self._text_slots[:] = 0
            state[EPOCH] = 0
        state[EPOCH] += 1
        for word in (ROWS, CELLS, DEVICES, DEVICE_BYTES, NAMES, NAME_BYTES):
            state[word] = 0
        self._texts[TEXT_COUNT // 8] = self._texts[TEXT_USED // 8] = 0

    def scan(self, memory: Memory, *, may_learn: bool) -> int:
        """Read on; see `kernel.scan`. Raises TooLarge."""
        self._state[MAY_LEARN] = may_learn
        status: int = scan(
            self._body,
            memory.head,
            self._state,
            self._odd,
            self._news,
            self._stamps,
            self._texts,
            self._devices,
            self._names,
            self._device,
            self._time_us,
            self._position,
            self._offsets,
            self._name,
            self._kind,
            self._number,
            self._text,
        )
        if status == TOO_MANY:
            raise TooLarge(f"more than {MAX_ODD:,} lines of the body cannot be read")
        return status

    @property
    def at(self) -> int:
        """Where in the body the scan is."""
        return int(self._state[AT])

    def skip_line(self) -> None:
        """Have the next line read by plain Python."""
        self._state[SKIP] = 1

    def news(self) -> tuple[int, list[bytes]]:
        """What stopped the scan: the strings to learn, and their family if they are field keys."""
        cuts = self._news[: 2 * self._state[NEWS]].reshape(-1, 2).tolist()
        return int(self._state[NEW_FAMILY]), [self._body[start:stop].tobytes() for start, stop in cuts]

    def odd_lines(self) -> Ints:
        """(start, stop, number) of the lines that plain Python must read, as `Looking.at` takes them."""
        return self._odd[: 3 * self._state[ODD]].reshape(-1, 3)

    def take_part(self, memory: Memory, version_us: int) -> Batch:
        """The reports read since the last part, whose codes were given with that memory."""
        state = self._state
        rows, cells = int(state[ROWS]), int(state[CELLS])
        texts, text_bytes = int(self._texts[TEXT_COUNT // 8]), int(self._texts[TEXT_USED // 8])
        batch = Batch(
            Coded(
                _strings(memory, self._devices, int(state[DEVICES]), int(state[DEVICE_BYTES])),
                self._device[:rows].copy(),
            ),
            self._time_us[:rows].copy(),
            np.full(rows, version_us, np.int64),
            self._position[:rows].copy(),
            Cells(
                self._offsets[: rows + 1].copy(),
                _strings(memory, self._names, int(state[NAMES]), int(state[NAME_BYTES])),
                self._name[:cells].copy(),
                self._kind[:cells].copy(),
                self._number[:cells].copy(),
                Names(self._text_bytes[: text_bytes + PAD].copy(), self._text_offsets[: texts + 1].copy())
                if texts
                else NO_NAMES,
                self._text[:cells].copy(),
            ),
        )
        self._begin_part()
        return batch


def _strings(memory: Memory, ids: Ints, count: int, size: int) -> Names:
    if not count:
        return NO_NAMES
    data, offsets = np.empty(size + PAD, np.uint8), np.empty(count + 1, np.int64)
    gather(memory.head, ids, count, data, offsets)
    return Names(data, offsets)
