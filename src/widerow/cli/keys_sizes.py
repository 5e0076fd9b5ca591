"""`widerow keys sizes`: how the tables of a store lie on its nodes: tablets, partitions, and who has how much."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from widerow.cli import output
from widerow.cli.connect import resolve
from widerow.cli.failure import Misused, as_misuse
from widerow.cli.keys import keys
from widerow.cli.schema import ConfigOption, JsonOption, StoreOption
from widerow.config import Config
from widerow.model.store import OnBigtable, parse_store

if TYPE_CHECKING:
    from widerow.engine.bigtable.tablets import Tablet

_SHOWN = 10
"""Tablets and hot tablets in a table; JSON has all."""


@keys.command("sizes")
def sizes(store: StoreOption = None, config: ConfigOption = None, json: JsonOption = False) -> None:
    """Show how the tables of a store on Bigtable lie on its tablets. Reads only.

    Example: widerow keys sizes --store bigtable://my-project/fleet/widerow
    """
    where = resolve(server=None, token=None, store=store, config=config, environment=None)
    if where.store is None:
        raise Misused("sizes looks at a store, not at a server", todo="give --store URL")
    with as_misuse():
        place = parse_store(where.store)
    if not isinstance(place, OnBigtable):
        raise Misused(f"store {where.store!r} has no tablets", todo="`widerow keys heat` shows how its keys are used")
    found = _tablets(place, where.config)
    if json:
        output.emit_json(found)
    else:
        _draw_tablets(found)


def _tablets(place: OnBigtable, config: Config) -> dict[str, Any]:
    from widerow.engine.open import tablets_of  # noqa: PLC0415

    opened = tablets_of(place, config.bigtable)
    try:
        tables = [_tablet_facts(table, opened.of(table)) for table in opened.tables()]
        hot = opened.hot()
    finally:
        opened.close()
    return {"engine": "bigtable", "tables": tables, "hot": None if hot is None else [asdict(one) for one in hot]}


def _tablet_facts(table: str, tablets: Sequence[Tablet]) -> dict[str, Any]:
    total = sum(one.bytes for one in tablets)
    largest = max(tablets, key=lambda one: one.bytes)
    return {
        "table": table,
        "bytes": total,
        "skew": largest.bytes * len(tablets) / total if total else 1.0,
        "tablets": [asdict(one) for one in tablets],
    }


def _draw_tablets(found: Mapping[str, Any]) -> None:
    rows = []
    for one in found["tables"]:
        largest = max(one["tablets"], key=lambda tablet: tablet["bytes"])
        begin = (largest["start"] or "(first)") if one["bytes"] else "-"
        rows.append((one["table"], output.size(one["bytes"]), len(one["tablets"]), f"{one['skew']:.1f}", begin))
    columns = ("table", "bytes", "tablets", "largest/mean", "the largest begins at")
    output.emit_table(columns, rows, right=("bytes", "tablets", "largest/mean"))
    hot: Sequence[Mapping[str, Any]] | None = found["hot"]
    if hot is None:
        output.note("this service, or this token, has no list of hot tablets")
    elif hot:
        output.emit_table(
            ("hot tablet", "from", "to", "cluster", "CPU of a node", "minute"),
            [(h["table"], h["start"], h["stop"], h["cluster"], f"{h['cpu_share']:.0%}", h["minute"]) for h in hot[:_SHOWN]],
            right=("CPU of a node",),
        )
    else:
        output.note("no tablet is hot")
