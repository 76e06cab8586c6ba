"""Exact neighbours by a search that inverts candidates slab by slab and carries on the k best of each query."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Generic, TypeVar

import numpy as np
from typing_extensions import override

from relabel.core.progress import Advance
from relabel.core.runtime import Runtime
from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import References
from relabel.sources.finder import Finder, Search
from relabel.store.workdir import Work

Slab = TypeVar("Slab")
EMPTY_SLOT = np.iinfo(np.int32).max
"""A place of a heap that no candidate has taken; its score is -1."""
_SMALLEST = 4096  # candidates a slab, however little memory there is


@dataclass(frozen=True, eq=False)
class SlabFinder(Finder, Generic[Slab]):
    """A finder that inverts the candidates: all at once if they fit into memory, else slab after slab in each call.

    Attributes
    ----------
    relevance : Relevance
    search : Search
    pooling : Pooling
    runtime : Runtime
        Threads and memory.
    """

    relevance: Any
    search: Search
    pooling: Pooling
    runtime: Runtime

    @override
    def find(self, work: Work | None, queries: range, advance: Advance) -> tuple[Rows, Scores]:
        from relabel.core.numeric.heap import sort_heaps

        sets = self.search.queries.take(np.arange(queries.start, queries.stop))
        exclude = np.array(self.search.exclude[queries.start : queries.stop], np.int32)
        shape = (len(sets), self.search.width)
        rows, scores = np.full(shape, EMPTY_SLOT, np.int32), np.full(shape, -1.0)
        if 0 not in shape:
            places = self.relevance.set_positions(sets, self.pooling)
            for i, slab in enumerate(self._slabs()):

                def done(count: int, i: int = i) -> None:
                    advance(count * (i + 1) // self.count - count * i // self.count)

                self.search_slab(places, exclude, slab, rows, scores, done)
            sort_heaps(rows, scores)
            self.fill_missing(places, exclude, rows, scores)
        return rows, scores

    @abstractmethod
    def search_slab(
        self, sets: References, exclude: Rows, slab: Slab, rows: Rows, scores: Scores, done: Advance
    ) -> None:
        """Bring a slab's candidates into the heaps of all queries: rows and scores, (q, width)."""

    @abstractmethod
    def build_slab(self, rows: Rows) -> Slab:
        """Invert some candidates."""

    @abstractmethod
    def max_slab_rows(self) -> int:
        """How many candidates an inverted slab may have, by the memory there is."""

    def fill_missing(self, sets: References, exclude: Rows, rows: Rows, scores: Scores) -> None:
        """Fill lists, which are in order now, with what no search finds."""

    @cached_property
    def searchable(self) -> Rows:
        """Candidates that the search goes through."""
        return np.array(self.search.candidates, np.int32)

    @cached_property
    def count(self) -> int:
        """How many slabs the candidates are cut into."""
        return max(1, -(-len(self.searchable) // max(_SMALLEST, self.max_slab_rows())))

    def _slabs(self) -> Iterator[Slab]:
        if self.count == 1:
            yield self._whole
        else:
            edges = np.linspace(0, len(self.searchable), self.count + 1).astype(int).tolist()
            yield from (self.build_slab(self.searchable[lo:hi].copy()) for lo, hi in pairwise(edges))

    @cached_property
    def _whole(self) -> Slab:
        return self.build_slab(self.searchable)
