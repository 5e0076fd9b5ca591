"""Stopping is orderly: a server told to end ends soon, with code 0, and keeps what it acknowledged. A store has one."""

from __future__ import annotations

import itertools
import random
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from system.cycles import compare, report
from system.disk_full import wait
from system.ledger import Ledger
from system.victim import Victim
from system.writers import Load, Slice, sending
from widerow.server.sockets import SOCKET

HOUR_US = 3_600_000_000
STOPS_WITHIN_S = 5.0


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    with Victim(tmp_path_factory.mktemp("stop") / "store") as victim:
        victim.start()
        yield victim


@pytest.mark.rest
def test_a_signal_under_load_ends_it_soon_and_keeps_what_was_acknowledged(victim: Victim) -> None:
    ledger, serials, first_us = Ledger(), itertools.count(1), time.time_ns() // 1000 - 4 * HOUR_US
    for number, asked in enumerate((signal.SIGTERM, signal.SIGINT)):
        part = Slice(first_us + number * HOUR_US, HOUR_US, serials)
        # Who is late hears that it is stopping.
        load = Load(victim, ledger, part, corrections=True, large=True, refusals=frozenset({503}))
        with sending(load, random.Random(number)):
            time.sleep(0.7)
            _wait_until_busy(load)
            ended = victim.stop(asked, within_s=3 * STOPS_WITHIN_S)
        assert ended.code == 0, victim.log()
        assert ended.seconds < STOPS_WITHIN_S, f"{asked.name}: {ended.seconds:.1f} s"
        assert "Traceback" not in victim.log()
        assert not (victim.store / SOCKET).exists()
        assert not load.problems
        victim.start()
        wrong = compare(victim, ledger, part.start_us, part.stop_us, settle=True)
        assert not wrong, report(wrong)


def _wait_until_busy(load: Load) -> None:
    wait(lambda: load.statuses[204] > 10, 30, lambda: f"it takes hardly any: {load.statuses}")


def test_a_second_server_on_the_same_store_is_refused(victim: Victim) -> None:
    def second() -> subprocess.CompletedProcess[str]:
        command = victim.command("serve", "--port", "0")
        return subprocess.run(command, env=victim.environment(), capture_output=True, text=True, timeout=120, check=False)

    refused = second()
    assert refused.returncode == 1
    assert "is being served by another process" in refused.stderr
    assert "Traceback" not in refused.stderr
    # Nor when the first cannot be asked, as while it starts: then the lock of the store decides.
    (victim.store / SOCKET).unlink()
    refused = second()
    assert refused.returncode == 1
    assert "is open in another process" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert victim.health() == (200, [])
