"""Widerow: fleet telemetry on wide-column stores.

    from widerow import Client

Rule: importing this imports nothing else. The client is fetched when somebody asks for it, for it brings Arrow and HTTP
along, and `widerow --help` needs neither.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from widerow.client import Answer, Client, NotFound, Rejected, Unavailable, WiderowError, Written

__all__ = ["Answer", "Client", "NotFound", "Rejected", "Unavailable", "WiderowError", "Written", "__version__"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("widerow.client"), name)
    raise AttributeError(f"module 'widerow' has no attribute {name!r}")
