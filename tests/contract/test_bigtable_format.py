"""What is in Bigtable is what docs/format/bigtable.md says, read with other clients than ours."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from struct import unpack
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from google.cloud.bigtable_admin_v2 import types as admin

from widerow.engine.bigtable import BigtableEngine, BigtableSettings
from widerow.engine.bigtable.answers import Page
from widerow.engine.bigtable.families import NAMES, families
from widerow.engine.bigtable.keys import key_spec
from widerow.engine.bigtable.requests import newest
from widerow.engine.bigtable.scan import pages
from widerow.engine.contract import Fragment, Shape, Tag, logical, rows_from, values
from widerow.engine.port import Span
from widerow.engine.rows import rows_of
from widerow.keys import KeySpec
from widerow.model.errors import ConfigError
from widerow.model.tenant import GUARD_US
from widerow.model.times import DAY, HOUR, MS, SECOND, ManualClock
from widerow.schema.rollups import HOURS, LEVELS, rollups
from widerow.schema.tables import DEVICE_VERSIONS, DEVICES, LAST_SEEN, TABLES, telemetry

PAGE = Path(__file__).resolve().parents[2] / "docs" / "format" / "bigtable.md"
RAW = telemetry(30 * DAY)
EVENT_US = 1_760_000_000_500_000
BUCKET_US = EVENT_US - EVENT_US % HOUR
AT = ("acme", "pump 1", BUCKET_US, 0)
REPORT: Shape = {"temp": 21.5, "state": "run", Tag("site"): "a"}


@pytest.fixture
def engine(bigtable_host: None) -> Iterator[BigtableEngine]:  # noqa: ARG001
    clock, prefix = ManualClock(EVENT_US + SECOND), f"f{uuid4().hex[:8]}"
    settings = BigtableSettings(age_margin_us=50 * 365 * DAY)  # the server's clock is another
    engine = BigtableEngine("widerow", "format", prefix, clock=clock, settings=settings)
    engine.apply([*TABLES, RAW])
    yield engine
    engine.close()


def write(
    engine: BigtableEngine, cells: Shape, *, version_us: int, expire_us: int | None = None, at_us: int = EVENT_US
) -> None:
    assert RAW.window is not None
    life = at_us + RAW.window.keep_us if expire_us is None else expire_us
    engine.write([(RAW, rows_from(RAW, [Fragment((*AT, at_us), cells, version_us, life)]))])


def stored(engine: BigtableEngine, table: str = RAW.name) -> dict[str, dict[str, bytes]]:
    """Every cell there is: row key -> family:qualifier -> value."""
    found: dict[str, dict[str, bytes]] = {}
    page: Page
    for page in pages(engine._connection, f"{engine._prefix}_{table}", [(b"", b"")], newest()):
        contents = page.values(np.arange(len(page.family)))
        for i, key in enumerate(page.keys.to_list()):
            cells = range(int(page.offsets[i]), int(page.offsets[i + 1]))
            names = [f"{NAMES[int(page.family[c])]}:{page.qualifiers[int(page.qualifier[c])]}" for c in cells]
            found[key] = {name: contents[c] for name, c in zip(names, cells, strict=True)}
    return found


def test_row_keys_are_made_by_the_templates_of_the_page() -> None:
    def check(table: Any, template: str) -> None:
        assert f"`{template}`" in PAGE.read_text()
        columns = {"tenant": "tenant_id", "device": "device_id", "sub": "sub_bucket", "time": "event_us"}
        assert key_spec(table) == KeySpec.parse(template, columns)

    check(RAW, "{salt:2}#{tenant}#{device}#{bucket}#{sub:NNN}#{reversed:16}")
    assert str(key_spec(rollups(HOURS, 0))) == "agg#hour#{salt:2}#{tenant_id}#{device_id}#{period:16}#{start_us:reversed:16}"
    assert str(key_spec(DEVICE_VERSIONS)) == "{salt:2}#{tenant_id}#{device_id}#{revision:reversed:16}"
    for table in (LAST_SEEN, DEVICES):
        assert str(key_spec(table)) == "{tenant_id}#{shard:2}#{device_id}"


def test_a_report_is_a_row_of_plain_cells(engine: BigtableEngine) -> None:
    write(engine, REPORT, version_us=EVENT_US + SECOND // 2)
    ((key, cells),) = stored(engine).items()
    assert key == "0a#acme#pump%201#1759996800000000#000#8239999999499999"
    assert unpack(">d", cells.pop("readings:temp")) == (21.5,)
    assert cells == {"logs:state": b"run", "tags:site": b"a"}


def test_rollups_lie_under_a_prefix_of_their_own(engine: BigtableEngine) -> None:
    table = rollups(HOURS, 0)
    engine.apply([table])
    partition = ("acme", "pump 1", BUCKET_US - BUCKET_US % HOURS.period_us)
    written = [Fragment((*partition, BUCKET_US - n * HOUR), {"temp": bytes([n])}, EVENT_US // MS * MS) for n in range(3)]
    engine.write([(table, rows_from(table, written))])
    keys = list(stored(engine, table.name))
    assert [key.split("#")[:5] for key in keys] == [["agg", "hour", "0a", "acme", "pump%201"]] * 3
    span = Span(BUCKET_US - HOUR, BUCKET_US)
    assert [key for key, _ in logical(engine, table, [partition], span)[partition]] == [(BUCKET_US - HOUR,)]
    assert [len(rows) for rows in logical(engine, table, None, limit=2).values()] == [2]


def test_a_rollup_costs_one_cell_as_its_key_says_when_it_expires(engine: BigtableEngine) -> None:
    for level in LEVELS:
        table = rollups(level, 400 * DAY)
        engine.apply([table])
        start_us = BUCKET_US - BUCKET_US % level.width_us
        key = ("acme", "pump 1", start_us - start_us % level.period_us, start_us)
        expire_us = start_us + level.width_us + 400 * DAY + GUARD_US
        engine.write([(table, rows_from(table, [Fragment(key, {"temp": b"\x02"}, EVENT_US // MS * MS, expire_us)]))])
        ((_, cells),) = stored(engine, table.name).items()
        assert cells == {"stats:temp": b"\x02"}
        ((_, row),) = logical(engine, table, [key[:3]])[key[:3]]
        assert row["temp"].expire_us == expire_us


def test_an_expiry_of_its_own_stands_beside_the_cell(engine: BigtableEngine) -> None:
    write(engine, {"state": "run"}, version_us=EVENT_US + SECOND // 2, expire_us=EVENT_US + HOUR)
    ((_, cells),) = stored(engine).items()
    assert cells == {"logs:state": b"run", "expires:logs:state": b"1760003601"}


def test_a_fixed_row_is_json_in_one_cell(engine: BigtableEngine) -> None:
    key = ("acme", 7, "pump 1")
    engine.write([(LAST_SEEN, rows_of(LAST_SEEN, [(key, {"bucket": 1.0, "keep_us": 0.0})], version_us=5 * MS))])
    assert stored(engine, "last_seen") == {"acme#shard-07#pump%201": {"meta:row": b'{"bucket":1.0,"keep_us":0.0}'}}
    assert engine.put_if(DEVICES, key, {"body": "ü", "revision": 1.0}, None)
    (cells,) = stored(engine, "devices").values()
    assert cells["meta:row"].decode() == '{"body":"ü","revision":1.0}'
    assert re.fullmatch(b"[0-9a-f]{64}", cells["meta:sha256"])


def test_a_row_longer_than_a_filter_may_be_is_compared_too(engine: BigtableEngine) -> None:
    key, body = ("acme", 7, "d"), "x" * 30_000
    assert engine.put_if(DEVICES, key, {"body": body}, None)
    assert not engine.put_if(DEVICES, key, {"body": "new"}, {"body": body[1:]})
    assert engine.put_if(DEVICES, key, {"body": "new"}, {"body": body})


def test_cells_of_old_versions_are_kept_from_collection(engine: BigtableEngine) -> None:
    for version_us, value in ((3 * MS, 3.0), (2 * MS, 2.0)):
        write(engine, {"temp": value, "state": "run"}, version_us=version_us, expire_us=EVENT_US + HOUR)
    ((_, cells),) = stored(engine).items()
    assert {name.partition(":")[0] for name in cells} == {"kept"}
    ((_, found),) = logical(engine, RAW, [AT])[AT]
    assert found["temp"] == (3.0, 3 * MS, -(-(EVENT_US + HOUR) // SECOND) * SECOND)
    write(engine, {"temp": 4.0}, version_us=EVENT_US + SECOND // 2)
    assert values(logical(engine, RAW, [AT], columns=["temp"])[AT]) == [((EVENT_US,), {"temp": 4.0})]
    engine.delete(RAW, [AT], version_us=EVENT_US + SECOND, columns=["temp"])
    assert values(logical(engine, RAW, [AT])[AT]) == [((EVENT_US,), {"state": "run"})]
    engine.delete(RAW, [AT], version_us=EVENT_US + SECOND)
    assert stored(engine) == {}


def test_families_have_the_rules_of_the_page_and_applying_mends_them(engine: BigtableEngine) -> None:
    client = engine._connection.admin()
    name = f"{engine._connection.instance}/tables/{engine._prefix}_{RAW.name}"

    def rules() -> dict[str, Any]:
        return {family: column.gc_rule for family, column in client.get_table(name=name).column_families.items()}

    newest_only = admin.GcRule(max_num_versions=1)
    by_age = admin.GcRule(union={"rules": [newest_only, admin.GcRule(max_age=f"{39 * 24 * 3600}s")]})
    want = {**dict.fromkeys(["readings", "logs", "tags", "stats", "expires"], by_age), "kept": newest_only}
    again = BigtableEngine("widerow", "format", engine._prefix, clock=ManualClock(EVENT_US))
    again.apply([RAW])
    assert rules() == want == families(RAW, DAY)
    change = admin.ModifyColumnFamiliesRequest.Modification
    wrong = admin.ColumnFamily(gc_rule=admin.GcRule(max_num_versions=9))
    client.modify_column_families(name=name, modifications=[change(id="kept", drop=True), change(id="logs", update=wrong)])
    again.close()
    again = BigtableEngine("widerow", "format", engine._prefix, clock=ManualClock(EVENT_US))
    again.apply([RAW])
    assert rules() == want
    again.close()


def test_a_table_changes_by_appended_columns_only(engine: BigtableEngine) -> None:
    with pytest.raises(ValueError, match="last_seen"):
        engine.apply([replace(LAST_SEEN, clustering=())])
    engine.apply([replace(LAST_SEEN, columns=(*LAST_SEEN.columns, "more"))])


def test_a_prefix_cannot_run_into_a_table_name() -> None:
    for prefix in ("", "a_b", "-a", "A", "x" * 21):
        with pytest.raises(ConfigError, match="prefix"):
            BigtableEngine("p", "i", prefix, clock=ManualClock(0))


def test_the_page_shows_what_cbt_shows(engine: BigtableEngine, tmp_path: Path) -> None:
    if shutil.which("cbt") is None:
        pytest.skip("no cbt")
    write(engine, REPORT, version_us=EVENT_US + SECOND // 2)
    write(engine, {"temp": 20.0}, version_us=EVENT_US + SECOND // 2, at_us=EVENT_US - SECOND)
    text = PAGE.read_text()
    (tmp_path / "readings.yml").write_text(text.split("```yaml\n")[1].split("```")[0])
    session = text.split("```console\n")[1].split("```")[0]
    commands = "\n".join(re.findall(r"^\$ (.*)$", session, re.MULTILINE)).replace("prod_", f"{engine._prefix}_")
    shown = subprocess.run(
        ["bash", "-c", commands.replace("cbt read", "cbt -project widerow -instance format read")],
        cwd=tmp_path, env={**os.environ, "TZ": "UTC"}, capture_output=True, text=True, timeout=60, check=True,
    ).stdout  # fmt: skip
    assert shown.split() == re.sub(r"^\$ .*\n", "", session, flags=re.MULTILINE).split()


def test_an_outline_says_what_is_there_and_changes_nothing(engine: BigtableEngine) -> None:
    new = telemetry(DAY)
    for _ in range(2):
        raw, other = engine.outline([RAW, new])
        assert (raw.exists, other.exists) == (True, False)
    first, *_ = raw.text.splitlines()
    assert first.startswith(f"cbt -project widerow -instance format createtable {engine._prefix}_telemetry_30d")
    assert f'setgcpolicy {engine._prefix}_telemetry_1d kept "maxversions=1"' in other.text
    engine.apply([new])
    assert [one.exists for one in engine.outline([RAW, new])] == [True, True]


@pytest.mark.skipif(shutil.which("cbt") is None, reason="cbt is not installed")
def test_the_commands_of_an_outline_make_what_apply_makes(engine: BigtableEngine) -> None:
    new = telemetry(2 * DAY)
    (before,) = engine.outline([new])
    for line in before.text.splitlines():
        subprocess.run(shlex.split(line), check=True, timeout=60, capture_output=True)
    (after,) = engine.outline([new])
    assert (before.exists, after.exists) == (False, True)
