"""Numbers as people read them. Durations are beside what reads them, in `model.times`."""

from __future__ import annotations

from decimal import Decimal

_WHOLE_FROM = 1_000


def figure(value: float) -> str:
    """Four digits, or all those before the point, and never an exponent: `50,000`, `1,234,567`, `12.35`, `0.00003`."""
    return f"{value:,.0f}" if abs(value) >= _WHOLE_FROM else f"{Decimal(f'{value:.4g}'):f}"
