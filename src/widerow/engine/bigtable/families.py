"""Column families: what kind of cell lives where, and what Bigtable may collect.

| family | tables | holds |
| --- | --- | --- |
| `readings`, `logs`, `tags`, `stats` | sparse | numbers, texts, tags and records: one qualifier a name |
| `expires` | all that are written by version | when a cell expires, if that is not what its table says |
| `kept` | windowed | cells whose version is so old that their age would be held against them |
| `meta` | fixed | whole rows, as JSON |

Garbage collection lags, by a week at times, and knows nothing of what is asked: reads never rely on it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from google.api_core.exceptions import AlreadyExists, NotFound
from google.cloud.bigtable_admin_v2 import BigtableTableAdminClient
from google.cloud.bigtable_admin_v2 import types as admin

from widerow.model.batch import CellKind
from widerow.schema.table import Table, Window

META, EXPIRES, KEPT = "meta", "expires", "kept"
KINDS = {CellKind.NUMBER: "readings", CellKind.TEXT: "logs", CellKind.TAG: "tags", CellKind.RECORD: "stats"}
NAMES = (*(KINDS[kind] for kind in sorted(KINDS)), META, EXPIRES, KEPT)
"""Families by code. The codes of the first four are those of their kinds of cell."""

META_CODE, EXPIRES_CODE, KEPT_CODE = NAMES.index(META), NAMES.index(EXPIRES), NAMES.index(KEPT)

_ADMIN_DEADLINE_S = 60.0


def families(table: Table, margin_us: int) -> dict[str, Any]:
    """The families of a table, each with its rule: a superseded version goes, and in time what no window keeps."""
    newest = admin.GcRule(max_num_versions=1)
    if table.conditional:
        return {META: newest}
    names = [*KINDS.values(), EXPIRES] if table.sparse else [META, EXPIRES]
    if not table.window:
        return dict.fromkeys(names, newest)
    aged = admin.GcRule(max_age=timedelta(microseconds=max_age_us(table.window, margin_us)))
    return dict.fromkeys(names, admin.GcRule(union=admin.GcRule.Union(rules=[newest, aged]))) | {KEPT: newest}


def max_age_us(window: Window, margin_us: int) -> int:
    """What Bigtable may collect, counted from a cell's version. Its retention counts from its event time."""
    return window.keep_us + window.width_us + margin_us


def rules(client: BigtableTableAdminClient, name: str) -> dict[str, Any] | None:
    """The rules of a table's families as they are; None: there is no such table."""
    try:
        stored = client.get_table(name=name, timeout=_ADMIN_DEADLINE_S)
    except NotFound:
        return None
    return {family: column.gc_rule for family, column in stored.column_families.items()}


def ensure(client: BigtableTableAdminClient, name: str, want: dict[str, Any], splits: list[bytes]) -> None:
    """Make the table and its families exist, with their rules. Changes nothing that is right."""
    there = rules(client, name)
    if there is None:
        instance, _, table_id = name.partition("/tables/")
        columns = {family: admin.ColumnFamily(gc_rule=rule) for family, rule in want.items()}
        request = admin.CreateTableRequest(
            parent=instance,
            table_id=table_id,
            table=admin.Table(column_families=columns),
            initial_splits=[admin.CreateTableRequest.Split(key=key) for key in splits],
        )
        try:
            client.create_table(request=request, timeout=_ADMIN_DEADLINE_S)
        except AlreadyExists:  # another process was faster
            there = rules(client, name) or {}
        else:
            return
    change = admin.ModifyColumnFamiliesRequest.Modification
    changes = [
        change(id=family, **{"update" if family in there else "create": admin.ColumnFamily(gc_rule=rule)})
        for family, rule in want.items()
        if there.get(family) != rule
    ]
    if changes:
        client.modify_column_families(name=name, modifications=changes, timeout=_ADMIN_DEADLINE_S)


def commands(name: str, want: dict[str, Any], splits: list[bytes]) -> str:
    """The `cbt` commands that make a table, a line each. `name` is its full name."""
    _, project, _, instance, _, table = name.split("/")
    cbt = f"cbt -project {project} -instance {instance}"
    first = f"{cbt} createtable {table}"
    if splits:
        first += f" splits={','.join(key.decode() for key in splits)}"
    lines = [first]
    for family, rule in want.items():
        lines += [f"{cbt} createfamily {table} {family}", f'{cbt} setgcpolicy {table} {family} "{_policy(rule)}"']
    return "\n".join(lines)


def _policy(rule: Any) -> str:
    if "union" in rule:
        return " or ".join(map(_policy, rule.union.rules))
    if "max_num_versions" in rule:
        return f"maxversions={rule.max_num_versions}"
    return f"maxage={int(rule.max_age.total_seconds())}s"
