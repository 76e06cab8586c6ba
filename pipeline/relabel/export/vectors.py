"""The arrays of vectors sources, copied from an encoding shard by shard: one shard in memory, never the whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from relabel.errors import CheckError
from relabel.export.arrays import write_pieces
from relabel.sources.vectors import vectors_of
from relabel.store.manifest import Manifest
from relabel.store.work import Work


def write_vectors(folder: Path, manifest: Manifest, dtype: str, work: Work) -> None:
    """Write the `vectors` array.

    Parameters
    ----------
    folder, manifest
        Of the encoding; the vectors of its failed rows are NaN, there and here.
    dtype : "<f4" or "<f2"
    work : Work

    Raises
    ------
    CheckError
        If a shard does not hold the rows that come next.
    """
    rows = range(*manifest.facts["rows"])
    width = pq.read_schema(folder / manifest.parts[0]).field("vector").type.list_size
    write_pieces(work, "vectors", dtype, (len(rows), width), _shards(folder, manifest, rows.start))


def _shards(folder: Path, manifest: Manifest, row: int) -> Iterator[NDArray[np.float32]]:
    for name in manifest.parts:
        table = pq.read_table(folder / name, columns=["row", "vector"])
        if not np.array_equal(table["row"].to_numpy(), np.arange(row, row + table.num_rows)):
            raise CheckError(f"expected rows from {row} on, in order", where=str(folder / name), todo="Encode again.")
        yield vectors_of(table)
        row += table.num_rows
