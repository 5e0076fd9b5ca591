"""The routes about dead letters."""

from __future__ import annotations

from widerow.ingest.replay import MOST_AT_ONCE
from widerow.server import letters
from widerow.server.auth import ADMINS
from widerow.server.call import Param
from widerow.server.devices import MOST_ON_A_PAGE, PAGE_SIZE
from widerow.server.parameters import AFTER, TENANT
from widerow.server.replies import json_form, tabular
from widerow.server.table import TABULAR, Body, Reply, Route

_GROUP = "Dead letters"
_LETTER_ID = Param(name="id", doc="The letter's id, as listed.", place="path")
_CODE = Param(name="code", doc="Only letters with this code.")
_SINCE = Param(name="since", doc="Only letters filed since then: RFC 3339, epoch milliseconds, or relative: `-1h`.")
_UNTIL = Param(name="until", doc="Only letters filed before then.")
_PAGE = Param(
    name="limit",
    doc="Letters on a page.",
    schema={"type": "integer", "minimum": 1, "maximum": MOST_ON_A_PAGE, "default": PAGE_SIZE},
)
_IDS = Param(name="id", doc="A letter's id; may be given several times.", repeats=True)
_ALL = Param(name="all", doc="All letters are meant.", schema={"type": "string", "enum": ["true", "false"]})

LETTERS: tuple[Route, ...] = (
    Route(
        method="GET",
        path="/v1/deadletters",
        handler=letters.list_letters,
        roles=ADMINS,
        group=_GROUP,
        summary="List dead letters, the newest first",
        doc="Refused reports with their reasons, without the bytes.",
        parameters=(_CODE, _SINCE, _UNTIL, _PAGE, AFTER, TENANT),
        replies=tabular("A page of letters.", "Letters"),
        offers=TABULAR,
    ),
    Route(
        method="GET",
        path="/v1/deadletters/{id}",
        handler=letters.get_letter,
        roles=ADMINS,
        group=_GROUP,
        summary="Show a dead letter with its bytes",
        parameters=(_LETTER_ID, TENANT),
        replies={200: Reply(doc="The letter.", forms=json_form("FullLetter"))},
        errors=(404,),
    ),
    Route(
        method="POST",
        path="/v1/deadletters/replay",
        handler=letters.replay,
        long=True,
        roles=ADMINS,
        group=_GROUP,
        summary="Send dead letters again",
        doc=f"The oldest first, up to {MOST_AT_ONCE:,} for each call: go on with `after` set to `next` until that is null. "
        "A letter is removed when its reports are stored. Reports that are refused again stay, with the new reason. Reports "
        "keep the version of their receipt: later corrections stay. Letters refused as `conflict` are left unless "
        "they are asked for by their ids or with `conflicts`.",
        parameters=(TENANT,),
        body=Body(doc="Which.", forms=json_form("LetterReplay"), example={"code": "unknown-device", "since": "-1d"}),
        replies={200: Reply(doc="The outcome for each letter.", forms=json_form("LettersReplayed"))},
        errors=(413, 415),
    ),
    Route(
        method="DELETE",
        path="/v1/deadletters",
        handler=letters.delete_letters,
        roles=ADMINS,
        group=_GROUP,
        summary="Remove dead letters",
        doc="By their ids, or those that match; `more` says that the call stopped early, and is to be repeated.",
        parameters=(_IDS, _CODE, _SINCE, _UNTIL, _ALL, TENANT),
        replies={200: Reply(doc="How many are gone.", forms=json_form("LettersDeleted"))},
        errors=(404,),
    ),
)
