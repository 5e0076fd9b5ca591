"""msgspec prepares a type when it is first used, and two threads that do so at once crash the process.

So types are prepared where there is one thread: when a module is imported (`_X_DECODER`), or a catalog is made.
"""

from __future__ import annotations

import re
from pathlib import Path

import widerow


def test_no_function_is_the_first_to_decode_a_type() -> None:
    sources = Path(widerow.__file__).parent.rglob("*.py")
    late = re.compile(r"^\s+.*msgspec\.\w+\.decode\(.*type=", re.MULTILINE)
    assert [path.name for path in sources if late.search(path.read_text())] == []
