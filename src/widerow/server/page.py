"""The dashboard at `/`: one file without anything from elsewhere.

Rule: the page runs the script and the style it was shipped with and nothing else. The policy names both by their hash, so no
text that finds its way into the page can become code.
"""

from __future__ import annotations

import re
from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files

from widerow.server.call import Answer, Call


@cache
def page_html() -> bytes:
    return files("widerow.server").joinpath("page.html").read_bytes()


@cache
def policy() -> str:
    html = page_html()
    rules = [
        "default-src 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "connect-src 'self'",
        "img-src data:",
    ]
    for tag, rule in ((b"script", "script-src"), (b"style", "style-src")):
        inline = re.findall(rb"<" + tag + rb">(.*?)</" + tag + rb">", html, re.DOTALL)
        hashes = [f"'sha256-{b64encode(sha256(text).digest()).decode()}'" for text in inline]
        rules.append(f"{rule} {' '.join(hashes)}")
    return "; ".join(rules)


def page(_call: Call) -> Answer:
    return Answer(200, page_html(), "text/html; charset=utf-8", {"Content-Security-Policy": policy()})
