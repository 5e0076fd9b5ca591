"""Hostile JSON: bodies made of good and bad pieces, then cut, spliced and flipped. The oracle says what must come out.

Run many with `PYTHONPATH=tests python -m fuzz.json 1000000`.
"""

from __future__ import annotations

import random
import sys
from itertools import starmap

from reference import json as reference
from widerow.codec.decoded import Decoded
from widerow.codec.json import JsonDecoder
from widerow.model.batch import Report, reports_of
from widerow.model.errors import Rejected

NOW_US, VERSION_US = 1_763_193_600_000_000, 1_763_193_600_000_000
PRECISIONS = ("ms", "ms", "s", "us", "ns")

STRINGS = (
    '"a"', '"press-7"', '"Conveyor/Batch Qty"', '"Temp\\u00b0C"', '"Temp°C"', '"\\ud83d\\ude00"', '"\\ud83d"',
    '"\\udc00"', '""', '"x\\ny"', '"q\\"q"', '"b\\\\"', '"s\\/s"', '"\x7f"', '"\\u007f"', '"\x85"', '"\\u0085"',
    '"\\u0000"', '"\\x"', '"\\u12g4"', '"tab\there"', '"unfinished', '"' + "n" * 256 + '"', '"' + "n" * 257 + '"',
    '"' + "ü" * 128 + '"', '"' + "t" * 32768 + '"', '"' + "t" * 32769 + '"', '"日本"', '"{"', '"]"', '"\\b\\f\\r\\t"',
    '"\\uD83D\\uDE00x"', '"\\ud83d\\u0041"', '"m{p=' + "x" * 1019 + '}"', '"m{p=' + "x" * 1020 + '}"',
)  # fmt: skip
NUMBERS = (
    "0", "-0", "1", "-1", "21.5", "-0.0", "1e3", "1E+3", "1e-3", "0.1", "0.30000000000000004", "123456789.123456789",
    "9007199254740992", "9007199254740993", "-9007199254740992", "-9007199254740993", "18446744073709551616", "1e999",
    "-1e999", "1e308", "1.7976931348623157e308", "5e-324", "2.2250738585072011e-308", "1e-400",
    "0.00000000000000000000000012345678901234567", "NaN", "Infinity", "-Infinity", "01", "1.", ".5", "-", "+1", "1e",
    "1e+", "0x10", "1_0", "1.2.3", "1e0001", "1e00001", "9007199254740993.0", "179769313486231580793e289", "8.5e15",
    "1" * 40, "1" * 5000, "0." + "1" * 40,
)  # fmt: skip
TIMES = (
    "1763193600000", "1763193600", "1763193600000000", "1763193600000000000", "1763193600123.5", "1763193600.25",
    "1.7631936e12", "-1", "0", "-0", "0.4", "-0.4", "9007199254740992", "9007199254740993", "9223372036854775807",
    "9223372036854775808", "18446744073709551615", "18446744073709551616", "9007199254740992999",
    "9007199254740993000", "1e400", "NaN", "true", "[]", "{}", '"2026-11-15T08:00:00Z"', '"2026-11-15T08:00:00.250Z"',
    '"2026-11-15T08:00:00.123456789+01:00"', '"2026-02-29T00:00:00Z"', '"2028-02-29T00:00:00Z"',
    '"2100-02-29T00:00:00Z"', '"2026-11-31T00:00:00Z"', '"1969-12-31T23:59:59Z"', '"1970-01-01T00:00:00Z"',
    '"1970-01-01T00:00:00+01:00"', '"2255-06-05T23:47:34.740992Z"', '"2255-06-05T23:47:34.740993Z"',
    '"2255-12-31T00:00:00Z"', '"2026-11-15T08:00:00"', '"2026-11-15 08:00:00Z"', '"2026-11-15T08:00Z"',
    '"20261115T080000Z"', '"2026-W46-7T08:00:00Z"', '"2026-11-15T08:00:00z"', '"2026-11-15T08:00:00.Z"',
    '"2026-11-15T08:00:60Z"', '"2026-11-15T24:00:00Z"', '"now"', '"-1h"', '""', '"2026-11-15T08:00:00-00:00"',
    '"2026-11-15T08:00:00+23:59"', '"2026-11-15T08:00:00+24:00"', '"2026-11-15T08:00:00+01"',
    '"2026-11-15T08:00:00+01:60"', '"2026-11-15T08:00:00\\u005a"', "null", '"0000-01-01T00:00:00Z"',
    '"2026-11-15T08:00:00.1+0130"',
)  # fmt: skip
CALM_TIMES = ('"2026-11-15T08:00:00Z"', '"2026-11-15T08:00:00.123456+01:00"', "1763193600000", "0", "1700000000", "null")
ODD = ("null", "true", "false", "[]", "{}", "[1,2]", '{"a":1}', "nul", "True", "[" * 70 + "]" * 70, "[" * 100, "")
SPACES = ("", "", "", "", " ", "\n", "\t", "\r\n", "  ")
TOKENS = ("{", "}", "[", "]", ",", ":", '"', "\\", "\n", "null", '"device"', '"values"', "\x00", "é", "1", '"tags":{}')


def make_body(rng: random.Random, ndjson: bool) -> bytes:
    reports = [_report(rng) for _ in range(rng.choice((1, 1, 2, 3, 5)))]
    if ndjson:
        text = rng.choice(("\n", "\n", "\r\n", "\n\n", " \n\t\n")).join(r.replace("\n", " ") for r in reports)
        text += rng.choice(("", "\n"))
    elif rng.random() < 0.15:
        text = reports[0]
    else:
        text = "[" + ",".join(reports) + "]"
    body = text.encode("utf-8", "surrogatepass")
    while rng.random() < 0.4:
        body = _mutated(rng, body)
    return body


def _report(rng: random.Random) -> str:
    if rng.random() < 0.03:
        return rng.choice(ODD + NUMBERS + STRINGS)
    calm = rng.random() < 0.5

    def space() -> str:
        return "" if calm else rng.choice(SPACES)

    def string() -> str:
        return rng.choice(STRINGS[:4] if calm or rng.random() < 0.8 else STRINGS)

    def value() -> str:
        kinds = (NUMBERS[:12], NUMBERS[:12], STRINGS[:8], ("true", "false", "null"))
        return rng.choice(rng.choice(kinds) if calm or rng.random() < 0.85 else rng.choice((NUMBERS, STRINGS, ODD)))

    def pair(key: str, content: str) -> str:
        return f"{space()}{key}{space()}:{space()}{content}{space()}"

    def several(one: list[tuple[str, str]]) -> str:
        return "{" + (",".join(starmap(pair, one)) or space()) + "}"

    fields = [
        ('"device"', string()),
        ('"values"', several([(string(), value()) for _ in range(rng.randrange(1 if rng.random() < 0.9 else 0, 5))])),
    ]
    if rng.random() < 0.8:
        fields.append(('"time"', rng.choice(CALM_TIMES if calm or rng.random() < 0.5 else TIMES)))
    if rng.random() < 0.4:
        fields.append(('"tags"', several([(string(), string() if rng.random() < 0.9 else value()) for _ in range(2)])))
    if not calm and rng.random() < 0.2:
        fields.append((rng.choice(('"tags"', '"time"', '"device"', '"valeus"', '"Time"', '"a"')), rng.choice(ODD + NUMBERS)))
    if not calm and rng.random() < 0.1:
        fields.pop(rng.randrange(len(fields)))
    rng.shuffle(fields)
    return space() + several(fields) + space()


def _mutated(rng: random.Random, body: bytes) -> bytes:
    at = rng.randrange(len(body) + 1)
    to = min(len(body), at + rng.randrange(1, 12))
    choice = rng.randrange(6)
    if choice == 0:
        return body[:at]
    if choice == 1:
        return body[:at] + body[to:]
    if choice == 2:
        return body[:at] + rng.choice(TOKENS).encode() + body[at:]
    if choice == 3:
        return body[:at] + bytes([rng.randrange(256)]) + body[at + 1 :]
    if choice == 4:
        return body[:at] + body[at:to] * rng.randrange(2, 4) + body[to:]
    return body[:at] + rng.randbytes(rng.randrange(8)) + body[at:]


def differs(decoder: JsonDecoder, body: bytes, precision: str, ndjson: bool) -> str | None:
    """How decoder and oracle disagree about a body, or None."""
    found: Decoded | str
    wanted: reference.Reference | str
    try:
        found = decoder.decode(body, precision=precision, ndjson=ndjson, now_us=NOW_US, version_us=VERSION_US)
    except Rejected as error:
        found = error.code
    try:
        wanted = reference.decode(body, precision=precision, ndjson=ndjson, now_us=NOW_US, version_us=VERSION_US)
    except Rejected as error:
        wanted = error.code
    if isinstance(found, str) or isinstance(wanted, str):
        return None if found == wanted else f"got {found}, want {wanted}"
    refused = sorted((int(position), refusal.code) for refusal in found.refusals for position in refusal.positions)
    if refused != sorted(wanted.refusals):
        return f"refused {refused}, want {wanted.refusals}; {found.refusals}"
    kept = flat(found)
    return None if kept == wanted.reports else f"kept {kept}, want {wanted.reports}"


def flat(decoded: Decoded) -> list[tuple[int, int, Report]]:
    """Position, number of cells and content of each report."""
    batch = decoded.batch
    counts = (batch.cells.offsets[1:] - batch.cells.offsets[:-1]).tolist()
    return list(zip(batch.position.tolist(), counts, reports_of(batch), strict=True))


def fuzz_json(count: int, seed: int) -> None:
    """Raises AssertionError with the body on the first disagreement."""
    rng = random.Random(seed)
    decoder = JsonDecoder()
    for _ in range(count):
        ndjson = rng.random() < 0.4
        body = make_body(rng, ndjson)
        precision = rng.choice(PRECISIONS)
        fault = differs(decoder, body, precision, ndjson)
        assert fault is None, f"{precision=} {ndjson=} {body!r}: {fault}"


if __name__ == "__main__":
    fuzz_json(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
