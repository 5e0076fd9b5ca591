"""Request bodies that are rendered once and sent many times, only their times written anew.

A load generator on the same cores must cost little. So the reports of a small fleet are rendered for some cycles; request i
sends the next `lines` of them in an endless ring, and a kernel writes into the body the times they have by now.
Report r is of device r % devices, in cycle r // devices; each cycle is 10 s of event time, or what the load says.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from widerow.model.arrays import Bytes, Floats, Ints
from widerow.model.kernel import kernel
from widerow.model.times import SECOND

METRICS = ("temp", "hum", "press", "volt", "count", "state", "rssi", "load", "gauss", "lat")
INTERVAL_US = 10 * SECOND
_TIME_DIGITS = 16
"""A time in microseconds, from 2001 to 2286."""
_NO_TIME = "1" * _TIME_DIGITS
"""What stands where the time will be."""
_BLOCK_REPORTS = 5000
_BUDGET_REPORTS = 600_000
"""About 100 MB of line protocol: enough cycles that values do not repeat within a block, small enough for any machine."""


@dataclass(frozen=True, slots=True)
class Load:
    """Which reports are sent: `devices` from `first` on, from `start_us` on, `lines` a request."""

    devices: int
    lines: int
    start_us: int
    first: int = 0
    interval_us: int = INTERVAL_US
    """Between two reports of a device."""
    measurement: str = "telemetry"
    """What lines begin with."""

    def names(self) -> list[str]:
        return [f"dev-{i:06d}" for i in range(self.first, self.first + self.devices)]

    def cycles(self) -> int:
        """How many cycles are rendered: a ring of whole requests."""
        whole = self.lines // math.gcd(self.devices, self.lines)
        return whole * max(1, round(_BUDGET_REPORTS / (self.devices * whole)))

    def requests(self) -> int:
        return self.cycles() * self.devices // self.lines

    def last_us(self, request: int) -> int:
        """The latest time of a request's reports."""
        return self.start_us + (((request + 1) * self.lines - 1) // self.devices + 1) * self.interval_us

    def of_first_device(self, request: int) -> int:
        """How many of a request's reports are of the first device: the multiples of `devices` in its range."""
        start, stop = request * self.lines, (request + 1) * self.lines
        return -(-stop // self.devices) - -(-start // self.devices)


@dataclass(frozen=True, slots=True)
class Body:
    """One request's bytes, and where in them the times are."""

    data: Bytes
    stamp: Callable[[Ints], None]
    """Write the times of its reports, in microseconds, into the bytes."""


def times_us(load: Load, request: int) -> Ints:
    """The times of a request's reports. A device keeps its place within the cycle."""
    out = np.empty(load.lines, np.int64)
    _times(load.start_us, load.devices, request * load.lines, load.interval_us, out)
    return out


def render(load: Load, form: str) -> list[Body]:
    """The ring of bodies. `form` is line, json or arrow."""
    values = _values(load.cycles(), load.devices)
    names = np.array(load.names())
    forms: dict[str, Callable[[int, Any, Floats], list[Body]]] = {
        "line": partial(_line, load.measurement),
        "json": _json,
        "arrow": _arrow,
    }
    make = forms[form]
    # Big blocks cost the least to render, and are cut into bodies afterwards.
    block = load.lines * max(1, _BLOCK_REPORTS // load.lines)
    total = load.cycles() * load.devices
    bodies: list[Body] = []
    for first in range(0, total, block):
        report = np.arange(first, min(first + block, total))
        chosen = values[report // load.devices, report % load.devices]
        bodies += make(load.lines, names[report % load.devices], chosen)
    return bodies


def _values(cycles: int, devices: int) -> Floats:
    """Values of mixed precision that move as sensors do, by (cycle, device, metric)."""
    rng = np.random.default_rng(20)

    def walk(base: float, spread: float, step: float, decimals: int) -> Floats:
        steps = rng.normal(0, step, (cycles, devices))
        steps[0] = rng.normal(base, spread, devices)
        np.cumsum(steps, axis=0, out=steps)
        # + 0.0 turns -0.0 into 0.0: nobody sends a negative zero.
        return np.add(np.round(steps, decimals, out=steps), 0.0, out=steps)

    count = np.cumsum(rng.integers(0, 3, (cycles, devices)), axis=0) + rng.integers(0, 1000, devices)
    columns = {
        "temp": walk(22, 4, 0.1, 1),
        "hum": walk(45, 8, 0.2, 1),
        "press": walk(1013, 6, 0.05, 2),
        "volt": walk(3.6, 0.1, 0.001, 3),
        "count": count.astype(np.float64),
        "state": (rng.random((cycles, devices)) < 0.1).astype(np.float64),
        "rssi": walk(-60, 8, 0.8, 0),
        "load": np.round(rng.random((cycles, devices)) * 100, 2),
        "gauss": rng.normal(0, 1, (cycles, devices)),
        "lat": walk(48.85, 0.01, 1e-5, 5),
    }
    return np.stack([columns[name] for name in METRICS], axis=2)


def _line(measurement: str, lines: int, names: Any, values: Floats) -> list[Body]:
    parts: list[Any] = [f"{measurement},device=", pa.array(names)]
    for m, metric in enumerate(METRICS):
        parts += [(" " if m == 0 else ",") + metric + "=", _text(values[:, m])]
    return _cut(lines, [*parts, f" {_NO_TIME}000\n"], time_at=-_TIME_DIGITS - 4)


def _json(lines: int, names: Any, values: Floats) -> list[Body]:
    start = '{"device":"'
    middle = '","time":'
    parts: list[Any] = [start, pa.array(names), f'{middle}{_NO_TIME},"values":{{']
    for m, metric in enumerate(METRICS):
        parts += [("" if m == 0 else ",") + f'"{metric}":', _text(values[:, m])]
    # NDJSON rather than an array: the same objects, and every line can be cut and stamped alike.
    return _cut(lines, [*parts, "}}\n"], time_at=len(start) + len(str(names[0])) + len(middle))


def _cut(lines: int, parts: list[Any], time_at: int) -> list[Body]:
    """Bodies of text, the time at a fixed distance from the start of each line, or from the end of it if negative."""
    text = pc.binary_join_element_wise(*parts, "")
    offsets = np.frombuffer(text.buffers()[1], np.int32)[: len(text) + 1].astype(np.int64)
    whole = np.frombuffer(text.buffers()[2], np.uint8)[: offsets[-1]].copy()
    at = offsets[:-1] + time_at if time_at >= 0 else offsets[1:] + time_at
    bodies = []
    for first in range(0, len(text), lines):
        start, stop = offsets[first], offsets[first + lines]
        data, places = whole[start:stop], at[first : first + lines] - start
        bodies.append(Body(data, partial(_stamp, data, places)))
    return bodies


def _arrow(lines: int, names: Any, values: Floats) -> list[Body]:
    parts = range(0, len(names), lines)
    return [_arrow_body(names[first : first + lines], values[first : first + lines]) for first in parts]


def _arrow_body(names: Any, values: Floats) -> Body:
    # An IPC stream holds a column as it is in memory, so the times can be found by what they are.
    times = np.arange(len(names)) + int(_NO_TIME)
    columns = {"device": pa.array(names).dictionary_encode(), "time": pa.array(times, pa.timestamp("us", tz="UTC"))}
    columns |= {metric: pa.array(np.ascontiguousarray(values[:, m])) for m, metric in enumerate(METRICS)}
    batch = pa.RecordBatch.from_pydict(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    raw = bytes(sink.getvalue())
    at = raw.find(times.tobytes())
    if at < 0:
        raise RuntimeError("the Arrow stream does not hold its times in one piece")
    data = np.frombuffer(raw, np.uint8).copy()
    where = data[at : at + times.nbytes]

    def stamp(new: Ints) -> None:
        where[:] = new.view(np.uint8)

    return Body(data, stamp)


def _text(column: Floats) -> Any:
    """Floats with all their digits, and with a point even if they are whole, as most agents write them."""
    text = pc.cast(pa.array(np.ascontiguousarray(column)), pa.utf8())
    whole = pc.invert(pc.match_substring_regex(text, "[.e]"))
    return pc.if_else(whole, pc.binary_join_element_wise(text, ".0", ""), text)


@kernel
def _times(start_us: int, devices: int, first: int, interval_us: int, out: Ints) -> None:
    for k in range(len(out)):
        report = first + k
        device = report % devices
        # Whole milliseconds, as devices stamp them.
        phase_us = device * interval_us // devices // 1000 * 1000
        out[k] = start_us + report // devices * interval_us + phase_us


@kernel
def _stamp(data: Bytes, at: Ints, times: Ints) -> None:
    for k in range(len(at)):
        rest = times[k]
        for digit in range(15, -1, -1):
            data[at[k] + digit] = 48 + rest % 10
            rest //= 10
