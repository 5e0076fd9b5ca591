"""Key templates: keys read back, sort as their values do, begin with their entity, and no name can break one."""

from __future__ import annotations

import re
from hashlib import md5
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from widerow.keys import KeySpec
from widerow.keys.parts import escape, escape_text, escape_text_down, format_digits
from widerow.keys.spec import Column
from widerow.keys.template import digits, literal, text
from widerow.model.errors import ConfigError, Corrupt
from widerow.model.names import Coded, Names

names = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["", "%", "#", "a#b", "a%23"]
)
ints = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-300, 300), st.integers(10**16 - 3, 10**16 + 3))
times = st.integers(0, 2**53 - 1)
TIMES = ["{time:s}", "{time:ms}", "{time:us}", "{time:iso}", "{reversed:10}", "{reversed:13}", "{reversed:16}"]
SPEC = KeySpec.parse("{salt:2}#{tenant}#{device}#{reversed:16}")
ANY = KeySpec((text("a"), literal("#"), digits("m", 16), literal("#"), text("b", descending=True), literal("#"),
               digits("n", 3, descending=True)))  # fmt: skip


def columns_of(rows: list[dict[str, Any]]) -> dict[str, Column]:
    return {
        name: Coded.of([row[name] for row in rows])
        if isinstance(rows[0][name], str)
        else np.array([row[name] for row in rows], np.int64)
        for name in rows[0]
    }


def back(spec: KeySpec, keys: Names) -> list[dict[str, Any]]:
    columns = {n: c.to_list() if isinstance(c, Coded) else c.tolist() for n, c in spec.decode(keys).items()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def check_round_trip(spec: KeySpec, rows: list[dict[str, Any]]) -> list[bytes]:
    keys = spec.encode(columns_of(rows), len(rows))
    assert keys.to_bytes_list() == [spec.key(row) for row in rows], "many at once are as one by one"
    assert back(spec, keys) == rows
    return keys.to_bytes_list()


reports = st.fixed_dictionaries({"tenant": names, "device": names, "time": times})


@given(st.lists(reports, min_size=1, max_size=20))
def test_decoding_gives_what_was_encoded(rows: list[dict[str, Any]]) -> None:
    check_round_trip(SPEC, rows)


@given(st.lists(st.fixed_dictionaries({"a": names, "m": ints, "b": names, "n": ints}), min_size=2, max_size=12))
def test_key_order_is_value_order_for_any_text_and_number(rows: list[dict[str, Any]]) -> None:
    def order(row: dict[str, Any]) -> tuple[Any, ...]:
        # A longer text is greater than its own start; turned round it is smaller: the closing mark sorts behind all bytes.
        return row["a"].encode(), row["m"], (*(255 - b for b in row["b"].encode()), 256), -row["n"]

    keys = check_round_trip(ANY, rows)
    by_key = [row for _, row in sorted(zip(keys, rows, strict=True), key=lambda pair: pair[0])]
    assert by_key == sorted(rows, key=order)


@given(st.sampled_from(TIMES), st.lists(times, min_size=1, max_size=8))
def test_times_are_cut_to_their_unit_and_sort(field: str, moments: list[int]) -> None:
    unit_us = 10**6 if re.search(":(s|10)}", field) else 1000 if re.search("ms|13", field) else 1
    spec = KeySpec.parse("{tenant}#" + field)
    whole = [{"tenant": "t", "time": moment - moment % unit_us} for moment in moments]
    keys = check_round_trip(spec, whole)
    assert keys == spec.encode(columns_of([row | {"time": t} for row, t in zip(whole, moments, strict=True)]), len(moments)
                               ).to_bytes_list()  # fmt: skip
    newest_first = "reversed" in field
    assert sorted(keys) == [spec.key({"tenant": "t", "time": t}) for t in sorted(moments, reverse=newest_first)]


@given(reports, reports)
def test_keys_begin_with_the_prefix_of_their_entity_and_of_no_other(a: dict[str, Any], b: dict[str, Any]) -> None:
    prefix = SPEC.prefix(tenant=a["tenant"], device=a["device"])
    assert SPEC.key(a).startswith(prefix)
    same = (a["tenant"], a["device"]) == (b["tenant"], b["device"])
    assert SPEC.key(b).startswith(prefix) == same


@given(names)
def test_no_name_holds_a_delimiter_or_a_control_character(name: str) -> None:
    escaped = escape_text(name)
    assert escaped
    assert min(escaped) > ord("#")
    assert escape(Names.of((name,))).bytes_at(0) == escaped
    assert escape(Names.of((name,)), descending=True).bytes_at(0) == escape_text_down(name)


def test_what_keys_look_like() -> None:
    def check(template: str, want: bytes, **more: Any) -> None:
        values: dict[str, Any] = {
            "tenant": "acme",
            "device": "Conveyor/Batch Qty#1",
            "metric": "ns=2;s=Temp",
            "time": 1_760_000_000_500_000,
            "bucket": 1_759_996_800_000_000,
            "shard": 7,
            "sub": 12,
        }
        values |= more
        spec = KeySpec.parse(template)
        assert spec.key(values) == want
        assert spec.encode(columns_of([values]), 1).to_bytes_list() == [want]

    salt = md5(b"acme#Conveyor/Batch%20Qty%231").hexdigest()[:2].encode()
    check("{salt:2}#{tenant}#{device}#{reversed:16}", salt + b"#acme#Conveyor/Batch%20Qty%231#8239999999499999")
    check("{tenant}#{metric}#{time:s}", b"acme#ns=2;s=Temp#1760000000")
    check("{tenant}#{time:ms}", b"acme#1760000000500")
    check("{tenant}#{time:iso}", b"acme#2025-10-09T08:53:20.500000Z")
    check("{tenant}#{shard:NN}#{bucket}#{sub:3}", b"acme#shard-07#1759996800000000#012")
    check("agg#hourly#{tenant}#{reversed:10}", b"agg#hourly#acme#8239999999")
    check("{tenant}", b"%", tenant="")
    check("{tenant}#{time:s}", b"acme#0000000000", time=0)
    check("{tenant}#{time:us}", b"acme#-9999999999999999999", time=-1)
    check("{tenant}#{reversed:16}", b"acme#:0010000000000000000", time=-1)
    assert format_digits(-1, 16, descending=True) == b":0010000000000000000"


def test_a_bad_template_says_what_is_wrong() -> None:
    def check(template: str, says: str) -> None:
        with pytest.raises(ConfigError, match=re.escape(says)):
            KeySpec.parse(template)

    check("", "no field")
    check("rows", "no field")
    check("{salt:2}", "no field")
    check("{tenant", "brace")
    check("tenant}", "brace")
    check("{tenant}{device}", "behind {tenant}")
    check("{tenant}:{device}", "behind {tenant}")
    check("{tenant}#{tenant}", "twice")
    check("{time:s}#{reversed:10}", "twice")
    check("{tenant}#{colour}", "no field 'colour'")
    check("{tenant}#{time}", "say time:s")
    check("{tenant}#{time:ns}", "say time:s")
    check("{tenant}#{reversed:12}", "say reversed:10")
    check("{salt:0}#{tenant}", "1 to 32")
    check("{salt:2}#{time:s}", "needs an entity")
    check("{tenant:5}", "no option")
    check("{tenant}#{shard}", "shard:NN")
    check("{tenant}#100%#{device}", "neither %")
    check("{hash}", "cannot be read back")
    check("{device}#{time:s:unpadded}", "no fixed width")


domains = st.lists(st.text(st.sampled_from("abz-"), min_size=1, max_size=4), min_size=1, max_size=4).map(".".join)
places = st.fixed_dictionaries(
    {"type": names, "location": names, "device": domains, "bucket": times, "shard": st.integers(0, 99)}
)


@given(st.lists(places, min_size=1, max_size=12), st.sampled_from(["year", "month", "day", "hour", "minute"]))
def test_places_domains_and_dates_read_back(rows: list[dict[str, Any]], date: str) -> None:
    spec = KeySpec.parse("{type}#{location}#{device:domain}#{shard:NN}#{bucket:" + date + "}")
    unit = {"year": "Y", "month": "M", "day": "D", "hour": "h", "minute": "m"}[date]
    for row in rows:
        row["bucket"] = int(
            np.datetime64(row["bucket"], "us").astype(f"datetime64[{unit}]").astype("datetime64[us]").astype(int)
        )
    check_round_trip(spec, [{name: row[name] for name in spec.values} for row in rows])


def test_a_domain_is_shown_from_its_end() -> None:
    spec = KeySpec.parse("{device:domain}#{bucket:day}")
    assert spec.key({"device": "press.hall-2.acme.com", "bucket": 0}) == b"com.acme.hall-2.press#19700101"


def test_a_template_shown_is_the_template_read() -> None:
    def check(template: str) -> None:
        assert str(KeySpec.parse(template)) == template

    check("{salt:2}#{tenant}#{device}#{reversed:16}")
    check("agg#hourly#{type}#{location}#{device:domain}#{shard:2}#{bucket:day}")
    check("{device}#{bucket:us}#{time:iso}")
    check("{device}#{time:ms:12}")
    check("{device}#{reversed:s:9}")
    check("{device}#{metric}#{time:s}")


def test_a_prefix_must_lead() -> None:
    with pytest.raises(ValueError, match="do not begin with device"):
        SPEC.prefix(device="d")
    assert KeySpec.parse("{tenant}#{device}").prefix(tenant="acme") == b"acme#"
    assert SPEC.prefix() == b""


def test_a_foreign_key_is_corrupt() -> None:
    for key in (b"", b"a3", b"a3#acme", b"a3#acme#d#12", b"a3##d#8239999999499999", b"a3#acme#d%2#8239999999499999",
                b"a3#acme#d#8239999999499999#", b"a3#acme#d#823999999949999x"):  # fmt: skip
        with pytest.raises(Corrupt):
            SPEC.decode(Names.of_bytes([key]))
