"""What the process holds in memory for each tenant, as well as its stages know.

Counted is what grows with what a tenant sends, owns or asks: whoever needs much of the process should be seen by name.
Not counted is what belongs to nobody: the engine's caches and buffers, kernels, the interpreter.
"""

from __future__ import annotations

from collections.abc import Mapping

from widerow.admit.question_slots import QuestionSlots
from widerow.catalog.catalog import Catalog
from widerow.pipeline.pipeline import Pipeline
from widerow.rollup.windows import Windows
from widerow.telemetry.places import Places

IN_FLIGHT, OPEN_MINUTES, CATALOG, QUESTIONS = "in_flight", "open_minutes", "catalog", "questions"


def tenant_memory(
    pipeline: Pipeline, windows: Windows | None, catalog: Catalog, places: Places, slots: QuestionSlots
) -> dict[str, dict[str, int]]:
    """Bytes, by tenant and by what they are for."""
    out: dict[str, dict[str, int]] = {}

    def add(what: str, held: Mapping[str, int]) -> None:
        for tenant, size in held.items():
            of = out.setdefault(tenant, dict.fromkeys((IN_FLIGHT, OPEN_MINUTES, CATALOG, QUESTIONS), 0))
            of[what] += size

    add(IN_FLIGHT, pipeline.held())
    if windows is not None:
        add(OPEN_MINUTES, windows.held())
        add(CATALOG, windows.known())
    for known in (catalog.devices.held(), catalog.metrics.held(), catalog.attributes.held(), places.held()):
        add(CATALOG, known)
    add(QUESTIONS, {tenant: of.bytes for tenant, of in slots.standing().items()})
    return out
