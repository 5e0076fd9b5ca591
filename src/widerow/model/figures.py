"""Numbers as people read them. Durations are beside what reads them, in `model.times`."""

from __future__ import annotations

from decimal import Decimal

_WHOLE_FROM = 1_000


def figure(value: float) -> str:
    """Four digits, or all those before the point, and never an exponent: `50,000`, `1,234,567`, `12.35`, `0.00003`."""
    return f"{value:,.0f}" if abs(value) >= _WHOLE_FROM else f"{Decimal(f'{value:.4g}'):f}"


def byte_figure(value: float) -> str:
    """Bytes in powers of a thousand, as disks are sold: `8.64 MB`, `259.2 TB`."""
    for unit in ("B", "kB", "MB", "GB", "TB", "PB"):
        if abs(value) < _WHOLE_FROM or unit == "PB":
            break
        value /= _WHOLE_FROM
    return f"{figure(value)} {unit}"
