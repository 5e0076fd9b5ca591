"""A server that is killed while devices publish: whatever the broker acknowledged to them is in the store in the end."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from uuid import uuid4

import httpx

from servers.mosquitto import Mosquitto
from system.mqtt_site import Device, eventually
from system.victim import Victim

DEVICES, MESSAGES, KILLS = 4, 200, 1


def test_a_server_that_is_killed_loses_nothing_that_the_broker_took(mosquitto: Mosquitto, tmp_path: Path) -> None:
    prefix, tenant = f"k{uuid4().hex[:8]}", "acme"
    settings = {"WIDEROW_MQTT_URL": mosquitto.url(), "WIDEROW_MQTT_CLIENT_ID": prefix, "WIDEROW_MQTT_GROUP": prefix}
    for kind in ("telemetry", "backfill", "status", "errors"):
        settings[f"WIDEROW_MQTT_{kind}_topic".upper()] = f"{prefix}/{{tenant}}/{{device}}/{kind}"
    start_ms = time.time_ns() // 1_000_000 - 60_000
    taken: dict[str, list[float]] = {f"d{i}": [] for i in range(DEVICES)}
    stop = threading.Event()

    def publish(name: str) -> None:
        with Device(mosquitto) as device:
            for i in range(MESSAGES):
                kind = ("telemetry", "backfill")[i % 2]  # each has a session of its own
                device.publish(f"{prefix}/{tenant}/{name}/{kind}", {"time": start_ms + i, "values": {"n": i}})
                taken[name].append(float(i))
                if stop.wait(0.005):
                    return

    with Victim(tmp_path / "store", settings=settings) as victim:
        victim.start()
        for what in ("connected, the session is new", "connected for backlog, the session is new"):
            eventually(lambda: what in victim.log())  # noqa: B023 - asked at once. The sessions exist from here on.
        threads = [threading.Thread(target=publish, args=(name,)) for name in taken]
        for thread in threads:
            thread.start()
        try:
            for _ in range(KILLS):
                time.sleep(0.4)
                victim.kill()
                victim.start()
        finally:
            for thread in threads:
                thread.join()
        assert min(map(len, taken.values())) == MESSAGES

        token = {"Authorization": f"Bearer {victim.tokens[tenant]}"}
        with httpx.Client(base_url=victim.url, timeout=30, headers=token) as client:

            def stored(name: str) -> list[float]:
                answer = client.get(f"/v1/devices/{name}/series", params={"start": "-1h", "end": "now"})
                return [point[1] for series in answer.json().get("series", []) for point in series["points"]]

            eventually(lambda: all(stored(name) == values for name, values in taken.items()), within_s=30)
