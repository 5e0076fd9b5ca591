"""Laws of the line-protocol decoder: it says what the plain reference says, whatever the body and what it saw before."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from reference.line import NANOSECONDS, decode, rows_of
from widerow.codec.line import LineDecoder, LineNaming
from widerow.codec.line.decoder import Table

PLAIN = LineNaming()
KEEPING = LineNaming(device_tags=("device", "host"), metric="{field}", attribute_tags=("cpu", "host"))
SHARED = {
    (naming, capacity): LineDecoder(naming, table=table)
    for capacity in (1, 1 << 10)
    for table in [Table(capacity)]
    for naming in (PLAIN, KEEPING)
}
"""Decoders that live through all examples, so that what they remember, together, is part of what is tested."""

NOW_US = 1_700_000_000_000_000

characters = st.sampled_from(
    ["a", "b", "Z", "0", "_", "ü", "€", "\U0001f600", "\\", "\\,", "\\=", "\\ ", '"', "#", "/", "\\\\", ".", "{"]
)
odd_characters = st.sampled_from(["\t", "\x00", "\x7f", "\x85", "\r", "=", ",", " "])
names = st.lists(st.one_of(characters, characters, characters), min_size=1, max_size=6).map("".join)
names = st.one_of(names, st.sampled_from(["temp", "a_long_field_name", "x" * 255, "x" * 256, "x" * 257, ""]))
any_names = st.one_of(*[names] * 9, st.lists(st.one_of(characters, odd_characters), max_size=4).map("".join))
tag_keys = st.one_of(st.sampled_from(["device", "device_id", "host", "cpu", "core", "site"]), any_names)
texts = st.lists(st.one_of(characters, st.sampled_from(['\\"', "\n", "\r\n", " ", ",", "=", "é"])), max_size=8).map("".join)
floats = st.floats().map(repr)
integers = st.one_of(st.integers(-(2**54), 2**54), st.integers()).flatmap(
    lambda i: st.sampled_from([f"{i}i", f"{i}u", f"{i}"])
)
numerals = st.from_regex(r"-?[0-9]{0,25}\.?[0-9]{0,25}([eE][+-]?[0-9]{1,4})?", fullmatch=True)
constants = st.sampled_from(
    ["t", "T", "true", "True", "TRUE", "f", "F", "false", "False", "FALSE", "tRUE", "nan", "Inf", "-inf", "", "+1"]
)
values = st.one_of(floats, integers, numerals, constants, texts.map(lambda s: f'"{s}"'))
times = st.one_of(
    st.just(""),
    st.integers(0, 2**53).map(str),
    st.integers(0, 2**64).map(str),
    st.integers(-10, 2000).map(str),
    st.sampled_from(
        ["9223372036854775808", "000000000000000000000000005", "-0", "5 6", "1.5", "9007199254740992", "9007199254740993"]
    ),
)
gaps = st.sampled_from([" ", " ", " ", "  ", " \t"])
leads = st.sampled_from(["", "", "", "", " ", "\t"])
ends = st.sampled_from(["\n", "\n", "\n", "\r\n", " \n", "\n\n", "\n# note\n", ""])


@st.composite
def lines(draw: st.DrawFn) -> str:
    tags = "".join(f",{draw(tag_keys)}={draw(names)}" for _ in range(draw(st.integers(0, 3))))
    device = draw(st.sampled_from(["", ",device=dev-1", ",device=dev-1", ",host=h\\ 2", ",device=x,host=y"]))
    fields = ",".join(f"{draw(any_names)}={draw(values)}" for _ in range(draw(st.integers(1, 4))))
    time = draw(times)
    measurement = draw(st.one_of(st.just("m"), any_names))
    return f"{draw(leads)}{measurement}{device}{tags}{draw(gaps)}{fields}{draw(gaps) + time if time else ''}{draw(ends)}"


bodies = st.lists(lines(), max_size=6).map(lambda parts: "".join(parts).encode(errors="surrogatepass"))


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    body = bytearray(draw(bodies))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(body)))
        body[at : at + draw(st.integers(0, 2))] = draw(
            st.one_of(st.binary(max_size=2), st.sampled_from([b'"', b"\\", b"\n", b" ", b"=", b",", b"\r"]))
        )
    return bytes(body)


def check(body: bytes, precision: str = "ns") -> None:
    for (naming, capacity), decoder in SHARED.items():
        got = decoder.decode(body, precision=precision, now_us=NOW_US, version_us=4_000)
        rows, refused = decode(body, naming, precision=precision, now_us=NOW_US)
        assert rows_of(got.batch) == rows, capacity
        assert [(r.positions, r.code) for r in got.refusals] == [((p,), code) for p, code in refused], capacity
        assert set(got.batch.version_us.tolist()) <= {4_000}


@settings(max_examples=200, deadline=None)
@given(bodies, st.sampled_from(sorted(NANOSECONDS)))
def test_decoding_says_what_the_reference_says(body: bytes, precision: str) -> None:
    check(body, precision)


@settings(max_examples=200, deadline=None)
@given(mutated())
def test_damaged_bodies_lose_only_their_damaged_lines(body: bytes) -> None:
    check(body)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_decoded_or_refused(body: bytes) -> None:
    check(body)


@settings(max_examples=100, deadline=None)
@given(bodies, st.integers(0, 300))
def test_a_body_may_come_in_any_buffer(body: bytes, cut: int) -> None:
    decoder = SHARED[PLAIN, 1 << 10]
    want = rows_of(decoder.decode(body[cut:], now_us=1, version_us=1).batch)
    for buffer in (bytearray(body[cut:]), memoryview(body)[cut:]):
        assert rows_of(decoder.decode(buffer, now_us=1, version_us=1).batch) == want
