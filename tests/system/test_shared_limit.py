"""Two fronts of a log and one limit: what passes in all is the limit, and when one is killed the other has its part."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

import awake
from awake import Running
from servers.bigtable import Bigtable
from servers.kafka import Kafka
from system.conftest import now_ms
from system.test_cli_processes import run, started

_TRIES, _SETTLE_S = 6, 7
LIMIT = 200
_STEP_S = 0.1
_CARRIED = 0.9
"""How much of what is offered must come through for a span to count."""
_SPAN_S = 12
"""So long that what is saved up in a burst, a second of the limit, is less than a tenth of what passes meanwhile: a request
that was answered late by half a second is followed by as much more, and rightly so.
"""


class Offer:
    """Reports at a fixed rate to one process, whatever it answers. `sent` counts them, `accepted` what was kept.

    Of many devices: one that sent all of it would be judged mad, and held to less than the tenant's limit.
    """

    def __init__(self, url: str, token: str, devices: str, per_s: int) -> None:
        self.sent = self.accepted = 0
        self.per_s = per_s
        self._url, self._token, self._devices, self._per_step = url, token, devices, round(per_s * _STEP_S)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        headers = {"Authorization": f"Bearer {self._token}"}
        due_s, serial = time.monotonic(), 0
        with httpx.Client(base_url=self._url, headers=headers, timeout=30) as client:
            while not self._stop.is_set():
                base = now_ms()
                reports = [
                    {"device": f"{self._devices}-{i}", "time": base, "values": {"n": serial + i}}
                    for i in range(self._per_step)
                ]
                serial += len(reports)
                with contextlib.suppress(httpx.TransportError):  # it is killed in the end
                    self._count(client.post("/v1/write", json=reports), len(reports))
                due_s += _STEP_S
                self._stop.wait(max(0.0, due_s - time.monotonic()))

    def _count(self, answer: httpx.Response, sent: int) -> None:
        self.sent += sent
        if answer.status_code == 204:
            self.accepted += sent
        elif answer.status_code in (207, 429):
            self.accepted += answer.json()["accepted"]
        else:
            raise AssertionError(answer.text)


@contextlib.contextmanager
def offering(*offers: Offer) -> Iterator[None]:
    try:
        yield
    finally:
        for offer in offers:
            offer.stop()


def totals(offers: list[Offer]) -> tuple[int, int]:
    return sum(offer.sent for offer in offers), sum(offer.accepted for offer in offers)


def passed_per_s(offers: list[Offer], seconds: float) -> float:
    """In a span in which the machine ran all the time, and carried what was offered: one that stands still gives out less
    than it may, and then more.
    """
    for _ in range(_TRIES):
        running, began_s, before = Running(), time.monotonic(), totals(offers)
        time.sleep(seconds)
        took_s = time.monotonic() - began_s
        sent, accepted = (now - then for now, then in zip(totals(offers), before, strict=True))
        if not running.stood_still_s() and sent > _CARRIED * took_s * sum(offer.per_s for offer in offers):
            return accepted / took_s
        awake.sleep(_SETTLE_S)
    pytest.fail("the machine never ran for long enough, or never carried what was offered")


@pytest.mark.rest
def test_two_fronts_give_out_one_limit_and_one_of_them_when_the_other_is_killed(
    kafka: Kafka, bigtable_server: Bigtable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BIGTABLE_EMULATOR_HOST", bigtable_server.address)
    name = f"shared{uuid4().hex[:6]}"
    kafka.create_topic(name, 2)
    kafka.create_topic(f"{name}.late", 2)
    settings = {"brokers": kafka.address, "topic": name, "backfill_topic": f"{name}.late", "group": name}
    config = tmp_path / "widerow.toml"
    config.write_text("\n".join(["[kafka]", *(f'{key} = "{value}"' for key, value in settings.items()), ""]))
    store = ["--store", bigtable_server.store_url(name)]
    limits = ["--writes-per-s", str(LIMIT), "--writes-burst", str(LIMIT)]
    run("tenant", "create", "acme", *limits, *store, folder=tmp_path)
    token = run("token", "create", "acme", "--role", "write", *store, folder=tmp_path).stdout.strip()
    for front in ("one", "two"):
        (tmp_path / front).mkdir()
    command = ["api", "--config", str(config), *store, "--port", "0"]
    with (
        started(command, tmp_path / "one", "widerow answers") as (first, first_line),
        started(command, tmp_path / "two", "widerow answers") as (_, second_line),
    ):
        busy, calm = first_line.split()[-1], second_line.split()[-1]
        offers = [Offer(busy, token, "one", 3 * LIMIT), Offer(calm, token, "two", LIMIT // 4)]
        with offering(*offers):
            awake.sleep(_SETTLE_S)
            assert passed_per_s(offers, _SPAN_S) == pytest.approx(LIMIT, rel=0.1), "in all, however uneven demand is"
            first.kill()
            first.wait()
            killed_s = time.monotonic()
        alone = Offer(calm, token, "two", 3 * LIMIT)
        with offering(alone):
            time.sleep(max(0.0, killed_s + 10 - time.monotonic()))
            assert passed_per_s([alone], _SPAN_S) == pytest.approx(LIMIT, rel=0.1), "ten seconds after the other was killed"
