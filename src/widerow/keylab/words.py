"""The words people use for the parts of a key, and the classic notation: `sensor#reversed:13`, `md5:2#...`, `shard-NN#...`.

Rule: a word that is not known is a literal in a template, and a column of one value in a table. So a design is read as it is
most often meant, and the lab shows how it was read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_SYNONYMS: Mapping[str, str] = {
    "tenant": "tenant customer account org organisation organization project workspace",
    "device": "device sensor vehicle machine host hostname node station meter truck asset user entity thing series deviceid"
    " sensorid vehicleid machineid hostid nodeid stationid meterid assetid userid entityid seriesid id uuid",
    "metric": "metric measurement field signal channel key parameter",
    "type": "type kind model class category severity status level entitytype",
    "location": "location region country city site building zone plant hall",
    "time": "time timestamp ts eventtime eventtimestamp datetime recorded recordedat createdat measuredat epoch at",
    "bucket": "bucket day date hour week month year minute partition yyyymmdd daybucket hourbucket timebucket",
    "reversed": "reversed reverse reversetimestamp reversedtimestamp rts reversets reversetime invertedtimestamp",
    "sequence": "sequence seq counter autoincrement serial rowid increment number",
    "salt": "salt md5 hashprefix sha1 sha256 murmur",
    "shard": "shard bin",
    "random": "random rand",
    "sub": "sub subbucket",
    "hash": "hash md5all wholehash",
    "domain": "domain reversedomain reverseddomain rdomain reversehost hostreversed",
}
_ROLES = {word: role for role, words in _SYNONYMS.items() for word in words.split()}
_SPANS = ("year", "month", "day", "hour", "minute")
_ISO_SPANS = {"yyyymmdd": "day", "yyyymm": "month", "date": "day", "daybucket": "day", "hourbucket": "hour"}
_CLASSIC = re.compile(r"([#/|!+])")
_BACKWARDS = re.compile(r"\(?\s*(?:\w+\.)*\w*max\w*\s*-\s*\w+\s*\)?", re.IGNORECASE)
"""`Long.MAX_VALUE - timestamp`."""
_HASHED = re.compile(r"(?:md5|sha1|sha256|hash|murmur)\((.*)\)")
_SUMMARIES = "agg aggregate aggregates totals rollup rollups hourly daily monthly 1min 1h 1d minutely summary summaries"
AGGREGATES = frozenset(_SUMMARIES.split())
"""A word among these in a literal or a table's name: rows are summaries, few and slow, not the reports of devices."""


WEAK = frozenset(["id", "uuid", "key", "channel", "name", "at"])
"""These give way to a column whose name says more."""
_ENDS = {
    **dict.fromkeys(("time", "ts", "timestamp", "at"), "time"),
    **dict.fromkeys(("type", "kind", "class", "category"), "type"),
    **dict.fromkeys(("date", "day", "hour", "week", "month", "year", "bucket", "yyyymm", "yyyymmdd"), "bucket"),
    **dict.fromkeys(("region", "country", "city", "site"), "location"),
}
_FIXED = frozenset(["raw", "data", "v1", "v2", "log", "logs", "events", "readings", "latest", "shard", "m"])
"""Words that are meant as they stand."""


def plain(word: str) -> str:
    """`Device_ID` as it stands in the list of words."""
    return re.sub(r"[^a-z0-9]", "", word.lower())


def role_of(word: str) -> str:
    """What a word stands for; empty: it is not known."""
    name = plain(word)
    short = re.sub(r"(id|name|utc|us|ms)$", "", name)
    end = re.split(r"[^a-z0-9]+|(?<=[a-z])(?=[A-Z])", word)[-1].lower()
    return _ROLES.get(name) or _ROLES.get(short) or _ENDS.get(end, "")


def span_of(word: str) -> str:
    """`day` for day, yyyymmdd, day_bucket; a week counts as a month; empty: the word does not tell."""
    name = plain(word)
    return _ISO_SPANS.get(name) or next((span for span in _SPANS if span in name), "month" if "week" in name else "")


def is_aggregate(text: str) -> bool:
    return any(word in AGGREGATES for word in re.split(r"[^a-z0-9]+", text.lower()))


def read_as_fixed(text: str) -> list[str]:
    """Words of a key that are read as fixed text, though they may be meant as names of something."""
    words = (word.strip() for word in re.split(r"[#/|!+,:{}]", text))
    return [
        word for word in words if len(word) > 2 and word.isidentifier() and not is_aggregate(word) and word not in _FIXED
    ]


def as_template(notation: str) -> str:
    """The template that a key in classic notation means."""
    if notation.startswith("[") and notation.endswith("]"):
        notation = notation[1:-1].replace("][", "#")
    notation = re.sub(r":(?=[a-z_]{4,})(?!unpadded)", "#", notation)  # device_id:timestamp; an option is short
    notation = _BACKWARDS.sub("reversed:13", notation)
    return "".join(piece if i % 2 else _field(piece.strip()) for i, piece in enumerate(_CLASSIC.split(notation)))


def _field(token: str) -> str:
    if hashed := _HASHED.fullmatch(token.lower()):
        roles = {role_of(word) for word in re.split(r"[^a-z0-9_]+", hashed[1])}
        return "{hash}" if roles & {"time", "reversed", "sequence", "bucket"} else "{salt:32}"
    if shard := re.fullmatch(r"(?:shard|bin|bucket)[-:_]?(N{1,9})", token):
        return f"{{shard:{shard[1]}}}"
    word, _, option = token.partition(":")
    role = role_of(word)
    if not role:
        return token
    if role == "bucket":
        return f"{{bucket:{option or span_of(word) or 'hour'}}}"
    if role == "domain":
        return "{device:domain}"
    usual = {"time": "ms", "reversed": "13", "salt": "2", "shard": "NN", "random": "NN", "sub": "NN"}.get(role, "")
    if role == "salt" and plain(word) in ("md5", "sha1", "sha256", "murmur") and not option:
        return "{hash}"
    if role == "time" and option in ("10", "13", "16"):
        option = {"10": "s", "13": "ms", "16": "us"}[option]
    option = option or usual
    return f"{{{role}:{option}}}" if option else f"{{{role}}}"
