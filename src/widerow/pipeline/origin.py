"""Where a body came from, and how it is to be read: enough to keep it as a dead letter, and to send it again."""

from __future__ import annotations

from dataclasses import dataclass

ARROW_TYPE = "application/vnd.apache.arrow.stream"
LINE_TYPE = "text/x-line-protocol"
"""Our name for line protocol, which has none of its own."""
JSON_TYPES = ("application/json", "text/json", "")
NDJSON_TYPES = ("application/x-ndjson", "application/ndjson", "application/jsonl")


@dataclass(frozen=True, slots=True)
class Origin:
    """A body as it arrived."""

    source: str
    """`http`, `mqtt:TOPIC` or `kafka:TOPIC/PARTITION/OFFSET`."""
    media_type: str
    """Without parameters, in lower case."""
    precision: str
    """Of epoch times in it."""
    encoding: str
    """As `Content-Encoding` says; empty: as it is."""
    body: bytes
    device: str = ""
    """The only device it may be of, by its token or topic; empty: any."""
    durable: bool = False
    """Whether its dead letters must be on disk before its job is done: its sender sends nothing twice."""
    version_us: int = 0
    """Of its reports, but of those that bring their own; 0: not known."""

    @property
    def is_document(self) -> bool:
        """A JSON message whose topic or key says the device, so that its reports need not; refused and kept as a whole."""
        return bool(self.device) and self.source.startswith(("mqtt:", "kafka:")) and self.media_type in JSON_TYPES
