"""Trucks as a haulier's books know them: plates, models, drivers.

What a truck does is in `journey`; here is what it is.
"""

from __future__ import annotations

import numpy as np

from widerow.model.arrays import Ints
from widerow.model.device import Device, Profile
from widerow.simulate.chance import chance, stream_of
from widerow.simulate.journey import DEPOTS, MODELS, depot_of, model_of

FLEETS = ("Nord", "Ost", "Süd", "West")
DRIVERS = ("Ayşe", "Bernd", "Chiara", "Dmytro", "Élise", "Farid", "Gül", "Håkon", "Ines", "Jürgen", "Katarzyna", "Leo")


def truck_name(truck: int) -> str:
    """Most are numbered; one in seven goes by its plate, with the spaces and umlauts that plates have."""
    if truck % 7 != 6:
        return f"truck-{truck:06d}"
    return f"{('KS', 'TÜ', 'EF', 'N')[truck // 7 % 4]} {'ABCDEFGH'[truck // 28 % 8]} {truck}"


def truck_record(seed: int, truck: int, name: str, profile: Profile) -> Device:
    """The truck as a catalog would know it."""
    one = np.array([truck])
    model, depot = MODELS[int(model_of(seed, one)[0])], DEPOTS[int(depot_of(seed, one)[0])]
    return Device(
        name=name,
        display_name=f"Laster {truck}",
        type="truck",
        location=f"Depot {depot.name}",
        tags={
            "name": f"truck_{truck}",
            "fleet": FLEETS[_drawn(seed, "fleet", one, len(FLEETS))],
            "driver": DRIVERS[_drawn(seed, "driver", one, len(DRIVERS))],
            "model": model.name,
            "load_capacity": str(model.load_kg),
            "fuel_capacity": str(model.fuel_l),
            "nominal_fuel_consumption": str(model.nominal),
        },
        profile=profile,
    )


def _drawn(seed: int, what: str, truck: Ints, n: int) -> int:
    return int(chance(seed, stream_of(f"truck/{what}"), truck, np.zeros(1, np.int64))[0] * n)
