"""From lines with tags to answers: names with labels are stored and chosen alike in HTTP, POST and the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from system.conftest import Site, now_ms
from widerow.cli.commands import app
from widerow.model.labels import labelled
from widerow.model.token import Role

ODD = (
    "C:\\Users",
    "a,b",
    "x=1",
    "{y}",
    "}",
    "{",
    "a b",
    "Größe",
    '"q"',
    "\\,={}",
    "a\\b=c",
    "&?#%2F+;",
    "::",
    "{a=b}",
    "*",
    "0",
)


def write(site: Site, body: str, status: int = 204, **params: str) -> str:
    answer = site.client(Role.WRITE).post("/write", content=body.encode(), params={"precision": "ms", **params})
    assert answer.status_code == status, answer.text
    return answer.text


def run(site: Site, *arguments: str) -> list[dict[str, Any]]:
    told = CliRunner().invoke(app, [*arguments, "--server", site.url, "--token", site.token(Role.READ), "--json"])
    assert told.exit_code == 0, told.output
    found = json.loads(told.stdout)
    return found if isinstance(found, list) else list(found["series"])


def every_way(site: Site, device: str, metrics: str) -> list[list[str]]:
    """The metrics found by each kind of question that takes `metrics`."""
    client, name = site.client(Role.READ), {"metrics": metrics}
    answers = [
        client.get(f"/v1/devices/{device}/series", params=name),
        client.get(f"/v1/devices/{device}/series", params={**name, "agg": "count"}),
        client.get(f"/v1/devices/{device}/latest", params=name),
        client.get("/v1/fleet/latest", params={**name, "prefix": device}),
        client.get("/v1/fleet/series", params={**name, "prefix": device, "step": "1h"}),
        *(client.post("/v1/query", json={"devices": [device], "metrics": m}) for m in (metrics, [metrics])),
        client.post("/v1/query", json={"devices": [device], "metrics": metrics, "agg": "max"}),
        *(client.post("/v1/latest", json={"devices": [device], "metrics": m}) for m in (metrics, [metrics])),
    ]
    assert {answer.status_code for answer in answers} == {200}, [answer.text for answer in answers]
    told = [
        run(site, "query", device, "-m", metrics),
        run(site, "query", device, "-m", metrics, "--agg", "max"),
        run(site, "latest", device, "-m", metrics),
        run(site, "fleet", "latest", "--prefix", device, "-m", metrics),
        run(site, "fleet", "series", "--prefix", device, "-m", metrics),
    ]
    return [sorted(one["metric"] for one in found) for found in [*(answer.json()["series"] for answer in answers), *told]]


def test_lines_of_two_requests_that_differ_in_a_tag_both_stay(site: Site) -> None:
    at = now_ms()
    write(site, f"q,host=k3,unit=x v=1 {at}")
    write(site, f"q,host=k3,unit=y v=2 {at}")
    assert site.values("k3") == {"q_v{unit=x}": 1.0, "q_v{unit=y}": 2.0}
    for found in every_way(site, "k3", "q_v"):
        assert found == ["q_v{unit=x}", "q_v{unit=y}"]
    for found in every_way(site, "k3", "q_v{unit=y}"):
        assert found == ["q_v{unit=y}"]


def escaped(text: str) -> str:
    """As line protocol wants it, in tags and fields."""
    return text.replace(",", "\\,").replace("=", "\\=").replace(" ", "\\ ")


@pytest.mark.parametrize("where", ["value", "label", "field"])
def test_any_characters_come_back_as_they_were_sent_and_can_be_asked_for(site: Site, where: str) -> None:
    at, device = now_ms(), f"odd-{where}"
    names = {
        "value": {text: ("m_v", {"a": "b", "k": text}) for text in ODD},
        "label": {text: ("m_v", {"a": "b", text: "v"}) for text in ODD},
        "field": {text: (f"m_{text}", {"a": "b"}) for text in ODD},
    }[where]
    for n, (text, (_, labels)) in enumerate(names.items()):
        tags = "".join(f",{escaped(label)}={escaped(value)}" for label, value in reversed(labels.items()))
        field = text if where == "field" else "v"
        write(site, f"m,device={device}{tags} {escaped(field)}={n} {at}")
    stored = {labelled(plain, labels): float(n) for n, (plain, labels) in enumerate(names.values())}
    assert site.values(device) == stored
    for text in ("\\,={}", "{a=b}", "a,b"):
        plain, labels = names[text]
        want = labelled(plain, labels)
        for found in every_way(site, device, labelled(plain, dict(reversed(labels.items())))):
            assert found == [want]
    client = site.client(Role.READ)
    for plain, labels in names.values():
        few = {label: value for label, value in labels.items() if where == "field" or label != "a"}
        answer = client.get(f"/v1/devices/{device}/latest", params={"metrics": labelled(plain, few) + ",other"}).json()
        assert [one["metric"] for one in answer["series"]] == [labelled(plain, labels)]


def test_a_name_with_labels_may_have_1024_bytes_and_a_longer_one_is_refused_alone(site: Site) -> None:
    at, client = now_ms(), site.client(Role.READ)
    long = "m_v{path=" + "x" * 1014 + "}"
    assert len(long) == 1024
    refused = write(site, f"m,device=long,path={'x' * 1014} v=1 {at}\nm,device=long,path={'x' * 1015} v=2 {at}", 400)
    assert "longer than 1024 bytes with its labels" in refused
    assert "dropped=1" in refused
    assert site.values("long") == {long: 1.0}
    for found in every_way(site, "long", long):
        assert found == [long]
    reports = [{"device": "long", "time": at + 1, "values": {name: 3}} for name in (long, long[:-1] + "x}")]
    answer = site.client(Role.WRITE).post("/v1/write", json=reports)
    assert (answer.status_code, [one["code"] for one in answer.json()["refusals"]]) == (207, ["name"])
    assert site.values("long") == {long: 3.0}
    catalogued = client.get("/v1/metrics").json()["metrics"]
    assert long in [metric["name"] for metric in catalogued]


def test_two_values_for_one_cell_are_refused_by_name_labels_and_values(site: Site) -> None:
    at = now_ms()
    body = f"q,device=twice,b=2,a=1 v=1.5 {at}\nq,device=twice,a=1,b=2 v=2 {at}\nq,device=twice,a=1 v=3 {at}"
    for path in ("/write", "/api/v2/write"):
        answer = site.client(Role.WRITE).post(path, content=body, params={"precision": "ms"})
        assert answer.status_code == 400
        for words in ("'q_v{a=1,b=2}'", "1.5 and 2.0", "dropped=1"):
            assert words in answer.json()["error"]
    assert site.values("twice") == {"q_v{a=1,b=2}": 1.5, "q_v{a=1}": 3.0}


def test_what_is_stored_is_found_when_the_catalogue_is_full(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    at = now_ms()
    monkeypatch.setattr(site.service.catalog.metrics, "most", 0)  # 10,000 otherwise
    write(site, "\n".join(f"many,device=full,item=i{n},half=h{n % 2} v={n} {at}" for n in range(100)))
    assert not [one for one in site.client().get("/v1/metrics").json()["metrics"] if one["name"].startswith("many")]
    stored = sorted(f"many_v{{half=h{n % 2},item=i{n}}}" for n in range(100))
    for found in every_way(site, "full", "many_v"):
        assert found == stored
    for found in every_way(site, "full", "many_v{item=i7}"):
        assert found == ["many_v{half=h1,item=i7}"]
    asked = {"metrics": "many_v", "agg": "count", "group_by": "half"}
    groups = site.client(Role.READ).get("/v1/devices/full/series", params=asked).json()["series"]
    assert [(one["group"]["half"], one["metric"], one["points"][0][1]) for one in groups] == [
        ("h0", "many_v", 50),
        ("h1", "many_v", 50),
    ]


def test_the_tag_of_simulated_trucks_is_a_label_until_the_tenant_lists_it_as_an_attribute(site: Site) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "cli.md").read_text()
    listed, simulate = re.findall(
        r"^widerow (tenant set .*trailer|simulate .*--kind trucks .*--count 1000)$", page, re.MULTILINE
    )

    def commanded(command: str) -> None:
        told = CliRunner().invoke(app, [*command.split(), "--server", site.url, "--token", site.token(Role.OPERATOR)])
        assert told.exit_code == 0, told.output

    def trucks() -> tuple[set[str], list[dict[str, str] | None]]:
        answer = site.client(Role.READ).get("/v1/fleet/latest", params={"metrics": "truck_velocity"}).json()
        names = {one["metric"] for one in answer["series"] if one["device"] == "truck-000001"}
        asked = {"metrics": "truck_velocity", "start": "-30d", "tags": "true"}
        series = site.client(Role.READ).get("/v1/devices/truck-000001/series", params=asked).json()["series"]
        (plainest,) = [one for one in series if one["metric"] == min(names)]
        return names, [point[2] for point in plainest["points"]]

    commanded(simulate)
    names, tags = trucks()
    assert names == {f"truck_velocity{{trailer={name.partition('trailer=')[2]}" for name in names} != {"truck_velocity"}
    assert set(map(bool, tags)) == {False}
    commanded(listed)
    commanded(simulate)
    names, tags = trucks()
    assert "truck_velocity" in names
    assert [tag for tag in tags if tag is None or list(tag) != ["trailer"]] == []
