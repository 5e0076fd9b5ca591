"""Does a server's memory stay flat?

    python -m bench.soak [--minutes 60] [--rate 1000] [--devices 1000] [--quick]

A server with its defaults takes what `widerow simulate` sends, in real time, and this prints its resident memory each
minute: what the process holds itself, and the files it has mapped. Judged is the second half of the run: its last quarter
against its first quarter, since a single minute has a flush or a compaction in it.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from statistics import mean

from bench.lib.figures import Figures
from bench.lib.server import Server


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.soak", description="Does a server's memory stay flat?")
    parser.add_argument("--minutes", type=int, default=60)
    parser.add_argument("--rate", type=float, default=1000, help="reports a second")
    parser.add_argument("--devices", type=int, default=1000)
    parser.add_argument("--every", type=float, default=60.0, help="seconds between two lines")
    parser.add_argument("--quick", action="store_true", help="a minute, to see that it works")
    options = parser.parse_args()
    if options.quick:
        options.minutes, options.every = 1, 5.0
    print(f"written to {run(options).save()}")


def run(options: argparse.Namespace) -> Figures:
    figures = Figures("soak", vars(options))
    with Server(settings={"WIDEROW_BACKFILL_AFTER_S": "300"}) as server:
        sender = _simulate(server, options)
        try:
            began_s, held = time.monotonic(), list[float]()
            while sender.poll() is None:
                time.sleep(options.every)
                held.append(server.rss_mib())
                passed_s = time.monotonic() - began_s
                print(f"{passed_s / 60:6.1f} min  resident {held[-1]:7.1f} MiB  {_parts(server)}", flush=True)
        finally:
            sender.terminate()
            sender.wait()
        if sender.returncode:
            raise RuntimeError(f"widerow simulate ended with {sender.returncode}")
        second = held[len(held) // 2 :]
        half = max(len(second) // 2, 1)
        figures.add("soak_resident_end_mib", mean(second[-half:]), "MiB")
        figures.add("soak_growth_second_half", 100 * (mean(second[-half:]) / mean(second[:half]) - 1), "%")
    return figures


def _simulate(server: Server, options: argparse.Namespace) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "widerow.cli.main", "simulate", "--server", server.url),
            *("--devices", str(options.devices), "--rate", str(options.rate), "--seconds", str(60 * options.minutes)),
        ],
        env={**os.environ, "WIDEROW_TOKEN": server.write_token},
    )


def _parts(server: Server) -> str:
    said = dict(re.findall(r"(Rss\w+|Threads):\s+(\d+)", Path(f"/proc/{server.pid}/status").read_text()))
    own, mapped = int(said["RssAnon"]) / 1024, int(said["RssFile"]) / 1024
    return f"own {own:7.1f}  files {mapped:6.1f}  threads {said['Threads']}  store {server.disk_bytes() / 2**20:7.1f} MiB"


if __name__ == "__main__":
    main()
