"""Neighbours for samplers, read from the table that `relabel neighbours` makes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from relabel.core.errors import CheckError, UsageError
from relabel.core.types import Rows
from relabel.store.manifest import Manifest
from relabel_train.batches.base import Missing


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
