"""Blocks as they are stored: those of the first format stay readable, and the page about them is right to the byte."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from golden.make import FILES, FOLDER, report
from reference.blocks import columns_of, entries_of, order
from widerow.blocks.block import Block
from widerow.blocks.dense import Codec
from widerow.blocks.pack import pack

PAGE = Path(__file__).parents[2] / "docs" / "format" / "block.md"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.wblk")), ids=lambda path: path.stem)
def test_a_stored_block_is_read_as_it_was_written(path: Path) -> None:
    content, _ = FILES[path.stem.rpartition("-")[0]]
    block = Block(path.read_bytes())
    assert entries_of(block.read()) == sorted(content(), key=order)
    assert [entry.device for entry in entries_of(block.read(["pump-3"]))] == [
        entry.device for entry in content() if entry.device == "pump-3"
    ]


def test_every_content_has_a_stored_block() -> None:
    assert {path.stem for path in FOLDER.glob("*.wblk")} == {f"{name}-1" for name in FILES}


@pytest.mark.parametrize("name", [name for name, (_, dense) in FILES.items() if not dense])
def test_quick_blocks_are_the_same_bytes_as_ever(name: str) -> None:
    content, dense = FILES[name]
    assert pack(columns_of(content()), dense=dense) == [(FOLDER / f"{name}-1.wblk").read_bytes()]


def test_the_stored_blocks_have_columns_of_every_codec() -> None:
    blocks = [Block(path.read_bytes()) for path in FOLDER.glob("*.wblk")]
    assert {info.codec for block in blocks for info in block.infos()} == {"plain", *(codec.name.lower() for codec in Codec)}


def test_the_example_of_the_page_is_a_block() -> None:
    example = PAGE.read_text().split("### Example")[1].split("```")[1]
    data = bytes.fromhex("".join(re.findall(r"^ *\d+ +((?:[0-9a-f]{2} )+)", example, re.MULTILINE)))
    assert data == (FOLDER / "report-quick-1.wblk").read_bytes()
    assert entries_of(Block(data).read()) == report()
