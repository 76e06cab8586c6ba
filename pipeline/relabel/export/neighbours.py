"""Tables of neighbours as the exports read them: copied into a lookup, or opened for a sampler of batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from relabel.core.errors import CheckError, UsageError
from relabel.core.types import Rows
from relabel.store.arrays import write_array, write_pieces
from relabel.store.manifest import Manifest
from relabel.store.workdir import Work
from relabel_train.batches.base import Missing

_AGAIN = "Run `relabel neighbours` again."


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


@dataclass(frozen=True, eq=False)
class NeighbourTable:
    """The nearest captions of a range of captions, best first.

    Attributes
    ----------
    first : int
        The first row of the range.
    rows, scores, same_image : (N, k) int32, float32 and bool
    """

    first: int
    rows: Rows
    scores: NDArray[np.float32]
    same_image: NDArray[np.bool_]

    @property
    def width(self) -> int:
        """Neighbours a caption."""
        return int(self.rows.shape[1])

    def neighbours(
        self, rows: Rows, k: int, missing: Missing = "raise"
    ) -> tuple[Rows, NDArray[np.floating[Any]], NDArray[np.bool_]]:
        """See relabel_train.batches.Neighbours; all lists are of equal length."""
        at = np.asarray(rows, np.int64) - self.first
        return self.rows[at, :k], self.scores[at, :k], self.same_image[at, :k]


def read_neighbours(folder: Path, manifest: Manifest, rows: range, most: int, least: int) -> NeighbourTable:
    """Read the nearest of each of a range of captions: 9 bytes each, a shard at a time beside it.

    Parameters
    ----------
    most, least : int
        So many a caption, or as many as there are; if those are fewer than `least`, none.

    Raises
    ------
    UsageError
        If the table has too few.
    CheckError
        If it does not hold these rows.
    """
    k = min(most, int(manifest.facts["width"]))
    if k < least:
        todo = "Look at fewer with --depth, or find more with `relabel neighbours -k`."
        raise UsageError(f"{least} neighbours a caption are needed, there are {k}", where=str(folder), todo=todo)
    shape = len(rows), k
    found = np.empty(shape, np.int32), np.empty(shape, np.float32), np.empty(shape, np.bool_)
    seen = 0
    for name in manifest.parts:
        table = pq.read_table(folder / name)
        row = table["row"].to_numpy()
        wanted = np.flatnonzero((row >= rows.start) & (row < rows.stop))
        if not len(wanted):
            continue
        for array, column in zip(found, ("neighbours", "scores", "same_image"), strict=True):
            values = pc.list_flatten(table[column]).to_numpy(zero_copy_only=False).reshape(len(row), -1)
            array[row[wanted] - rows.start] = values[wanted, :k]
        seen += len(wanted)
    if seen != len(rows):
        what = f"{len(rows) - seen} of rows {rows.start} to {rows.stop - 1} have no neighbours here"
        raise CheckError(what, where=str(folder), todo="Run `relabel neighbours` again.")
    return NeighbourTable(rows.start, *found)
