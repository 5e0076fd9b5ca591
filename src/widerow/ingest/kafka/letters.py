"""What is refused of Kafka's messages, as dead letters: on disk before the offset is committed."""

from __future__ import annotations

from collections.abc import Sequence

from widerow.ingest.kafka.consume import Letters
from widerow.ingest.kafka.message import ARROW
from widerow.ingest.kafka.receive import Filed, Incoming
from widerow.model.errors import Refusal
from widerow.model.times import whole_ms
from widerow.pipeline.dead_letters import FILED_CODES, DeadLetters
from widerow.pipeline.origin import ARROW_TYPE, Origin

_JSON_TYPE = "application/json"
_WHOLE = -1


def letters_to(dead_letters: DeadLetters) -> Letters:
    """Files refusals: one letter of a message for each code, and one alone if it is refused as a whole."""

    def file(message: Incoming, refusals: Sequence[Refusal], filed: Filed) -> None:
        origin = origin_of(message)
        for code in dict.fromkeys(refusal.code for refusal in refusals if refusal.code in FILED_CODES):
            several = [refusal for refusal in refusals if refusal.code == code]
            positions = {at for refusal in several for at in refusal.positions}
            before = filed.get((message.place, code), set())
            # More may be refused than when it was tried before: reports grow old.
            if new := (positions or {_WHOLE}) - before:
                dead_letters.file(message.tenant, origin, code, several[0].reason, sorted(new) if positions else ())
                filed[message.place, code] = before | new
            if not positions:
                return

    return file


def origin_of(message: Incoming) -> Origin:
    """Where it came from, so that it can be read again."""
    arrow = message.form == ARROW
    return Origin(
        source=message.source,
        media_type=ARROW_TYPE if arrow else _JSON_TYPE,
        precision="ms",
        encoding="",
        body=message.value,
        device="" if arrow else message.device,
        durable=True,
        version_us=whole_ms(message.stamp_us),
    )
