"""CSV with a header: one caption a record. A field in quotes may hold line breaks."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

from relabel.captions import Caption
from relabel.errors import CheckError
from relabel.readers.columns import Columns
from relabel.readers.files import read_text


def read_csv(path: Path, namespace: str, columns: Columns, delimiter: str = ",") -> Iterator[Caption]:
    """Read a .csv file, plain or .gz; blank lines are skipped.

    Raises
    ------
    MissingError
        If the file is not there.
    CheckError
        If it is not UTF-8, a column is not there or there twice, or a record is ragged or badly quoted; names file
        and line.
    """
    header: list[str] | None = None
    names: tuple[str, ...] = ()
    index: list[int] = []
    for where, fields in _records(path, delimiter):
        if header is None:
            header = fields
            if twice := next((name for name in header if header.count(name) > 1), None):
                raise CheckError(f"column {twice!r} is there twice", where=where)
            names = columns.find(header, where)
            index = [header.index(name) for name in names]
            continue
        if len(fields) != len(header):
            raise CheckError(f"expected {len(header)} fields, as in the header; found {len(fields)}", where=where)
        yield columns.caption(names, [fields[i] for i in index], namespace, where)


def _records(path: Path, delimiter: str) -> Iterator[tuple[str, list[str]]]:
    """Yield `file:line` (of its first line) and the fields of each record that is not blank."""
    reader = csv.reader(io.StringIO(read_text(path), newline=""), delimiter=delimiter, strict=True)
    while True:
        where = f"{path}:{reader.line_num + 1}"
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise CheckError(f"not CSV: {error}", where=where) from error
        if fields:
            yield where, fields
