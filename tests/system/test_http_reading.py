"""Reading telemetry: spans, pages, metrics, matches."""

from __future__ import annotations

import csv
import io
from typing import Any
from urllib.parse import quote

import pytest

from system.conftest import Site, now_ms
from widerow.model.token import Role
from widerow.server.call import NEXT_HEADER


def points_of(answer: Any) -> dict[tuple[str, str], list[Any]]:
    return {(s["device"], s["metric"]): s["points"] for s in answer["series"]}


@pytest.fixture(scope="module")
def start_ms(site: Site) -> int:
    """Ten reports of the device `ten`, a second apart, from here on."""
    start = now_ms() - 60_000
    reports = [{"device": "ten", "time": start + 1000 * i, "values": {"n": i, "twice, really": 2 * i}} for i in range(10)]
    assert site.client(Role.WRITE).post("/v1/write", json=reports).status_code == 204
    return start


def test_a_span_includes_its_start_and_excludes_its_end(site: Site, start_ms: int) -> None:
    client = site.client(Role.READ)

    def check(start: object, end: object, want: list[int]) -> None:
        answer = client.get("/v1/devices/ten/series", params={"start": str(start), "end": str(end), "metrics": "n"})
        points = points_of(answer.json()).get(("ten", "n"), [])
        assert [value for _, value in points] == want

    check(start_ms, start_ms + 3000, [0, 1, 2])
    check(start_ms + 1, start_ms + 2001, [1, 2])
    check(start_ms, start_ms, [])
    check("-1h", "now", list(range(10)))
    check("now-301s", "now", list(range(10)))
    check("2001-01-01T00:00:00Z", "2001-01-02T00:00:00Z", [])


def test_metrics_are_chosen_by_commas_or_by_repeating(site: Site, start_ms: int) -> None:
    assert start_ms
    client = site.client(Role.READ)

    def check(query: str, want: set[str]) -> None:
        answer = client.get(f"/v1/devices/ten/series?{query}").json()
        assert {metric for _, metric in points_of(answer)} == want

    comma = quote("twice, really")
    check("", {"n", "twice, really"})
    check("metrics=n,nothing", {"n"})
    check(f"metrics={comma}&metrics=n", {"n", "twice, really"})
    check(f"metrics={comma}&metrics=", {"twice, really"})


def test_pages_of_a_series_join_to_the_whole(site: Site, start_ms: int) -> None:
    client = site.client(Role.READ)
    whole = points_of(client.get("/v1/devices/ten/series").json())
    for limit in (1, 3, 7, 20):
        joined: dict[tuple[str, str], list[Any]] = {}
        after: str | None = None
        for _ in range(40):
            parameters = {"limit": str(limit), "start": str(start_ms), **({"after": after} if after else {})}
            page = client.get("/v1/devices/ten/series", params=parameters).json()
            for key, points in points_of(page).items():
                joined.setdefault(key, []).extend(points)
            after = page["next"]
            if after is None:
                break
        assert joined == whole


def test_forms_without_room_carry_the_cursor_in_a_header(site: Site, start_ms: int) -> None:
    assert start_ms
    client, values, after = site.client(Role.READ), [], ""
    client.headers["Accept"] = "text/csv"
    for _ in range(40):
        page = client.get(
            "/v1/devices/ten/series", params={"metrics": "n", "limit": "4", **({"after": after} if after else {})}
        )
        values += [row["value"] for row in csv.DictReader(io.StringIO(page.text))]
        after = page.headers.get(NEXT_HEADER, "")
        if not after:
            break
    assert values == [f"{i}.0" for i in range(10)]


def test_times_come_as_asked_for(site: Site, start_ms: int) -> None:
    client = site.client(Role.READ)

    def check(epoch: str, want: float) -> None:
        answer = client.get("/v1/devices/ten/series", params={"epoch": epoch, "metrics": "n"}).json()
        assert points_of(answer)["ten", "n"][0][0] == want

    check("ms", start_ms)
    check("us", start_ms * 1000)
    check("ns", start_ms * 1_000_000)
    check("s", start_ms / 1000)
    text = client.get("/v1/devices/ten/series?metrics=n").json()["series"][0]["points"][0][0]
    assert text.endswith("Z")


def test_the_latest_value_of_each_metric_is_the_newest_by_event_time(site: Site) -> None:
    at = site.write("late", {"a": 2, "b": 2})
    site.write("late", {"a": 1, "c": 1}, time_ms=at - 5000)
    assert site.values("late") == {"a": 2.0, "b": 2.0, "c": 1.0}


def test_the_latest_values_of_many_devices(site: Site) -> None:
    for i in range(3):
        site.write(f"many-{i}", {"a": i, "b": -i})
    client = site.client(Role.READ)
    answer = client.post("/v1/latest", json={"devices": ["many-2", "many-0", "nobody", "many-2"], "metrics": ["a"]})
    got = {key: [value for _, value in points] for key, points in points_of(answer.json()).items()}
    assert got == {("many-0", "a"): [0.0], ("many-2", "a"): [2.0]}
    assert client.post("/v1/latest", json={"devices": ["many-1"]}, headers={"Accept": "text/csv"}).text.count("many-1") == 2
    too_many = client.post("/v1/latest", json={"devices": [f"d{i}" for i in range(10_001)]})
    assert too_many.status_code == 400


def test_the_latest_values_of_a_fleet_come_by_pages_of_devices(site: Site) -> None:
    for i in range(5):
        site.write(f"fleet-{i}", {"a": i})
        kind = {"type": "pump" if i % 2 else "fan", "tags": {"hall": "1", "row": str(i)}}
        assert site.client().patch(f"/v1/devices/fleet-{i}", json=kind).status_code == 200
    client = site.client(Role.READ)

    def devices(query: str) -> set[str]:
        found: set[str] = set()
        after = ""
        while True:
            page = client.get(f"/v1/fleet/latest?{query}{after}").json()
            found |= {device for device, _ in points_of(page)}
            if page["next"] is None:
                return found
            after = f"&after={page['next']}"

    assert devices("prefix=fleet-&limit=2") == {f"fleet-{i}" for i in range(5)}
    assert devices("type=pump&prefix=fleet-") == {"fleet-1", "fleet-3"}
    assert devices("tag=hall:1&tag=row:4") == {"fleet-4"}
    assert devices("q=FLEET-3") == {"fleet-3"}
    assert devices("prefix=fleet-&metrics=other") == set()


def test_a_corrected_value_replaces_the_old_one(site: Site) -> None:
    at = site.write("corrected", {"a": 1})
    site.write("corrected", {"a": 2}, time_ms=at)
    points = site.client(Role.READ).get("/v1/devices/corrected/series").json()["series"][0]["points"]
    assert [value for _, value in points] == [2.0]
