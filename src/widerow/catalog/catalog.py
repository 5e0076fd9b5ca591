"""The catalogues of a store, made together."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from widerow.catalog.attributes import Attributes
from widerow.catalog.devices import Devices
from widerow.catalog.directory import Directories
from widerow.catalog.metrics import Metrics
from widerow.catalog.online import Online
from widerow.catalog.series import Series
from widerow.catalog.tenants import Tenants
from widerow.catalog.tokens import Tokens
from widerow.engine.port import Engine
from widerow.model.times import MINUTE, SECOND, Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogSettings:
    refresh_us: int = 10 * SECOND
    """How old what a process knows of a tenant may be."""
    token_refresh_us: int = 5 * SECOND
    """How long another process may still accept a token that was revoked."""
    max_future_us: int = 5 * MINUTE
    """How far ahead of the clock an event time may lie; must be what admission allows."""
    reload_devices_us: int | None = None
    """How often the devices of a tenant are read again; None where no other process changes them."""
    most_metrics: int = 10_000
    """Metrics catalogued per tenant."""


class Catalog:
    """Tenants, devices, metrics and tokens of a store whose tables exist (`schema.tables.TABLES` are applied)."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        settings: CatalogSettings | None = None,
        *,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        s = settings or CatalogSettings()
        self.tenants = Tenants(engine, clock, refresh_us=s.refresh_us, max_future_us=s.max_future_us)
        self.devices = Devices(engine, clock, refresh_us=s.refresh_us, reload_us=s.reload_devices_us)
        reload_s = None if s.reload_devices_us is None else s.reload_devices_us / SECOND
        self.directories = Directories(self.devices.described, self.devices.version, reload_s=reload_s)
        self.attributes = Attributes(engine, clock)
        self.online = Online(engine)
        self.metrics = Metrics(engine, clock, most=s.most_metrics)
        self.series = Series(engine, clock, reload_us=s.reload_devices_us)
        self.tokens = Tokens(engine, clock, random_bytes=random_bytes, refresh_us=s.token_refresh_us)

    def forget(self) -> None:
        """Another process has written to the store: read devices and metrics again. The rest is read often enough."""
        self.devices.forget()
        self.metrics.forget()
        self.series.forget_all()
