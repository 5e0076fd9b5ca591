"""What each kind of line becomes, and why the others are refused."""

from __future__ import annotations

import gc
import random
import threading
from time import thread_time

import pytest

from reference.line import Row, decode, rows_of
from widerow.codec.line import LineDecoder, LineDecoders, LineNaming, warm_up
from widerow.codec.line.memory import Memory
from widerow.model.batch import CellKind, Report, reports_of
from widerow.model.errors import REFUSAL_CODES, ConfigError, Rejected
from widerow.model.labels import labelled
from widerow.model.tenant import Tenant
from widerow.model.times import MAX_TIME_US

NOW_US = 1_700_000_000_000_000
NAMING = LineNaming(attribute_tags=("site", "rack", "host", "t a,g", "m_s", "long", *(f"t{i}" for i in range(200))))
DECODER = LineDecoder(NAMING, capacity=1 << 10)


def test_lines_become_reports() -> None:
    def check(line: str, values: dict[str, float | str], tags: dict[str, str] | None = None, device: str = "d") -> None:
        for _ in range(2):  # the second time the series is known
            decoded = DECODER.decode(line.encode(), now_us=NOW_US, version_us=9_000)
            assert reports_of(decoded.batch) == [Report(device, 5, values, tags or {}, 9_000)], decoded.refusals
            assert not decoded.refusals

    check("m,device=d f=1.5 5000", {"m_f": 1.5})
    check("m,device=d f=1.5 5999", {"m_f": 1.5})
    check("m,device=d f=1.5,g=2i,h=3u,k=-4i 5000", {"m_f": 1.5, "m_g": 2, "m_h": 3, "m_k": -4})
    check("m,device=d a=t,b=T,c=true,d=True,e=TRUE 5000", {f"m_{k}": 1 for k in "abcde"})
    check("m,device=d a=f,b=F,c=false,d=False,e=FALSE 5000", {f"m_{k}": 0 for k in "abcde"})
    check("m,device=d f=9007199254740992i,g=-9007199254740992i 5000", {"m_f": 2.0**53, "m_g": -(2.0**53)})
    check('m,device=d s="" 5000', {"m_s": ""})
    check('m,device=d s="a b,c=d" 5000', {"m_s": "a b,c=d"})
    check(r'm,device=d s="say \"hi\" \\ \n",f=1 5000', {"m_s": 'say "hi" \\ \\n', "m_f": 1})
    check('m,device=d s="two\nlines" 5000', {"m_s": "two\nlines"})
    check('m,device=d s="größe €" 5000', {"m_s": "größe €"})
    check(r"m\ x\,y\=z,device=d f=1 5000", {"m x,y=z_f": 1})
    check(r"m,device=d,t\ a\,g=v\=\ \, f=1 5000", {"m_f": 1}, {"t a,g": "v= ,"})
    check(r"m,device=C:\temp f=1 5000", {"m_f": 1}, device=r"C:\temp")
    check(r"m,device=d a\ b\=c\,=1 5000", {"m_a b=c,": 1})
    check(r"m,device=a\\,b f=1 5000".replace(r"\\,b", r"\\\,b"), {"m_f": 1}, device=r"a\\,b")
    check('m"q",device="d" "f"=1 5000', {'m"q"_"f"': 1}, device='"d"')
    check("m=x,device=d f=1 5000", {"m=x_f": 1})
    check("m,site=b,device=d,rack=7 f=1 5000", {"m_f": 1}, {"site": "b", "rack": "7"})
    check("m,host=h,device_id=i f=1 5000", {"m_f": 1}, {"host": "h"}, device="i")
    check("m,device=Pumpe-ü f=1 5000", {"m_f": 1}, device="Pumpe-ü")
    check("  \tm,device=d   f=1 \t 5000 \t", {"m_f": 1})
    check("m,device=d f=1 5000\r\n", {"m_f": 1})
    check('\n\n# c\n #c="\n\r\n  \nm,device=d f=1 0000000000000000000000005000', {"m_f": 1})


def test_a_tag_may_equal_a_text_and_a_metric_may_equal_a_tag() -> None:
    decoded = DECODER.decode(b'm,device=d,m_s=berlin s="berlin" 1\n', now_us=0, version_us=0)
    cells = decoded.batch.cells
    assert (cells.names.to_list(), cells.texts.to_list()) == (["m_s"], ["berlin"])
    assert cells.kind.tolist() == [CellKind.TEXT, CellKind.TAG]


def test_a_field_given_twice_stays_twice() -> None:
    decoded = DECODER.decode(b"m,device=d f=1,f=2 1\n", now_us=0, version_us=0)
    assert rows_of(decoded.batch) == [Row(0, "d", 0, (("m_f", 0, "1.0"), ("m_f", 0, "2.0")))]


def test_a_line_without_time_gets_the_time_of_receipt_and_says_so() -> None:
    for line in ("m,device=d f=1", "m,device=d f=1\r", "m,device=d f=1  ", "m,device=d f=1 \n"):
        (report,) = reports_of(DECODER.decode(line.encode(), now_us=NOW_US, version_us=0).batch)
        assert report == Report("d", NOW_US, {"m_f": 1.0}, {"widerow_time": "received"})


def test_precisions() -> None:
    def check(precision: str, time: int, want_us: int) -> None:
        decoded = DECODER.decode(f"m,device=d f=1 {time}".encode(), precision=precision, now_us=0, version_us=0)
        assert decoded.batch.time_us.tolist() == [want_us]

    for spelling in ("ns", "n"):
        check(spelling, 1_999, 1)
        check(spelling, MAX_TIME_US * 1000 + 999, MAX_TIME_US)
    for spelling in ("us", "u", "µ"):
        check(spelling, MAX_TIME_US, MAX_TIME_US)
    check("ms", 7, 7_000)
    check("s", 7, 7_000_000)
    check("m", 7, 420_000_000)
    check("h", 7, 25_200_000_000)
    with pytest.raises(Rejected, match="precision 'd'"):
        DECODER.decode(b"", precision="d", now_us=0, version_us=0)


def test_bad_lines_are_refused_with_a_reason_and_their_neighbours_kept() -> None:
    def check(line: str | bytes, code: str, *words: str, precision: str = "ns") -> None:
        raw = line if isinstance(line, bytes) else line.encode()
        body = b"m,device=d f=1 5\n\n" + raw + b"\nm,device=e f=2 5"
        for _ in range(2):
            decoded = DECODER.decode(body, precision=precision, now_us=NOW_US, version_us=0)
            assert [r.device for r in reports_of(decoded.batch)] == ["d", "e"]
            (refusal,) = decoded.refusals
            assert (refusal.code, refusal.positions) == (code, (2,)), refusal
            assert code in REFUSAL_CODES
            assert refusal.reason.startswith("line 3: ")
            for word in words:
                assert word in refusal.reason

    check("m,device=d temp=12.3.4 5", "syntax", 'field "temp": "12.3.4" is not a number')
    check("m,device=d f=1,g 5", "syntax", '"g"')
    check("m,device=d f=1, 5", "syntax")
    check("m,device=d f= 5", "syntax", '"f" has no value')
    check("m,device=d f=+1 5", "syntax", '"+1"')
    check("m,device=d f=1_0 5", "syntax")
    check("m,device=d f=1.5i 5", "syntax")
    check("m,device=d f=-1u 5", "syntax")
    check("m,device=d f=1e 5", "syntax")
    check("m,device=d f=- 5", "syntax")
    check("m,device=d f=tRUE 5", "syntax")
    check("m,device=d f=truefalse 5", "syntax")
    check('m,device=d f="a"b 5', "syntax", "follows the closing quote")
    check('m,device=d f="a 5', "syntax", "no closing quote")
    check(b'm,device=d f="\xff" 5', "syntax", "not UTF-8")
    check("m,device=d 5", "syntax", "name=value")
    check("m,device=d f=1 5 6", "syntax", "follows the time")
    check("m,device=d,site f=1", "syntax", '"site" has no value')
    check("m,device=d,site= f=1", "syntax", '"site" has no value')
    check("m,device=d,site=a=b f=1", "syntax", "\\=")
    check("m,device=d,device=e f=1", "syntax", '"device" is given twice')
    check("m,device=d,a=1,a=1 f=1", "syntax", '"a" is given twice')
    check("garbage", "device-missing", "device, device_id, host")
    check("m,site=x f=1 5", "device-missing", "device, device_id, host")
    check("m,device=d", "no-values")
    check("m,device=d   ", "no-values")
    check(",device=d f=1", "name", "measurement", "empty")
    check("m,device=d =1", "name", "field", "empty")
    check("m,device=d,=1 f=1", "name", "tag", "empty")
    check("m,device=d\te f=1", "name", "device", "control character")
    check(b"m,device=\xff f=1", "syntax", "UTF-8")
    check(b"m\xff,device=d f=1", "name", "measurement", "not UTF-8")
    check(b"m,device=d f\xff=1", "name", "field", "not UTF-8")
    check(f"m,device={'x' * 257} f=1", "name", "device", "256")
    check(f"m,device=d {'x' * 255}=1", "name", "metric", "256")
    check("m,device=d f=NaN", "not-finite", "NaN")
    check("m,device=d f=-inf", "not-finite")
    check("m,device=d f=1e309", "not-finite", "too large")
    check(f"m,device=d f={'9' * 400}", "not-finite")
    check("m,device=d f=9007199254740993i", "integer-range", "2^53")
    check("m,device=d f=-9007199254740993i", "integer-range")
    check("m,device=d f=18446744073709551616u", "integer-range")
    check(f"m,device=d f={'9' * 5000}i", "integer-range")
    check(f'm,device=d f="{"x" * 32769}"', "text-too-long", "32769")
    check("m,device=d f=1 x", "time", '"x" is not a time')
    check("m,device=d f=1 1.5", "time")
    check("m,device=d f=1 -1", "time", "precision=s, ms, us or ns")
    check("m,device=d f=1 9223372036854775808", "time", precision="us")
    check("m,device=d f=1 9223372036854775808", "time", precision="s")
    check(f"m,device=d f=1 {'9' * 5000}", "time")
    check("m,device=d f=1 9007199254740993", "time", precision="us")


def test_a_forgotten_quote_costs_one_line() -> None:
    body = b'm,device=a s="open 1\nm,device=b s="fine" 1\nm,device=c f=1 1\nm,device=d s="open too\nm,device=e f=1 1'
    decoded = DECODER.decode(body, now_us=0, version_us=0)
    assert [(r.device, p) for r, p in zip(reports_of(decoded.batch), decoded.batch.position, strict=True)] == [
        ("b", 1),
        ("c", 2),
        ("e", 4),
    ]
    assert [r.positions for r in decoded.refusals] == [(0,), (3,)]


def test_lines_inside_the_text_of_a_refused_line_are_not_read() -> None:
    body = b'm,device=a s="\nm,device=evil f=1 1\n" nonsense\nm,device=b f=1 1'
    decoded = DECODER.decode(body, now_us=0, version_us=0)
    assert [r.device for r in reports_of(decoded.batch)] == ["b"]
    assert decoded.batch.position.tolist() == [3]


def test_longest_names_texts_and_prefixes_are_kept() -> None:
    device, text, value = "d" * 256, "x" * 32768, "v" * 20_000
    body = (
        f'm,device={device} s="{text}" 1\nm,device=d,long={value} f=1 1\n'
        "m,device=d" + "".join(f",t{i}={i}" for i in range(200)) + " f=1 1"
    )
    first, second, third = reports_of(DECODER.decode(body.encode(), now_us=0, version_us=0).batch)
    assert (first.device, first.values) == (device, {"m_s": text})
    assert second.tags == {"long": value}
    assert third.tags == {f"t{i}": str(i) for i in range(200)}


def test_each_tag_that_names_no_device_is_a_label_of_the_metric() -> None:
    def check(line: str, values: dict[str, float | str], naming: LineNaming = LineNaming()) -> None:  # noqa: B008
        decoder = LineDecoder(naming, capacity=8)
        for _ in range(3):
            decoded = decoder.decode(line.encode(), now_us=0, version_us=0)
            assert reports_of(decoded.batch) == [Report("a", 1, values, {})], decoded.refusals

    check("disk,host=a used=5 1000", {"disk_used": 5.0})
    check(
        "disk,host=a,path=/,fstype=ext4 used=5,free=6 1000",
        {"disk_used{fstype=ext4,path=/}": 5.0, "disk_free{fstype=ext4,path=/}": 6.0},
    )
    check("disk,path=/,fstype=ext4,host=a used=5 1000", {"disk_used{fstype=ext4,path=/}": 5.0})
    check(r"disk,host=a,path=C:\,\ x\=1 used=5 1000", {r"disk_used{path=C:\, x\=1}": 5.0})
    check(r"m\ x\,y\=z,host=a,t\ a\,g={v} f=1 1000", {r"m x\,y\=z_f{t a\,g=\{v\}}": 1.0})
    check(r"m,host=a,p=a\b f=1 1000", {r"m_f{p=a\\b}": 1.0})
    check("m,device=a,host=h,device_id=i f=1 1000", {"m_f{device_id=i,host=h}": 1.0})
    check('m,host=a,k=v s="text" 1000', {"m_s{k=v}": "text"})
    check("m,host=a,k=v use=5 1000", {"use{k=v}": 5.0}, LineNaming(metric="{field}"))
    check("m,sn=a,host=h use=5 1000", {"m_use{host=h}": 5.0}, LineNaming(device_tags=("sn",)))


def test_a_tag_of_the_attribute_tags_is_no_label() -> None:
    def check(line: str, want: Report, *attribute_tags: str) -> None:
        decoder = LineDecoder(LineNaming(attribute_tags=attribute_tags), capacity=8)
        for _ in range(3):
            assert reports_of(decoder.decode(line.encode(), now_us=0, version_us=0).batch) == [want]

    check("m,device=a,x=y,k=v f=5 1000", Report("a", 1, {"m_f{k=v}": 5.0}, {"x": "y"}), "x")
    check("m,k=v,x=y,device=a f=5 1000", Report("a", 1, {"m_f": 5.0}, {"k": "v", "x": "y"}), "x", "k")
    check("m,host=h,device=a f=5 1000", Report("a", 1, {"m_f": 5.0}, {"host": "h"}), "host")
    check("m,host=a f=5 1000", Report("a", 1, {"m_f": 5.0}, {}), "host")


def test_series_of_one_device_that_differ_in_a_label_stay_apart() -> None:
    decoder = LineDecoder(LineNaming(attribute_tags=("rack",)), capacity=256)
    body = "\n".join(f"cpu,host=h{h},cpu=c{c},rack=r{h}{c} use={h}{c} 1000" for h in range(4) for c in range(4)).encode()
    for _ in range(2):
        reports = reports_of(decoder.decode(body, now_us=0, version_us=0).batch)
        assert [r.values for r in reports] == [
            {f"cpu_use{{cpu=c{c}}}": float(f"{h}{c}")} for h in range(4) for c in range(4)
        ]
        assert [r.tags for r in reports] == [{"rack": f"r{h}{c}"} for h in range(4) for c in range(4)]


def test_a_name_with_labels_may_have_1024_bytes() -> None:
    def check(line: str, *words: str) -> None:
        for _ in range(2):
            decoded = DECODER.decode(line.encode(), now_us=0, version_us=0)
            assert (len(decoded.batch) == 0) == bool(words)
            assert all(word in decoded.refusals[0].reason for word in words)

    check(f"m,device=d,path={'x' * 1014} f=1 1000")
    check(f"m,device=d,path={'x' * 1015} f=1 1000", "metric", "is longer than 1024 bytes with its labels")
    check(f"{'m' * 200},device=d,a=b {'f' * 55}=1 1000")
    check(f"{'m' * 200},device=d,a=b {'f' * 56}=1 1000", "metric", "is longer than 256 bytes")
    check("m,device=d,a=x\ty f=1 1000", "holds a control character in a label")


def test_tenants_that_name_otherwise_share_a_table_and_stay_apart() -> None:
    decoders = LineDecoders(capacity=32)
    body = b"m,host=a,device=b,site=s,path=p f=1 1000"
    tenants = [
        Tenant(name="a"),
        Tenant(name="b", attribute_tags=("site",)),
        Tenant(name="c", device_tags=("host",)),
    ]
    for _ in range(20):
        assert [reports_of(decoders.of(t).decode(body, now_us=0, version_us=0).batch)[0] for t in tenants] == [
            Report("b", 1, {"m_f{host=a,path=p,site=s}": 1.0}, {}),
            Report("b", 1, {"m_f{host=a,path=p}": 1.0}, {"site": "s"}),
            Report("a", 1, {"m_f{device=b,path=p,site=s}": 1.0}, {}),
        ]


def test_tenants_that_name_alike_share_a_decoder_and_there_are_eight_at_most() -> None:
    decoders = LineDecoders(LineNaming(device_tags=("d",)), capacity=32)
    tenants = [Tenant(name=f"t{i}", attribute_tags=(f"a{i}",)) for i in range(9)]
    first = [decoders.of(tenant) for tenant in tenants[:8]]
    alike = Tenant(name="other", device_tags=("d",), attribute_tags=("a1",))
    assert decoders.of(alike) is first[1]
    decoders.of(tenants[8])
    assert decoders.of(tenants[1]) is first[1]
    assert decoders.of(tenants[0]) is not first[0]


def test_twenty_tenants_that_name_differently_keep_eight_decoders_and_one_memory() -> None:
    def held(kind: type) -> int:
        gc.collect()
        return sum(type(one) is kind for one in gc.get_objects())

    before = {kind: held(kind) for kind in (LineDecoder, Memory)}
    decoders = LineDecoders(capacity=64)
    tenants = [Tenant(name=f"t{i}", attribute_tags=(f"a{i}",), device_tags=("d", "e")[i % 2 :]) for i in range(20)]
    tags = "".join(f",a{i}=x" for i in range(20))
    wrong: list[Report] = []

    def send(first: int) -> None:
        for n in range(60):
            i = (7 * n + first) % 20
            body = f"m,d=one,e=two{tags} f={n} 1000".encode()
            (report,) = reports_of(decoders.of(tenants[i]).decode(body, now_us=0, version_us=0).batch)
            labels = {f"a{k}": "x" for k in range(20) if k != i} | ({"d": "one"} if i % 2 else {"e": "two"})
            if report != Report("two" if i % 2 else "one", 1, {labelled("m_f", labels): float(n)}, {f"a{i}": "x"}):
                wrong.append(report)

    threads = [threading.Thread(target=send, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert {kind: held(kind) - count for kind, count in before.items()} == {LineDecoder: 8, Memory: 1}


def test_a_wrong_naming_does_not_start() -> None:
    def check(**settings: str | tuple[str, ...]) -> None:
        with pytest.raises(ConfigError, match=r"line\."):
            LineNaming(**settings)  # type: ignore[arg-type]

    check(device_tags=())
    check(device_tags=("a", "a"))
    check(attribute_tags=("a", "a"))
    check(attribute_tags=("",))
    for template in ("", "{measurement}", "{fields}", "{field!r}", "{field:5}", "{field", "{}", "{0}{field}"):
        check(metric=template)
    with pytest.raises(ConfigError, match="capacity"):
        LineDecoder(capacity=0)


def test_the_batch_holds_only_its_own_names() -> None:
    decoder = LineDecoder(LineNaming(attribute_tags=("x", "y")), capacity=64)
    decoder.decode(b"m,device=a,x=1 f=1 1\nm,device=b,y=2 g=1 1", now_us=0, version_us=0)
    batch = decoder.decode(b'm,device=c f=bad,g="t" 1\nm,device=b h=1 1\nm,device=b h=1 oops', now_us=0, version_us=0).batch
    assert batch.device.names.to_list() == ["b"]
    assert batch.cells.names.to_list() == ["m_h"]
    assert batch.cells.texts.to_list() == []


CHURNING = LineNaming(attribute_tags=("req",))


def churning(lines: int, seed: int) -> bytes:
    """Lines of which each is a series of its own, among some that recur, with odd ones between."""
    rng = random.Random(seed)
    kinds = (
        lambda i: f"m,device=d{i},req={rng.random()} f={i},g=2 {i}000",
        lambda i: f"m,device=same,site=x f={i} {i}000",
        lambda i: f'm{i},device=d{i % 7} k{i}=1,s="text {i % 3}" {i}000',
        lambda i: f"m,device=e\\ {i},site=x f={i}.25",
        lambda i: f"m,device=d f={i}x",
    )
    return "\n".join(rng.choice(kinds)(i) for i in range(lines)).encode()


def test_a_full_table_starts_afresh_and_loses_nothing() -> None:
    for capacity in (1, 30, 400):
        decoder = LineDecoder(CHURNING, capacity=capacity)
        for seed in range(4):
            body = churning(500, seed)
            decoded = decoder.decode(body, now_us=NOW_US, version_us=0)
            rows, refused = decode(body, CHURNING, now_us=NOW_US)
            assert rows_of(decoded.batch) == rows
            assert [(r.positions[0], r.code) for r in decoded.refusals] == refused
            assert len(set(decoded.batch.device.names)) == len(decoded.batch.device.names)


def test_a_line_too_large_for_any_table_is_still_read() -> None:
    decoder = LineDecoder(NAMING, capacity=1)
    line = (
        "m,device=d" + "".join(f",t{i}=v{i}" for i in range(60)) + " " + ",".join(f"f{i}={i}" for i in range(60)) + " 1000"
    )
    for _ in range(2):
        (report,) = reports_of(decoder.decode(line.encode(), now_us=0, version_us=0).batch)
        assert (len(report.tags), len(report.values)) == (60, 60)


def test_a_line_of_thousands_of_new_fields_is_learned_in_steps() -> None:
    decoder = LineDecoder(capacity=1 << 13)
    line = "m,device=d " + ",".join(f'f{i}={i},s{i}="{i % 9}"' for i in range(2_000)) + " 1000"
    for _ in range(6):
        (report,) = reports_of(decoder.decode(line.encode(), now_us=0, version_us=0).batch)
        assert report.values == {f"m_f{i}": float(i) for i in range(2_000)} | {f"m_s{i}": str(i % 9) for i in range(2_000)}


def test_time_grows_with_the_body_and_not_faster() -> None:
    """Bodies made to be read again and again; a quadratic step would take minutes, not seconds."""
    half_a_megabyte = 1 << 19
    texts = ('m,device=d f="', 'm,device=d f="\n', 'm,device=d f="a\\"b\n', '="', ' f="",', '"\n')
    for piece in (*texts, " ", "=", ",a=1", "0", "\\", "x\n"):
        for start in ("", "m,device=d f=", "m,device=d "):
            body = (start + piece * (half_a_megabyte // len(piece) // (8 if "\n" in piece else 1))).encode()
            before = thread_time()
            DECODER.decode(body, now_us=0, version_us=0)
            assert thread_time() - before < 5, (start, piece)


def test_threads_may_share_a_decoder_while_its_table_overflows() -> None:
    decoder = LineDecoder(CHURNING, capacity=100)
    bodies = [churning(300, seed) for seed in range(8)]
    wants = [decode(body, CHURNING, now_us=NOW_US) for body in bodies]
    failures: list[object] = []

    def work(shift: int) -> None:
        for k in range(40):
            i = (k + shift) % len(bodies)
            decoded = decoder.decode(bodies[i], now_us=NOW_US, version_us=0)
            refused = [(r.positions[0], r.code) for r in decoded.refusals]
            if (rows_of(decoded.batch), refused) != wants[i]:
                failures.append((shift, k))

    threads = [threading.Thread(target=work, args=(shift,)) for shift in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_nothing_gives_an_empty_batch() -> None:
    for body in (b"", b"\n", b"\r\n", b"# only a comment", b"   "):
        decoded = DECODER.decode(body, now_us=0, version_us=0)
        assert (len(decoded.batch), decoded.refusals) == (0, ())


def test_bodies_larger_than_what_a_thread_keeps_are_read() -> None:
    lines = 60_000
    body = b"\n".join(
        b'telemetry,device=d%d,site=berlin temp=%d.5,state="on",other=12345.678 %d000' % (i % 999, i, i)
        for i in range(lines)
    )
    assert len(body) > 1 << 22
    batch = DECODER.decode(body, now_us=0, version_us=0).batch
    assert len(batch) == lines
    assert batch.time_us.tolist() == list(range(lines))
    assert batch.cells.texts.to_list() == ["on", "berlin"]


def test_warming_up_twice_is_harmless() -> None:
    warm_up()
    warm_up()
