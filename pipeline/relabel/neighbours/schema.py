"""The table of neighbours on disk: Parquet whose bytes follow from the number of rows and neighbours alone."""

from __future__ import annotations

from functools import cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from relabel.core.types import Rows, Scores
from relabel.store.fixed_parquet import write_plain

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


@cache
def shard_bytes(rows: int, width: int) -> int:
    """Bytes of a shard of `rows` rows with `width` neighbours each: exact, by writing zeros to nowhere."""
    sink = pa.MockOutputStream()
    write_plain(sink, (_zeros(len(block), width) for block in blocks(range(rows), width)), SCHEMA)
    return int(sink.size())


def _zeros(rows: int, width: int) -> pa.Table:
    shape = (rows, width)
    return table_of(np.zeros(rows, np.int32), np.zeros(shape, np.int32), np.zeros(shape), np.zeros(shape, bool))
