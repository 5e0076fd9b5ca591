"""Blocks as dictionaries of cells: what columns must say, without columns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from widerow.blocks.arrange import Given, of_values
from widerow.blocks.columns import CODED, PLAIN, Columns, Kind
from widerow.model.names import Coded, Names


class Entry(NamedTuple):
    """One stored value. `word`: an integer of 64 bits with a sign, or the bytes of a text."""

    device: str
    time_us: int
    version_us: int
    name: str
    part: str
    kind: Kind
    word: int | bytes


def columns_of(entries: Iterable[Entry]) -> Columns:
    """The columns of values in any order."""
    entries = list(entries)
    rows = {row: i for i, row in enumerate(dict.fromkeys(entry[:3] for entry in entries))}
    given: list[Given] = []
    for entry in entries:
        words: Coded | np.ndarray = np.array([entry.word if isinstance(entry.word, int) else 0], np.int64)
        if isinstance(entry.word, bytes):
            words = Coded(Names.of_bytes([entry.word]), np.zeros(1, np.int32))
        row = np.array([rows[entry[:3]]], np.int32)
        given.append((entry.name, entry.part, entry.kind, row, words))
    times, versions = (np.array([row[i] for row in rows], np.int64) for i in (1, 2))
    return of_values(Coded.of([row[0] for row in rows]), times, versions, given)


def entries_of(columns: Columns) -> list[Entry]:
    """The values of columns, in order; first the rules that all columns keep are checked."""
    devices, names, texts = columns.devices.to_list(), columns.names.to_list(), columns.texts.to_bytes_list()
    assert [d.encode() for d in devices] == sorted({d.encode() for d in devices})
    rows = [
        (devices[d], int(t), int(v))
        for d, t, v in zip(columns.device_rows(), columns.time_us, columns.version_us, strict=True)
    ]
    assert [(d.encode(), *rest) for d, *rest in rows] == sorted({(d.encode(), *rest) for d, *rest in rows})
    assert [head.key for head in columns.heads] == sorted({head.key for head in columns.heads})
    out = []
    for head in columns.heads:
        assert len(head.rows) == len(head.values) > 0
        part = "" if head.part == PLAIN else names[head.part]
        for row, word in zip((head.rows - columns.first_row).tolist(), head.values.tolist(), strict=True):
            value = texts[word] if head.kind in CODED else word
            device, time_us, version_us = rows[row]
            out.append(Entry(device, time_us, version_us, names[head.name], part, head.kind, value))
    return sorted(out, key=order)


def order(entry: Entry) -> tuple[str, int, int, str, str, Kind, bytes]:
    return *entry[:6], strength(entry)


def strength(entry: Entry) -> bytes:
    """What is greater wins."""
    return entry.word if isinstance(entry.word, bytes) else (entry.word % (1 << 64)).to_bytes(8, "big")


def winners(entries: Iterable[Entry]) -> list[Entry]:
    """Of each cell the values with the greatest version; of these, for each part, the greatest kind, then bytes."""
    cells: dict[tuple[str, int, str, bool], dict[str, Entry]] = {}
    newest: dict[tuple[str, int, str, bool], int] = {}
    for entry in entries:
        cell = entry.device, entry.time_us, entry.name, entry.kind == Kind.TAG
        if entry.version_us > newest.get(cell, -1):
            newest[cell], cells[cell] = entry.version_us, {}
        if entry.version_us == newest[cell]:
            other = cells[cell].get(entry.part)
            if other is None or (entry.kind, strength(entry)) > (other.kind, strength(other)):
                cells[cell][entry.part] = entry
    return sorted((entry for parts in cells.values() for entry in parts.values()), key=order)
