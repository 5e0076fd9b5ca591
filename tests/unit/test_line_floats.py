"""Numbers of line protocol equal Python's `float()` bit for bit."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator

import numpy as np

from widerow.codec.line import LineDecoder

DECODER = LineDecoder(capacity=16)
FIELDS_A_LINE = 10


def check(texts: list[str]) -> None:
    lines = [texts[i : i + FIELDS_A_LINE] for i in range(0, len(texts), FIELDS_A_LINE)]
    body = "\n".join("m,host=a " + ",".join(f"f{k}={t}" for k, t in enumerate(line)) + " 1" for line in lines)
    decoded = DECODER.decode(body.encode(), now_us=0, version_us=0)
    assert not decoded.refusals, decoded.refusals[:3]
    want = np.array([float(t) for t in texts])
    wrong = np.flatnonzero(decoded.batch.cells.number.view(np.uint64) != want.view(np.uint64))
    assert not len(wrong), [(texts[i], decoded.batch.cells.number[i]) for i in wrong[:5]]


def any_float(rng: random.Random) -> float:
    while True:
        value: float = struct.unpack("<d", rng.randbytes(8))[0]
        if abs(value) < float("inf"):
            return value


def written(rng: random.Random, count: int) -> Iterator[str]:
    """Numbers as programs write them: the shortest form, fixed decimals, 17 digits, scientific."""
    for _ in range(count):
        value = rng.gauss(0, 10 ** rng.uniform(-5, 10))
        yield rng.choice(
            [
                repr(value),
                f"{value:.{rng.randrange(9)}f}",
                f"{value:.17g}",
                f"{value:.{rng.randrange(18)}e}",
                f"{value:.0f}.",
            ]
        )


def test_numbers_as_programs_write_them_are_exact() -> None:
    rng = random.Random(1)
    check(list(written(rng, 200_000)))


def test_floats_of_all_bit_patterns_are_exact() -> None:
    rng = random.Random(2)
    check([repr(any_float(rng)) for _ in range(100_000)])
    check([f"{any_float(rng):.16e}" for _ in range(20_000)])
    check([f"{any_float(rng):.{rng.randrange(17, 30)}e}" for _ in range(2_000)])


def test_digits_at_random_are_exact() -> None:
    rng = random.Random(3)

    def numeral() -> str:
        digits = "".join(rng.choices("0123456789", k=rng.randint(1, 22)))
        point = rng.randint(0, len(digits))
        exponent = f"e{rng.randint(-330, 280)}" if rng.random() < 0.5 else ""
        return rng.choice(("", "-")) + digits[:point] + "." + digits[point:] + exponent

    check([numeral() for _ in range(100_000)])


def test_halves_between_two_floats_go_to_the_even_one() -> None:
    rng = random.Random(4)
    halves = [(2 * rng.randrange(2**52, 2**53) + 1) << rng.randrange(10) for _ in range(20_000)]
    check([str(h) for h in halves])
    check([f"{h}.0" for h in halves])
    check([f"{h // 10}.{h % 10}e1" for h in halves])
    near = [h + d for h in halves[:5_000] for d in (-1, 1)]
    check([str(n) for n in near])


def test_nasty_numbers_are_exact() -> None:
    check(
        [
            "0", "-0", "0.0", "-0.0", "0e5", "-0e-5", ".5", "-.5", "5.", "00012.50", "1e22", "1e23", "9007199254740993",
            "9007199254740991.5", "1.7976931348623157e308", "1.7976931348623158e308", "2.2250738585072014e-308",
            "2.2250738585072011e-308", "4.9406564584124654e-324", "2.4703282292062327e-324", "2.4703282292062328e-324",
            "123456789012345678901234567890", "0.000000000000000000000000000000000000123", "1" + "0" * 308,
            "0." + "0" * 400 + "1", "1e-400",
            "8.5e-323", "6929495644600919.5", "3.2378839133029013e-319", "5e-00000324", "1E+05", "1e-0",
            "18446744073709551615", "18446744073709551616", "9999999999999999999", "10000000000000000000",
            "0.3", "2.3", "1e0", "72057594037927933", "1090544144181609348671888949248", "1090544144181609348835077142190",
        ]
    )  # fmt: skip
