"""Which names may exist.

Tenants are slugs. Devices, metrics and tags are what industry has: printable UTF-8 of up to 256 bytes, spaces, slashes,
`#` and umlauts included. A metric with labels may have 1,024 bytes, labels included. Control characters are refused, so no
name can break a line, a key or a terminal.
"""

import re
from collections.abc import Sequence

from widerow.model.errors import Rejected
from widerow.model.labels import parted

MAX_NAME_BYTES = 256
MAX_LABELLED_BYTES = 1024
"""A metric's name with its labels. The name alone may have `MAX_NAME_BYTES`."""
MAX_TEXT_BYTES = 32 * 1024

_SLUG = re.compile(r"[a-z0-9-]{1,64}")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""C0, DEL, C1 and lone surrogates. (Zero-width and bidirectional marks are printable text in some scripts.)"""
_BREAKS = dict.fromkeys(map(ord, "\n\t"))


def check_tenant(name: str) -> str:
    if not _SLUG.fullmatch(name):
        raise Rejected(f"tenant {name[:80]!r}: use 1 to 64 of a-z, 0-9 and -", code="name")
    return name


def name_fault(name: str) -> str | None:
    """What is wrong with a device's or tag's name, or with a metric's name without labels; or None."""
    if not name:
        return "is empty"
    if len(name.encode(errors="surrogatepass")) > MAX_NAME_BYTES:
        return f"is longer than {MAX_NAME_BYTES} bytes"
    if _CONTROL.search(name):
        return "holds a control character"
    return None


def metric_fault(name: str) -> str | None:
    """What is wrong with a metric's name, or None."""
    plain, labels = parted(name)
    fault = name_fault(plain)
    if fault or not labels:
        return fault
    if len(name.encode(errors="surrogatepass")) > MAX_LABELLED_BYTES:
        return f"is longer than {MAX_LABELLED_BYTES} bytes with its labels"
    return "holds a control character in a label" if _CONTROL.search(name) else None


def tags_fault(tags: Sequence[str]) -> str | None:
    """What is wrong with a setting that lists tags, or None."""
    for place, tag in enumerate(tags):
        fault = name_fault(tag) or ("is listed twice" if tag in tags[:place] else None)
        if fault:
            return f"the tag {tag[:80]!r} {fault}"
    return None


def text_fault(text: str, max_bytes: int) -> str | None:
    """What is wrong with a text that people wrote (a description, a tag's value), or None. Line breaks and tabs are fine."""
    if len(text.encode(errors="surrogatepass")) > max_bytes:
        return f"is longer than {max_bytes} bytes"
    if _CONTROL.search(text.translate(_BREAKS)):
        return "holds a control character"
    return None


def check_name(what: str, name: str) -> str:
    fault = name_fault(name)
    if fault:
        raise Rejected(f"{what} {name[:80]!r} {fault}", code="name")
    return name


def check_metric(name: str) -> str:
    fault = metric_fault(name)
    if fault:
        raise Rejected(f"metric {name[:80]!r} {fault}", code="name")
    return name
