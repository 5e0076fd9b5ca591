"""Randomness as a function: the same question always has the same answer.

Rule 1: a draw depends on (seed, stream, device, tick) alone, never on what was drawn before, so that any slice of a fleet
can be produced in any order, by any process, with equal results.
Rule 2: the results are part of what tests and benchmarks compare; changing the arithmetic changes every simulated fleet.
"""

from __future__ import annotations

from zlib import crc32

import numpy as np

from widerow.model.arrays import Floats, Hashes, Ints

_U = np.uint64
_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def stream_of(name: str) -> int:
    """The number of a named stream. By name, not by place in a list, so that a new metric leaves the others as they were."""
    return crc32(name.encode())


def words(seed: int, stream: int, device: Ints, tick: Ints) -> Hashes:
    """64 random bits for each (device, tick); the arrays broadcast."""
    salt = ((seed * _GOLDEN) ^ (stream * 0xD1B54A32D192ED03)) & _MASK
    entity = _stir(device.astype(_U) * _U(_GOLDEN) + _U(salt))
    return _stir(entity ^ (tick.astype(_U) * _U(0x8CB92BA72F3D8DD7)))


def chance(seed: int, stream: int, device: Ints, tick: Ints) -> Floats:
    """Even in [0, 1)."""
    out: Floats = (words(seed, stream, device, tick) >> _U(11)).astype(np.float64) * 2.0**-53
    return out


def noise(seed: int, stream: int, device: Ints, tick: Ints, period: int) -> Floats:
    """A smooth wander in [-0.5, 0.5) that takes a new direction every `period` ticks."""
    knot, step = np.divmod(tick, period)
    before, after = chance(seed, stream, device, knot), chance(seed, stream, device, knot + 1)
    x = step / period
    out: Floats = before + (after - before) * (x * x * (3 - 2 * x)) - 0.5
    return out


def walk(seed: int, stream: int, device: Ints, tick: Ints) -> Floats:
    """Like a random walk that stays near home, in [-0.5, 0.5): slow wanders are wide, fast ones narrow."""
    out: Floats = (
        0.6 * noise(seed, stream, device, tick, 1440)
        + 0.3 * noise(seed, stream + 1, device, tick, 120)
        + 0.1 * noise(seed, stream + 2, device, tick, 9)
    )
    return out


def _stir(x: Hashes) -> Hashes:
    """The finaliser of SplitMix64 (Steele, Lea, Flood 2014): every bit of the input reaches every bit of the result."""
    x = (x ^ (x >> _U(30))) * _U(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> _U(27))) * _U(0x94D049BB133111EB)
    return x ^ (x >> _U(31))
