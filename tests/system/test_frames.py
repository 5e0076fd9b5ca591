"""What Polars and pandas make of the demo's fleet: numbers, texts and times in UTC, from CSV and Arrow alike."""

from __future__ import annotations

import io
import threading

import httpx
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from system.conftest import Site, in_path, now_ms
from widerow.cli.actors import Actor, cast
from widerow.cli.demo_history import fill
from widerow.codec.answer import ARROW, CSV
from widerow.model.times import SystemClock
from widerow.model.token import Role

pytestmark = pytest.mark.about_http

RAW = ["device", "time", "metric", "value", "text"]
STEPS = ["device", "time", "metric", "agg", "kind", "value", "text"]


@pytest.fixture(scope="module")
def actor(site: Site) -> Actor:
    """The first tenant of `widerow demo`, and what its devices sent in the last minutes."""
    found = cast(10, 4, SystemClock().now_us())[0]
    found.token, found.filled = site.token(Role.WRITE), 24 * 60 - 10
    fill(site.url, [found], SystemClock(), threading.Event(), lambda _reports: None)
    return found


@pytest.fixture(scope="module")
def questions(site: Site, actor: Actor) -> list[tuple[list[str], httpx.Request]]:
    """With the columns of their answers."""
    asked = {"match": {}, "start": "-30m", "end": now_ms(), "step": "1m"}
    client = site.client(Role.READ)
    return [
        (RAW, client.build_request("GET", f"/v1/devices/{in_path(name)}/series", params={"start": "-30m"}))
        for name in actor.past.names
    ] + [
        (RAW, client.build_request("GET", "/v1/fleet/latest")),
        (RAW, client.build_request("POST", "/v1/query", json={"match": {}, "start": "-30m"})),
        (STEPS, client.build_request("POST", "/v1/query", json={**asked, "agg": ["last"]})),
        (STEPS, client.build_request("POST", "/v1/query", json={**asked, "agg": ["count", "avg", "states", "last"]})),
        (
            STEPS[1:],
            client.build_request("GET", "/v1/fleet/series", params={"start": "-30m", "step": "1m", "agg": "count,p95"}),
        ),
    ]


def answered(site: Site, request: httpx.Request, media_type: str) -> bytes:
    request.headers["Accept"] = media_type
    answer = site.client(Role.READ).send(request)
    assert answer.status_code == 200, answer.text
    return answer.content


def test_polars_infers_the_types_of_csv_and_reads_the_same_from_arrow(
    site: Site, questions: list[tuple[list[str], httpx.Request]]
) -> None:
    texts = 0
    for columns, request in questions:
        frame = pl.read_csv(io.BytesIO(answered(site, request, CSV)), try_parse_dates=True)
        assert frame.columns == columns
        types = dict(zip(frame.columns, frame.dtypes, strict=True))
        assert types.pop("time") == pl.Datetime("us", "UTC")
        assert types.pop("value") == pl.Float64
        assert set(types.values()) == {pl.String}
        table = pl.from_arrow(pa.ipc.open_stream(answered(site, request, ARROW)).read_all())
        assert isinstance(table, pl.DataFrame)
        assert table.schema["time"] == pl.Datetime("us", "UTC")
        assert table.schema["metric"] == pl.Categorical
        assert table.schema["text"] == pl.String
        plain = table.with_columns(pl.col(pl.Categorical).cast(pl.String))
        assert frame.sort(columns).equals(plain.sort(columns), null_equal=True)
        assert len(frame) > 10
        assert frame["value"].count() > 0
        texts += frame["text"].count()
    assert texts > 0


def test_pandas_infers_the_types_of_csv_and_reads_the_same_from_arrow(
    site: Site, questions: list[tuple[list[str], httpx.Request]]
) -> None:
    for columns, request in questions[-4:]:
        frame = pd.read_csv(io.BytesIO(answered(site, request, CSV)), parse_dates=["time"])
        table = pa.ipc.open_stream(answered(site, request, ARROW)).read_all().to_pandas()
        for found in (frame, table):
            assert list(found.columns) == columns
            assert isinstance(found["time"].dtype, pd.DatetimeTZDtype)
            assert str(found["time"].dtype.tz) == "UTC"
            assert found["value"].dtype == "float64"
            assert pd.api.types.is_string_dtype(found["text"]) or not found["text"].notna().any()
        assert isinstance(table["metric"].dtype, pd.CategoricalDtype)
        by = [name for name in columns if name not in ("value", "text")]
        one, other = (found.astype(dict.fromkeys(set(by) - {"time"}, "str")).sort_values(by) for found in (frame, table))
        assert one["value"].tolist() == pytest.approx(other["value"].tolist(), rel=0, nan_ok=True)
        said = [found["text"].astype(object).where(found["text"].notna(), "").tolist() for found in (one, other)]
        assert said[0] == said[1]
        assert one["time"].tolist() == other["time"].tolist()
