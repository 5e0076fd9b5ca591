"""How many core-microseconds the decoder of line protocol takes, alone: no server, no store, one thread.

    python -m bench.decode [--quick] [--before CHECKOUT]

`plain` lines have a tag for the device and no other. `telegraf` lines are those of its plugins cpu, disk, diskio, mem, net
and system, of 50 hosts. `known` is with series that the decoder has seen before, `new` the first time.
With `--before`, the decoders of two checkouts take turns, round by round. Quartiles of the ratios are printed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median, quantiles

from bench.lib.figures import ROOT, Figures

START_NS = 1_700_000_000_000_000_000
CPU = "usage_user usage_system usage_idle usage_nice usage_iowait usage_irq usage_softirq usage_steal usage_guest"
DISK = "total free used used_percent inodes_total inodes_free inodes_used inodes_used_percent"
DISKIO = "reads writes read_bytes write_bytes read_time write_time io_time weighted_io_time iops_in_progress"
NET = "bytes_sent bytes_recv packets_sent packets_recv err_in err_out drop_in drop_out speed"
MEM = "total available used used_percent available_percent active buffered cached free inactive shared slab swap_free"
SYSTEM = "load1 load5 load15 n_cpus n_users n_unique_users"
TELEGRAF = (
    *((f"cpu,cpu={cpu}", CPU) for cpu in ("cpu0", "cpu1", "cpu2", "cpu3", "cpu-total")),
    *(
        (f"disk,device={d},fstype=ext4,mode=rw,path={p}", DISK)
        for d, p in (("sda1", "/"), ("sda2", "/home"), ("sdb", "/data"))
    ),
    *((f"diskio,name={name}", DISKIO) for name in ("sda", "sda1", "sda2", "sdb", "sdb1")),
    *((f"net,interface={name}", NET) for name in ("eth0", "eth1")),
    ("mem", MEM),
    ("system", SYSTEM),
)
METRICS = "temp hum press volt count state rssi load gauss lat"


@dataclass(frozen=True, slots=True)
class Lines:
    body: bytes
    lines: int
    metrics: int


def bodies() -> Mapping[str, Lines]:
    hosts = [f"host-{n:03d}" for n in range(50)]
    plain = [line(f"telemetry,device=dev-{n:06d}", METRICS.split(), n) for n in range(1000)]
    telegraf, chance = [], Random(7)  # Telegraf writes the fields of each line in an order of its own
    for n, host in enumerate(hosts):
        for head, fields in TELEGRAF:
            measurement, _, tags = head.partition(",")
            # Telegraf sorts tags by name; `host` is one of them.
            sorted_tags = ",".join(sorted([f"host={host}", *filter(None, tags.split(","))]))
            telegraf.append(line(f"{measurement},{sorted_tags}", chance.sample(names := fields.split(), len(names)), n))
    return {"plain": joined(plain), "telegraf": joined(telegraf)}


def line(head: str, fields: list[str], n: int) -> tuple[str, int]:
    values = (f"{field}={(n * 37 + k * 101) % 9973 / 7:.4f}" for k, field in enumerate(fields))
    return f"{head} {','.join(values)} {START_NS + n}\n", len(fields)


def joined(lines: list[tuple[str, int]]) -> Lines:
    return Lines("".join(text for text, _ in lines).encode(), len(lines), sum(fields for _, fields in lines))


def serve() -> None:
    """Answer each line of standard input, `KIND TIMES`: core-seconds of a first decoding, and of a later one."""
    from widerow.codec.line import LineDecoder, LineNaming, warm_up  # noqa: PLC0415 - of the checkout that is measured

    warm_up()
    every = bodies()
    for asked in sys.stdin:
        kind, times = asked.split()
        body = every[kind].body
        decoder = LineDecoder(LineNaming(device_tags=("device" if kind == "plain" else "host",)))
        began_s = time.process_time()
        refusals = decoder.decode(body, now_us=0, version_us=0).refusals
        first_s = time.process_time() - began_s
        if refusals:
            raise RuntimeError(f"a line was refused: {refusals[0]}")
        began_s = time.process_time()
        for _ in range(int(times)):
            decoder.decode(body, now_us=0, version_us=0)
        known_s = (time.process_time() - began_s) / int(times)
        print(json.dumps({"new": first_s, "known": known_s}), flush=True)


def started(checkout: Path) -> subprocess.Popen[str]:
    path = {"PYTHONPATH": os.pathsep.join((str(checkout / "src"), str(ROOT)))}
    command = [sys.executable, "-m", "bench.decode", "--serve"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **path})


def ask(process: subprocess.Popen[str], kind: str, times: int) -> dict[str, float]:
    assert process.stdin is not None
    assert process.stdout is not None
    print(kind, times, file=process.stdin, flush=True)
    answer: dict[str, float] = json.loads(process.stdout.readline())
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.decode", description="What the decoder of line protocol costs, alone.")
    parser.add_argument("--before", type=Path, help="another checkout, whose decoder takes turns with this one's")
    parser.add_argument("--rounds", type=int, default=30, help="of each decoder")
    parser.add_argument("--times", type=int, default=100, help="how often a round decodes the same lines")
    parser.add_argument("--quick", action="store_true", help="a few rounds: to see that it works")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    if options.quick:
        options.rounds, options.times = 3, 10
    figures = Figures("decode", {**vars(options), "before": str(options.before or "")})
    checkouts = {"before": options.before.resolve(), "now": ROOT} if options.before else {"now": ROOT}
    workers = {name: started(checkout) for name, checkout in checkouts.items()}
    for kind, lines in bodies().items():
        rounds = [{name: ask(one, kind, options.times) for name, one in workers.items()} for _ in range(options.rounds)]
        for state in ("known", "new"):
            took_s = {name: [each[name][state] for each in rounds] for name in workers}
            for name, every in took_s.items():
                figures.add(f"{name}_{kind}_{state}_us_per_line", 1e6 * median(every) / lines.lines, "us")
                figures.add(f"{name}_{kind}_{state}_us_per_metric", 1e6 * median(every) / lines.metrics, "us")
            if "before" in took_s:
                ratios = quantiles([b / a for a, b in zip(took_s["before"], took_s["now"], strict=True)])
                for name, ratio in zip(("q1", "median", "q3"), ratios, strict=True):
                    figures.add(f"ratio_{kind}_{state}_{name}", ratio, "x")
    for one in workers.values():
        one.communicate()
    print(f"written to {figures.save()}")


if __name__ == "__main__":
    main()
