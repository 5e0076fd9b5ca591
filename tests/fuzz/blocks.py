"""Hostile blocks: bits flipped, cut, spliced, with checksums as they were or made to fit.

A block whose checksums do not fit is `Corrupt`. One whose checksums were made to fit is `Corrupt`, or has as many rows and
values as it says. Nothing else is raised.

Run many with `PYTHONPATH=tests python -m fuzz.blocks 1000000`.
"""

from __future__ import annotations

import struct
import sys
from random import Random
from zlib import crc32

from widerow.blocks.arrange import of_batch
from widerow.blocks.block import Block
from widerow.blocks.layout import DENSE, HEADER_BYTES, squeezed, unsqueezed
from widerow.blocks.pack import pack
from widerow.model.batch import Report, batch_of
from widerow.model.errors import Corrupt
from widerow.simulate.fleet import Fleet

START_US = 1_700_000_000_000_000


def samples() -> list[bytes]:
    """Small blocks of both encodings, and of all codecs."""
    fleet = Fleet(3, 9, start_us=START_US)
    few = batch_of([Report("press-7", START_US, {"temperature": 21.5, "state": "run"}, {"line": "1"}, 1000)])
    return [
        block
        for batch in (few, fleet.made(range(3)), fleet.made(range(200)))
        for dense in (False, True)
        for block in pack(of_batch(batch), dense=dense)
    ]


def fuzz_blocks(count: int, seed: int) -> None:
    chance, known = Random(seed), samples()
    for _ in range(count):
        block = bytearray(chance.choice(known))
        whole = bytes(block)
        mutate(block, chance)
        if chance.random() < 0.5:
            check_damaged(bytes(block), whole)
        else:
            check_sealed(sealed(bytes(block), chance))


def mutate(block: bytearray, chance: Random) -> None:
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(block)) if chance.random() < 0.5 else chance.randrange(min(len(block), 400))
        match chance.randrange(5):
            case 0:
                block[at] ^= 1 << chance.randrange(8)
            case 1:
                block[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 2:
                del block[at : at + chance.randint(1, 20)]
            case 3:
                block[at:at] = chance.randbytes(chance.randint(1, 20))
            case _:
                other = chance.randrange(len(block))
                block[at : at + 8] = block[other : other + 8]
        if not block:
            block.append(0)


def check_damaged(block: bytes, whole: bytes) -> None:
    try:
        read_all(block)
    except Corrupt:
        return
    assert block == whole, block.hex()


def check_sealed(block: bytes) -> None:
    try:
        read_all(block)
    except Corrupt:
        return


def read_all(data: bytes) -> None:
    """Everything, in two ways. Names of devices that are no UTF-8 and rows in disorder are for the writer to avoid."""
    block = Block(data)
    whole = block.read()
    assert len(whole) == block.header.rows
    assert whole.count == whole.compacted().count == block.header.values
    assert len(block.part(0, 1)) == block.offsets[1]


def sealed(block: bytes, chance: Random) -> bytes:
    """The block with the sizes and the checksums that belong to it, as far as it can be read."""
    if len(block) < HEADER_BYTES:
        return block
    head = bytearray(block[:HEADER_BYTES])
    directory, rest = struct.unpack_from("<I", head, 16)[0], block[HEADER_BYTES:]
    directory = len(rest) if head[5] != DENSE else min(directory, len(rest))
    body = rest[:directory]
    if head[5] == DENSE and chance.random() < 0.7:
        body = sealed_directory(body, rest[directory:], chance)
    struct.pack_into("<II", head, 12, HEADER_BYTES + len(body) + len(rest) - directory, len(body))
    struct.pack_into("<I", head, 8, crc32(body, crc32(head[12:], crc32(head[:8]))))
    return bytes(head) + body + rest[directory:]


def sealed_directory(body: bytes, pages: bytes, chance: Random) -> bytes:
    """A dense directory with another byte here and there, and with the checksums of the pages."""
    try:
        plain = bytearray(unsqueezed(body))
    except Corrupt:
        return body
    for _ in range(chance.randrange(3) if plain else 0):
        plain[chance.randrange(len(plain))] = chance.choice((0, 1, 2, 0xFF, chance.randrange(256)))
    if len(plain) < 12:
        return body
    columns, count, _ = struct.unpack_from("<III", plain)
    at, begin = 12 + 40 * columns, 0
    for _ in range(min(count, 10_000)):
        if at + 12 > len(plain):
            break
        size = struct.unpack_from("<I", plain, at + 4)[0]
        struct.pack_into("<I", plain, at + 8, crc32(pages[begin : begin + size]))
        at, begin = at + 12, begin + size
    return squeezed(bytes(plain))


if __name__ == "__main__":
    fuzz_blocks(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000, int(sys.argv[2]) if len(sys.argv) > 2 else 0)
