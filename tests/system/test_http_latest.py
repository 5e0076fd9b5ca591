"""Over HTTP and on the command line: the newest value of each metric, wherever it lies within the raw retention."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner

from system.conftest import Site, now_ms
from widerow.cli.commands import app
from widerow.model.token import Role

HOUR_MS = 3_600_000


def rolled(site: Site) -> None:
    """Every hour that is over, as the process that rolls would have it."""
    pyramid, tenant = site.service.pyramid, site.service.catalog.tenants.get("acme")
    now_us = site.service.clock.now_us()
    for unit in sorted(set(pyramid.marks.units())):
        if unit.start_us + HOUR_MS * 1000 <= now_us:
            pyramid.roller.roll(tenant, unit)


def every_way(site: Site, device: str, metrics: str = "") -> dict[str, Any]:
    """What each kind of question says, which is the same."""
    client, named = site.client(Role.READ), {"metrics": metrics} if metrics else {}
    answers = [
        client.get(f"/v1/devices/{device}/latest", params=named),
        client.get("/v1/fleet/latest", params={**named, "prefix": device}),
        client.post("/v1/latest", json={"devices": [device, "nobody"], **({"metrics": [metrics]} if metrics else {})}),
    ]
    chosen = ["-m", metrics] if metrics else []
    asked = ["latest", device, *chosen, "--server", site.url, "--token", site.token(Role.READ), "--json"]
    told = CliRunner().invoke(app, asked)
    assert told.exit_code == 0, told.output
    found = [{one["metric"]: one["points"][0][1] for one in answer.json()["series"]} for answer in answers]
    found.append({one["metric"]: one["value"] for one in json.loads(told.stdout)})
    assert all(one == found[0] for one in found), found
    return found[0]


def test_latest_over_http_has_values_of_hours_and_days_ago(site: Site) -> None:
    now = now_ms()
    site.write("press", {"used{path=/}": 1, "used{path=/home}": 2}, time_ms=now - 72 * HOUR_MS)
    site.write("press", {"state": "off", "used{path=/}": 3}, time_ms=now - 26 * HOUR_MS)
    site.write("press", {"state": "on"}, time_ms=now - 2 * HOUR_MS)
    site.write("press", {"temp": 21.5})
    want = {"state": "on", "temp": 21.5, "used{path=/}": 3, "used{path=/home}": 2}
    assert every_way(site, "press") == want
    rolled(site)
    assert every_way(site, "press") == want
    assert every_way(site, "press", "used") == {"used{path=/}": 3, "used{path=/home}": 2}

    site.write("press", {"state": "late", "flow": 4}, time_ms=now - 5 * HOUR_MS)
    for _ in range(2):
        assert every_way(site, "press") == {**want, "flow": 4}
        rolled(site)

    erased = {"metric": "state", "device": "press", "start": now - 6 * HOUR_MS, "end": now}
    assert site.client().post("/v1/admin/erase", json=erased).status_code == 204
    assert every_way(site, "press").get("state") in (None, "off"), "at once, nothing of what was erased"
    site.service.house.purge()
    rolled(site)
    assert every_way(site, "press") == {**want, "flow": 4, "state": "off"}

    assert site.client().delete("/v1/devices/press").status_code == 204
    site.service.house.purge()
    site.write("press", {"temp": 1})
    assert every_way(site, "press") == {"temp": 1}
