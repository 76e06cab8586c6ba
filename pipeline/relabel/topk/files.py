"""Files of lists: Arrow, uncompressed, read a few thousand lists at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from relabel.topk.merge import F8, I4, I8, TopK, merge_in

TOGETHER = 4096  # lists of a record batch
_SCHEMA = pa.schema([("number", pa.large_list(pa.int32())), ("score", pa.large_list(pa.float64()))])


def write_lists(path: Path, pieces: Iterable[TopK]) -> None:
    """Write lists, `TOGETHER` a piece or fewer."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, _SCHEMA) as writer:
        for piece in pieces:
            held = np.arange(piece.numbers.shape[1]) < piece.sizes[:, None]
            offsets = np.zeros(len(piece.sizes) + 1, np.int64)
            np.cumsum(piece.sizes, out=offsets[1:])
            values = [pa.array(some[held]) for some in (piece.numbers, piece.scores)]
            columns = [pa.LargeListArray.from_arrays(pa.array(offsets), some) for some in values]
            writer.write_batch(pa.record_batch(columns, schema=_SCHEMA))


def merge_file(best: TopK, path: Path, skip: int, rows: range) -> None:
    """Merge the lists of some consecutive queries into `best`.

    Parameters
    ----------
    best : TopK
        One a row of `rows`.
    path : Path
    skip : int
        Record batches before those of the queries.
    rows : range
        Which of the queries in the file.
    """
    for batch, lo, hi in batches_of(rows):
        offsets, numbers, scores = _read(path, skip + batch)
        merge_in(best, batch * TOGETHER + lo - rows.start, offsets[lo : hi + 1], numbers, scores)


def batches_of(rows: range) -> Iterator[tuple[int, int, int]]:
    """List the batches that hold some rows, each with its first and last row (exclusive), counted within it."""
    for batch in range(rows.start // TOGETHER, -(-rows.stop // TOGETHER)):
        start = batch * TOGETHER
        yield batch, max(rows.start, start) - start, min(rows.stop, start + TOGETHER) - start


def batches(count: int) -> int:
    """Record batches that `count` lists take."""
    return -(-count // TOGETHER)


def _read(path: Path, batch: int) -> tuple[I8, I4, F8]:
    with pa.OSFile(str(path)) as file:  # not mapped: what was read stays no longer than it is used
        found = pa.ipc.open_file(file).get_batch(batch)
    number, score = found.column("number"), found.column("score")
    return number.offsets.to_numpy(), number.values.to_numpy(), score.values.to_numpy()
