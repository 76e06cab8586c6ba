"""Files of top-k lists: uncompressed Arrow, read a few thousand lists at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from relabel.topk.merge import F8, I4, I8, TopK, merge_sorted

BATCH_LISTS = 4096  # lists per record batch
_SCHEMA = pa.schema([("number", pa.large_list(pa.int32())), ("score", pa.large_list(pa.float64()))])


def write_lists(path: Path, pieces: Iterable[TopK]) -> None:
    """Write lists, one record batch per piece; every piece but a group's last holds `BATCH_LISTS`."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, _SCHEMA) as writer:
        for piece in pieces:
            valid = np.arange(piece.numbers.shape[1]) < piece.sizes[:, None]
            offsets = np.zeros(len(piece.sizes) + 1, np.int64)
            np.cumsum(piece.sizes, out=offsets[1:])
            values = [pa.array(column[valid]) for column in (piece.numbers, piece.scores)]
            columns = [pa.LargeListArray.from_arrays(pa.array(offsets), column) for column in values]
            writer.write_batch(pa.record_batch(columns, schema=_SCHEMA))


def merge_file(best: TopK, path: Path, skip: int, rows: range) -> None:
    """Merge the lists of consecutive queries of a file into `best`.

    Parameters
    ----------
    best : TopK
        One list per row of `rows`.
    path : Path
    skip : int
        Record batches that precede those of the queries.
    rows : range
        Queries to read, counted within their group.
    """
    for batch, lo, hi in batches_of(rows):
        offsets, numbers, scores = _read(path, skip + batch)
        # The Arrow offsets of a slice stay relative to the values of the complete batch.
        merge_sorted(best, batch * BATCH_LISTS + lo - rows.start, offsets[lo : hi + 1], numbers, scores)


def batches_of(rows: range) -> Iterator[tuple[int, int, int]]:
    """List the record batches that hold some rows, each with its first and last row (exclusive) within the batch.

    Examples
    --------
    >>> from relabel.topk.files import batches_of
    >>> list(batches_of(range(4000, 5000)))
    [(0, 4000, 4096), (1, 0, 904)]
    """
    for batch in range(rows.start // BATCH_LISTS, -(-rows.stop // BATCH_LISTS)):
        start = batch * BATCH_LISTS
        yield batch, max(rows.start, start) - start, min(rows.stop, start + BATCH_LISTS) - start


def batch_count(lists: int) -> int:
    """Return the number of record batches that hold so many lists."""
    return -(-lists // BATCH_LISTS)


def _read(path: Path, batch: int) -> tuple[I8, I4, F8]:
    # Read rather than memory-mapped, so that the memory is released after use and counts towards the limit.
    with pa.OSFile(str(path)) as file:
        lists = pa.ipc.open_file(file).get_batch(batch)
    number, score = lists.column("number"), lists.column("score")
    return number.offsets.to_numpy(), number.values.to_numpy(), score.values.to_numpy()
