"""Tables of captions: JSON lines, CSV, Parquet, the Arrow files of Hugging Face `datasets`, and the JSON lists of BLIP.

A JSON list has one object per row: ``[{"image": "val2014/1.jpg", "caption": "a dog"}, ...]``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from relabel.core.errors import CheckError
from relabel.core.parsing import check_regular, read_csv_records, read_json_lines, read_json_list
from relabel.corpus.build import Caption
from relabel.corpus.params import IngestParams
from relabel.corpus.readers.columns import Columns

DAMAGE = (pa.ArrowException, OSError, ValueError, TypeError, KeyError, IndexError, OverflowError, MemoryError)
"""Errors that pyarrow raises for a damaged Parquet file."""
STATUS, SUCCESS = "status", "success"
"""Column of img2dataset's metadata, and its value for an image that was downloaded."""
_BATCH = 1 << 14  # rows in memory as Python objects

Records = Iterator[tuple[str, Mapping[str, Any]]]
"""`file:line` or row, and the values by column, of each record."""


class Table(NamedTuple):
    """A table of captions.

    `names`: its columns; None if it has no record.
    `where`: place of the names.
    `records`: takes the columns to read.
    `hint`: advice where a column is missing.
    """

    names: Sequence[str] | None
    where: str
    records: Callable[[Sequence[str]], Records]
    hint: str = ""

    def find(self, columns: Columns) -> Columns:
        """Return the columns to read."""
        return columns.find(self.names, self.where, self.hint) if self.names is not None else columns

    def captions(self, columns: Columns, namespace: str, counts: MutableMapping[str, int]) -> Iterator[Caption]:
        """Yield the captions. `counts`: number of captions of each image in the files before; updated."""
        chosen = self.find(columns)
        for where, record in self.records(chosen.names):
            yield from chosen.captions(record, namespace, where, counts)


def open_table(path: Path, params: IngestParams, skipped: Counter[str]) -> Table:
    """Open a file; rows of images that img2dataset did not download are left out and counted in `skipped`."""
    if params.format not in ("csv", "json", "jsonl"):
        return arrow_table(path, str(params.format), skipped)
    rows: Records = read_json_list(path) if params.format == "json" else read_json_lines(path)
    hint = ""
    if params.format == "csv":
        # Without a header, the first line is a caption, whose commas tell nothing.
        usual = "\t" if ".tsv" in path.suffixes else "," if params.columns else None
        rows = read_csv_records(path, params.delimiter or usual, params.quotes, params.columns)
        hint = " If the first line is no header, name the columns, as in --columns caption,url."
        hint += " Give a separator other than , ; and tab with --set ingest.delimiter."
    # The first record names the columns.
    first = next(rows, None)

    def records(columns: Sequence[str]) -> Records:
        for where, record in chain([first] if first else [], rows):
            if missing := [name for name in columns if name not in record]:
                raise CheckError(f"missing key {missing[0]!r}", where=where)
            yield where, _with_lists(record, columns) if params.format == "csv" else record

    if first is None:
        return Table(None, str(path), records)
    return Table(list(first[1]), first[0], records, "" if params.columns else hint)


def _with_lists(record: Mapping[str, str], columns: Sequence[str]) -> Mapping[str, Any]:
    """Return a record of CSV whose captions are a JSON list, as in flickr_annotations_30k.csv, with lists."""
    if not any(record[name].startswith('["') for name in columns):
        return record
    try:
        return {**record, **{name: json.loads(record[name]) for name in columns if record[name].startswith("[")}}
    except (ValueError, RecursionError):  # a text that only looks like a list
        return record


def arrow_table(path: Path, form: str, skipped: Counter[str]) -> Table:
    """Open a .parquet file, or an .arrow file of `save_to_disk` or any other IPC stream or file."""
    check_regular(path)

    def records(columns: Sequence[str]) -> Records:
        read = list(dict.fromkeys([*columns, *([STATUS] if form == "img2dataset" else [])]))
        start = 0
        try:
            for batch in _batches(path, form, schema, read):
                # Of a damaged file, offsets may lead out of memory, and texts may be no UTF-8.
                batch.validate(full=True)
                values = [_values(batch.column(name)) for name in read]
                for n, row in enumerate(zip(*values, strict=True)):
                    record = dict(zip(read, row, strict=True))
                    if form == "img2dataset" and record[STATUS] != SUCCESS:
                        skipped[str(record[STATUS])] += 1
                    else:
                        yield f"{path}: row {start + n}", record
                start += batch.num_rows
        except DAMAGE as error:
            raise CheckError(f"not {kind}: {error}", where=f"{path}: from row {start}") from error

    kind = "Arrow" if form == "arrow" else "Parquet"
    try:
        schema = _open_ipc(path)[0] if form == "arrow" else pq.read_schema(path)
    except DAMAGE as error:
        raise CheckError(f"not {kind}: {error}", where=str(path)) from error
    return Table(schema.names, str(path), records)


def _batches(path: Path, form: str, schema: pa.Schema, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in pieces, so that a large batch is never in memory as Python objects."""
    if form == "arrow":
        batches = _open_ipc(path)[1]
    else:
        # Of an image, only the path is read.
        leaves = [f"{name}.path" if pa.types.is_struct(schema.field(name).type) else name for name in columns]
        batches = pq.ParquetFile(path).iter_batches(columns=leaves)
    return (batch.slice(a, _BATCH) for batch in batches for a in range(0, batch.num_rows, _BATCH))


def _open_ipc(path: Path) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Open an IPC stream or file, mapped rather than read."""
    try:
        stream = pa.ipc.open_stream(pa.memory_map(str(path)))
    except pa.ArrowInvalid:
        file = pa.ipc.open_file(pa.memory_map(str(path)))
        return file.schema, (file.get_batch(i) for i in range(file.num_record_batches))
    return stream.schema, iter(stream)


def _values(column: pa.Array) -> list[Any]:
    # An image of `datasets` is its bytes and its path.
    structs = pa.types.is_struct(column.type)
    return [{"path": value} for value in pc.struct_field(column, "path").to_pylist()] if structs else column.to_pylist()
