"""Tables of captions: JSON lines, CSV, Parquet, and the Arrow files of Hugging Face `datasets`."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from relabel.core.errors import CheckError
from relabel.core.parsing import check_regular, parse_json, read_lines, read_text
from relabel.corpus.build import Caption
from relabel.corpus.readers.columns import Columns

DAMAGE = (pa.ArrowException, OSError, ValueError, TypeError, KeyError, IndexError, OverflowError, MemoryError)
"""Errors that pyarrow raises for a damaged Parquet file."""
STATUS, SUCCESS = "status", "success"
"""Column of img2dataset's metadata, and its value for an image that was downloaded."""
_BATCH = 1 << 14  # rows in memory as Python objects
_ARROW = b"ARROW1"  # first bytes of an IPC file, which a stream does not have

Counts = MutableMapping[str, int]
"""Number of captions of each image in the files before, which a reader updates."""


def read_jsonl(path: Path, namespace: str, columns: Columns, counts: Counts | None = None) -> Iterator[Caption]:
    """Read a .jsonl file, plain or .gz, with one object per line. Blank lines are skipped."""
    chosen: Columns | None = None
    counts = {} if counts is None else counts
    for number, (where, line) in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        record = parse_json(line, str(path), number)
        if not isinstance(record, dict):
            raise CheckError(f"expected an object, found {type(record).__name__}", where=where)
        # The first record decides the names of the columns.
        chosen = chosen or columns.find(record, where)
        for name in chosen.names:
            if name not in record:
                raise CheckError(f"missing key {name!r}", where=where)
        yield from chosen.captions(record, namespace, where, counts)


def read_csv(
    path: Path,
    namespace: str,
    columns: Columns,
    delimiter: str = ",",
    header: Sequence[str] = (),
    quotes: bool = True,
    counts: Counts | None = None,
) -> Iterator[Caption]:
    r"""Read a .csv file, plain or .gz, with one record per image or caption. Blank lines are skipped.

    `header`: names of the columns of a file without a header. `quotes`: whether a field may be quoted, and hold line
    breaks then. Without quotes, they are part of the captions. `counts`: see `Counts`.
    """
    names, chosen = list(header), None
    counts = {} if counts is None else counts
    for where, fields in _records(path, delimiter, quotes):
        if not names:
            names = fields
            if repeated := next((name for name in names if names.count(name) > 1), None):
                raise CheckError(f"column {repeated!r} appears twice", where=where)
            chosen = _find_in_header(columns, names, where)
            continue
        chosen = chosen or columns.find(names, where)
        if len(fields) != len(names):
            raise CheckError(f"expected {len(names)} fields, as in the header; found {len(fields)}", where=where)
        yield from chosen.captions(dict(zip(names, fields, strict=True)), namespace, where, counts)


def _find_in_header(columns: Columns, names: Sequence[str], where: str) -> Columns:
    """Return the columns of a header; the error of a missing column shows how to read a file without a header."""
    try:
        return columns.find(names, where)
    except CheckError as error:
        # An address can be no name of a column, and is that of an image.
        guess = ["url" if name.startswith(("http://", "https://")) else "caption" for name in names]
        example = ",".join(
            guess if sorted(guess) == ["caption", "url"] else [f"NAME{k + 1}" for k in range(len(names))]
        )
        todo = f"{error.todo} If the first line is no header, name the columns with --columns {example}."
        raise CheckError(error.problem, where=error.where, todo=todo) from None


def csv_columns(path: Path, delimiter: str, quotes: bool) -> list[str]:
    """Return the fields of the first line of a CSV file."""
    return next(_records(path, delimiter, quotes), ("", []))[1]


def _records(path: Path, delimiter: str, quotes: bool) -> Iterator[tuple[str, list[str]]]:
    """Yield `file:line` of the first line, and the fields, of each record that is not blank."""
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE
    # `newline=""` leaves line breaks inside quoted fields to the reader.
    text = io.StringIO(read_text(path), newline="")
    reader = csv.reader(text, delimiter=delimiter, strict=True, quoting=quoting)
    while True:
        where = f"{path}:{reader.line_num + 1}"
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            todo = "If quotes are part of the captions, give --no-quotes." if quotes else None
            raise CheckError(f"not CSV: {error}", where=where, todo=todo) from error
        if fields:
            yield where, fields


def read_parquet(
    path: Path,
    namespace: str,
    columns: Columns,
    counts: Counts | None = None,
    skipped: Counter[str] | None = None,
) -> Iterator[Caption]:
    """Read a .parquet file with one record per image or caption. A corpus that relabel wrote can be read back.

    `counts`: see `Counts`. `skipped`: for img2dataset's metadata: rows of images that were not downloaded are left out,
    and counted by their status.
    """
    check_regular(path)
    try:
        with pq.ParquetFile(path) as file:
            chosen = _find_in_schema(columns, file.schema_arrow, path)
            # Of an image, only the path is read.
            wanted = [_leaf(file.schema_arrow, name) for name in chosen.names]
            wanted += [] if skipped is None else [STATUS]
            batches = file.iter_batches(columns=list(dict.fromkeys(wanted)))
            yield from _batch_captions(batches, path, namespace, chosen, counts, skipped)
    except DAMAGE as error:
        raise CheckError(f"not Parquet: {first_line(error)}", where=str(path)) from error


def read_arrow(path: Path, namespace: str, columns: Columns, counts: Counts | None = None) -> Iterator[Caption]:
    """Read an .arrow file that `save_to_disk` of Hugging Face `datasets` wrote, or any other IPC stream or file.

    Parameters and errors are those of `read_parquet`.
    """
    try:
        with _open_arrow(path) as (schema, batches):
            chosen = _find_in_schema(columns, schema, path)
            yield from _batch_captions(batches, path, namespace, chosen, counts)
    except DAMAGE as error:
        raise CheckError(f"not Arrow: {first_line(error)}", where=str(path)) from error


@contextmanager
def _open_arrow(path: Path) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
    """Open an IPC stream or file, mapped rather than read."""
    with pa.memory_map(str(check_regular(path))) as source:
        is_file = source.read(len(_ARROW)) == _ARROW
        source.seek(0)
        if is_file:
            file = pa.ipc.open_file(source)
            yield file.schema, (file.get_batch(i) for i in range(file.num_record_batches))
        else:
            stream = pa.ipc.open_stream(source)
            yield stream.schema, iter(stream)


def parquet_columns(path: Path) -> list[str]:
    """Return the names of the columns of a Parquet file. Raises like `read_parquet`."""
    try:
        return list(pq.read_schema(check_regular(path)).names)
    except DAMAGE as error:
        raise CheckError(f"not Parquet: {first_line(error)}", where=str(path)) from error


def arrow_columns(path: Path) -> list[str]:
    """Return the names of the columns of an Arrow file. Raises like `read_arrow`."""
    try:
        with _open_arrow(path) as (schema, _):
            return list(schema.names)
    except DAMAGE as error:
        raise CheckError(f"not Arrow: {first_line(error)}", where=str(path)) from error


def _find_in_schema(columns: Columns, schema: pa.Schema, path: Path) -> Columns:
    chosen = columns.find(schema.names, str(path))
    for name in chosen.names:
        check_column(schema, name, str(path), text=name == chosen.text)
    return chosen


def _leaf(schema: pa.Schema, name: str) -> str:
    return f"{name}.path" if pa.types.is_struct(schema.field(name).type) else name


def _batch_captions(
    batches: Iterator[pa.RecordBatch],
    path: Path,
    namespace: str,
    columns: Columns,
    counts: Counts | None,
    skipped: Counter[str] | None = None,
) -> Iterator[Caption]:
    """Yield the captions of record batches."""
    counts, start = {} if counts is None else counts, 0
    # In pieces, so that a large batch is never in memory as Python objects.
    pieces = (batch.slice(a, _BATCH) for batch in batches for a in range(0, batch.num_rows, _BATCH))
    for batch in pieces:
        values = {name: _column_values(batch.column(name), name, path, start) for name in columns.names}
        status = [SUCCESS] * batch.num_rows if skipped is None else batch.column(STATUS).to_pylist()
        for n in range(batch.num_rows):
            if status[n] != SUCCESS and skipped is not None:
                skipped[str(status[n])] += 1
                continue
            record = {name: column[n] for name, column in values.items()}
            yield from columns.captions(record, namespace, f"{path}: row {start + n}", counts)
        start += batch.num_rows


def check_column(schema: pa.Schema, name: str, path: str, text: bool = False) -> None:
    """Raise unless a column appears once and holds strings or lists of strings, or also ids if it is not `text`."""
    if schema.names.count(name) > 1:
        raise CheckError(f"column {name!r} appears twice", where=path)
    kind = schema.field(name).type
    value = kind.value_type if pa.types.is_list(kind) or pa.types.is_large_list(kind) else kind
    # A dictionary column is judged by its values.
    value = value.value_type if pa.types.is_dictionary(value) else value
    if not text and pa.types.is_struct(value) and value.get_field_index("path") >= 0:
        return
    accepted = [pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_null]
    if not any(matches(value) for matches in [*accepted, *([] if text else [pa.types.is_integer])]):
        wanted = "strings" if text else "strings or whole numbers"
        raise CheckError(f"column {name!r}: expected {wanted}, found {kind}", where=path)


def first_line(error: Exception) -> str:
    """Return the first line of an Arrow error, which may quote much of the file, cut to 200 characters."""
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def _column_values(column: pa.Array, name: str, path: Path, start: int) -> list[object]:
    if pa.types.is_struct(column.type):
        # An image of `datasets` is its bytes and its path.
        column = pc.struct_field(column, "path")
        return [{"path": value} for value in column.to_pylist()]
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except UnicodeDecodeError:
        # The error of the column names no row, so the rows are converted one by one.
        for n in range(len(column)):
            try:
                column[n].as_py()
            except UnicodeDecodeError as error:
                where = f"{path}: row {start + n}"
                raise CheckError(f"{name!r} is not UTF-8: {error.reason}", where=where) from error
        raise
