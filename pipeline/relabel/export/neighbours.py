"""Neighbours as CSR arrays, copied from their Parquet shards one shard at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from relabel.core.errors import CheckError
from relabel.store.arrays import write_array, write_pieces
from relabel.store.manifest import Manifest
from relabel.store.workdir import Work


def write_neighbours(folder: Path, manifest: Manifest, work: Work) -> dict[str, Any]:
    """Write the arrays of relabel_train.lookup.format.NEIGHBOURS; return what `lookup.json` says of them.

    Parameters
    ----------
    folder, manifest
        Of neighbours of captions: shards of row, neighbours, scores.
    work : Work

    Raises
    ------
    CheckError
        If the shards do not hold the rows that the manifest says, in order.
    """
    first, stop = manifest.facts["rows"]
    row, sizes = first, [np.empty(0, np.int32)]
    for name in manifest.parts:
        table = pq.read_table(folder / name, columns=["row", "neighbours"])
        if not np.array_equal(table["row"].to_numpy(), np.arange(row, row + table.num_rows)):
            raise CheckError(f"expected rows from {row} on, in order", where=str(folder / name), todo=_AGAIN)
        sizes.append(pc.list_value_length(table["neighbours"]).to_numpy())
        row += table.num_rows
    if row != stop:
        raise CheckError(f"expected rows {first} to {stop - 1}, found up to {row - 1}", where=str(folder), todo=_AGAIN)
    counts = np.concatenate(sizes)
    indptr = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=indptr[1:])
    total = int(indptr[-1])
    write_array(work, "neighbours.indptr", indptr)
    write_pieces(work, "neighbours.rows", "<i4", (total,), _column(folder, manifest, "neighbours"))
    write_pieces(work, "neighbours.scores", "<f4", (total,), _column(folder, manifest, "scores"))
    return {
        "fingerprint": manifest.fingerprint,
        "rows": [first, stop],
        "within": manifest.semantic["within"],
        "width": int(counts.max(initial=0)),
        "index": manifest.semantic.get("index"),
    }


def _column(folder: Path, manifest: Manifest, name: str) -> Iterator[NDArray[Any]]:
    for part in manifest.parts:
        yield pc.list_flatten(pq.read_table(folder / part, columns=[name])[name]).to_numpy()


_AGAIN = "Run `relabel neighbours` again."
