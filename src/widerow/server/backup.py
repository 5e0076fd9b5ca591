"""The routes of backups."""

from __future__ import annotations

from pathlib import Path

from widerow.model.errors import Forbidden, Rejected
from widerow.server.admin import text_in
from widerow.server.call import Answer, Call, json_answer


def state(call: Call) -> Answer:
    return json_answer(call.service.backups.state())


def start(call: Call) -> Answer:
    """Begin one. It writes to any folder that is named, as the server's user: only who is on the machine may."""
    if call.who.token:
        raise Forbidden("backups are started on the server's machine: `widerow backup DEST --store rocksdb:PATH`")
    to = Path(text_in(call.form(("to",)), "to"))
    if not to.is_absolute():
        raise Rejected("to: give an absolute path", code="field")
    call.service.backups.start(to)
    return json_answer(call.service.backups.state(), 202)
