"""Keys: the order of their bytes is the order of the tuples they stand for, and they read back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from widerow.engine.rocksdb import raw
from widerow.engine.rocksdb.keys import Strings, decode_keys, encode_key, encode_keys, split_key
from widerow.engine.rows import Column
from widerow.model.names import Coded
from widerow.schema.table import KeyColumn

names = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=12)
ints = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-300, 300))
columns = (
    KeyColumn("tenant"),
    KeyColumn("device"),
    KeyColumn("bucket", "int"),
    KeyColumn("time", "int", descending=True),
    KeyColumn("name", descending=True),
)
rows = st.tuples(names, names, ints, ints, names)


def order(row: tuple[str, str, int, int, str]) -> tuple[bytes, bytes, int, int, tuple[int, ...]]:
    """The tuple in plain Python's order: texts by bytes, descending columns turned round."""
    tenant, device, bucket, time, name = row
    # A longer text is greater than its own start; turned round it is smaller: the closing mark sorts behind all bytes.
    turned = (*(255 - b for b in name.encode()), 256)
    return tenant.encode(), device.encode(), bucket, -time, turned


@given(rows, rows)
def test_key_order_is_tuple_order(a: tuple[str, str, int, int, str], b: tuple[str, str, int, int, str]) -> None:
    key_a, key_b = encode_key(columns, a), encode_key(columns, b)
    assert (key_a < key_b) == (order(a) < order(b))
    assert (key_a == key_b) == (a == b)


@given(rows, rows)
def test_no_partition_is_a_prefix_of_another(a: tuple[str, str, int, int, str], b: tuple[str, str, int, int, str]) -> None:
    one, other = encode_key(columns, a[:3]), encode_key(columns, b[:3])
    assert a[:3] == b[:3] or not other.startswith(one)


@given(st.lists(rows, min_size=1, max_size=20))
def test_bulk_keys_equal_single_keys_and_read_back(many: list[tuple[str, str, int, int, str]]) -> None:
    values: dict[str, Column] = {
        "tenant": Coded.of([r[0] for r in many]),
        "device": Coded.of([r[1] for r in many]),
        "bucket": np.array([r[2] for r in many], np.int64),
        "time": np.array([r[3] for r in many], np.int64),
        "name": Coded.of([r[4] for r in many]),
    }
    keys = encode_keys(columns, values, len(many)).to_list()
    assert keys == [encode_key(columns, r) for r in many]
    strings = Strings.of(keys)
    back = decode_keys(columns, strings, strings.offsets[:-1].copy())
    plain = [c.tolist() if isinstance(c, np.ndarray) else c.to_list() for c in back.values()]
    assert list(zip(*plain, strict=True)) == many


@given(rows)
def test_a_partition_is_split_from_the_rest_of_its_key(row: tuple[str, str, int, int, str]) -> None:
    values, length = split_key(columns[:3], encode_key(columns, row))
    assert values == row[:3]
    assert length == len(encode_key(columns, row[:3]))


@given(st.lists(st.tuples(st.binary(max_size=40), st.binary(max_size=600))))
def test_pairs_become_the_same_columns_whether_they_are_read_where_they_are_or_by_python(
    rows: list[tuple[bytes, bytes]],
) -> None:
    assert raw._KNOWN, "the layout of this Python's objects is not known: reads take the slow way"
    found = raw.as_columns(rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(raw, "_KNOWN", False)
        plain = raw.as_columns(rows)
    for column, other, k in zip(found, plain, (0, 1), strict=True):
        assert column.to_list() == other.to_list() == [row[k] for row in rows]
