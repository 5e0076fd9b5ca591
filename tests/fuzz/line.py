"""Hostile line protocol: mutated, cut and random lines. Nothing may crash, hang, get lost or be invented."""

from __future__ import annotations

import random

import numpy as np

from reference.line import decode, logical_lines, rows_of
from widerow.codec.decoded import Decoded
from widerow.codec.line import LineDecoder, LineNaming
from widerow.model.batch import CellKind

NAMING = LineNaming(attribute_tags=("site", "b"))
PIECES = (
    b"m,device=a f=1 1760000000000000000",
    b"telemetry,device=dev-1,site=berlin temp=22.5,hum=44i,on=true 1760000000023000000",
    b"cpu,host=h\\ 1,cpu=cpu0,rack=r\\,7 usage=0.5681260027821038,idle=99u",
    b'log,device_id=d\xc3\xbc text="say \\"hi\\" \\\\ there",n=-1.5e-7 5',
    b'log,device=x text="two\nlines"  12  ',
    b"# a comment",
    b"  m,device=b a=t,b=F,c=True\r",
    b"m,device=a f=1e400,g=NaN,h=9007199254740993i -1",
    b"m,device=a,device=b f=1",
    b"",
)
SPICE = (
    b" ",
    b",",
    b"=",
    b'"',
    b"\\",
    b"\n",
    b"\r",
    b"\t",
    b"#",
    b"-",
    b".",
    b"e",
    b"i",
    b"u",
    b"\x00",
    b"\xff",
    b"\xc2\x85",
    b"0" * 25,
)
INPUTS_A_BODY = 40
COMPARED_ONE_IN = 8


def fuzz_line(count: int, seed: int) -> None:
    """Run `count` inputs, several to a body; one body in eight is compared with the reference word for word."""
    rng = random.Random(seed)
    decoders = [LineDecoder(NAMING, capacity=capacity) for capacity in (1, 1 << 12)]
    bodies = 0
    while count > 0:
        inputs = [_input(rng) for _ in range(min(count, rng.randint(1, INPUTS_A_BODY)))]
        count -= len(inputs)
        body = b"\n".join(inputs)
        decoded = decoders[bodies % 2].decode(body, now_us=7, version_us=3_000)
        _check(body, decoded)
        if bodies % COMPARED_ONE_IN < 2:
            rows, refused = decode(body, NAMING, now_us=7)
            assert rows_of(decoded.batch) == rows, body
            assert [(r.positions[0], r.code) for r in decoded.refusals] == refused, body
        bodies += 1


def _input(rng: random.Random) -> bytes:
    way = rng.random()
    if way < 0.1:
        return rng.randbytes(rng.randint(0, 30))
    text = bytearray(rng.choice(PIECES))
    if way < 0.2:
        return bytes(text)
    if way < 0.3:
        return bytes(text[: rng.randint(0, len(text))])
    for _ in range(rng.randint(1, 3)):
        at = rng.randint(0, len(text))
        change = rng.random()
        if change < 0.5:
            text[at:at] = rng.choice(SPICE)
        elif change < 0.7:
            del text[at : at + rng.randint(1, 3)]
        elif change < 0.85:
            text[at : at + 1] = rng.choice(SPICE)
        else:
            other = rng.choice(PIECES)
            text[at:at] = other[rng.randint(0, len(other)) :][: rng.randint(1, 20)]
    return bytes(text)


def _check(body: bytes, decoded: Decoded) -> None:
    batch, cells = decoded.batch, decoded.batch.cells
    positions = batch.position.tolist()
    refused = [p for r in decoded.refusals for p in r.positions]
    assert sorted(positions + refused) == [number for number, _ in logical_lines(body)], body
    assert positions == sorted(positions), body
    offsets = cells.offsets
    assert offsets[0] == 0
    assert offsets[-1] == len(cells)
    assert (np.diff(offsets) > 0).all(), body
    assert (np.bincount(batch.device.codes, minlength=len(batch.device.names)) > 0).all(), body
    assert (np.bincount(cells.name, minlength=len(cells.names)) > 0).all(), body
    numbers = cells.kind == CellKind.NUMBER
    assert np.isfinite(cells.number[numbers]).all(), body
    assert (cells.text[numbers] == -1).all(), body
    assert (np.bincount(cells.text[~numbers], minlength=len(cells.texts)) > 0).all(), body
    for names in (batch.device.names, cells.names, cells.texts):
        strings = names.to_list()
        assert len(set(strings)) == len(strings), body
