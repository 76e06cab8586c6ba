"""Parquet whose bytes follow from the shape of a table: so that they are known before there are any numbers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def write_plain(sink: Path | pa.NativeFile, tables: Iterable[pa.Table], schema: pa.Schema) -> None:
    """Write tables as the row groups of one Parquet file: uncompressed, no dictionary, no statistics.

    Its size is then a function of the tables' shape (and of the length of their strings), never of their numbers.
    """
    plain: dict[str, Any] = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    with pq.ParquetWriter(sink, schema, version="2.6", data_page_version="1.0", **plain) as writer:
        for table in tables:
            writer.write_table(table, row_group_size=max(1, len(table)))


def plain_bytes(table: pa.Table) -> int:
    """Bytes of a table as one file, by writing it to nowhere."""
    sink = pa.MockOutputStream()
    write_plain(sink, [table], table.schema)
    return int(sink.size())


def zeros(schema: pa.Schema, rows: int) -> pa.Table | None:
    """Make a table of zeros; None if a column's values are not all of one width."""
    columns = []
    for field in schema:
        kind: Any = field.type
        width = kind.list_size if pa.types.is_fixed_size_list(kind) else None
        item = kind.value_type if width is not None else kind
        if not pa.types.is_primitive(item):
            return None
        values = pa.nulls(rows * (1 if width is None else width), item).fill_null(pa.scalar(0).cast(item))
        columns.append(values if width is None else pa.FixedSizeListArray.from_arrays(values, width))
    return pa.Table.from_arrays(columns, schema=schema)
