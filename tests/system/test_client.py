"""`widerow.Client`: the same over HTTP, through a store's owner, and on a store in the process."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from servers.bigtable import Bigtable
from widerow import Client, NotFound, Rejected, Unavailable, WiderowError, Written
from widerow.client import client as client_module
from widerow.config import load
from widerow.model.errors import Forbidden, NotTheWriter, QueryLimit, TooLarge, Unauthorized
from widerow.model.tenant import Tenant
from widerow.model.token import Role
from widerow.server.run import running
from widerow.service import Service

MAX_POINTS = 1_000
SETTINGS = f"""
[http]
max_body_mib = 1
max_points = {MAX_POINTS}
[store]
cache_mib = 16
write_buffer_mib = 16
reserve_mib = 0
"""
_numbers = count()


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small limits, so that little data shows what much of it would."""
    path = tmp_path_factory.mktemp("config") / "widerow.toml"
    path.write_text(SETTINGS)
    return path


class Served:
    """A store that is being served, and a token of a tenant's admin."""

    def __init__(self, url: str, store: Path, token: str, operator: str) -> None:
        self.url, self.store, self.token, self.operator = url, store, token, operator


@pytest.fixture(scope="module")
def served(config: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    store = tmp_path_factory.mktemp("served") / "store"
    settings = load(config, {"WIDEROW_STORE_URL": f"rocksdb:{store}"})
    with Service.open(settings, rolls=True) as service:
        service.catalog.tenants.create(Tenant(name="acme"))
        token, _ = service.catalog.tokens.create(Role.ADMIN, tenant="acme")
        operator, _ = service.catalog.tokens.create(Role.OPERATOR)
        with running(service, socket_path=store / "serve.sock") as url:
            yield Served(url, store, token, operator)


@pytest.fixture(scope="module", params=["http", "owner", "memory", "rocksdb"])
def client(request: pytest.FixtureRequest, config: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    if request.param == "http":
        served: Served = request.getfixturevalue("served")
        made = Client(served.url, served.token)
    elif request.param == "owner":
        made = Client.open(f"rocksdb:{request.getfixturevalue('served').store}", tenant="acme")
    elif request.param == "memory":
        made = Client.open("memory:", tenant="acme", config=config)
    else:
        store = tmp_path_factory.mktemp("embedded") / "store"
        made = Client.open(f"rocksdb:{store}", tenant="acme", create=True, config=config)
    with made:
        yield made


def new_device() -> str:
    return f"device {next(_numbers)}/of 1.5"


def minutes_ago(minutes: float) -> datetime:
    return datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=minutes)


def describe(client: Client, *devices: dict[str, Any]) -> None:
    client._connection.send("POST", "/v1/devices/batch", body={"devices": devices})


COLUMNS = {
    "device": pl.String(),
    "time": pl.Datetime("us", "UTC"),
    "metric": pl.String(),
    "value": pl.Float64(),
    "text": pl.String(),
}
Values = dict[str, float | str]
REPORTS = st.dictionaries(
    st.integers(0, 3_000_000_000).map(lambda us: timedelta(microseconds=us)),
    st.dictionaries(
        st.sampled_from(["t", "state", "a, b", "größe"]),
        st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.text("abé☃\n", max_size=5)),
        min_size=1,
    ),
    min_size=1,
    max_size=20,
)


class TestEverywhere:
    """What holds wherever the store is."""

    @given(reports=REPORTS, form=st.sampled_from(["dicts", "table", "frame"]))
    @settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors])
    def test_what_was_written_comes_back_equal(self, client: Client, reports: dict[timedelta, Values], form: str) -> None:
        device, start = new_device(), minutes_ago(55)
        points = {(start + after, name): value for after, values in reports.items() for name, value in values.items()}
        long = [
            {
                "device": device,
                "time": time,
                "metric": name,
                "value": value if isinstance(value, float) else None,
                "text": value if isinstance(value, str) else None,
            }
            for (time, name), value in points.items()
        ]
        frame = pl.DataFrame(long, schema=COLUMNS)
        sent: Any = frame if form == "frame" else frame.to_arrow()
        if form == "dicts":
            sent = ({"device": device, "time": start + after, "values": values} for after, values in reports.items())
        written = client.write(sent)
        assert (written.refused, written.refusals) == (0, ())

        answer = client.series(device)
        assert {(row["time"], row["metric"]): row["value"] for row in answer.rows()} == points
        assert len(answer) == len(points) == answer.arrow().num_rows
        key = ["time", "metric"]
        assert answer.polars().sort(key).equals(frame.sort(key))
        assert pl.DataFrame(answer.arrow()).sort("time")["time"].to_list() == sorted(time for time, _ in points)
        twin = new_device()
        assert client.write(answer.polars().with_columns(device=pl.lit(twin))).refused == 0
        assert client.series(twin).polars().sort(key).drop("device").equals(frame.sort(key).drop("device"))

    def test_tables_are_wide_too_with_tags(self, client: Client) -> None:
        device, at = new_device(), minutes_ago(1)
        table = pa.table(
            {"device": [device, device], "time": [at, at - timedelta(seconds=1)], "tag:shift": ["a", None], "t": [1, 2.5]}
        )
        assert client.write(table) == Written(2, 0)
        assert client.write(table.to_batches()[0]) == Written(2, 0)
        frame = pl.DataFrame(table).with_columns(pl.col("device", "tag:shift").cast(pl.Categorical))
        assert client.write(frame) == Written(2, 0)
        rows = client.series(device, tags=True).rows()
        assert [(row["value"], row["tags"]) for row in rows] == [(2.5, None), (1.0, '{"shift":"a"}')]

    def test_refusals_are_data(self, client: Client) -> None:
        device, at = new_device(), minutes_ago(1)
        naive = at.replace(tzinfo=None)
        written = client.write(
            [
                {"device": device, "time": at, "values": {"t": 1}},
                {"device": device, "time": naive, "values": {"t": 2}},
                {"device": device, "time": at, "values": {"u": float("nan"), "v": 1}},
                {"device": device, "values": {}},
            ]
        )
        assert (written.accepted, written.refused) == (1, 3)
        assert [(one.index, one.code) for one in written.refusals] == [(1, "time"), (2, "not-finite"), (3, "no-values")]
        assert "no zone" in written.refusals[0].reason
        none = client.write({"device": "", "values": {"t": 1}})
        assert (none.accepted, none.refused) == (0, 1)
        assert client.write([]) == Written(0, 0)
        assert client.write(pl.DataFrame({"device": [], "t": []})) == Written(0, 0)

    def test_large_writes_are_cut_and_keep_their_places(self, client: Client) -> None:
        device, at = new_device(), minutes_ago(30)
        text = "x" * 1_000
        reports = [
            {"device": device, "time": at + timedelta(milliseconds=i), "values": {"t": i, "text": text}}
            for i in range(3_000)
        ]
        reports[2_900] = {"device": device, "time": at, "values": {"t": True, "u": []}}
        written = client.write(reports)
        assert (written.accepted, written.refused, [r.index for r in written.refusals]) == (2_999, 1, [2_900])
        assert len(client.series(device, metrics="t")) == 2_999
        frame = pl.DataFrame(reports[:2_000]).unnest("values").with_columns(device=pl.lit(new_device()))
        assert client.write(frame) == Written(2_000, 0)
        with pytest.raises(TooLarge, match="max_body_mib"):
            client.write({"device": device, "values": {f"m{i}": text * 30 for i in range(40)}})

    def test_what_cannot_be_sent_is_rejected(self, client: Client) -> None:
        with pytest.raises(Rejected, match="cannot be written as JSON"):
            client.write({"device": "d", "values": {"t": object()}})
        naive = pl.DataFrame({"device": ["d"], "time": [datetime(2026, 1, 1)], "t": [1.0]})  # noqa: DTZ001
        with pytest.raises(Rejected, match="replace_time_zone"):
            client.write(naive)

    def test_long_answers_come_whole_page_by_page(self, client: Client) -> None:
        device, at = new_device(), minutes_ago(40)
        reports = [
            {"device": device, "time": at + timedelta(milliseconds=i), "values": {"t": i, "u": -i}} for i in range(1_700)
        ]
        client.write(reports)
        answer = client.series(device, start="-1h")
        assert len(answer) == 3_400
        assert answer.next is None
        batches = list(client.series_batches(device, start=at))
        assert max(batch.num_rows for batch in batches) <= MAX_POINTS
        assert pa.Table.from_batches(batches).num_rows == 3_400
        first = client.series(device, metrics=["t"], limit=100)
        assert (len(first), first.next is None) == (100, False)
        rest = client.series(device, metrics=["t"], after=first.next)
        assert [row["value"] for row in [*first, *rest]] == list(range(1_700))

    def test_times_are_instants(self, client: Client) -> None:
        device, at = new_device(), minutes_ago(10)
        client.write([{"device": device, "time": at + timedelta(seconds=i), "values": {"t": i}} for i in range(4)])
        end = at + timedelta(seconds=2)
        there = timezone(timedelta(hours=5, minutes=30))
        for start, stop in (
            (at, end),
            (at.astimezone(there), end.isoformat()),
            (int(at.timestamp() * 1000), int(end.timestamp() * 1000)),
            ("-1h", end),
        ):
            assert [row["value"] for row in client.series(device, start=start, end=stop)] == [0.0, 1.0]
            assert len(client.query(device, start=start, end=stop)) == 2
        with pytest.raises(Rejected, match="no zone") as refused:
            client.series(device, start=at.replace(tzinfo=None))
        assert refused.value.code == "time"
        with pytest.raises(Rejected, match="give an aware datetime"):
            client.series(device, start=1.5)  # type: ignore[arg-type]

    def test_steps_are_what_polars_computes(self, client: Client) -> None:
        device = new_device()
        start = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=5)
        frame = pl.DataFrame(
            {
                "device": device,
                "time": [start + timedelta(seconds=97 * i) for i in range(150)],
                "t": [i * 0.25 for i in range(150)],
            }
        )
        client.write(frame)
        answer = client.series(device, start=start, end="now", step="1h", agg=["avg", "count"], metrics="t")
        wanted = frame.group_by_dynamic("time", every="1h").agg(avg=pl.col("t").mean(), count=pl.len())
        found = answer.polars().pivot("agg", index="time", values="value")
        assert found["time"].to_list() == wanted["time"].to_list()
        assert found["avg"].to_list() == pytest.approx(wanted["avg"].to_list())
        assert found["count"].to_list() == wanted["count"].to_list()
        assert sum(answer.used.values()) > 0
        assert answer.missing == []
        counts = [row["value"] for row in answer if row["agg"] == "count"]
        assert all(isinstance(value, int) for value in counts)
        days = client.series(device, start=start, step="1d", agg="max", tz="Asia/Kolkata", fill="null")
        assert {row["time"].astimezone(UTC).strftime("%H:%M") for row in days} == {"18:30"}

    def test_texts_have_states(self, client: Client) -> None:
        device = new_device()
        at = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=2)
        for minute, state in ((0, "run"), (10, "stop"), (30, "run")):
            client.write({"device": device, "time": at + timedelta(minutes=minute), "values": {"state": state}})
        (row,) = client.series(device, start=at, end=at + timedelta(hours=1), step="1h", agg="states").rows()
        assert row["value"] == {"run": {"seconds": 2400.0, "count": 2}, "stop": {"seconds": 1200.0, "count": 1}}
        (row,) = client.series(device, start=at, end=at + timedelta(hours=1), step="1h", agg="last")
        assert row["value"] == "run"

    def test_many_devices_are_asked_together(self, client: Client) -> None:
        hall, at = f"hall {next(_numbers)}", minutes_ago(5)
        names = [new_device() for _ in range(4)]
        kinds = ["press", "press", "oven", ""]
        describe(client, *({"name": n, "type": k, "tags": {"hall": hall}} for n, k in zip(names, kinds, strict=True)))
        client.write([{"device": n, "time": at, "values": {"t": i, "a, b": 1}} for i, n in enumerate(names)])
        match: client_module.Match = {"tags": {"hall": hall}}

        top = client.query(match=match, metrics="t", top=2, by="max")
        assert [(row["device"], row["value"]) for row in top] == [(names[3], 3.0), (names[2], 2.0)]
        groups = client.query(match=match, metrics=["t"], agg="sum", group_by="type")
        assert {row["type"]: row["value"] for row in groups} == {"press": 1.0, "oven": 2.0, "": 3.0}
        commas = client.query(names, metrics=["a, b"], step="1h", agg="count", group_by=[])
        assert sum(row["value"] for row in commas) == 4
        fleet = client.fleet(match=match, metrics="a, b", agg=["sum", "devices"])
        assert {row["agg"]: row["value"] for row in fleet} == {"sum": 4.0, "devices": 4}
        kinds_apart = client.fleet(match=match, metrics="t", start="-1h", group_by="type", agg="max")
        assert {row["type"]: row["value"] for row in kinds_apart} == {"press": 1.0, "oven": 2.0}

    def test_the_latest_values(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        for limit in ("_DEVICES_PAGE", "_MOST_DEVICES"):
            monkeypatch.setattr(client_module, limit, 2)
        place, at = f"place {next(_numbers)}", minutes_ago(5)
        names = sorted(new_device() for _ in range(5))
        describe(client, *({"name": name, "location": place} for name in names))
        client.write([{"device": n, "time": at, "values": {"t": i, "u": 0}} for i, n in enumerate(names)])
        wanted = [(name, float(i)) for i, name in enumerate(names)]
        for answer in (client.latest(match={"location": place}, metrics="t"), client.latest(names, metrics=["t"])):
            assert sorted((row["device"], row["value"]) for row in answer.rows()) == wanted
            assert answer.next is None
        assert {row["device"] for row in client.latest()} >= set(names)
        assert client.latest(names[0]).arrow().num_rows == 2
        assert client.latest("nobody").rows() == []
        with pytest.raises(Rejected, match="either"):
            client.latest(names, match={"location": place})
        found = list(client.devices({"location": place}))
        assert sorted(device["name"] for device in found) == names
        assert client.device(names[0])["location"] == place
        assert {"t", "u"} <= {metric["name"] for metric in client.metrics()}

    def test_refused_questions_are_typed_errors(self, client: Client) -> None:
        device = new_device()
        client.write({"device": device, "values": {"t": 1}})
        with pytest.raises(NotFound) as missing:
            client.device("nobody/..")
        assert (missing.value.code, str(missing.value)) == ("not-found", "no device 'nobody/..'")
        with pytest.raises(Rejected, match="agg 'mode'"):
            client.series(device, agg="mode")
        with pytest.raises(Rejected, match="either devices or match"):
            client.query()
        with pytest.raises(QueryLimit) as limited:
            client.query(device, start="-1h", step="1s", fill="null", agg="avg", limit=10)
        assert (limited.value.code, limited.value.limit, limited.value.allowed) == ("query-limit", "limit", 10)
        with pytest.raises(Rejected, match="surrogate"):
            client.series(device, metrics="\ud800")

    def test_threads_share_a_client(self, client: Client) -> None:
        names = [new_device() for _ in range(8)]

        def work(name: str) -> list[float]:
            for i in range(5):
                client.write({"device": name, "time": minutes_ago(5 - i), "values": {"t": i}})
            return [row["value"] for row in client.series(name)]

        with ThreadPoolExecutor(len(names)) as threads:
            assert list(threads.map(work, names)) == [[0.0, 1.0, 2.0, 3.0, 4.0]] * len(names)


# -- the guide


def test_the_examples_of_the_guide_run(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "python.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", guide, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 6
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOKEN", served.token)
    names: dict[str, Any] = {}
    try:
        for block in blocks:
            exec(block.replace("http://127.0.0.1:8080", served.url), names)
    finally:
        names["client"].close()


# -- who may


def test_a_token_decides_what_one_may(served: Served) -> None:
    with Client(served.url) as nobody, pytest.raises(Unauthorized, match="no token"):
        nobody.latest()
    with Client(served.url, served.token, tenant="umbra") as other, pytest.raises(Forbidden, match="'acme' only"):
        other.latest()
    with Client(served.url, served.operator, tenant="acme") as operator:
        assert operator.latest().next is None
    with Client(served.url, served.operator) as operator, pytest.raises(Rejected, match="say which"):
        operator.latest()
    with pytest.raises(Rejected, match=r"give HOST:PORT.*Client\.open"):
        Client("rocksdb:telemetry")
    with Client(served.url.removeprefix("http://"), served.token) as short:
        assert short.latest().next is None


# -- opening and closing


def test_opening_makes_no_store_unless_that_is_wanted(tmp_path: Path, config: Path) -> None:
    store = f"rocksdb:{tmp_path}/store"
    with pytest.raises(NotFound, match="create=True") as missing:
        Client.open(store, tenant="acme", config=config)
    assert missing.value.code == "no-store"
    assert not (tmp_path / "store").exists()
    for _ in range(2):  # the second time it is there
        with Client.open(store, tenant="acme", create=True, config=config) as made:
            made.write({"device": "d", "values": {"t": 1}})
    with Client.open(store, tenant="acme", config=config) as found:
        assert len(found.latest("d")) == 1
    with Client.open(store, tenant="umbra", config=config) as other, pytest.raises(NotFound, match="no tenant 'umbra'"):
        other.latest()
    with pytest.raises(Rejected):
        Client.open("memory:", tenant="Not a slug!")


def test_a_shared_store_is_written_to_with_its_lease(
    bigtable_server: Bigtable, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BIGTABLE_EMULATOR_HOST", bigtable_server.address)
    store = bigtable_server.store_url(f"c{uuid4().hex[:8]}")
    with Client.open(store, tenant="acme", create=True, writes=True, config=config) as writer:
        assert writer.write({"device": "d", "values": {"t": 1}}) == Written(1, 0)
        with Client.open(store, tenant="acme", config=config) as reader:
            assert [row["value"] for row in reader.series("d")] == [1.0]
            with pytest.raises(NotTheWriter) as refused:
                reader.write({"device": "d", "values": {"t": 2}})
            assert refused.value.code == "no-lease"


def test_a_closed_client_says_so(config: Path) -> None:
    client = Client.open("memory:", tenant="acme", config=config)
    before = threading.active_count()
    client.close()
    client.close()
    assert threading.active_count() < before
    with pytest.raises(Unavailable, match="was closed"):
        client.latest()


def test_closing_leaves_nobody_waiting(config: Path) -> None:
    client = Client.open("memory:", tenant="acme", config=config)
    client.write([{"device": f"d{i}", "values": {"t": i}} for i in range(500)])
    asking = threading.Barrier(5)

    def ask() -> str:
        asking.wait()
        try:
            while True:
                client.latest()
        except Unavailable as error:
            return error.code

    with ThreadPoolExecutor(4) as threads:
        waiting = [threads.submit(ask) for _ in range(4)]
        asking.wait()
        client.close()
        assert {one.result(timeout=60) for one in waiting} <= {"unreachable", "unavailable"}


def test_a_program_that_forgets_to_close_ends_and_loses_nothing(tmp_path: Path, config: Path) -> None:
    store = f"rocksdb:{tmp_path}/store"
    forgets = (
        "from widerow import Client;"
        f"client = Client.open({store!r}, tenant='acme', create=True, config={str(config)!r});"
        "client.write({'device': 'd', 'values': {'t': 1}})"
    )
    done = subprocess.run([sys.executable, "-c", forgets], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    with Client.open(store, tenant="acme", config=config) as found:
        assert len(found.series("d")) == 1


def test_polars_need_not_be_there(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with Client(served.url, served.token) as client:
        answer = client.latest("nobody")
        with pytest.raises(WiderowError, match=r"widerow\[polars\]"):
            answer.polars()
        assert answer.rows() == []
