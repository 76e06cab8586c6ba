"""Parquet schema of a table of neighbours; the size of a shard follows from its rows and neighbours alone."""

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
"""`row` is a caption's row, or an image's number. `neighbours` are caption rows, best first. `scores` are their
relevance, rounded to float32 after sorting. `same_image` marks captions with the image id of the query."""

_ENTRIES = 1 << 21  # neighbours held in memory while a shard is written: about 50 MB for any k and shard size


def group_rows(width: int) -> int:
    """Return the rows of a row group, for rows of `width` neighbours."""
    return max(1, _ENTRIES // max(1, width))


def row_groups(rows: range, width: int) -> list[range]:
    """Divide the rows of a shard into its row groups.

    Examples
    --------
    >>> from relabel.neighbours.schema import row_groups
    >>> row_groups(range(0, 50_000), 100)
    [range(0, 20971), range(20971, 41942), range(41942, 50000)]
    """
    step = group_rows(width)
    return [range(a, min(a + step, rows.stop)) for a in range(rows.start, rows.stop, step)]


def table_of(row: Rows, neighbours: Rows, scores: Scores, same_image: NDArray[np.bool_]) -> pa.Table:
    """Return the table of q rows with `width` neighbours each.

    Parameters
    ----------
    row : (q,) int32
    neighbours, scores, same_image : (q, width) int32, float and bool

    Examples
    --------
    >>> import numpy as np
    >>> from relabel.neighbours.schema import table_of
    >>> table_of(np.array([7]), np.array([[3, 9]]), np.array([[0.5, 0.25]]), np.array([[True, False]])).to_pylist()
    [{'row': 7, 'neighbours': [3, 9], 'scores': [0.5, 0.25], 'same_image': [True, False]}]
    """
    offsets = pa.array(np.arange(len(row) + 1, dtype=np.int32) * np.int32(neighbours.shape[1]))
    values = (neighbours.astype(np.int32), scores.astype(np.float32), same_image)
    lists = [pa.ListArray.from_arrays(offsets, pa.array(v.reshape(-1))) for v in values]
    return pa.Table.from_arrays([pa.array(row.astype(np.int32)), *lists], schema=SCHEMA)


@cache
def shard_bytes(rows: int, width: int) -> int:
    """Return the exact bytes of a shard of `rows` rows with `width` neighbours each.

    The shard is written with zeros to a stream that only counts: nothing in the file depends on the values.
    """
    sink = pa.MockOutputStream()
    write_plain(sink, (_zeros(len(group), width) for group in row_groups(range(rows), width)), SCHEMA)
    return int(sink.size())


def _zeros(rows: int, width: int) -> pa.Table:
    shape = (rows, width)
    return table_of(np.zeros(rows, np.int32), np.zeros(shape, np.int32), np.zeros(shape), np.zeros(shape, bool))
