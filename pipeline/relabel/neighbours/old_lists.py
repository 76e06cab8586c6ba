"""The lists of an older table, read where they are asked for."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from relabel.neighbours.base import Rows
from relabel.store.manifest import Manifest

Numbers = NDArray[np.int64]


class OldLists:
    """A table of neighbours by row groups.

    Parameters
    ----------
    folder : Path
    manifest : Manifest
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder, self.manifest, self._last = folder, manifest, (-1, np.empty((0, 0), np.int32))

    @cached_property
    def groups(self) -> list[tuple[str, int, int, int]]:
        """File, group, first place and last place (exclusive) of every row group, in order."""
        found, start = [], 0
        for name in self.manifest.parts:
            with pq.ParquetFile(self.folder / name) as file:
                for group in range(file.num_row_groups):
                    rows = file.metadata.row_group(group).num_rows
                    found.append((name, group, start, start + rows))
                    start += rows
        return found

    def places(self, numbers: Numbers) -> Numbers:
        """Where in the table each value of column `row` is; all of them are there."""
        row = np.concatenate([pq.read_table(self.folder / n, columns=["row"])["row"] for n in self.manifest.parts])
        order = np.argsort(row, kind="stable")
        places: Numbers = order[np.searchsorted(row, numbers, sorter=order)]
        return places

    def neighbours(self, places: Numbers) -> Rows:
        """Old neighbours at some ascending places, (q, width) int32."""
        width = int(self.manifest.facts["width"])
        out = np.empty((len(places), width), np.int32)
        for i, (_, _, start, stop) in enumerate(self.groups):
            lo, hi = np.searchsorted(places, [start, stop]).tolist()
            if lo < hi:
                out[lo:hi] = self._group(i)[places[lo:hi] - start]
        return out

    def stands(self, places: Numbers, stays: NDArray[np.bool_], first: int) -> NDArray[np.bool_]:
        """Say of some ascending places whether all neighbours there stay; `stays` is by old row, less `first`."""
        out = np.empty(len(places), bool)
        for i, (_, _, start, stop) in enumerate(self.groups):
            lo, hi = np.searchsorted(places, [start, stop]).tolist()
            if lo < hi:
                out[lo:hi] = stays[self._group(i)[places[lo:hi] - start] - first].all(axis=1)
        return out

    def _group(self, i: int) -> Rows:
        """Neighbours of one row group; the last one that was read is kept."""
        if self._last[0] != i:
            name, group, start, stop = self.groups[i]
            with pq.ParquetFile(self.folder / name) as file:
                lists = file.read_row_group(group, columns=["neighbours"])["neighbours"]
            self._last = i, pc.list_flatten(lists).to_numpy().reshape(stop - start, -1)
        return self._last[1]
