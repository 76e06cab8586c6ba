"""Parquet files whose size depends only on the shape of the table, so that it is known before the values are."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def write_plain(sink: Path | pa.NativeFile, tables: Iterable[pa.Table], schema: pa.Schema) -> None:
    """Write tables as the row groups of one Parquet file, without compression, dictionaries or statistics.

    The size of the file then depends on the shape of the tables and on the length of their strings, never on numbers.
    """
    plain: dict[str, Any] = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    with pq.ParquetWriter(sink, schema, version="2.6", data_page_version="1.0", **plain) as writer:
        for table in tables:
            writer.write_table(table, row_group_size=max(1, len(table)))


def plain_bytes(table: pa.Table) -> int:
    """Return the size in bytes of a table as one file, by writing it to a sink that only counts.

    Examples
    --------
    >>> import pyarrow as pa
    >>> plain_bytes(pa.table({"x": [1, 2]})) == plain_bytes(pa.table({"x": [300, 7]}))
    True
    """
    sink = pa.MockOutputStream()
    write_plain(sink, [table], table.schema)
    return int(sink.size())


def zeros(schema: pa.Schema, rows: int) -> pa.Table | None:
    """Return a table of zeros, or None if a column holds values of varying width.

    Examples
    --------
    >>> import pyarrow as pa
    >>> zeros(pa.schema([("x", pa.int32())]), 2).to_pylist()
    [{'x': 0}, {'x': 0}]
    >>> zeros(pa.schema([("text", pa.string())]), 2) is None
    True
    """
    columns = []
    for field in schema:
        kind: Any = field.type
        # A column of fixed-size lists is made from one flat column of their items.
        width = kind.list_size if pa.types.is_fixed_size_list(kind) else None
        item = kind.value_type if width is not None else kind
        if not pa.types.is_primitive(item):
            return None
        values = pa.nulls(rows * (1 if width is None else width), item).fill_null(pa.scalar(0).cast(item))
        columns.append(values if width is None else pa.FixedSizeListArray.from_arrays(values, width))
    return pa.Table.from_arrays(columns, schema=schema)
