"""Lists of devices in files: JSON, NDJSON and CSV, as forms for the API.

Rule: a file that cannot be read as what it claims to be is refused whole, with the place that is wrong; whether a device may
exist as described is for the server to say.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

from widerow.cli.failure import Failed

_TEXTS = ("display_name", "type", "location")
_RATES = ("reports_per_s", "max_reports_per_s")
_COUNTS = ("metrics_per_report",)
_SHOWN_ONLY = ("created", "revision", "hardware")
"""What an export shows and the server decides."""


def read_inventory(file: Path) -> list[dict[str, Any]]:
    """The devices of a file, as forms."""
    readers = {".json": _json, ".ndjson": _ndjson, ".jsonl": _ndjson, ".csv": _csv}
    reader = readers.get(file.suffix.lower())
    if reader is None:
        raise Failed(f"{file}: the ending decides the format: use {', '.join(readers)}", code="usage", exit_code=2)
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            forms = reader(lines.read(), file)
    except UnicodeDecodeError as error:
        raise _bad(file, f"is not UTF-8 ({error.reason} at byte {error.start})") from None
    except OSError as error:
        raise _bad(file, f"cannot be read: {error.strerror}") from None
    for place, form in enumerate(forms, 1):
        if not isinstance(form, dict) or not isinstance(form.get("name"), str):
            raise _bad(file, f"entry {place} is not an object with a name")
    return [{key: value for key, value in form.items() if key not in _SHOWN_ONLY} for form in forms]


def _json(text: str, file: Path) -> list[Any]:
    try:
        forms = json.loads(text)
    except ValueError as error:
        raise _bad(file, f"is not JSON: {error}") from None
    if not isinstance(forms, list):
        raise _bad(file, "does not hold an array of devices")
    return forms


def _ndjson(text: str, file: Path) -> list[Any]:
    forms = []
    for place, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                forms.append(json.loads(line))
            except ValueError as error:
                raise _bad(file, f"line {place} is not JSON: {error}") from None
    return forms


def _csv(text: str, file: Path) -> list[Any]:
    rows = csv.reader(text.splitlines(keepends=True), strict=True)
    try:
        header = [name.strip() for name in next(rows, [])]
        _check_header(header, file)
        return [_csv_form(header, row, file, rows.line_num) for row in rows if any(row)]
    except csv.Error as error:
        raise _bad(file, f"line {rows.line_num} is not CSV: {error}") from None


def _check_header(header: list[str], file: Path) -> None:
    known = ("name", *_TEXTS, *_RATES, *_COUNTS, *_SHOWN_ONLY)
    if "name" not in header:
        raise _bad(file, "has no column `name`")
    for name in header:
        if name not in known and not name.startswith("tag:"):
            raise _bad(file, f"has an unknown column {name!r}: use {', '.join(known[: -len(_SHOWN_ONLY)])}, tag:NAME")
    if len(set(header)) < len(header):
        raise _bad(file, "names a column twice")


def _csv_form(header: list[str], row: list[str], file: Path, line: int) -> dict[str, Any]:
    if len(row) != len(header):
        raise _bad(file, f"line {line} has {len(row)} cells, the header {len(header)}")
    cells = {name: cell for name, cell in zip(header, row, strict=True) if cell != ""}
    form: dict[str, Any] = {name: cells[name] for name in ("name", *_TEXTS) if name in cells}
    profile: dict[str, float] = {name: _rate(cells[name], file, line) for name in _RATES if name in cells}
    profile |= {name: _count(cells[name], file, line) for name in _COUNTS if name in cells}
    tags = {name[4:]: cell for name, cell in cells.items() if name.startswith("tag:")}
    return form | _unless_empty("profile", profile) | _unless_empty("tags", tags)


def _unless_empty(name: str, part: dict[str, Any]) -> dict[str, Any]:
    return {name: part} if part else {}


def _rate(text: str, file: Path, line: int) -> float:
    try:
        return float(text)
    except ValueError:
        raise _bad(file, f"line {line}: {text!r} is not a number of reports per second") from None


def _count(text: str, file: Path, line: int) -> int:
    try:
        return int(text)
    except ValueError:
        raise _bad(file, f"line {line}: {text!r} is not a whole number") from None


def _bad(file: Path, what: str) -> Failed:
    return Failed(f"{file} {what}", code="file")
