"""Blocks of the format as it was when they were made: later releases must read them.

    PYTHONPATH=tests python -m golden.make

writes those that are missing, and never one that is there. A change of format adds files, with a new format version.
"""

from __future__ import annotations

import struct
from pathlib import Path

from reference.blocks import Entry, columns_of
from widerow.blocks.columns import Kind
from widerow.blocks.pack import pack

FOLDER = Path(__file__).parent
START_US = 1_700_000_000_000_000
RECEIVED_US = START_US + 100_000


def word(number: float) -> int:
    """The bits of a double, as an integer with a sign."""
    found: int = struct.unpack("<q", struct.pack("<d", number))[0]
    return found


def report() -> list[Entry]:
    """The example of docs/format/block.md."""
    at = "press-7", START_US, RECEIVED_US
    return [
        Entry(*at, "state", "", Kind.TEXT, b"run"),
        Entry(*at, "temperature", "", Kind.NUMBER, word(21.5)),
    ]


def kinds() -> list[Entry]:
    """Every kind, parts of a rollup, and numbers that are hard to keep; rows of one time with two versions."""
    numbers = [word(-0.0), word(5e-324), word(float("inf")), word(2.0**53), 0x7FF8000000000001, 0x7FF0000000000001, -1]
    found = [
        Entry("Halle 3/Ölpresse", START_US + i, 1000 * (i % 2), "x", "", Kind.NUMBER, bits) for i, bits in enumerate(numbers)
    ]
    one, other = ("ns=2;s=Temp", 5, 1000), ("ns=2;s=Temp", 5, 2000)
    found += [
        Entry(*one, "x", "count", Kind.INTEGER, (1 << 63) - 1),
        Entry(*one, "x", "min", Kind.NUMBER, word(-1.5)),
        Entry(*one, "x", "sketch", Kind.BYTES, b"\x00\xff\x80"),
        Entry(*one, "open", "", Kind.FLAG, 1),
        Entry(*other, "note", "", Kind.TEXT, "Tür auf".encode()),
        Entry(*other, "note", "", Kind.TAG, b""),
        Entry("a", -1, 0, "x", "", Kind.INTEGER, -(1 << 63)),
    ]
    return found


def hour() -> list[Entry]:
    """Five devices with a report each ten seconds: columns of every codec, on several pages."""
    found = []
    for d in range(5):
        for i in range(360):
            at = f"pump-{d}", START_US + 10_000_000 * i + 1000 * ((i * 7919 + d * 31) % 97), RECEIVED_US
            found += [
                Entry(*at, "temperature", "", Kind.NUMBER, word(round(20 + d + ((i * i * 37) % 101) / 10, 1))),
                Entry(*at, "pressure", "", Kind.NUMBER, word((i * 2654435761 + d * 40503) % 4294967296 / 7)),
                Entry(*at, "strokes", "", Kind.INTEGER, 1000 * d + 3 * i),
                Entry(*at, "rated", "", Kind.NUMBER, word(7.5)),
                Entry(*at, "open", "", Kind.FLAG, int(i % 120 > 100)),
                Entry(*at, "state", "", Kind.TEXT, (b"run", b"stop", b"fault")[(i * i + d) % 3]),
                Entry(*at, "line", "", Kind.TAG, b"L1"),
            ]
            if i % 30 == d:
                found.append(Entry(*at, "dose", "", Kind.NUMBER, word(i / 4)))
    return found


FILES = {
    "report-quick": (report, False),
    "kinds-quick": (kinds, False),
    "kinds-dense": (kinds, True),
    "hour-dense": (hour, True),
}


def main() -> None:
    for name, (content, dense) in FILES.items():
        path = FOLDER / f"{name}-1.wblk"
        if path.exists():
            print(f"{path.name}: is there already")
            continue
        (block,) = pack(columns_of(content()), dense=dense)
        path.write_bytes(block)
        print(f"{path.name}: {len(block)} bytes")


if __name__ == "__main__":
    main()
