"""The price table is edited by its user: what is left out keeps its value, and a fault is named with its place."""

from __future__ import annotations

import pytest

from widerow.model.errors import ConfigError
from widerow.plan.prices import default_prices, price_table, read_prices


def test_the_printed_table_is_the_one_that_is_used() -> None:
    assert read_prices(price_table(), "prices.toml") == default_prices()


def test_a_file_changes_what_it_names_and_nothing_else() -> None:
    prices = read_prices("currency = 'EUR'\n[cassandra]\nnode_month = 1\ncores = 4", "prices.toml")
    assert (prices.currency, prices.cassandra.node_month, prices.cassandra.cores) == ("EUR", 1.0, 4)
    assert prices.cassandra.disk_tb == default_prices().cassandra.disk_tb
    assert prices.bigtable == default_prices().bigtable


def test_a_fault_is_one_line_that_names_its_place() -> None:
    def check(text: str, *words: str) -> None:
        with pytest.raises(ConfigError) as caught:
            read_prices(text, "prices.toml")
        message = str(caught.value)
        assert message.startswith("prices.toml: ")
        assert "\n" not in message
        for word in words:
            assert word in message, message

    check("currency = 3", "currency", "no text")
    check("currency = = 3", "line 1")
    check("cassandra = 3", "cassandra", "[cassandra]")
    check("[cassandra]\nnode_month = -1", "cassandra.node_month", "from 0")
    check("[cassandra]\nnode_month = '900'", "cassandra.node_month", "'900'")
    check("[cassandra]\nnode_month = nan", "cassandra.node_month")
    check("[cassandra]\ncores = 1.5", "cassandra.cores", "whole number")
    check("[cassandra]\ndisk_tb = 0", "cassandra.disk_tb")
    check("[cassandra]\nfree_share = 1.0", "cassandra.free_share", "0.95")
    check("[bigtable]\nbusy = 0", "bigtable.busy")
    check("[rocksdb]\nprice = 3", "rocksdb.price", "machine_month")
    check("[azure]\nprice = 3", "azure", "bigtable")
