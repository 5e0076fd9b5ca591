r"""InfluxDB line protocol, read exactly and fast. `LineDecoder` is the way in.

    measurement[,tag=value...] field=value[,field=value...] [time]

What the format leaves open, and what we do (InfluxDB's own parser, models/points.go, is the guide unless it says otherwise):
- A delimiter (comma, equals sign, space) is escaped by a backslash right before it, in measurements, tags and field keys
  alike. Every other backslash is a backslash. In quoted texts a backslash escapes a quote and itself, nothing else.
- Positions count every physical line from 0; a report whose text spans lines has the position of the first. Reasons count
  lines from 1, as editors do.
- A newline ends a line, except inside the quoted text of a field. A text is closed by a quote that a comma, a space or
  the line's end follows; a quote that is never closed so costs its own physical line only (InfluxDB loses the rest of the
  body). The lines inside a closed text are never read as lines, even if the report is refused.
- Blanks before a line are skipped; blank lines and lines whose first other byte is `#` are no reports. Sections may be
  parted by several spaces, and by tabs after the first space. A carriage return before the newline belongs to the line end.
- Numbers: `-` but no `+`; digits may be missing on one side of the point; no underscores, no hexadecimals. `NaN` and `inf`
  in any case are `not-finite`, not `syntax`. Integers (`i`, `u`) become floats, exactly or not at all. `-0i` is 0.
- An equals sign in a measurement is fine, in a tag's value it must be escaped. An empty tag value is a `syntax` fault, an
  empty name a `name` fault. A tag given twice is refused. A field given twice stays twice: `pipeline.check` decides.
- The first of the `device_tags` names the device. Each other tag is a label of the line's metrics (`disk_used{path=/}`),
  unless it is one of the `attribute_tags`, which are kept beside the values of the report.
- Tag values are texts: any UTF-8 up to 32 KiB. Those that name the device, or are labels, must be fit for that.
  Bytes that are not UTF-8 are a `name` fault in a name and a `syntax` fault in a value.
- The cells of a report are its fields in their order, then its attributes in theirs, then the tag of a time of receipt.
"""

from widerow.codec.line.decoder import LineDecoder, LineDecoders, warm_up
from widerow.codec.line.naming import LineNaming

__all__ = ["LineDecoder", "LineDecoders", "LineNaming", "warm_up"]
