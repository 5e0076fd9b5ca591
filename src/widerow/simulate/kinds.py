"""The machines of the simulated factory, the trucks of the simulated haulier, and how each of their metrics behaves.

Rule 1: a metric's value is a pure function of a `Draw`: (seed, device, tick, time). No metric remembers anything.
Rule 2: values are rounded as sensors round them, so that they compress and print as real ones do.
Rule 3: counters never fall; flags are 0 or 1; texts come from a short list.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from widerow.model.arrays import Flags, Floats, Ints
from widerow.model.device import MetricKind
from widerow.model.times import DAY, SECOND
from widerow.simulate.chance import chance, stream_of, walk
from widerow.simulate.journey import STATUSES, Journey

STATES = ("running", "idle", "setup", "fault")
_STATE_BOUNDS = np.cumsum([0.78, 0.13, 0.07])
_STATE_DWELL = 90
"""Ticks a machine stays in a state at least: 15 minutes at a report each 10 s."""
_STATE_REPEAT = 30
"""A state is reported when it changes, and every so many ticks for those who missed it."""


@dataclass(frozen=True, eq=False)
class Draw:
    """Which reports are asked for: equally long columns. What several metrics share is worked out once."""

    seed: int
    device: Ints
    tick: Ints
    time_us: Ints
    interval_us: int
    pace_us: int
    """The time of a step."""

    def chance(self, stream: int, tick: Ints | None = None) -> Floats:
        return chance(self.seed, stream, self.device, self.tick if tick is None else tick)

    def trait(self, stream: int) -> Floats:
        """What makes one device differ from the next, in [0, 1): the same at every tick."""
        return chance(self.seed, stream, self.device, np.zeros(1, np.int64))

    @cached_property
    def step(self) -> Ints:
        """How far values have wandered: as many steps as ticks, unless the fleet has a pace of its own."""
        return self._step_at(self.tick)

    @cached_property
    def day(self) -> Floats:
        """The daily curve in [-1, 1]: lowest at 3 in the morning UTC, highest at 3 in the afternoon."""
        out: Floats = -np.cos((self.time_us % DAY) / DAY * (2 * np.pi) - np.pi / 4)
        return out

    @cached_property
    def state(self) -> Ints:
        """Codes into STATES."""
        return self._state_at(self.step)

    @cached_property
    def state_told(self) -> Flags:
        """Whether the report mentions the state."""
        before = self._state_at(self._step_at(self.tick - 1))
        out: Flags = (self.state != before) | ((self.tick + self.device) % _STATE_REPEAT == 0)
        return out

    @cached_property
    def journey(self) -> Journey:
        """What trucks do then."""
        return Journey(self.seed, self.device, self.time_us)

    @cached_property
    def status_told(self) -> Flags:
        """Whether the report of a truck mentions its status. Times wobble: rather told twice than not at all."""
        before = Journey(self.seed, self.device, self.time_us - self.interval_us - self.interval_us // 50)
        out: Flags = (self.journey.status != before.status) | ((self.tick + self.device) % _STATE_REPEAT == 0)
        return out

    def _step_at(self, tick: Ints) -> Ints:
        return tick if self.pace_us == self.interval_us else tick * self.interval_us // self.pace_us

    def _state_at(self, tick: Ints) -> Ints:
        # Shifted by device, so that a fleet does not change state in step; far enough to keep the sum positive.
        slot = (tick + 1 + self.device % _STATE_DWELL) // _STATE_DWELL
        return np.searchsorted(_STATE_BOUNDS, self.chance(stream_of("state"), slot), side="right")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """base + what the device, the hour, a slow wander and the sensor's noise add, within [low, high]."""

    name: str
    unit: str
    base: float
    spread: float = 0.0
    """How far devices lie apart."""
    daily: float = 0.0
    walk: float = 0.0
    jitter: float = 0.0
    decimals: int = 2
    low: float = -1e9
    high: float = 1e9
    at_rest: float | None = None
    """What it shows while the machine is not running; None: the same."""
    kind = MetricKind.GAUGE

    def values(self, stream: int, draw: Draw) -> Floats:
        value = np.full(len(draw.tick), self.base, np.float64)
        if self.spread:
            value += self.spread * (draw.trait(stream) - 0.5)
        if self.daily:
            value += self.daily * draw.day
        if self.walk:
            value += self.walk * walk(draw.seed, stream + 1, draw.device, draw.step)
        if self.jitter:
            value += self.jitter * (draw.chance(stream + 9) - 0.5)
        if self.at_rest is not None:
            value[draw.state != 0] = self.at_rest
        # + 0.0 turns -0.0 into 0.0: no sensor sends a negative zero, and formats disagree on how to write one.
        np.round(np.clip(value, self.low, self.high, out=value), self.decimals, out=value)
        value += 0.0
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """Grows by about `per_s` a second, unevenly, and never falls."""

    name: str
    unit: str
    per_s: float
    decimals: int = 0
    kind = MetricKind.COUNTER

    def values(self, stream: int, draw: Draw) -> Floats:
        pace = self.per_s * (0.5 + draw.trait(stream)) * (draw.interval_us / SECOND)
        start = np.floor(draw.trait(stream + 1) * 1e6)
        # Each tick lies somewhere within its own step, so the next can never be below it.
        value = start + pace * (draw.tick + draw.chance(stream + 2))
        scale = 10.0**self.decimals
        out: Floats = np.floor(value * scale) / scale
        return out


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """1 for a while now and then, else 0."""

    name: str
    share: float
    dwell: int = 12
    unit: str = ""
    kind = MetricKind.GAUGE

    def values(self, stream: int, draw: Draw) -> Floats:
        slot = (draw.step + draw.device % self.dwell) // self.dwell
        return (draw.chance(stream, slot) < self.share).astype(np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Travel:
    """What a truck's journey says of itself, under the same name."""

    name: str
    unit: str
    decimals: int
    kind = MetricKind.GAUGE

    def values(self, _: int, draw: Draw) -> Floats:
        out: Floats = np.round(getattr(draw.journey, self.name), self.decimals) + 0.0
        return out


Numeric = Gauge | Counter | Flag | Travel


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A text that is reported when it changes, and now and then."""

    name: str
    texts: tuple[str, ...]
    code: Callable[[Draw], Ints]
    """Codes into the texts."""
    told: Callable[[Draw], Flags]


STATE = Condition(name="state", texts=STATES, code=lambda draw: draw.state, told=lambda draw: draw.state_told)
STATUS = Condition(name="status", texts=STATUSES, code=lambda draw: draw.journey.status, told=lambda draw: draw.status_told)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitting:
    """Something that a device carries for 4,320 ticks, 12 hours at a report each 10 s. A tag of its reports names it."""

    tag: str
    texts: tuple[str, ...]
    ticks = 4320

    def code(self, draw: Draw) -> Ints:
        """Codes into the texts."""
        return (draw.chance(stream_of(self.tag), draw.step // self.ticks) * len(self.texts)).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A type of machine or vehicle: what it reports and what it is called on the floor."""

    name: str
    german: str
    metrics: tuple[Numeric, ...]
    condition: Condition | None = STATE
    fitting: Fitting | None = None


def _temperature(name: str, base: float, walk: float, at_rest: float | None = None) -> Gauge:
    return Gauge(
        name=name, unit="°C", base=base, spread=walk / 2, daily=1.5, walk=walk, jitter=0.2, decimals=1, at_rest=at_rest
    )


PRESS = Kind(
    name="press",
    german="Presse",
    fitting=Fitting(tag="tool", texts=tuple(f"T-{n:02d}" for n in range(24))),
    metrics=(
        Gauge(name="force", unit="kN", base=850, spread=300, walk=60, jitter=20, decimals=1, low=0, at_rest=0),
        Gauge(name="stroke_rate", unit="1/min", base=24, spread=8, walk=3, jitter=1, low=0, at_rest=0),
        _temperature("oil_temperature", 52, 10),
        Gauge(name="oil_pressure", unit="bar", base=180, spread=20, walk=15, jitter=3, low=0, at_rest=12),
        Gauge(name="vibration", unit="mm/s", base=2.8, spread=1, walk=1, jitter=0.6, decimals=3, low=0, at_rest=0.05),
        Gauge(name="motor_current", unit="A", base=64, spread=12, walk=9, jitter=4, low=0, at_rest=1.2),
        Gauge(name="power", unit="kW", base=37, spread=9, walk=6, jitter=2, decimals=3, low=0, at_rest=0.8),
        Counter(name="strokes", unit="1", per_s=0.4),
        Counter(name="rejects", unit="1", per_s=0.004),
        Flag(name="guard_open", share=0.03),
    ),
)
OVEN = Kind(
    name="oven",
    german="Ofen",
    metrics=(
        _temperature("zone1", 182, 12, at_rest=65),
        _temperature("zone2", 215, 12, at_rest=70),
        _temperature("zone3", 198, 12, at_rest=62),
        Gauge(name="setpoint", unit="°C", base=200, spread=40, decimals=0),
        Gauge(name="humidity", unit="%", base=18, walk=10, jitter=0.5, decimals=1, low=0, high=100),
        Gauge(name="gas_flow", unit="m3/h", base=11.5, spread=3, walk=4, jitter=0.3, decimals=3, low=0, at_rest=0.4),
        Gauge(name="fan_speed", unit="1/min", base=1450, spread=60, walk=20, jitter=6, decimals=0, low=0, at_rest=300),
        Counter(name="energy", unit="kWh", per_s=0.02, decimals=2),
        Counter(name="Batch Qty", unit="1", per_s=0.002),
        Flag(name="door_open", share=0.06, dwell=6),
    ),
)
CONVEYOR = Kind(
    name="conveyor",
    german="Förderband",
    metrics=(
        Gauge(name="speed", unit="m/s", base=1.2, spread=0.4, walk=0.1, jitter=0.02, decimals=3, low=0, at_rest=0),
        Gauge(name="belt_tension", unit="N", base=3100, spread=400, walk=300, jitter=30, decimals=0, low=0),
        Gauge(name="motor_current", unit="A", base=8.5, spread=2, walk=2, jitter=0.6, low=0, at_rest=0.3),
        _temperature("motor_temperature", 48, 14),
        Gauge(name="load", unit="kg", base=140, walk=120, jitter=30, decimals=1, low=0, at_rest=0),
        Gauge(name="slip", unit="%", base=0.8, walk=1, jitter=0.4, low=0, at_rest=0),
        Counter(name="items", unit="1", per_s=0.9),
        Counter(name="distance", unit="m", per_s=1.1, decimals=1),
        Flag(name="jam", share=0.008, dwell=18),
        Flag(name="light_barrier", share=0.5, dwell=1),
    ),
)
PUMP = Kind(
    name="pump",
    german="Pumpe",
    metrics=(
        Gauge(name="flow", unit="l/min", base=420, spread=120, walk=80, jitter=12, decimals=1, low=0, at_rest=0),
        Gauge(name="pressure_in", unit="bar", base=1.8, spread=0.4, walk=0.5, jitter=0.06, decimals=3, low=0),
        Gauge(name="pressure_out", unit="bar", base=6.4, spread=1, walk=1.1, jitter=0.1, decimals=3, low=0, at_rest=1.8),
        Gauge(name="speed", unit="1/min", base=2900, spread=40, walk=30, jitter=8, decimals=0, low=0, at_rest=0),
        _temperature("bearing_temperature", 58, 16),
        Gauge(name="vibration", unit="mm/s", base=1.9, spread=0.8, walk=0.9, jitter=0.4, decimals=3, low=0, at_rest=0.02),
        Gauge(name="power", unit="kW", base=7.2, spread=1.5, walk=1.2, jitter=0.3, decimals=3, low=0, at_rest=0.05),
        Counter(name="volume", unit="m3", per_s=0.007, decimals=3),
        Counter(name="starts", unit="1", per_s=0.0005),
        Flag(name="seal_leak", share=0.004, dwell=60),
    ),
)
CLIMATE = Kind(
    name="climate",
    german="Klima",
    condition=None,
    metrics=(
        Gauge(name="temperature", unit="°C", base=21.5, spread=4, daily=2.5, walk=2, jitter=0.1),
        Gauge(name="humidity", unit="%", base=45, spread=10, daily=-6, walk=14, jitter=0.4, decimals=1, low=0, high=100),
        Gauge(name="pressure", unit="hPa", base=1013, walk=24, jitter=0.1),
        Gauge(name="co2", unit="ppm", base=640, spread=100, daily=160, walk=180, jitter=12, decimals=0, low=400),
        Gauge(name="pm25", unit="ug/m3", base=9, daily=3, walk=10, jitter=1.5, decimals=1, low=0),
        Gauge(name="light", unit="lx", base=310, spread=100, daily=290, walk=60, jitter=10, decimals=0, low=0),
        Gauge(name="noise", unit="dB", base=62, spread=8, daily=9, walk=6, jitter=4, decimals=1, low=20),
        Gauge(name="battery", unit="V", base=3.2, spread=0.6, walk=0.1, decimals=3, low=2.4, high=3.65),
        Gauge(name="rssi", unit="dBm", base=-67, spread=24, walk=8, jitter=5, decimals=0, high=-20),
        Gauge(name="mean_field", unit="mT", base=0.05, walk=0.02, jitter=0.01, decimals=17),
    ),
)
METER = Kind(
    name="power_meter",
    german="Zähler",
    condition=None,
    metrics=(
        *(Gauge(name=f"voltage_l{i}", unit="V", base=230, daily=-2, walk=7, jitter=0.8) for i in (1, 2, 3)),
        *(
            Gauge(name=f"current_l{i}", unit="A", base=80, spread=60, daily=35, walk=30, jitter=4, decimals=3, low=0)
            for i in (1, 2, 3)
        ),
        Gauge(name="frequency", unit="Hz", base=50, walk=0.08, jitter=0.02, decimals=3),
        Gauge(name="power_factor", unit="1", base=0.93, walk=0.06, jitter=0.01, decimals=3, low=0, high=1),
        Gauge(name="power", unit="kW", base=52, spread=30, daily=24, walk=16, jitter=2, decimals=3, low=0),
        Counter(name="energy", unit="kWh", per_s=0.015, decimals=3),
    ),
)

TRUCK = Kind(
    name="truck",
    german="Laster",
    condition=STATUS,
    fitting=Fitting(tag="trailer", texts=tuple(f"trailer-{n}" for n in range(1, 13))),
    metrics=(
        Travel(name="latitude", unit="°", decimals=5),
        Travel(name="longitude", unit="°", decimals=5),
        Travel(name="elevation", unit="m", decimals=0),
        Travel(name="velocity", unit="km/h", decimals=1),
        Travel(name="heading", unit="°", decimals=0),
        Travel(name="grade", unit="%", decimals=1),
        Travel(name="fuel_consumption", unit="l/h", decimals=1),
        Travel(name="fuel_state", unit="1", decimals=3),
        Travel(name="current_load", unit="kg", decimals=-1),
    ),
)

FLEETS = {
    "factory": tuple(kind.name for kind in (PRESS, OVEN, CONVEYOR, PUMP, CLIMATE, METER)),
    "trucks": (TRUCK.name,),
}
"""Kinds that are found together, by what one would call them all."""
KINDS = {kind.name: kind for kind in (PRESS, OVEN, CONVEYOR, PUMP, CLIMATE, METER, TRUCK)}
"""Every kind there is, by name."""
