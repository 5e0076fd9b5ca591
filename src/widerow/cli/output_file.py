"""A result that goes to a file, or to standard output where none is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from widerow.cli.failure import Failed
from widerow.cli.output import emit_bytes
from widerow.model.system import explained


@contextmanager
def written_to(file: Path | None) -> Iterator[Callable[[bytes], None]]:
    """Where the bytes of a result go. A file is written beside its name and takes it when it is whole."""
    if file is None:
        yield emit_bytes
        return
    is_file = not file.exists() or file.is_file()  # a pipe or a device is not replaced
    draft = file.with_name(f".{file.name}.part") if is_file else file
    try:
        with draft.open("wb") as out:

            def write(data: bytes) -> None:
                out.write(data)

            yield write
        if is_file:
            draft.replace(file)
    except OSError as error:
        raise Failed(explained(error, file), code="file") from None
    finally:
        if is_file:
            with suppress(OSError):
                draft.unlink()
