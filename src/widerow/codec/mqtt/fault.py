"""What is wrong with bytes that a broker sent, and what it is told about that."""

from __future__ import annotations

from widerow.model.errors import WiderowError

MALFORMED = 0x81
PROTOCOL = 0x82
TOO_LARGE = 0x95
"""Reason codes of a DISCONNECT (MQTT 5, 2.4)."""


class MqttFault(WiderowError):
    """The broker broke the protocol, or refused us. `reason_code` is what MQTT calls that."""

    code = "mqtt"

    def __init__(self, message: str, reason_code: int = MALFORMED) -> None:
        super().__init__(message)
        self.reason_code = reason_code
