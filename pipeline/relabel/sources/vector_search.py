"""Exact neighbours by vectors: screened by matrix products, scored by the kernel that `pairs` uses, ordered by that.

Every list is one of a vector: the best of its cosines. `max` merges the lists of a set's references, for the best of a
set are among the best of each of its references that they are best for; `paired` takes that of the first; `mean` has
lists of whole sets. Where most candidates ask, all lists are made together, each product serving both its captions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from relabel.core.progress import Advance
from relabel.core.runtime import Runtime
from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import References
from relabel.sources.finder import Finder, Search
from relabel.store.tasks import Task, TaskGroup
from relabel.store.workdir import Work
from relabel.topk.bounded_matmul import Arithmetic
from relabel.topk.gpu_search import GpuSearch
from relabel.topk.merge import TopK, merge_references, topk_bytes
from relabel.topk.query_search import QuerySearch
from relabel.topk.self_join import SelfJoin

I8 = NDArray[np.int64]
_STEP = 1 << 14  # vectors that are looked at together
_MOST = 64 << 20  # bytes of lists that are merged at once, however much memory there is


@dataclass(eq=False)
class VectorFinder(Finder):
    """Neighbours of reference sets by cosine. See Finder.

    A vector that is not finite stands for a failed row: it is nobody's neighbour while there are others (it comes last,
    with score NaN), and a set that counts one has the first candidates with score NaN.

    Attributes
    ----------
    vectors : (N, D) float32
    first : int
        Corpus row of ``vectors[0]``.
    search : Search
    pooling : "paired", "max" or "mean"
    runtime : Runtime
    arithmetic : Arithmetic, optional
        What screens; changes nothing but the time.
    """

    vectors: NDArray[np.float32]
    first: int
    search: Search
    pooling: Pooling
    runtime: Runtime
    arithmetic: Arithmetic | None = None

    def preliminary(self, work: Work) -> TaskGroup | None:
        """See Finder.preliminary: all candidates against all, if most of them ask."""
        return self._together.task_group(work) if self._all_ask and min(self._keep, self.search.width) else None

    def prepare(self, work: Work, task: Task, advance: Advance) -> None:
        """See Finder.prepare."""
        self._together.make(work, task, advance)

    def find(self, work: Work, queries: range, advance: Advance) -> tuple[Rows, Scores]:
        """See Finder.find."""
        shape = (len(queries), self.search.width)
        rows, scores = np.empty(shape, np.int32), np.empty(shape)
        for a in range(0, len(queries), self._step):
            some = range(queries.start + a, min(queries.start + a + self._step, queries.stop))
            rows[a : a + len(some)], scores[a : a + len(some)] = self._find(work, some)
            advance(len(some))
        return rows, scores

    def _find(self, work: Work, queries: range) -> tuple[Rows, Scores]:
        """Find the neighbours of a few queries."""
        sets = self._sets.take(np.arange(queries.start, queries.stop))
        exclude = self.search.exclude[queries.start : queries.stop]
        fine = np.flatnonzero(np.logical_and.reduceat(self._finite[sets.rows], sets.indptr[:-1]))
        numbers, scores = (
            np.full((len(sets), self.search.width), -1, np.int32),
            np.full((len(sets), self.search.width), np.nan),
        )
        if len(fine) and min(self._keep, self.search.width):
            some = sets.take(fine)
            indptr, members, lists = self._lists(work, some)
            found = TopK.empty(len(fine), self.search.width)
            left_out = self._number_of(exclude[fine])
            merge_references(indptr, members, lists, left_out, np.full(len(self._places), -1, np.int32), found)
            held = np.arange(self.search.width) < found.sizes[:, None]
            numbers[fine] = np.where(held, found.numbers, -1)
            scores[fine] = np.where(held, found.scores, np.nan)
        rows = self._rows[numbers]
        for i in np.flatnonzero((numbers < 0).any(axis=1)):  # failed candidates, or a failed query
            count = int((numbers[i] >= 0).sum())
            rest = self.search.candidates[: self.search.width + 1] if count == 0 else self._failed
            rows[i, count:] = rest[rest != exclude[i]][: self.search.width - count]
        return rows, scores

    def _lists(self, work: Work, sets: References) -> tuple[I8, I8, TopK]:
        """Find the lists of some sets: which list each set has, and the lists."""
        if self.pooling == "mean" and len(sets.rows) > len(sets):
            return np.arange(len(sets) + 1), np.arange(len(sets)), self._each.search(sets)
        places, members = np.unique(sets.rows, return_inverse=True)
        if self._all_ask:
            lists = self._together.read(work, np.searchsorted(self._places, places))
        else:
            lists = self._each.search(References.single(places))
        return sets.indptr, np.asarray(members.reshape(-1), np.int64), lists

    def _number_of(self, rows: Rows) -> I8:
        """Numbers of candidates by corpus row; -1 for a row that is none."""
        places = rows.astype(np.int64) - self.first
        at = np.minimum(np.searchsorted(self._places, places), len(self._places) - 1)
        return np.where(self._places[at] == places, at, -1)

    @cached_property
    def _sets(self) -> References:
        """Places of what counts of each query."""
        sets = self.search.queries
        if self.pooling == "paired":
            sets = References.single(sets.rows[sets.indptr[:-1]])
        places = sets.rows.astype(np.int64) - self.first
        if len(places) and (places.min() < 0 or places.max() >= len(self.vectors)):
            raise IndexError(f"rows {sets.rows.min()} to {sets.rows.max()} are not all among the encoded")
        return References(sets.indptr, places.astype(np.int32))

    @cached_property
    def _finite(self) -> NDArray[np.bool_]:
        """Say of each vector whether it is finite."""
        out = np.empty(len(self.vectors), bool)
        for a in range(0, len(out), _STEP):
            out[a : a + _STEP] = np.isfinite(self.vectors[a : a + _STEP]).all(axis=1)
        return out

    @cached_property
    def _places(self) -> I8:
        """Places of the candidates that have not failed, ascending."""
        places = self.search.candidates.astype(np.int64) - self.first
        return places[self._finite[places]]

    @cached_property
    def _rows(self) -> Rows:
        """Corpus rows of `_places`, and one more that number -1 reads."""
        return np.append(self._places + self.first, -1).astype(np.int32)

    @cached_property
    def _failed(self) -> Rows:
        """Candidates that have failed."""
        return self.search.candidates[~self._finite[self.search.candidates.astype(np.int64) - self.first]]

    @cached_property
    def _keep(self) -> int:
        """Candidates of a list: itself may be one, and is left out later."""
        itself = bool((self.search.exclude >= 0).any())
        return min(self.search.width + itself, len(self._places))

    @cached_property
    def _all_ask(self) -> bool:
        """Say whether the candidates ask, and most of them: else it takes fewer products to search for each query."""
        if self._device != "cpu" or (self.pooling == "mean" and len(self._sets.rows) > len(self._sets)):
            return False
        asked = np.unique(self._sets.rows[self._finite[self._sets.rows]])
        return 2 * len(asked) > len(self._places) and bool(np.isin(asked, self._places).all())

    @cached_property
    def _step(self) -> int:
        """Queries whose lists fit into a quarter of the memory."""
        lists = 1 if self.pooling == "mean" else int(np.diff(self._sets.indptr).max(initial=1))
        room = min(_MOST, self.runtime.memory // 4)
        return max(1, room // (2 * topk_bytes(self._keep) * lists))

    @cached_property
    def _together(self) -> SelfJoin:
        return SelfJoin(self.vectors, self._places, self._keep, self.runtime, self.arithmetic)

    @cached_property
    def _each(self) -> QuerySearch | GpuSearch:
        pooling: Pooling = "mean" if self.pooling == "mean" else "paired"
        on_gpu = self._device != "cpu"
        arithmetic: Arithmetic | None = "float32" if on_gpu else self.arithmetic
        each = QuerySearch(self.vectors, self._places, self._keep, pooling, self.runtime, arithmetic)
        return GpuSearch(each, self._device) if on_gpu else each

    @cached_property
    def _device(self) -> str:
        from relabel.core.runtime import pick_device

        return "cpu" if self.arithmetic else pick_device(self.runtime.device)
