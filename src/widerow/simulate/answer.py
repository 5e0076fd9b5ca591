"""What a server's answer to a write means: how many reports it kept, and when to ask again.

Unknown is failed: an answer that says that something was refused but not how much counts as all of it.
"""

from __future__ import annotations

import re

import msgspec

from widerow.simulate.wire import Response

RETRY_STATUSES = (429, 503)

_DROPPED = re.compile(rb"dropped=(\d+)")


def kept_reports(answer: Response, sent: int) -> int:
    """Of the reports sent, how many are durable now."""
    if answer.status in (200, 204):
        return sent
    if answer.status == 207:
        return sent - min(sent, _refused_in_json(answer.body, sent))
    if answer.status == 400:
        # As InfluxDB words it: partial write: ... dropped=N. Without a count nothing was kept.
        match = _DROPPED.search(answer.body)
        return sent - min(sent, int(match[1])) if match else 0
    return 0


def retry_after_s(answer: Response, longest_s: float) -> float:
    """How long to wait before the next try. A date, which our servers do not send, counts as one second."""
    try:
        wait_s = float(answer.headers.get("retry-after", "1"))
    except ValueError:
        wait_s = 1.0
    return min(max(wait_s, 0.0), longest_s)


def _refused_in_json(body: bytes, unknown: int) -> int:
    try:
        answer = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return unknown
    if not isinstance(answer, dict):
        return unknown
    refused = answer.get("refused")
    if isinstance(refused, int):
        return refused
    listed = answer.get("refusals", refused)
    return len(listed) if isinstance(listed, list) else unknown
