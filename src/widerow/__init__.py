"""Widerow: fleet telemetry on wide-column stores."""

__version__ = "0.1.0"
