"""The table of neighbours on disk: Parquet whose bytes follow from the number of rows and neighbours alone."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from relabel.neighbours.base import Rows, Scores

SCHEMA = pa.schema(
    [
        pa.field("row", pa.int32()),
        pa.field("neighbours", pa.list_(pa.int32())),
        pa.field("scores", pa.list_(pa.float32())),
        pa.field("same_image", pa.list_(pa.bool_())),
    ]
)
"""`row` is a caption's row, or an image's number; `neighbours` are caption rows, best first; `scores` theirs, rounded
after they were ordered; `same_image` marks captions of the same image, by its id."""

_ENTRIES = 1 << 21  # neighbours held at once while a shard is written: about 50 MB, whatever k and the shard's rows


def block_rows(width: int) -> int:
    """Rows of a row group where each has `width` neighbours."""
    return max(1, _ENTRIES // max(1, width))


def blocks(rows: range, width: int) -> list[range]:
    """Cut the rows of a shard into its row groups."""
    step = block_rows(width)
    return [range(a, min(a + step, rows.stop)) for a in range(rows.start, rows.stop, step)]


def table_of(row: Rows, neighbours: Rows, scores: Scores, same_image: NDArray[np.bool_]) -> pa.Table:
    """Make the table of q rows with `width` neighbours each.

    Parameters
    ----------
    row : (q,) int32
    neighbours, scores, same_image : (q, width) int32, float and bool
    """
    offsets = pa.array(np.arange(len(row) + 1, dtype=np.int32) * np.int32(neighbours.shape[1]))
    values = (neighbours.astype(np.int32), scores.astype(np.float32), same_image)
    lists = [pa.ListArray.from_arrays(offsets, pa.array(v.reshape(-1))) for v in values]
    return pa.Table.from_arrays([pa.array(row.astype(np.int32)), *lists], schema=SCHEMA)


def write_plain(sink: Path | pa.NativeFile, tables: Iterable[pa.Table], schema: pa.Schema = SCHEMA) -> None:
    """Write tables as the row groups of one Parquet file: uncompressed, no dictionary, no statistics.

    Its size is then a function of the tables' shape (and of the length of their strings), never of their numbers.
    """
    plain: dict[str, Any] = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    with pq.ParquetWriter(sink, schema, version="2.6", data_page_version="1.0", **plain) as writer:
        for table in tables:
            writer.write_table(table, row_group_size=max(1, len(table)))


@cache
def shard_bytes(rows: int, width: int) -> int:
    """Bytes of a shard of `rows` rows with `width` neighbours each: exact, by writing zeros to nowhere."""
    sink = pa.MockOutputStream()
    write_plain(sink, (_zeros(len(block), width) for block in blocks(range(rows), width)))
    return int(sink.size())


def _zeros(rows: int, width: int) -> pa.Table:
    shape = (rows, width)
    return table_of(np.zeros(rows, np.int32), np.zeros(shape, np.int32), np.zeros(shape), np.zeros(shape, bool))
