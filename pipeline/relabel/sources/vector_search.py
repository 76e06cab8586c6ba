"""Exact neighbours by cosine, prefiltered by matrix products and scored by the kernel of `pairs`.

The search computes a list of the best candidates for each vector. The lists of reference sets are derived from them:

- `max` merges the lists of a set's references. A candidate among the best of a set is also among the best of the
  reference with the maximum.
- `first` uses the list of the first reference.
- `mean` searches with complete sets.

If more than half of the candidates are also queries, all lists are computed together by a self-join, and each product
is used for both captions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.csr import owners
from relabel.core.runtime import Advance, Runtime, pick_device
from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import References
from relabel.sources.finder import Finder, Search
from relabel.sources.relevance import positions_in
from relabel.store.workdir import Step, Work
from relabel.topk.merge import TopK, merge_lists, topk_bytes
from relabel.topk.query_search import GpuSearch, QuerySearch
from relabel.topk.screen import Screen
from relabel.topk.self_join import SelfJoin

I8 = NDArray[np.int64]
_LIST_BYTES = 64 << 20  # maximum size of lists merged together, even if more memory is available


@dataclass(eq=False)
class VectorFinder(Finder):
    """Finder of the neighbours of reference sets by cosine.

    A vector that is not finite marks a failed row. It is added at the end of a list, with score NaN, only if there are
    too few other candidates. A set with a failed reference that the pooling uses gets the first candidates with NaN.

    `vectors`: (N, D) float32.
    `first`: corpus row of ``vectors[0]``.
    """

    vectors: NDArray[np.float32]
    first: int
    search: Search
    pooling: Pooling
    runtime: Runtime

    def build(self, work: Work) -> Step | None:
        """Return the step of the self-join, if it is used."""
        needed = self._uses_self_join and min(self._list_length, self.search.width) > 0
        return self._self_join.step(work) if needed else None

    def find(self, work: Work, queries: range, advance: Advance) -> tuple[Rows, Scores]:
        """Find the neighbours of a range of queries, in steps that fit into memory."""
        shape = (len(queries), self.search.width)
        rows, scores = np.empty(shape, np.int32), np.empty(shape)
        for a in range(0, len(queries), self._queries_per_step):
            step = range(queries.start + a, min(queries.start + a + self._queries_per_step, queries.stop))
            rows[a : a + len(step)], scores[a : a + len(step)] = self._find_step(work, step)
            advance(len(step))
        return rows, scores

    def _find_step(self, work: Work, queries: range) -> tuple[Rows, Scores]:
        """Find the neighbours of the queries of one step."""
        sets = self._sets.take(np.arange(queries.start, queries.stop))
        exclude = self.search.exclude[queries.start : queries.stop]
        # Only sets with finite vectors are searched.
        complete = np.flatnonzero(np.logical_and.reduceat(self._finite[sets.rows], sets.indptr[:-1]))
        shape = (len(sets), self.search.width)
        numbers, scores = np.full(shape, -1, np.int32), np.full(shape, np.nan)
        if len(complete) and min(self._list_length, self.search.width):
            complete_sets = sets.take(complete)
            indptr, members, lists = self._lists(work, complete_sets)
            merged = TopK.empty(len(complete), self.search.width)
            # Exclude a query from its own list.
            excluded = self._candidate_numbers(exclude[complete])
            begin = members * lists.numbers.shape[1]
            flat = begin, begin + lists.sizes[members], lists.numbers.reshape(-1), lists.scores.reshape(-1)
            merge_lists(merged, owners(indptr), *flat, len(self._candidates), excluded)
            filled = np.arange(self.search.width) < merged.sizes[:, None]
            numbers[complete] = np.where(filled, merged.numbers, -1)
            scores[complete] = np.where(filled, merged.scores, np.nan)
        rows = self._rows[numbers]
        # Pad lists that are short because candidates failed, or empty because the query failed.
        for i in np.flatnonzero((numbers < 0).any(axis=1)):
            count = int((numbers[i] >= 0).sum())
            padding = self.search.candidates[: self.search.width + 1] if count == 0 else self._failed
            rows[i, count:] = padding[padding != exclude[i]][: self.search.width - count]
        return rows, scores

    def _lists(self, work: Work, sets: References) -> tuple[I8, I8, TopK]:
        """Return lists for the given sets, and for each set the indices of its lists in CSR form."""
        if self.pooling == "mean" and len(sets.rows) > len(sets):
            return np.arange(len(sets) + 1), np.arange(len(sets)), self._query_search.search(sets)
        # References shared by several sets are searched once.
        positions, members = np.unique(sets.rows, return_inverse=True)
        if self._uses_self_join:
            lists = self._self_join.read(work, np.searchsorted(self._candidates, positions))
        else:
            lists = self._query_search.search(References.single(positions))
        return sets.indptr, np.asarray(members.reshape(-1), np.int64), lists

    def _candidate_numbers(self, rows: Rows) -> I8:
        """Return the candidate numbers of corpus rows, or -1 for rows that are not candidates."""
        positions = rows.astype(np.int64) - self.first
        # `searchsorted` returns the end for rows above all candidates.
        number = np.minimum(np.searchsorted(self._candidates, positions), len(self._candidates) - 1)
        return np.where(self._candidates[number] == positions, number, -1)

    @cached_property
    def _sets(self) -> References:
        """Query sets as positions, with only the references that the pooling uses."""
        sets = self.search.queries
        if self.pooling == "first":
            sets = sets.first()
        positions = positions_in(sets.rows, range(self.first, self.first + len(self.vectors)))
        return References(sets.indptr, positions.astype(np.int32))

    @cached_property
    def _finite(self) -> NDArray[np.bool_]:
        """Mask of the finite vectors, (N,) bool."""
        # Sums avoid a mask of all components, and sums of unit vectors are finite.
        return np.asarray(np.isfinite(self.vectors.sum(axis=1)))

    @cached_property
    def _candidates(self) -> I8:
        """Ascending positions of the candidates that have not failed."""
        positions = self.search.candidates.astype(np.int64) - self.first
        return positions[self._finite[positions]]

    @cached_property
    def _rows(self) -> Rows:
        """Corpus rows of `_candidates`, followed by -1 for index -1."""
        return np.append(self._candidates + self.first, -1).astype(np.int32)

    @cached_property
    def _failed(self) -> Rows:
        """Candidates that have failed."""
        return self.search.candidates[~self._finite[self.search.candidates.astype(np.int64) - self.first]]

    @cached_property
    def _list_length(self) -> int:
        """Length of a list: one more than the width if a query can be its own candidate."""
        itself = bool((self.search.exclude >= 0).any())
        return min(self.search.width + itself, len(self._candidates))

    @cached_property
    def _uses_self_join(self) -> bool:
        """True if a self-join needs fewer products: more than half of the candidates are queries, and no others."""
        if self._device != "cpu" or (self.pooling == "mean" and len(self._sets.rows) > len(self._sets)):
            return False
        queries = np.unique(self._sets.rows[self._finite[self._sets.rows]])
        # A self-join costs half a product per pair, so it is faster if more than half of the candidates are queries.
        return 2 * len(queries) > len(self._candidates) and bool(np.isin(queries, self._candidates).all())

    @cached_property
    def _queries_per_step(self) -> int:
        """Number of queries per step, with lists that fit into a quarter of the memory."""
        lists = 1 if self.pooling == "mean" else int(np.diff(self._sets.indptr).max(initial=1))
        # A factor of 2 for the merged lists.
        room = min(_LIST_BYTES, self.runtime.memory // 4)
        return max(1, room // (2 * topk_bytes(self._list_length) * lists))

    @cached_property
    def _self_join(self) -> SelfJoin:
        """Search of all candidates among all candidates."""
        return SelfJoin(self.vectors, self._candidates, self._list_length, self.runtime)

    @cached_property
    def _query_search(self) -> QuerySearch | GpuSearch:
        """Search of given queries, on a GPU if available."""
        pooling: Pooling = "mean" if self.pooling == "mean" else "first"
        on_gpu = self._device != "cpu"
        kind: Screen | None = "float32" if on_gpu else None
        search = QuerySearch(self.vectors, self._candidates, self._list_length, pooling, self.runtime, kind)
        return GpuSearch(search, self._device) if on_gpu else search

    @cached_property
    def _device(self) -> str:
        """Device of the products."""
        return pick_device(self.runtime.device)
