"""A fleet's reports reach a real server with every kind of trouble, and what is kept is what the fleet reported."""

from __future__ import annotations

import json
import time
from typing import Any

from typer.testing import CliRunner

from system.conftest import Site, in_path
from widerow.cli.commands import app
from widerow.model.batch import reports_of
from widerow.model.times import MINUTE, SECOND, format_time, parse_rfc3339
from widerow.model.token import Role
from widerow.simulate.fleet import Fleet
from widerow.simulate.kinds import FLEETS

DEVICES, TICKS, SEED = 6, 100, 11


def test_after_chaos_the_server_holds_what_the_fleet_reported(site: Site) -> None:
    start_us = time.time_ns() // 1000 // SECOND * SECOND - 4 * 60 * MINUTE
    command = ["simulate", "--kind", "trucks", "--chaos", "--devices", str(DEVICES), "--count", str(DEVICES * TICKS)]
    plan = ["--rate", "0", "--interval", "1m", "--start", format_time(start_us), "--seed", str(SEED), "--format", "json"]
    how = ["--lines", "50", "--json", "--server", site.url, "--token", site.token(Role.WRITE)]
    answer = CliRunner().invoke(app, [*command, *plan, *how])
    assert answer.exit_code == 0, answer.output
    sent = json.loads(answer.stdout)
    fleet = Fleet(SEED, DEVICES, start_us=start_us, kinds=FLEETS["trucks"], interval_us=MINUTE)
    truth = reports_of(fleet.made(range(TICKS)))
    assert sent["acknowledged"] > len(truth)
    assert (sent["refused"], sent["failed"]) == (0, 0)
    held: dict[tuple[str, int, str], Any] = {}
    for device in fleet.names:
        series = site.client(Role.READ).get(f"/v1/devices/{in_path(device)}/series", params={"start": format_time(start_us)})
        for one in series.json()["series"]:
            held |= {(device, parse_rfc3339(at), one["metric"]): value for at, value in one["points"]}
    assert held == {(r.device, r.time_us, name): value for r in truth for name, value in r.values.items()}
