"""Reports as Arrow IPC streams: wide (a column per metric), long (a row per cell), or cells (what our own messages hold).

    wide    device, time, [version_us], [tag:NAME ...], METRIC ...
    long    device, time, [version_us], [tag:NAME ...], metric, value and/or text
    cells   device, time, [version_us], cells: list<struct<name, kind, number, text>>

A stream with a column `cells` of lists is the last, one with `metric` and `value` or `text` is long, all others are wide.
"""

from widerow.codec.arrow.decode import decode_arrow
from widerow.codec.arrow.encode import encode_arrow
from widerow.codec.arrow.streams import Streams, decode_streams

__all__ = ["Streams", "decode_arrow", "decode_streams", "encode_arrow"]
