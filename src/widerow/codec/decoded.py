"""What a decoder gives: the reports it could read, and why it could not read the others."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from widerow.model.batch import Batch
from widerow.model.errors import INTERNAL, Refusal, Rejected, WiderowError, internal_error

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Decoded:
    """Every report of the body is in `batch` or in exactly one refusal."""

    batch: Batch
    refusals: tuple[Refusal, ...] = ()
    apart: bool = False
    """Reports of different positions were sent apart, or were looked at together before: they do not contradict each other,
    and the later one holds.
    """

    def refused(self) -> int:
        return sum(len(r) for r in self.refusals)


def or_rejected(decode: Callable[[], Decoded]) -> Decoded:
    """What a decoder gives. One that fails in a way that nobody foresaw has rejected what it was given.

    For messages that a broker gives again until they are done with: trying again would not help, and whoever sees that a
    pack of them was rejected can look for the one that did it.
    """
    try:
        return decode()
    except WiderowError:
        raise
    except Exception as error:
        log.exception("decoding failed")
        raise Rejected(internal_error(error), code=INTERNAL) from error
