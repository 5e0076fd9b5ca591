"""Damaged blocks: whatever happens to their bytes, they are `Corrupt` and nothing else."""

from __future__ import annotations

import tracemalloc
from random import Random

import pytest

from fuzz.blocks import fuzz_blocks, read_all, samples
from widerow.blocks.block import Block, blocks_in, framed, frames_in
from widerow.blocks.layout import HEADER_BYTES
from widerow.model.errors import Corrupt

BLOCKS = samples()
COUNTS = [300, pytest.param(10_000, marks=pytest.mark.rest)]


@pytest.mark.parametrize("count", COUNTS)
def test_a_flipped_bit_anywhere_is_corrupt(count: int) -> None:
    chance = Random(1)
    for i in range(count):
        block = bytearray(BLOCKS[i % len(BLOCKS)])
        at = chance.randrange(len(block)) if i % 3 else chance.randrange(HEADER_BYTES)
        block[at] ^= 1 << chance.randrange(8)
        with pytest.raises(Corrupt):
            read_all(bytes(block))


@pytest.mark.parametrize("count", COUNTS)
def test_a_block_cut_short_is_corrupt(count: int) -> None:
    chance = Random(2)
    for i in range(count):
        block = BLOCKS[i % len(BLOCKS)]
        with pytest.raises(Corrupt):
            Block(block[: chance.randrange(len(block))])


@pytest.mark.parametrize("seed", [3, *(pytest.param(seed, marks=pytest.mark.rest) for seed in range(4, 24))])
def test_hostile_blocks_are_corrupt_or_what_they_say(seed: int) -> None:
    fuzz_blocks(500, seed)


def test_bytes_behind_a_block_or_between_blocks_are_corrupt() -> None:
    with pytest.raises(Corrupt, match=f"a block of {len(BLOCKS[0])} bytes has {len(BLOCKS[0]) + 1}"):
        Block(BLOCKS[0] + b"\0")
    with pytest.raises(Corrupt, match="this is no block"):
        list(blocks_in(BLOCKS[0] + b"\0" + BLOCKS[1]))


def test_blocks_of_several_owners_are_one_piece_of_which_every_byte_is_checked() -> None:
    piece = framed([("acme", BLOCKS[0]), ("börgmann", BLOCKS[2]), ("acme", BLOCKS[1])])
    assert [(owner, block.header.size) for owner, block in frames_in(piece)] == [
        ("acme", len(BLOCKS[0])),
        ("börgmann", len(BLOCKS[2])),
        ("acme", len(BLOCKS[1])),
    ]
    chance = Random(6)
    for _ in range(300):
        flipped = bytearray(piece)
        flipped[chance.randrange(len(piece))] ^= 1 << chance.randrange(8)
        for damaged in (bytes(flipped), piece[: chance.randrange(len(piece))], piece + b"\0"):
            with pytest.raises(Corrupt):
                [block.read() for _, block in frames_in(damaged)]


def test_a_newer_format_and_another_file_are_told_apart() -> None:
    with pytest.raises(Corrupt, match="was it written by a newer release"):
        Block(BLOCKS[0][:4] + b"\x02" + BLOCKS[0][5:])
    with pytest.raises(Corrupt, match="this is no block"):
        Block(b"PAR1" + BLOCKS[0][4:])


@pytest.mark.parametrize("block", [max(BLOCKS, key=len), BLOCKS[-1]])
def test_a_damaged_block_takes_no_more_memory_than_four_times_what_it_declares(block: bytes) -> None:
    header = Block(block).header
    declared = header.size + 16 * header.rows + 12 * header.values
    chance = Random(5)
    for _ in range(40):
        damaged = bytearray(block)
        damaged[chance.randrange(len(block))] ^= 0x80
        tracemalloc.start()
        with pytest.raises(Corrupt):
            read_all(bytes(damaged))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 4 * declared
