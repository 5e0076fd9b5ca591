"""Where a truck is and what it does, at any instant.

A working day: load (every few days refuel first), drive, rest, drive, unload, rest until the next. One day leads from the
depot to some place a day's drive away, the next day back; on Sundays trucks rest where they are.
Rule 1: pure. Everything follows from (seed, truck, time): no journey remembers what it said before, so any report can be
made alone, at any pace.
Rule 2: it adds up. Speed is how fast the position changes, grade how fast the elevation does, and the tank loses what the
engine burns: each pair is a function and its derivative, so nothing is summed up over time and nothing jumps.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from widerow.model.arrays import Flags, Floats, Ints
from widerow.model.times import DAY, HOUR
from widerow.simulate.chance import chance, stream_of

STATUSES = ("driving", "resting", "loading", "unloading", "refuelling")
_DRIVING, _RESTING, _LOADING, _UNLOADING, _REFUELLING = range(len(STATUSES))


class Model(NamedTuple):
    name: str
    load_kg: int
    fuel_l: int
    nominal: int
    """Litres per 100 km."""


MODELS = (
    Model("Brenner 7", 2900, 200, 19),
    Model("Brenner 12", 6200, 300, 24),
    Model("Atlas 18", 9800, 500, 28),
    Model("Atlas 26 L", 15500, 700, 31),
    Model("Kontor 40", 24500, 1000, 34),
)


class Depot(NamedTuple):
    name: str
    latitude: float
    longitude: float
    elevation: int


DEPOTS = (
    Depot("Kassel", 51.3127, 9.4797, 163),
    Depot("Erfurt", 50.9848, 11.0299, 195),
    Depot("Nürnberg", 49.4521, 11.0767, 309),
    Depot("Pilsen", 49.7384, 13.3736, 310),
    Depot("Ulm", 48.4011, 9.9876, 478),
)

# Hours of a working day, from when the truck's day begins.
_FILLED, _OFF, _BREAK, _ON, _THERE, _EMPTY, _NIGHT = 1 / 6, 0.75, 5.0, 5.75, 9.5, 10.25, 24.0
_FIRST_HOURS, _SECOND_HOURS = _BREAK - _OFF, _THERE - _ON
_DRIVEN_HOURS = _FIRST_HOURS + _SECOND_HOURS
_MEAN_KMH, _MEAN_SPREAD_KMH = 48.0, 16.0
_MOST_KM = (_MEAN_KMH + _MEAN_SPREAD_KMH) * _DRIVEN_HOURS

_RAMP = 0.02
"""The share of a drive that it takes to get going, and to stop."""
_SURGES = ((3, 0.08), (11, 0.06), (40, 0.05))
"""Faster and slower: waves in a drive, and their share of the speed. None of them ever turns it around."""
_HILLS_KM = ((19.0, 0.120), (4.7, 0.040), (0.9, 0.006))
"""Lengths of hills and half their heights. Together no steeper than 2.2%, times at most 1.2."""
_BENDS_KM = ((23.0, 4.0), (4.0, 0.8))
"""Lengths of bends, and how far they lead aside."""
_CLIMB = 20.0
"""How much more an engine burns uphill: at a grade of 1% a fifth more. Less downhill, but never nothing."""
_KM_PER_DEGREE = 111.2

_REFUEL_DAYS = np.array([max(1, int(0.9 * m.fuel_l / (m.nominal / 100 * 1.25 * 1.02 * _MOST_KM))) for m in MODELS])
"""On how many days a full tank lasts, however far they lead and however heavy the load."""


def model_of(seed: int, truck: Ints) -> Ints:
    """Codes into MODELS."""
    return _pick(seed, "truck/model", truck, len(MODELS))


def depot_of(seed: int, truck: Ints) -> Ints:
    """Codes into DEPOTS."""
    return _pick(seed, "truck/depot", truck, len(DEPOTS))


@dataclass(frozen=True, eq=False)
class Journey:
    """Trucks at instants: equally long columns. Each property is worked out once, when it is asked for."""

    seed: int
    truck: Ints
    time_us: Ints

    # -- the day

    @cached_property
    def _day(self) -> tuple[Ints, Floats]:
        """The number of the working day, and its hour. On a Sunday Saturday is still not over."""
        starts_us = (3 + 6 * self._trait("start")) * HOUR
        day, in_day_us = np.divmod(self.time_us - starts_us.astype(np.int64), DAY)
        week, weekday = np.divmod(day + 3, 7)  # 1970 began on a Thursday
        hour = np.where(weekday == 6, _NIGHT, in_day_us / HOUR)
        return week * 6 + np.minimum(weekday, 5), hour

    @cached_property
    def _refuels(self) -> Flags:
        out: Flags = self._day[0] % self._refuel_days == 0
        return out

    @cached_property
    def status(self) -> Ints:
        """Codes into STATUSES."""
        hour = self._day[1]
        refuelling = self._refuels & (hour < _FILLED)
        which = [refuelling, hour < _OFF, hour < _BREAK, hour < _ON, hour < _THERE, hour < _EMPTY]
        what = [_REFUELLING, _LOADING, _DRIVING, _RESTING, _DRIVING, _UNLOADING]
        return np.select(which, what, _RESTING)

    # -- the way

    @cached_property
    def _drive(self) -> tuple[Floats, Floats]:
        """The share of the day's way that is done, and the speed as a share of the mean speed."""
        hour = self._day[1]
        first, second = (hour - _OFF) / _FIRST_HOURS, (hour - _ON) / _SECOND_HOURS
        late = hour >= _ON
        along, pace = _progress(np.clip(np.where(late, second, first), 0.0, 1.0))
        share = _FIRST_HOURS / _DRIVEN_HOURS
        return np.where(late, share + (1 - share) * along, share * along), pace

    @cached_property
    def _mean_kmh(self) -> Floats:
        return self._mean_kmh_of(self._day[0] // 2)

    @cached_property
    def _back(self) -> Flags:
        out: Flags = self._day[0] % 2 == 1
        return out

    @cached_property
    def _km(self) -> Floats:
        """How far from the depot, along the axis of the way."""
        done = self._drive[0]
        return self._mean_kmh * _DRIVEN_HOURS * np.where(self._back, 1 - done, done)

    @cached_property
    def _stretch(self) -> Floats:
        return self._stretch_of(self._day[0] // 2)

    @cached_property
    def _aside(self) -> tuple[Floats, Floats]:
        """How far beside the axis, in km, and its derivative."""
        aside, slope = np.zeros(len(self._km)), np.zeros(len(self._km))
        for length, width in _BENDS_KM:
            angle = self._km * self._stretch / length
            aside += width * np.sin(angle)
            slope += width * self._stretch / length * np.cos(angle)
        return aside, slope

    @cached_property
    def _bearing(self) -> Floats:
        """Of the axis of the trip, in radians from north."""
        return 2 * np.pi * self._chance("bearing", self._day[0] // 2)

    @cached_property
    def latitude(self) -> Floats:
        north = self._km * np.cos(self._bearing) - self._aside[0] * np.sin(self._bearing)
        return self._depot("latitude") + north / _KM_PER_DEGREE

    @cached_property
    def longitude(self) -> Floats:
        east = self._km * np.sin(self._bearing) + self._aside[0] * np.cos(self._bearing)
        latitude = self._depot("latitude")
        out: Floats = self._depot("longitude") + east / (_KM_PER_DEGREE * np.cos(np.radians(latitude)))
        return out

    @cached_property
    def heading(self) -> Floats:
        """Degrees from north, clockwise; whole ones."""
        ahead = np.degrees(self._bearing + np.arctan(self._aside[1])) + 180.0 * self._back
        out: Floats = np.round(ahead) % 360.0
        return out

    @cached_property
    def velocity(self) -> Floats:
        """In km/h."""
        return self._axial_kmh * np.hypot(1.0, self._aside[1])

    @cached_property
    def _axial_kmh(self) -> Floats:
        return self._mean_kmh * self._drive[1]

    @cached_property
    def elevation(self) -> Floats:
        """In m."""
        return self._depot("elevation") + 1000 * _climbed_km(self._km, self._stretch)

    @cached_property
    def grade(self) -> Floats:
        """Percent, uphill above zero."""
        slope = np.zeros(len(self._km))
        for length, height in _HILLS_KM:
            slope += height * self._stretch / length * np.sin(self._km * self._stretch / length)
        out: Floats = 100 * np.where(self._back, -slope, slope)
        return out

    # -- load and fuel

    @cached_property
    def current_load(self) -> Floats:
        """In kg."""
        hour = self._day[1]
        there = np.clip(np.minimum(hour / _OFF, (_EMPTY - hour) / (_EMPTY - _THERE)), 0.0, 1.0)
        out: Floats = self._model("load_kg") * self._load_share(self._day[0]) * there
        return out

    @cached_property
    def fuel_consumption(self) -> Floats:
        """In l/h."""
        return self._axial_kmh * self._litres_per_km(self._day[0]) * (1 + _CLIMB * self.grade / 100)

    @cached_property
    def fuel_state(self) -> Floats:
        """The share of the tank that is full."""
        day, hour = self._day
        since = day % self._refuel_days
        earlier, before = np.zeros(len(day)), np.zeros(len(day))
        for ago in range(1, int(_REFUEL_DAYS.max()) + 1):
            then = day - ago
            burnt = self._burnt(then, np.where(then % 2 == 1, 0.0, self._day_km(then)))
            earlier += np.where(ago <= since, burnt, 0.0)
            before += np.where(ago <= self._refuel_days, burnt, 0.0)
        missing = np.where(self._refuels, before * np.clip(1 - hour / _FILLED, 0.0, 1.0), earlier)
        return 1 - (missing + self._burnt(day, self._km)) / self._model("fuel_l")

    def _burnt(self, day: Ints, km: Floats) -> Floats:
        """Litres, from the day's start to where the truck is."""
        stretch, way_km = self._stretch_of(day // 2), self._day_km(day)
        climbed_km = _climbed_km(km, stretch)
        there = km + _CLIMB * climbed_km
        home = way_km - km + _CLIMB * (climbed_km - _climbed_km(way_km, stretch))
        return self._litres_per_km(day) * np.where(day % 2 == 1, home, there)

    def _day_km(self, day: Ints) -> Floats:
        return self._mean_kmh_of(day // 2) * _DRIVEN_HOURS

    def _mean_kmh_of(self, trip: Ints) -> Floats:
        return _MEAN_KMH + _MEAN_SPREAD_KMH * self._chance("speed", trip)

    def _stretch_of(self, trip: Ints) -> Floats:
        """What makes the hills and bends of one trip differ from the next."""
        return 0.8 + 0.4 * self._chance("hills", trip)

    def _load_share(self, day: Ints) -> Floats:
        """Full on the way out, or nearly; on the way back there is not always something to bring."""
        drawn = self._chance("load", day)
        return np.where(day % 2 == 0, 0.35 + 0.65 * drawn, np.where(drawn < 0.3, 0.0, drawn))

    def _litres_per_km(self, day: Ints) -> Floats:
        return self._model("nominal") / 100 * (0.75 + 0.5 * self._load_share(day))

    # -- the truck

    @cached_property
    def _models(self) -> Ints:
        return model_of(self.seed, self.truck)

    @cached_property
    def _depots(self) -> Ints:
        return depot_of(self.seed, self.truck)

    @cached_property
    def _refuel_days(self) -> Ints:
        return _REFUEL_DAYS[self._models]

    def _model(self, what: str) -> Floats:
        return np.array([float(getattr(m, what)) for m in MODELS])[self._models]

    def _depot(self, what: str) -> Floats:
        return np.array([float(getattr(d, what)) for d in DEPOTS])[self._depots]

    def _trait(self, what: str) -> Floats:
        return self._chance(what, np.zeros(1, np.int64))

    def _chance(self, what: str, which: Ints) -> Floats:
        return chance(self.seed, stream_of(f"truck/{what}"), self.truck, which)


def _progress(share: Floats) -> tuple[Floats, Floats]:
    """Of a drive: how far it is done at that share of its time, and the derivative, which is never below zero."""
    top = 1 / (1 - _RAMP)
    starting, stopping = share < _RAMP, share > 1 - _RAMP
    rest = 1 - share
    along = np.where(starting, top * share**2 / (2 * _RAMP), top * (share - _RAMP / 2))
    along = np.where(stopping, 1 - top * rest**2 / (2 * _RAMP), along)
    pace = top * np.clip(np.minimum(share, rest) / _RAMP, 0.0, 1.0)
    for waves, height in _SURGES:
        angle = 2 * np.pi * waves * share
        along += height * (1 - np.cos(angle)) / (2 * np.pi * waves)
        pace += height * np.sin(angle)
    return along, np.maximum(pace, 0.0)


def _climbed_km(km: Floats, stretch: Floats) -> Floats:
    """How much higher than the depot."""
    climbed = np.zeros(len(km))
    for length, height in _HILLS_KM:
        climbed += height * (1 - np.cos(km * stretch / length))
    return climbed


def _pick(seed: int, what: str, truck: Ints, n: int) -> Ints:
    return (chance(seed, stream_of(what), truck, np.zeros(1, np.int64)) * n).astype(np.int64)
