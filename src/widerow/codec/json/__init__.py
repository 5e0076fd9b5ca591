"""JSON reports: one object, an array of objects, or one object a line (NDJSON).

    {"device": "press-7", "time": "2026-11-15T08:00:00Z", "values": {"Temp": 21.5, "State": "run"}, "tags": {"site": "a"}}

`scan` is a kernel that reads whole bodies of regular reports; `slow` reads and judges the rest, one by one;
`decoder` joins the two.
"""

from widerow.codec.json.decoder import JsonDecoder, warm_up

__all__ = ["JsonDecoder", "warm_up"]
