"""What a JSON report may say, and what becomes of it."""

from __future__ import annotations

import json
import threading

import pytest

from widerow.codec.decoded import Decoded
from widerow.codec.json import JsonDecoder
from widerow.model.batch import RECEIVED_TAG, Report, Value, reports_of
from widerow.model.errors import REFUSAL_CODES, Rejected, TooLarge
from widerow.model.times import MAX_TIME_US

NOW_US, VERSION_US = 1_763_193_600_000_000, 1_763_193_600_123_000


def decode(body: str | bytes, *, ndjson: bool = False, precision: str = "ms") -> Decoded:
    raw = body.encode() if isinstance(body, str) else body
    return JsonDecoder(seed=1).decode(raw, precision=precision, ndjson=ndjson, now_us=NOW_US, version_us=VERSION_US)


def only(body: str | bytes, *, precision: str = "ms") -> Report:
    decoded = decode(body, precision=precision)
    assert decoded.refusals == ()
    (report,) = reports_of(decoded.batch)
    return report


def codes(decoded: Decoded) -> list[tuple[int, str]]:
    return sorted((position, refusal.code) for refusal in decoded.refusals for position in refusal.positions)


def test_a_report_has_device_time_values_and_tags_in_any_order() -> None:
    want = Report("press-7", 1_000_000, {"Temp": 21.5, "State": "run"}, {"site": "a"}, VERSION_US)
    fields = ['"device":"press-7"', '"time":1000', '"values":{"Temp":21.5,"State":"run"}', '"tags":{"site":"a"}']
    for _ in range(4):
        fields.append(fields.pop(0))
        assert only("{" + ",".join(fields) + "}") == want
        assert only(" {\n" + " ,\t".join(fields).replace(":", " : ") + "\r\n} ") == want


def test_values() -> None:
    def check(text: str, want: Value) -> None:
        assert only(f'{{"device":"d","time":1,"values":{{"m":{text}}}}}').values == {"m": want}

    check("0", 0.0)
    check("-12", -12.0)
    check("21.5", 21.5)
    check("1e3", 1000.0)
    check("0.30000000000000004", 0.30000000000000004)
    check("1.7976931348623157e308", 1.7976931348623157e308)
    check("5e-324", 5e-324)
    check("1e-400", 0.0)
    check("9007199254740992", 2.0**53)
    check("-9007199254740992", -(2.0**53))
    check("true", 1.0)
    check("false", 0.0)
    check('"run"', "run")
    check('""', "")
    check('"a\\"b\\\\c\\/d\\n"', 'a"b\\c/d\n')
    check('"\\u00b0C \\ud83d\\ude00"', "°C \N{GRINNING FACE}")
    check('"Zürich"', "Zürich")
    check('"' + "t" * 32_768 + '"', "t" * 32_768)


def test_times() -> None:
    def check(text: str, precision: str, want: int) -> None:
        assert only(f'{{"device":"d","time":{text},"values":{{"m":1}}}}', precision=precision).time_us == want

    check("1763193600", "s", 1_763_193_600_000_000)
    check("1763193600123", "ms", 1_763_193_600_123_000)
    check("1763193600123456", "us", 1_763_193_600_123_456)
    check("1763193600123456789", "ns", 1_763_193_600_123_456)
    check("1763193600.25", "s", 1_763_193_600_250_000)
    check("1763193600123.5", "ms", 1_763_193_600_123_500)
    check("1.5e9", "s", 1_500_000_000_000_000)
    check("0", "ms", 0)
    check(str(MAX_TIME_US), "us", MAX_TIME_US)
    check('"2026-11-15T08:00:00Z"', "ms", 1_794_729_600_000_000)
    check('"2026-11-15T08:00:00.25+01:00"', "s", 1_794_726_000_250_000)
    check('"2026-11-15T08:00:00.123456999-00:30"', "ms", 1_794_731_400_123_456)
    check('"2028-02-29T23:59:59Z"', "ms", 1_835_481_599_000_000)
    check('"2026-11-15 08:00:00Z"', "ms", 1_794_729_600_000_000)


def test_a_report_without_time_gets_the_time_of_receipt_and_says_so() -> None:
    for time in ("", '"time":null,'):
        report = only(f'{{"device":"d",{time}"values":{{"m":1}},"tags":{{"site":"a"}}}}')
        assert report.time_us == NOW_US
        assert report.tags == {"site": "a", RECEIVED_TAG[0]: RECEIVED_TAG[1]}


def test_null_means_not_there() -> None:
    report = only('{"device":"d","time":1,"values":{"a":null,"b":2},"tags":{"x":null}}')
    assert (report.values, report.tags) == ({"b": 2.0}, {})


def test_a_bad_report_is_refused_alone() -> None:
    good = '{"device":"d","time":1,"values":{"m":1}}'
    checked = set()

    def check(report: str, code: str, names: str = "") -> None:
        checked.add(code)
        for ndjson in (False, True):
            body = f"{good}\n{report}\n{good}" if ndjson else f"[{good},{report},{good}]"
            decoded = decode(body, ndjson=ndjson)
            assert codes(decoded) == [(1, code)]
            assert names in decoded.refusals[0].reason
            assert decoded.batch.position.tolist() == [0, 2]

    check("7", "syntax", "object")
    check("[]", "syntax", "object")
    check('{"device":"d","time":1,"valeus":{"m":1}}', "syntax", "valeus")
    check('{"device":"d","device":"d","values":{"m":1}}', "syntax", "device")
    check('{"device":7,"values":{"m":1}}', "syntax", "device")
    check('{"device":"d","values":[1]}', "syntax", "values")
    check('{"device":"d","values":{"m":1},"tags":"x"}', "syntax", "tags")
    check('{"device":"d","values":{"m":"\\ud83d"}}', "syntax", "surrogate")
    check('{"values":{"m":1}}', "device-missing")
    check('{"device":null,"values":{"m":1}}', "device-missing")
    check('{"device":"","values":{"m":1}}', "name", "empty")
    check('{"device":"a\\nb","values":{"m":1}}', "name", "control")
    check('{"device":"a\\u0085b","values":{"m":1}}', "name", "control")
    check('{"device":"a\x85b","values":{"m":1}}', "name", "control")
    check('{"device":"d","values":{"a\x7fb":1}}', "name", "control")
    check('{"device":"d","values":{"\\ud83d":1}}', "name")
    check('{"device":"d","values":{"m":1},"tags":{"":"x"}}', "name", "tag")
    check('{"device":"d","values":{"' + "m" * 257 + '":1}}', "name", "256")
    check('{"device":"d"}', "no-values")
    check('{"device":"d","values":{}}', "no-values")
    check('{"device":"d","values":{"m":null},"tags":{"a":"b"}}', "no-values")
    check('{"device":"d","values":{"Temp":NaN}}', "not-finite", "Temp")
    check('{"device":"d","values":{"Temp":-Infinity}}', "not-finite", "Temp")
    check('{"device":"d","values":{"Temp":1e999}}', "not-finite", "Temp")
    check('{"device":"d","values":{"Count":9007199254740993}}', "integer-range", "Count")
    check('{"device":"d","values":{"Count":' + "9" * 5_000 + "}}", "integer-range", "Count")
    check('{"device":"d","values":{"List":[1]}}', "value-type", "List")
    check('{"device":"d","values":{"Map":{"a":1}}}', "value-type", "Map")
    check('{"device":"d","values":{"m":1},"tags":{"site":1}}', "value-type", "site")
    check('{"device":"d","values":{"m":"' + "t" * 32_769 + '"}}', "text-too-long", "32768")
    check('{"device":"d","time":"yesterday","values":{"m":1}}', "time", "yesterday")
    check('{"device":"d","time":"2026-11-15T08:00:00","values":{"m":1}}', "time", "zone")
    check('{"device":"d","time":"2026-02-29T08:00:00Z","values":{"m":1}}', "time")
    check('{"device":"d","time":-1,"values":{"m":1}}', "time", "precision=")
    check('{"device":"d","time":1e300,"values":{"m":1}}', "time", "precision=")
    check('{"device":"d","time":NaN,"values":{"m":1}}', "time")
    check('{"device":"d","time":true,"values":{"m":1}}', "time")
    check('{"device":"d","time":' + "9" * 30 + ',"values":{"m":1}}', "time")
    assert checked <= set(REFUSAL_CODES)


def test_a_metric_with_labels_may_have_1024_bytes() -> None:
    def check(kept: bool, name: str) -> None:
        decoded = decode(f'{{"device":"d","time":1,"values":{{"{name}":1}}}}', ndjson=False)
        assert (decoded.batch.cells.names.to_list(), codes(decoded)) == (([name], []) if kept else ([], [(0, "name")]))

    check(True, "m{path=" + "x" * 1016 + "}")
    check(False, "m{path=" + "x" * 1017 + "}")
    check(False, "m" * 257 + "{path=x}")


def test_a_name_given_twice_is_kept_twice() -> None:
    for name in ("m", "\\u006d"):  # by the kernel, and by escapes
        cells = decode(f'{{"device":"d","time":1,"values":{{"m":1,"{name}":2}}}}').batch.cells
        assert (cells.name.tolist(), cells.number.tolist(), cells.names.to_list()) == ([0, 0], [1.0, 2.0], ["m"])


def test_reports_keep_their_order_whoever_read_them() -> None:
    body = [{"device": f"d{i}", "time": i, "values": {"m": i if i % 3 else i / 7}} for i in range(40)]
    text = json.dumps(body).replace('"time": 5', '"time": "1970-01-01 00:00:00.005Z"')
    decoded = decode(text)
    assert decoded.batch.position.tolist() == list(range(40))
    assert [report.device for report in reports_of(decoded.batch)] == [f"d{i}" for i in range(40)]


def test_bodies_that_are_not_json_are_rejected_whole_with_the_byte() -> None:
    good = '{"device":"d","time":1,"values":{"m":1}}'

    def check(body: str | bytes, byte: int | None) -> None:
        with pytest.raises(Rejected) as caught:
            decode(body)
        assert caught.value.code == "syntax"
        assert byte is None or f"byte {byte}:" in str(caught.value)

    check("", 0)
    check("  ", None)
    check("7", None)
    check('"text"', None)
    check("null", None)
    check(good + good, len(good))
    check(good[:-1], len(good) - 1)
    check(f"[{good}", len(good) + 1)
    check(f"[{good},]", len(good) + 2)
    check(f"[{good} {good}]", len(good) + 2)
    check(f"[{good}]x", len(good) + 2)
    check(f"[{good},{{]", None)
    check(f'[{good},{{"device":01}}]', None)
    check(f'[{good},{{"a":"\t"}}]', None)
    check(b'[{"device":"\xff","values":{"m":1}}]', 12)
    check(b"\x00", 0)


def test_ndjson_lines_stand_alone() -> None:
    good = b'{"device":"d","time":1,"values":{"m":1}}'
    lines = [good, b"", b"not json", good + b"\r", b" \t ", good[:-1], b'{"device":"\xff","values":{"m":1}}', b"  " + good]
    decoded = decode(b"\n".join(lines), ndjson=True)
    assert decoded.batch.position.tolist() == [0, 3, 7]
    assert codes(decoded) == [(2, "syntax"), (5, "syntax"), (6, "syntax")]
    assert codes(decode(b"{\n" + good[1:], ndjson=True)) == [(0, "syntax"), (1, "syntax")]
    assert len(decode(b"", ndjson=True).batch) == 0


def test_an_empty_array_holds_nothing() -> None:
    assert len(decode(" [ ] ").batch) == 0


def test_nesting_bombs_are_harmless() -> None:
    bomb = "[" * 100_000
    for body in (bomb, "[" + bomb, bomb + "]" * 100_000, '{"a":' * 50_000, '[{"device":"d","values":{"m":' + bomb):
        with pytest.raises(Rejected):
            decode(body)
    assert codes(decode('{"device":"d","values":{"m":' + bomb + "]" * 100_000 + "}}\n", ndjson=True)) == [(0, "syntax")]


def test_a_report_may_have_very_many_names() -> None:
    names = {f"name-{i:07d}": i for i in range(50_000)}
    decoded = decode(json.dumps({"device": "d", "time": 1, "values": names}))
    assert len(decoded.batch.cells.names) == 50_000


def test_more_reports_than_allowed_are_too_large() -> None:
    good = b'{"device":"d","time":1,"values":{"m":1}}'
    decoder = JsonDecoder(max_reports=3)

    def check(body: bytes, *, ndjson: bool) -> None:
        with pytest.raises(TooLarge):
            decoder.decode(body, ndjson=ndjson, now_us=0, version_us=0)

    check(b"[" + b",".join([good] * 4) + b"]", ndjson=False)
    check(b"[1,1,1,1]", ndjson=False)
    check(b"\n".join([b"x"] * 4), ndjson=True)
    assert len(decoder.decode(b"\n".join([good] * 3), ndjson=True, now_us=0, version_us=0).batch) == 3


def test_an_unknown_precision_is_rejected() -> None:
    with pytest.raises(Rejected, match="minutes"):
        decode("[]", precision="minutes")


def test_a_decoder_is_shared_by_threads() -> None:
    decoder = JsonDecoder()
    wrong = []

    def work(own: int) -> None:
        body = json.dumps(
            [{"device": f"d{own}", "time": i, "values": {f"m{own}": i, "s": "\n"}} for i in range(200)]
        ).encode()
        for _ in range(20):
            batch = decoder.decode(body, ndjson=False, now_us=0, version_us=0).batch
            if batch.device.names.to_list() != [f"d{own}"] or batch.time_us.tolist() != [1000 * i for i in range(200)]:
                wrong.append(own)

    threads = [threading.Thread(target=work, args=(own,)) for own in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
