"""Preview of captions before they are read: their layout and size."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from relabel.core.parsing import GZIP
from relabel.core.runtime import Runtime
from relabel.corpus.params import IngestParams
from relabel.corpus.readers import open_input


def preview(params: IngestParams, runtime: Runtime) -> tuple[str, int | None]:
    """Describe captions without reading them, and return their number of rows, or None if it is unknown.

    The description lists format, columns, splits and size, separated by semicolons. The number of rows is exact for
    Parquet and Arrow. For CSV, JSON lines and text it is estimated from the first megabyte of each file. Raises the
    errors of `open_input`.
    """
    source = open_input(params, runtime)
    paths, about = [*source.files.values()], ""
    counts = [count for path in paths if (count := _count_rows(path)) is not None]
    if not counts and source.config["format"] in ("csv", "jsonl", "text"):
        header = source.config["format"] == "csv" and not params.columns
        lines = [_estimate_lines(path) for path in paths]
        about, counts = "about ", [max(0, count - header) for count in lines if count is not None]
    rows = sum(counts) if len(counts) == len(paths) else None
    size = f"{sum(path.stat().st_size for path in paths):,} bytes in {len(paths):,} file{'s' * (len(paths) != 1)}"
    layout = source.note or f"format {source.config['format']}"
    note = f"{layout}; size: {'' if rows is None else f'{about}{rows:,} rows, '}{size}"
    return note, rows if params.limit is None else None


def _estimate_lines(path: Path) -> int | None:
    """Estimate the lines of a text file; None if it is compressed."""
    with path.open("rb") as file:
        head = file.read(1 << 20)
    if head.startswith(GZIP):
        return None
    size = path.stat().st_size
    # The last line of a complete file may lack its end.
    last = len(head) == size > 0 and head[-1:] not in b"\r\n"
    return round((max(head.count(b"\n"), head.count(b"\r")) + last) / max(1, len(head)) * size)


def _count_rows(path: Path) -> int | None:
    """Return the number of rows of a Parquet file or Arrow stream from its metadata, or None for any other file."""
    # Errors of damaged files are reported when the captions are read.
    with suppress(pa.ArrowException, OSError), pa.memory_map(str(path)) as file:
        head = file.read(4)
        file.seek(0)
        if head == b"PAR1":
            return int(pq.read_metadata(file).num_rows)
        if head == b"\xff" * 4:
            return int(sum(batch.num_rows for batch in pa.ipc.open_stream(file)))
    return None
