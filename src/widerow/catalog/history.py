"""What devices were before: the last ten states of each, and when each of them was so.

Rule 1: a state is written here before it is replaced. That it existed is true whether or not its replacement succeeds, so
nothing needs to be atomic, and writing it again is harmless.
Rule 2: shown is what is older than the current state and of the same device. One that was deleted and came back was created
at another time, and begins anew.
Rule 3: trimming may lag: a device has at most twice as many rows here as are shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from widerow.catalog.records import FIRST_REVISION, Records, Stored
from widerow.engine.port import Engine, Span
from widerow.engine.rows import Key, Row, rows_of
from widerow.model.device import Device
from widerow.model.times import Clock
from widerow.schema.tables import DEVICE_VERSIONS

KEPT = 10
"""Former states of a device that are shown, besides the current one."""


@dataclass(frozen=True, slots=True)
class State:
    """A device as it is or was."""

    device: Device
    from_us: int
    """0: not known, because a release that keeps no history made the change before."""
    until_us: int
    """0: it is so now."""


class History:
    """The former states of all devices. Safe to share between threads."""

    def __init__(self, engine: Engine, clock: Clock, records: Records[Device]) -> None:
        self._engine, self._clock, self._records = engine, clock, records

    def keep(self, tenant: str, states: Sequence[Stored[Device]]) -> None:
        """Write down what is about to be replaced."""
        now_us = self._clock.now_us()
        version_us = self._clock.version_us()
        rows: list[tuple[Key, Row]] = [
            ((tenant, state.name, state.revision), {"body": state.row["body"], "until_us": float(now_us)})
            for state in states
        ]
        self._engine.write([(DEVICE_VERSIONS, rows_of(DEVICE_VERSIONS, rows, version_us=version_us))])
        for state in states:
            oldest = state.revision - KEPT  # not shown itself: it says since when the oldest that is shown was so
            if oldest > FIRST_REVISION and state.revision % KEPT == 0:
                self._engine.delete(DEVICE_VERSIONS, [(tenant, state.name)], Span(stop=oldest), version_us=version_us)

    def of(self, tenant: str, current: Device) -> Sequence[State]:
        """The current state and the former ones, newest first."""
        former: list[Device] = []
        until_us = {current.revision: 0}
        for rows in self._engine.scan(DEVICE_VERSIONS, [(tenant, current.name)], Span(stop=current.revision)):
            for i in range(len(rows)):
                row, revision = rows.row(i), int(rows.key(DEVICE_VERSIONS, i)[-1])
                device = self._records.decoded(current.name, {"body": row["body"], "revision": float(revision)}).value
                if device.created_us == current.created_us:
                    former.append(device)
                    until_us[revision] = int(row["until_us"])

        def since_us(device: Device) -> int:
            return device.created_us if device.revision == FIRST_REVISION else until_us.get(device.revision - 1, 0)

        return [State(device, since_us(device), until_us[device.revision]) for device in (current, *former[:KEPT])]

    def forget(self, tenant: str, names: Sequence[str], version_us: int) -> None:
        """Remove what was written of these devices up to that version. Most have nothing here, so nothing is deleted."""
        keys: list[Key] = [(tenant, name) for name in names]
        found = self._engine.scan(DEVICE_VERSIONS, keys, limit=1, columns=("until_us",))
        partitions = [rows.key(DEVICE_VERSIONS, i)[:-1] for rows in found for i in range(len(rows))]
        if partitions:
            self._engine.delete(DEVICE_VERSIONS, partitions, version_us=version_us)
