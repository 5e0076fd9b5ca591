"""`widerow blocks`: blocks as files: looking into them, and trying the format on one's own data. Needs no store."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from widerow.cli import output
from widerow.cli.failure import Failed
from widerow.cli.output_file import written_to

if TYPE_CHECKING:
    from widerow.blocks.block import Block

app = typer.Typer(help="Blocks, the column format, as files: look into them, pack and unpack reports.", no_args_is_help=True)

JsonOption = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]
BlockFile = Annotated[Path, typer.Argument(metavar="FILE", help="A file of blocks.", show_default=False)]


@app.command("show")
def show(
    file: BlockFile,
    device: Annotated[str | None, typer.Option("--device", metavar="NAME", help="Print the rows of this device.")] = None,
    metric: Annotated[str | None, typer.Option("--metric", metavar="NAME", help="Print this metric, or tag, alone.")] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Print at most so many rows.")] = 100,
    json: JsonOption = False,
) -> None:
    """Print what blocks hold: their headers, and the codec and bytes of each column.

    With --device or --metric, the values themselves follow, in order of device and time.

    Example: widerow blocks show fleet.wblk

    Example: widerow blocks show fleet.wblk --device press-7 --metric temperature
    """
    from widerow.cli.block_files import blocks_of_file  # noqa: PLC0415 - NumPy and pyarrow hang on it

    asked = {kind: name for kind, name in (("device", device), ("metric", metric)) if name is not None}
    limit = min(limit, sys.maxsize)
    left, number = limit, -1
    with blocks_of_file(file) as blocks:
        for number, block in enumerate(blocks):
            columns = [_column(info) for info in block.infos() if metric in (None, info.name)]
            rows = list(islice(_rows(block, device, metric), left)) if asked else []
            left -= len(rows)
            if json:
                output.emit_json({**_facts(number, block), "columns": columns, **({"rows": rows} if asked else {})})
            else:
                output.emit_facts(_facts(number, block))
                _print(_COLUMN, columns, right=_COLUMN[4:])
                if rows:
                    _print(_ROW, rows, right=_ROW[-1:])
            block.read()  # checks every page
    if number < 0:
        raise Failed(f"{file} has no blocks", code="file")
    if asked and left == limit:
        output.note(f"no values of {' and '.join(f'{kind} {name}' for kind, name in asked.items())}")


_COLUMN = ("metric", "part", "kind", "codec", "values", "bytes", "bytes_per_value")
_ROW = ("device", "time", "version", "metric", "part", "value")


def _print(columns: Sequence[str], rows: Sequence[dict[str, Any]], right: Sequence[str]) -> None:
    output.emit_table(columns, [[row[name] for name in columns] for row in rows], right=right)


@app.command("pack")
def pack(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Reports: .parquet, or .lp for line protocol.", show_default=False)
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The file of blocks to write.", show_default=False)],
    quick: Annotated[bool, typer.Option("--quick", help="Use the encoding for small commits, not the dense one.")] = False,
    json: JsonOption = False,
) -> None:
    """Write the reports of a file as blocks, and print what they take as rows, as Parquet and as blocks.

    A Parquet file has the columns of Arrow bodies: device, time, and a column for each metric. Refused reports are counted.

    Example: widerow blocks pack fleet.parquet fleet.wblk
    """
    from widerow.cli.block_files import apart, blocks_of, checked_suffix, read_reports, sizes  # noqa: PLC0415
    from widerow.model.times import SystemClock  # noqa: PLC0415

    decoded = read_reports(apart(checked_suffix(file), out), SystemClock().now_us())
    refused = sum(len(refusal.positions) for refusal in decoded.refusals)
    for refusal in decoded.refusals:
        output.note(f"{len(refusal.positions):,} refused: {refusal.code}: {output.printable(refusal.reason)}")
    if not len(decoded.batch):
        raise Failed(f"{file} has no reports that can be kept", code="file")
    blocks = blocks_of(decoded.batch, dense=not quick)
    with written_to(out) as write:
        for block in blocks:
            write(block)
    values = len(decoded.batch.cells)
    found = sizes(decoded.batch, blocks)
    if json:
        counts = {"reports": len(decoded.batch), "values": values, "refused": refused, "blocks": len(blocks)}
        output.emit_json({**counts, "bytes": found})
        return
    output.emit_table(
        ["format", "bytes", "bytes_per_value"],
        [[name, size, f"{size / max(1, values):.2f}"] for name, size in found.items()],
        right=["bytes", "bytes_per_value"],
    )
    output.note(f"{len(decoded.batch):,} reports with {values:,} values and tags in {len(blocks):,} blocks")


@app.command("unpack")
def unpack(
    file: BlockFile,
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="Reports: .parquet, or .lp for line protocol.", show_default=False)
    ],
) -> None:
    """Write the reports of blocks as Parquet or line protocol. Blocks of rollups have no reports.

    Lines have the measurement `report` and carry no versions.

    Example: widerow blocks unpack fleet.wblk fleet.parquet
    """
    from widerow.cli.block_files import apart, batch_of_blocks, checked_suffix, reports_as  # noqa: PLC0415

    checked_suffix(out)
    try:
        batch = batch_of_blocks(apart(file, out))
    except ValueError as error:
        raise Failed(f"{file}: {error}", code="unsupported") from None
    with written_to(out) as write:
        write(reports_as(out, batch))
    output.note(f"{len(batch):,} reports")


def _facts(number: int, block: Block) -> dict[str, Any]:
    from widerow.blocks.layout import DENSE  # noqa: PLC0415
    from widerow.model.times import format_time  # noqa: PLC0415

    head = block.header
    return {
        "block": number,
        "encoding": "dense" if head.encoding == DENSE else "quick",
        "level": head.level,
        "bytes": head.size,
        "directory_bytes": head.directory,
        "devices": head.devices,
        "rows": head.rows,
        "values": head.values,
        "first": format_time(head.first_us),
        "last": format_time(head.last_us),
        "first_version": format_time(head.first_version_us),
        "last_version": format_time(head.last_version_us),
    }


def _column(info: Any) -> dict[str, Any]:
    return {
        "metric": info.name,
        "part": info.part,
        "kind": info.kind.name.lower(),
        "codec": info.codec,
        "values": info.values,
        "bytes": info.bytes,
        "bytes_per_value": f"{info.bytes / info.values:.2f}",
    }


def _rows(block: Block, device: str | None, metric: str | None) -> Any:
    """The values, in order of device, time and metric."""
    from widerow.blocks.columns import CODED, PLAIN, Kind  # noqa: PLC0415
    from widerow.model.times import format_time  # noqa: PLC0415

    found = block.read(None if device is None else [device], None if metric is None else [metric]).compacted()
    names, texts, devices = found.names.to_list(), found.texts.to_bytes_list(), found.devices.to_list()
    owner, cells = found.device_rows(), []
    for column, head in enumerate(found.heads):
        values = head.values.view("float64") if head.kind == Kind.NUMBER else head.values
        cells += [(row, column, value) for row, value in zip(head.rows.tolist(), values.tolist(), strict=True)]
    for row, column, value in sorted(cells, key=lambda cell: cell[:2]):
        head = found.heads[column]
        text = texts[value].decode(errors="backslashreplace") if head.kind in CODED and head.kind != Kind.BYTES else value
        yield {
            "device": devices[owner[row]],
            "time": format_time(int(found.time_us[row])),
            "version": format_time(int(found.version_us[row])),
            "metric": names[head.name],
            "part": "" if head.part == PLAIN else names[head.part],
            "value": texts[value].hex() if head.kind == Kind.BYTES else text,
        }
