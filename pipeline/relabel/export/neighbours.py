"""Neighbours as CSR arrays, copied from their Parquet shards one shard at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from relabel.errors import CheckError
from relabel.export.arrays import write_array, write_pieces
from relabel.store.manifest import Manifest
from relabel.store.work import Work


def write_neighbours(folder: Path, manifest: Manifest, rows: range, work: Work) -> int:
    """Write the arrays of relabel_train.lookup.format.NEIGHBOURS; return how many neighbours a caption has.

    Parameters
    ----------
    folder, manifest
        Of neighbours of captions: shards of row, neighbours, scores.
    rows : range
        The lookup's rows, which must be the queries.
    work : Work

    Raises
    ------
    CheckError
        If the shards do not hold exactly these rows, in order.
    """
    row, sizes = rows.start, []
    for name in manifest.parts:
        table = pq.read_table(folder / name, columns=["row", "neighbours"])
        if not np.array_equal(table["row"].to_numpy(), np.arange(row, row + table.num_rows)):
            raise CheckError(f"expected rows from {row} on, in order", where=str(folder / name), todo=_AGAIN)
        sizes.append(pc.list_value_length(table["neighbours"]).to_numpy())
        row += table.num_rows
    if row != rows.stop:
        raise CheckError(
            f"expected rows {rows.start} to {rows.stop - 1}, found {row - 1}", where=str(folder), todo=_AGAIN
        )
    counts = np.concatenate(sizes)
    indptr = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(counts, out=indptr[1:])
    total = int(indptr[-1])
    write_array(work, "neighbours.indptr", indptr)
    write_pieces(work, "neighbours.rows", "<i4", (total,), _column(folder, manifest, "neighbours"))
    write_pieces(work, "neighbours.scores", "<f4", (total,), _column(folder, manifest, "scores"))
    return int(counts.min())


def _column(folder: Path, manifest: Manifest, name: str) -> Iterator[NDArray[Any]]:
    for part in manifest.parts:
        yield pc.list_flatten(pq.read_table(folder / part, columns=[name])[name]).to_numpy()


_AGAIN = "Run `relabel neighbours` again."
