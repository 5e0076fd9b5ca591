"""The lab names the faults of bad keys and tables, finds none in good ones, and mends what it names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from widerow.cli.commands import app
from widerow.keylab.explain import rules
from widerow.keylab.finding import ADVICE
from widerow.keylab.lint import Verdict, lint
from widerow.keylab.read import read_design
from widerow.model.errors import ConfigError
from widerow.model.times import SECOND
from widerow.plan.fleet import Fleet, example_fleet, read_fleet

NOW_US = 1_795_000_000 * SECOND
FLEET = example_fleet()
FAST = read_fleet('[[class]]\ndevices = 100\ninterval = "100ms"', "fast")
SMALL = read_fleet('[[class]]\ndevices = 100\ninterval = "1m"\nmetrics = 3', "small")

KEYS: list[tuple[str, str]] = [
    # the classics that are good
    ("sensor#timestamp", ""),
    ("sensor#timestamp:10", ""),
    ("sensor#reversed:10", ""),
    ("sensor#reversed:13", ""),
    ("sensor#reversed:16", ""),
    ("device_id#reverse_timestamp", ""),
    ("md5:2#sensor#reversed:13", ""),
    ("md5(sensor)#timestamp", ""),
    ("shard-NN#sensor#ts", ""),
    ("agg#hourly#sensor#bucket", ""),
    ("agg#hourly#tenant#reversed:10", ""),
    ("agg#daily#tenant#metric#day", ""),
    ("tenant#vehicle#reversed:13", ""),
    ("tenant/device/timestamp", ""),
    ("customer#site#sensor#ts", ""),
    ("reverse_domain#timestamp", ""),
    ("{device:domain}#{time:us}", ""),
    ("{tenant}#{device}#{reversed:16}", ""),
    ("{salt:2}#{tenant}#{device}#{reversed:16}", "salt-breaks-scan?"),
    ("{salt:1}#{device}#{bucket:hour}", ""),
    ("{type}#{device}#{time:ms}", ""),
    ("{location}#{device}#{time:ms}", ""),
    ("{device}#{time:iso}", ""),
    ("{device}#{bucket:hour}", ""),
    ("{device}#{bucket:day}#{metric}", ""),
    ("raw#{tenant}#{device}#{time:ms}", ""),
    ("{device}#{sequence:12}", ""),
    # tall and wide
    ("{device}#{metric}#{time:ms}", "tall-or-wide?"),
    ("{tenant}#{device}#{bucket:day}", "tall-or-wide?"),
    # the time in front
    ("timestamp#sensor", "time-first"),
    ("timestamp:10#sensor", "time-first"),
    ("{time:iso}#{device}", "time-first"),
    ("{reversed:13}#{device}", "time-first"),
    ("{bucket:minute}#{device}", "time-first"),
    ("{bucket:day}#{device}", "time-first tall-or-wide?"),
    ("{bucket:day}#{device}#{time:ms}", "time-first"),
    ("timestamp#reverse_domain", "time-first"),
    ("raw#timestamp#sensor", "monotonic-prefix"),
    ("agg#hourly#timestamp#sensor", "monotonic-prefix"),
    ("{sequence:12}#{device}", "monotonic-prefix"),
    ("{sequence:12}", "no-entity monotonic-prefix"),
    ("sequence", "no-entity monotonic-prefix unpadded"),
    ("timestamp", "no-entity time-first"),
    # numbers
    ("{device}#{time:s:unpadded}", "unpadded"),
    ("sensor#sequence", "unpadded"),
    ("{shard:unpadded}#{device}#{time:ms}", "unpadded"),
    ("{device}#{time:s:9}", "too-few-digits"),
    ("{device}#{reversed:s:9}", "too-few-digits"),
    ("{device}#{time:ms:12}", "too-few-digits"),
    # the device behind the time, or nowhere
    ("shard-NN#timestamp#sensor", "entity-after-time"),
    ("{salt:2}#{time:ms}#{device}", "entity-after-time"),
    ("{tenant}#{time:ms}#{device}", "entity-after-time low-cardinality-first"),
    ("{type}#{time:ms}#{device}", "entity-after-time low-cardinality-first"),
    ("country#timestamp#sensor", "entity-after-time low-cardinality-first"),
    ("{tenant}#{time:ms}", "low-cardinality-first no-entity"),
    # salts
    ("{shard:N}#{time:ms}#{device}", "entity-after-time too-few-salts"),
    ("{salt:1}#{time:ms}#{device}", "entity-after-time too-few-salts"),
    ("{salt:4}#{device}#{time:ms}", "too-many-salts"),
    ("{random:NN}#{device}#{time:ms}", "salt-breaks-scan"),
    ("{random:NNN}#{device}#{time:ms}", "salt-breaks-scan too-many-salts"),
    ("md5(sensor,timestamp)", "hashed-whole-key"),
    ("md5", "hashed-whole-key"),
    # delimiters
    ("{device}-{time:ms}", "delimiter-clash"),
    ("{device}{time:ms}", "delimiter-clash"),
    ("{tenant}_{device}_{reversed:13}", "delimiter-clash"),
    ("{device:domain}.{time:ms}", "delimiter-clash"),
    # words that tell by their ends, and words that do not
    ("sensor_id#reading_time", ""),
    ("user_id#event_type#timestamp", ""),
    ("device_id:timestamp", ""),
    ("sensor#(Long.MAX_VALUE - timestamp)", ""),
    ("[host][timestamp]", ""),
    ("device_id#{reversed:13}", "monotonic-prefix no-entity"),
    # buckets
    ("{metric}#{bucket:hour}#{device}", "entity-after-time low-cardinality-first"),
    ("{device}#{time:day}", "sub-second-collision"),
    # sizes
    ("{device}", "unbounded-row"),
    ("{tenant}#{device}#{metric}", "unbounded-row"),
    ("{device}#{bucket:year}", "tall-or-wide? unbounded-row"),
    ("x" * 300 + "#{device}#{time:ms}", "key-too-long"),
    ("x" * 5000 + "#{device}#{time:ms}", "key-too-long"),
]

TWCS = """ WITH default_time_to_live = 2592000 AND compaction = {'class': 'TimeWindowCompactionStrategy',
  'compaction_window_unit': 'DAYS', 'compaction_window_size': 1}"""
READINGS = "CREATE TABLE readings (sensor_id text, day date, ts timestamp, value double, region text, PRIMARY KEY "

DEVICE_METRIC = "(tenant_id text, device_id text, metric_name text, "
BY_TENANT = "CREATE TABLE telemetry_by_tenant (tenant_id text, bucket timestamp, shard int, device_id text, "
TELEMETRY = """CREATE TABLE tel.telemetry (tenant_id text, device_id text, bucket timestamp, sub_bucket int,
  event_time timestamp,
  event_us bigint, metric_name text, metric_value double, tags frozen<map<text, text>>,
  PRIMARY KEY ((tenant_id, device_id, bucket, sub_bucket), event_time, event_us, metric_name))
  WITH CLUSTERING ORDER BY (event_time DESC, event_us DESC, metric_name ASC) AND"""
MINUTES = f"""CREATE TABLE telemetry_1min {DEVICE_METRIC} day date, minute timestamp, min double,
  PRIMARY KEY ((tenant_id, device_id, metric_name, day), minute)) WITH default_time_to_live = 7776000
  AND compaction = {{'class': 'TimeWindowCompactionStrategy', 'compaction_window_size': 3}}"""
HOURS = f"""CREATE TABLE telemetry_hourly {DEVICE_METRIC} hour_bucket timestamp, min double,
  PRIMARY KEY ((tenant_id, device_id, metric_name), hour_bucket)) WITH CLUSTERING ORDER BY (hour_bucket DESC)"""
DAYS = f"""CREATE TABLE telemetry_daily {DEVICE_METRIC} day date, min double,
  PRIMARY KEY ((tenant_id, device_id, metric_name), day))"""
THINGSBOARD = """CREATE TABLE ts_kv_cf (entity_type text, entity_id timeuuid, key text, partition bigint, ts bigint,
  bool_v boolean, str_v text, long_v bigint, dbl_v double, json_v text,
  PRIMARY KEY ((entity_type, entity_id, key, partition), ts))"""

TABLES: list[tuple[str, str]] = [
    (TELEMETRY + TWCS[5:], "tall-or-wide?"),
    (MINUTES, ""),
    (HOURS, "unbounded-row?"),
    (DAYS, ""),
    (BY_TENANT + "event_count bigint, PRIMARY KEY ((tenant_id, bucket, shard), device_id))", ""),
    (
        BY_TENANT + "event_count counter, PRIMARY KEY ((tenant_id, bucket), device_id))",
        "counter-column low-cardinality-first",
    ),
    ("CREATE TABLE latest (device_id text, metric text, value double, PRIMARY KEY (device_id, metric))", ""),
    (READINGS + "((sensor_id, day), ts))" + TWCS, ""),
    (READINGS + "((sensor_id, day), ts))", "no-gc"),
    (READINGS + "((sensor_id, day), ts)) WITH default_time_to_live = 2592000", "ttl-without-twcs"),
    (READINGS + "((sensor_id, day), ts))" + TWCS.replace("DAYS", "HOURS"), "twcs-too-many-windows"),
    (READINGS + "(sensor_id, ts))" + TWCS, "unbounded-row"),
    (READINGS + "(sensor_id, ts))", "no-gc unbounded-row"),
    (READINGS + "(day, ts, sensor_id))" + TWCS, "time-first unbounded-row"),
    (READINGS + "((region, day), sensor_id, ts))" + TWCS, "low-cardinality-first unbounded-row"),
    (READINGS + "((region, day), ts, sensor_id))" + TWCS, "allow-filtering-needed low-cardinality-first unbounded-row"),
    (READINGS + "((region, day), ts))" + TWCS, "allow-filtering-needed low-cardinality-first no-entity unbounded-row"),
    (THINGSBOARD, "no-gc tall-or-wide? unbounded-row"),
    (
        "CREATE TABLE r (id uuid, device_id text, ts timestamp, v double, PRIMARY KEY (id))",
        "allow-filtering-needed no-entity",
    ),
    ("CREATE TABLE r (id text, ts timestamp, v double, PRIMARY KEY ((id, ts)))", "no-gc partition-per-report"),
    (
        "CREATE TABLE device_stats (device_id text, ts timestamp, v double, PRIMARY KEY (ts))",
        "no-entity no-gc partition-per-report",
    ),
    (
        "CREATE TABLE readings_by_sensor (sensor_id uuid, ts timestamp, v double, PRIMARY KEY (sensor_id, ts))",
        "no-gc unbounded-row",
    ),
    ("CREATE TABLE months (entity_id uuid, key text, partition bigint, PRIMARY KEY ((entity_id, key), partition))", ""),
]

GOOD_KEY = 'key = "{device}#{reversed:13}"\n'
TIMED = "CREATE TABLE t (a text, b timestamp, PRIMARY KEY (a, b)) WITH default_time_to_live = 60 AND compaction = "
FAMILIES: list[tuple[str, str]] = [
    (GOOD_KEY + '[family.readings]\nmax_age = "30d"', ""),
    (GOOD_KEY + "[family.readings]", "no-gc"),
    ('key = "{device}"\n[family.latest]\nmax_versions = 1', ""),
    ('key = "{device}#{bucket:hour}"\n[family.readings]\nmax_versions = 1', "gc-versions-for-history"),
    ('key = "{device}"\n[family.readings]\nmax_versions = 1000', "gc-versions-for-history unbounded-row"),
    ('key = "{device}#{bucket:hour}"\n[family.readings]\nmax_versions = 5000', "gc-versions-for-history"),
    (
        GOOD_KEY
        + '[family.all]\nmax_age = "30d"\ncolumns = ["t", "log"]\n[[read]]\ncolumns = ["t"]\n[[read]]\ncolumns = ["log"]',
        "families-mixed",
    ),
    (
        GOOD_KEY + '[family.a]\nmax_age = "30d"\ncolumns = ["x"]\n[family.b]\nmax_age = "30d"\ncolumns = ["y"]\n'
        '[[read]]\ncolumns = ["x", "y"]',
        "families-mixed",
    ),
    (
        GOOD_KEY + '[family.a]\nmax_age = "30d"\ncolumns = ["x"]\n[family.b]\nmax_age = "30d"\ncolumns = ["y"]\n'
        '[[read]]\ncolumns = ["x"]\n[[read]]\ncolumns = ["y"]',
        "",
    ),
    (GOOD_KEY + "".join(f'[family.f{i}]\nmax_age = "1d"\n' for i in range(120)), "families-too-many"),
]


def found(verdict: Verdict) -> str:
    codes = {finding.code + "?" * (finding.severity == ADVICE) for finding in verdict.findings}
    return " ".join(sorted(codes))


@pytest.mark.parametrize(("spec", "codes"), [*KEYS, *TABLES, *FAMILIES])
def test_a_design_is_named_for_the_right_reason_and_mended(spec: str, codes: str) -> None:
    def check(text: str, fleet: Fleet) -> Verdict:
        return lint(read_design(text, "the test"), fleet, NOW_US)

    verdict = check(spec, FLEET)
    assert found(verdict) == " ".join(sorted(codes.split()))
    if verdict.suggestion:
        mended = check(verdict.suggestion, FLEET)
        assert not [finding for finding in mended.findings if finding.severity != ADVICE], verdict.suggestion
    assert {finding.code for finding in verdict.findings} <= rules().keys()


def test_at_least_eighty_designs_are_labelled() -> None:
    assert len({*KEYS, *TABLES, *FAMILIES}) >= 80
    named = {code.rstrip("?") for _, codes in (*KEYS, *TABLES, *FAMILIES) for code in codes.split()}
    assert rules().keys() == named


def test_a_better_table_loses_no_column_of_the_key_and_nothing_else_of_the_table() -> None:
    def better(statement: str) -> str:
        return lint(read_design(statement, "the test"), FLEET, NOW_US).suggestion

    assert "PRIMARY KEY ((entity_type, entity_id, key, day), ts)" in better(THINGSBOARD)
    fleet = """CREATE TABLE "Fleet"."VehLoc" ("VehicleId" uuid, "Ts" timestamp, owner text static, lat double,
      PRIMARY KEY ("VehicleId", "Ts")) WITH gc_grace_seconds = 3600 AND comment = 'where they are'"""
    told = better(fleet)
    assert 'CREATE TABLE "Fleet"."VehLoc"' in told
    assert 'PRIMARY KEY (("VehicleId", day), "Ts")' in told
    assert "owner text static" in told
    assert "gc_grace_seconds = 3600" in told
    assert "comment = 'where they are'" in told
    assert "PRIMARY KEY ((network, sensor, day), ts)" in better(
        "CREATE TABLE r (network text, week date, ts timestamp, sensor text, v double,"
        " PRIMARY KEY ((network, week), ts, sensor))"
    )
    assert "PRIMARY KEY ((sensor_id, day), metric_name, ts)" in better(
        "CREATE TABLE r (sensor_id text, day date, metric_name text, ts timestamp, v double,"
        " PRIMARY KEY ((sensor_id, day), metric_name, ts))"
    )
    assert lint(read_design("{time:s}#{device}#{sequence:6}", "the test"), FLEET, NOW_US).suggestion.endswith(
        "#{sequence:6}"
    )


def test_a_slow_fleet_is_warned_where_a_fast_one_is_refused() -> None:
    findings = lint(read_design("timestamp#sensor", "the test"), SMALL, NOW_US).findings
    assert [(one.code, one.severity) for one in findings] == [("time-first", "warning")]


def test_what_is_too_little_depends_on_the_fleet() -> None:
    def check(spec: str, fleet: Fleet, codes: str) -> None:
        assert found(lint(read_design(spec, "the test"), fleet, NOW_US)) == codes

    check("{device}#{time:s}", FAST, "sub-second-collision")
    check("{device}#{time:ms}", FAST, "")
    check("{shard:N}#{time:ms}#{device}", SMALL, "entity-after-time")
    check("{device}#{bucket:month}", SMALL, "tall-or-wide?")


def test_dates_are_told_when_a_row_is_full_and_a_time_overflows() -> None:
    def message(spec: str, fleet: Fleet) -> str:
        return lint(read_design(spec, "the test"), fleet, NOW_US).findings[0].message

    # A report a minute of three numbers with their times, 16 bytes each: 69,120 bytes a day.
    assert "passes 100 MB on 2030-11-04" in message("{device}", SMALL)
    assert "overflowed on 2001-09-09" in message("{device}#{time:s:9}", SMALL)


def test_examples_show_two_keys_of_the_design() -> None:
    finding = lint(read_design("timestamp#sensor", "the test"), FLEET, NOW_US).findings[0]
    assert finding.examples == ("1795000000000#press-000000", "1795000001000#press-499777")


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("", "it is empty"),
        ("{time}", "say time:s, time:ms"),
        ("{device}#{when}", "there is no field 'when'"),
        ("{device", "a brace is not closed"),
        ("abc#def", "it has no field"),
        ("{device}#{device}", "device stands in it twice"),
        ("{salt:99}#{device}", "a salt has 1 to 32 hex digits"),
        ("key = 3", "key: 3 is no text"),
        ('key = "{device}#{time:ms}"\ncolour = 1', "colour: there is no such setting"),
        ('key = "{device}#{time:ms}"\n[family.a]\nmax_age = "soon"', "family.a.max_age"),
        ('key = "{device}#{time:ms}"\n[family.a]\nage = "1d"', "family.a.age: there is no such setting"),
        ("CREATE TABLE t (a text)", "it has no PRIMARY KEY"),
        ("CREATE TABLE t (a text, PRIMARY KEY (b))", "PRIMARY KEY names 'b'"),
        ("CREATE TABLE t (a text, PRIMARY KEY (a)", "a parenthesis is not closed"),
        ("CREATE TABLE t", "it has no columns"),
        ("CREATE TABLE t (a text, A text, PRIMARY KEY (a))", "column 'a' stands in it twice"),
        ("CREATE TABLE t (a text PRIMARY KEY, b text, PRIMARY KEY (b))", "it has two PRIMARY KEYs"),
        ('CREATE TABLE "t (a text, PRIMARY KEY (a))', "a quote is not closed"),
        ("CREATE TABLE t (a text, b text, PRIMARY KEY (a, b)) WITH CLUSTERING ORDER BY (c DESC)", "names 'c'"),
        (TIMED + "{'class': 'TimeWindowCompactionStrategy', 'compaction_window_size': 0}", "compaction_window_size: 0"),
        (TIMED + "{'class': 'TimeWindowCompactionStrategy', 'compaction_window_unit': 'MOONS'}", "MINUTES, HOURS or DAYS"),
        ('[family.a]\nmax_age = "1d"', 'key: it is missing: write key = "{device}#{reversed:13}"'),
        ("a = " + "[" * 2000, "it is nested too deeply"),
        ("x" * 5000, "..."),
    ],
)
def test_a_spec_that_cannot_be_read_is_refused_with_its_place(spec: str, reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_design(spec, "the test")
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value).replace(spec, "")
    assert len(str(refused.value)) < 400


def test_the_commands_judge_explain_and_describe(tmp_path: Path) -> None:
    def run(*args: str, code: int = 0) -> str:
        result = CliRunner().invoke(app, ["keys", *args])
        assert result.exit_code == code, result.output
        return result.stdout

    told = json.loads(run("lint", "timestamp#sensor", "--json", code=1))
    assert list(told) == ["spec", "read_as", "notes", "findings", "suggestion"]
    assert list(told["findings"][0]) == ["code", "severity", "message", "examples", "suggestion"]
    assert told["suggestion"] == "{device}#{reversed:13}"
    assert "no rule is broken" in run("lint", told["suggestion"])
    table = tmp_path / "table.cql"
    table.write_text(READINGS + "(day, ts, sensor_id))")
    assert "error    time-first" in run("lint", str(table), code=1)
    fleet = tmp_path / "fleet.toml"
    fleet.write_text(run("fleet-example"))
    assert run("lint", "sensor#timestamp", "--fleet", str(fleet)) == run("lint", "sensor#timestamp")
    assert "Reversing the time" in run("explain", "time-first")
    assert all(code in run("explain") for code in rules())
    run("explain", "no-such-rule", code=2)
    run("lint", "{device", code=2)
    run("lint", str(tmp_path / "none.toml"), code=2)
    two = tmp_path / "schema.cql"
    two.write_text(f"CREATE KEYSPACE k;\n{READINGS}(sensor_id, ts)){TWCS};\nCREATE INDEX ON r (v);\n{MINUTES};")
    assert len(json.loads(run("lint", str(two), "--json", code=1))["tables"]) == 2
    assert "it has 2 tables, readings, telemetry_1min" in CliRunner().invoke(app, ["keys", "simulate", str(two)]).stderr


def test_the_rules_are_documented_as_they_are_told() -> None:
    page = Path("docs/reference/key-rules.md").read_text()
    for code, rule in rules().items():
        assert f"## {code}\n\n**{rule.title}.**" in page
        assert " ".join(rule.reason.split()) in " ".join(page.split())
        assert f"bad   {rule.bad}\ngood  {rule.good}" in page
