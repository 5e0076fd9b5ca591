"""Widerow from Python: write reports, ask questions, get Arrow and Polars back. `widerow.Client` is this package's."""

from widerow.client.answers import Answer, Refused, Written
from widerow.client.client import Client, Match
from widerow.model.errors import NotFound, Rejected, Unavailable, WiderowError

__all__ = ["Answer", "Client", "Match", "NotFound", "Refused", "Rejected", "Unavailable", "WiderowError", "Written"]
