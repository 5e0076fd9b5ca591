"""How fast messages come from an MQTT broker: paho-mqtt's subscriber and ours, taking turns in one run.

    python -m bench.mqtt [--quick] [--messages 200000] [--pairs 3] [--receive-maximum 10000]

Three ways. `live`: publishers send to a mosquitto while the subscriber listens. `drain`: the messages wait in the session of
the subscriber, and nobody publishes. `wire`: no broker at all; a process sends packets that were encoded before, so that the
subscriber is the limit. Quality of service 1 everywhere. Every end is a process of its own, and all share the machine.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from dataclasses import dataclass
from statistics import median
from uuid import uuid4

from bench.lib.figures import ROOT, Figures
from bench.lib.servers import Mosquitto

SUBSCRIBERS = ("paho", "ours")


@dataclass(frozen=True)
class Run:
    """One subscriber, one way."""

    per_s: float
    subscriber_cpu: float
    """Its share of one core."""
    other_cpu: float


def main() -> None:
    print(f"written to {run(parse(None)).save()}")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.mqtt", description="Subscribers of an MQTT broker.")
    parser.add_argument("--messages", type=int, default=200_000, help="of each run")
    parser.add_argument("--pairs", type=int, default=3, help="runs of each subscriber and way; figures are medians")
    parser.add_argument("--publishers", type=int, default=2)
    parser.add_argument("--receive-maximum", type=int, default=10_000)
    parser.add_argument("--ways", default="live,drain,wire")
    parser.add_argument("--quick", action="store_true", help="few messages, once: to see that it works")
    options = parser.parse_args(arguments)
    if options.quick:
        options.messages, options.pairs = 20_000, 1
    return options


def run(options: argparse.Namespace) -> Figures:
    figures = Figures("mqtt", vars(options))
    ways = {"live": live, "drain": drain, "wire": wire}
    for way in options.ways.split(","):
        found: dict[str, list[Run]] = {name: [] for name in SUBSCRIBERS}
        for _ in range(options.pairs):
            for name in SUBSCRIBERS:
                found[name].append(ways[way](name, options))
        for name, runs in found.items():
            figures.add(f"mqtt_{way}_{name}_messages", median(r.per_s for r in runs), "messages/s")
            # This does not depend on what else the machine does, or hardly.
            figures.add(f"mqtt_{way}_{name}_cost", median(1e6 * r.subscriber_cpu / r.per_s for r in runs), "core-us/message")
            figures.add(f"mqtt_{way}_{name}_cpu", median(r.subscriber_cpu for r in runs), "cores")
            figures.add(
                f"mqtt_{way}_{name}_{'sender' if way == 'wire' else 'broker'}_cpu",
                median(r.other_cpu for r in runs),
                "cores",
            )
        ratios = [b.per_s / a.per_s for a, b in zip(found["paho"], found["ours"], strict=True)]
        figures.add(f"mqtt_{way}_ratio", median(ratios), "times")
    return figures


def live(name: str, options: argparse.Namespace) -> Run:
    with Mosquitto() as broker:
        subscriber = _subscriber(name, broker.port, broker.pid, f"bench-{uuid4().hex[:8]}", options)
        each = options.messages // options.publishers // 64 * 64 + 64
        publishers = [_start("publish", broker.port, each, 2_000) for _ in range(options.publishers)]
        try:
            return _watched(subscriber)
        finally:
            for publisher in publishers:
                publisher.kill()
                publisher.wait()


def drain(name: str, options: argparse.Namespace) -> Run:
    """The session is made first, then filled."""
    with Mosquitto() as broker:
        client_id = f"bench-{uuid4().hex[:8]}"
        first = _subscriber(name, broker.port, broker.pid, client_id, options)
        first.kill()  # the session stays
        first.wait()
        publisher = _start("publish", broker.port, options.messages // 64 * 64 + 64, 2_000)
        if publisher.wait(600):
            raise RuntimeError("the publisher failed")
        return _watched(_subscriber(name, broker.port, broker.pid, client_id, options, wait=False))


def wire(name: str, options: argparse.Namespace) -> Run:
    sender = _start("wire", options.messages // 64 * 64 + 64)
    assert sender.stdout is not None
    try:
        port = int(sender.stdout.readline())
        return _watched(_subscriber(name, port, sender.pid, "bench", options))
    finally:
        sender.kill()
        sender.wait()


def _subscriber(
    name: str, port: int, other: int, client_id: str, options: argparse.Namespace, *, wait: bool = True
) -> subprocess.Popen[str]:
    process = _start(name, port, options.messages, client_id, options.receive_maximum, other)
    assert process.stdout is not None
    if wait and process.stdout.readline().strip() != "ready":
        raise RuntimeError(f"{name} did not start")
    return process


def _watched(subscriber: subprocess.Popen[str]) -> Run:
    """Wait for what a subscriber counted."""
    assert subscriber.stdout is not None
    for line in subscriber.stdout:
        if line.strip() == "ready":
            continue
        seen, took_s, own_s, other_s = map(float, line.split())
        subscriber.wait(30)
        return Run(seen / took_s, own_s / took_s, other_s / took_s)
    raise RuntimeError("the subscriber ended without a count")


def _start(end: str, *given: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "bench.lib.mqtt_ends", end, *map(str, given)]
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment)


if __name__ == "__main__":
    main()
