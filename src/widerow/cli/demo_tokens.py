"""The demo's tokens. They lie in its folder, readable by its owner alone, so that those it printed work after a restart.

Rule: a store keeps hashes of secrets, so the file has the only copy. What it names and the store does not know is made anew;
what the store has of an earlier demo and the file does not name is revoked.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from widerow.cli.api import Api
from widerow.cli.failure import Failed
from widerow.model.system import explained

FILE = "demo-tokens.json"
DESCRIPTION = "widerow demo"
TOKENS = "/v1/admin/tokens"


def demo_tokens(api: Api, folder: Path, wanted: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """The secret of each role and tenant that is wanted; the operator's tenant is empty."""
    kept = _read(folder / FILE)
    known = {t["id"]: (t["role"], t["tenant"]) for t in api.get(TOKENS)["tokens"] if t["description"] == DESCRIPTION}
    found = {who: one for who, one in kept.items() if who in wanted and known.get(one["id"]) == who}
    for token_id in known.keys() - {one["id"] for one in found.values()}:
        api.delete(f"{TOKENS}/{token_id}")
    for role, tenant in wanted:
        if (role, tenant) not in found:
            made = api.post(TOKENS, {"role": role, "tenant": tenant, "description": DESCRIPTION})
            found[role, tenant] = {"role": role, "tenant": tenant, "id": made["id"], "token": made["token"]}
    if found != kept:
        _write(folder / FILE, list(found.values()))
    return {who: one["token"] for who, one in found.items()}


def _read(path: Path) -> dict[tuple[str, str], dict[str, str]]:
    """Nothing, if it is not what we wrote."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        return {(one["role"], one["tenant"]): one for one in json.loads(path.read_text()) if one["id"] and one["token"]}
    return {}


def _write(path: Path, tokens: list[dict[str, Any]]) -> None:
    draft = path.with_name(f".{path.name}.new")
    try:
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(tokens, file, indent=1)
        draft.replace(path)
    except OSError as error:
        raise Failed(explained(error, path), code="file") from None
