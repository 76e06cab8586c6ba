"""Parquet: one caption a row. A corpus that relabel wrote can be read back as well."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from relabel.captions import Caption
from relabel.errors import CheckError, MissingError
from relabel.readers.columns import Columns


def read_parquet(path: Path, namespace: str, columns: Columns) -> Iterator[Caption]:
    """Read a .parquet file.

    Raises
    ------
    MissingError
        If the file is not there.
    CheckError
        If it is not Parquet, a column is not there or of a wrong type, or a text is not UTF-8; names file and row
        (from 0).
    """
    try:
        with pq.ParquetFile(path) as file:
            names = columns.find(file.schema_arrow.names, str(path))
            start = 0
            for batch in file.iter_batches(columns=list(dict.fromkeys(names))):
                values = [_values(batch.column(name), name, path, start) for name in names]
                for n, record in enumerate(zip(*values, strict=True), start=start):
                    yield columns.caption(names, record, namespace, f"{path}: row {n}")
                start += batch.num_rows
    except FileNotFoundError as error:
        raise MissingError("no such file", where=str(path)) from error
    except (pa.ArrowException, OSError) as error:
        raise CheckError(f"not Parquet: {error}", where=str(path)) from error


def _values(column: pa.Array, name: str, path: Path, start: int) -> list[object]:
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except UnicodeDecodeError:
        for n in range(len(column)):
            try:
                column[n].as_py()
            except UnicodeDecodeError as error:
                where = f"{path}: row {start + n}"
                raise CheckError(f"{name!r} is not UTF-8: {error.reason}", where=where) from error
        raise
