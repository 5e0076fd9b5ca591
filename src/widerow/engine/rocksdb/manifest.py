"""What a MANIFEST says: which logs are needed, and which table files there are.

A MANIFEST is a log of edits, each a row of fields: a tag, then what the tag calls for. Rule: only the tags that RocksDB
writes here are understood; the rest of an edit with another one is left alone, as RocksDB puts the logs' numbers first.
https://github.com/facebook/rocksdb/blob/main/db/version_edit.cc
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from widerow.engine.rocksdb.log_format import records

_COMPARATOR, _LOG, _NEXT_FILE, _LAST_SEQUENCE, _COMPACT_CURSOR, _DELETED_FILE = 1, 2, 3, 4, 5, 6
_PREVIOUS_LOG, _LEAST_LOG, _NEW_FILE = 9, 10, 103
_FAMILY, _FAMILY_ADDED, _FAMILY_DROPPED, _MOST_FAMILY, _IN_GROUP = 200, 201, 202, 203, 300
_MAY_BE_SKIPPED = 1 << 13
_LAST_FIELD = 1
"""Ends the fields of a new file."""


@dataclass
class Manifest:
    """The state after all edits."""

    least_log: int = 0
    """Logs of smaller numbers are not needed any more: RocksDB deletes them."""
    files: dict[int, dict[int, int]] = field(default_factory=dict)
    """By column family, its table files, each with its level."""
    names: dict[int, str] = field(default_factory=lambda: {0: "default"})
    """The column families."""


def read_manifest(file: Path) -> Manifest:
    """As far as its records are whole."""
    state = Manifest()
    for record in records(file):
        _apply(state, Fields(record))
    return state


class Fields:
    """Reads numbers and texts as RocksDB stores them, from front to back."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def number(self) -> int:
        value, shift = 0, 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def text(self) -> bytes:
        length = self.number()
        self.at += length
        return self.data[self.at - length : self.at]

    def more(self) -> bool:
        return self.at < len(self.data)


def _apply(state: Manifest, fields: Fields) -> None:
    family, name, dropped = 0, "", False
    deleted: list[int] = []
    added: dict[int, int] = {}
    while fields.more():
        tag = fields.number()
        if tag == _COMPARATOR or tag & _MAY_BE_SKIPPED:
            fields.text()
        elif tag == _FAMILY_ADDED:
            name = fields.text().decode()
        elif tag == _LEAST_LOG:
            state.least_log = max(state.least_log, fields.number())
        elif tag in (_LOG, _NEXT_FILE, _LAST_SEQUENCE, _PREVIOUS_LOG, _MOST_FAMILY, _IN_GROUP):
            fields.number()
        elif tag == _COMPACT_CURSOR:
            fields.number()
            fields.text()
        elif tag == _DELETED_FILE:
            fields.number()
            deleted.append(fields.number())
        elif tag == _NEW_FILE:
            level, number = fields.number(), fields.number()
            added[number] = level
            _skip_file(fields)
        elif tag == _FAMILY:
            family = fields.number()
        elif tag == _FAMILY_DROPPED:
            dropped = True
        else:
            break
    if dropped:
        state.files.pop(family, None)
        return
    if name:
        state.names[family] = name
    files = state.files.setdefault(family, {})
    for number in deleted:
        files.pop(number, None)
    files |= added


def without(file: int, level: int, family: int) -> bytes:
    """The edit that takes a table file out of a column family."""
    return b"".join(map(_number, (_DELETED_FILE, level, file, _FAMILY, family)))


def _number(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _skip_file(fields: Fields) -> None:
    """Size, smallest and largest key, their sequence numbers, and fields of its own."""
    fields.number()
    fields.text()
    fields.text()
    fields.number()
    fields.number()
    while fields.number() != _LAST_FIELD:
        fields.text()
