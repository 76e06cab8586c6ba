"""Approximate neighbours by a faiss index, for a first look at a very large corpus; and how many it misses.

What the index finds is scored exactly. Recall is measured against an exact search and stands in the manifest.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel.core.progress import Advance
from relabel.core.runtime import Runtime
from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import References
from relabel.sources.cosine import index_errors, make_index
from relabel.sources.finder import Finder, Search
from relabel.sources.relevance import Relevance
from relabel.store.safe_writers import save_index
from relabel.store.tasks import Task, TaskGroup
from relabel.store.workdir import Work

FILE = "search.faiss"
QUERIES, SEED = 1000, 0
"""How many queries recall is measured on, and the seed that draws them."""
_TOGETHER = 256  # queries of one thread


@dataclass(frozen=True, eq=False)
class IndexFinder(Finder):
    """Neighbours by a faiss index. See Finder; not exact.

    Of reference sets pooled by `max` each reference is searched, by `mean` their mean. Where the index finds fewer than
    k, the first captions of the corpus fill up, with their own scores.

    Attributes
    ----------
    relevance : Relevance
    search : Search
    pooling : Pooling
    runtime : Runtime
    factory : str
        Index factory string, as `faiss.index_factory` takes it.
    """

    relevance: Relevance
    search: Search
    pooling: Pooling
    runtime: Runtime
    factory: str

    def preliminary(self, work: Work) -> TaskGroup:
        """The index over all candidates."""
        return TaskGroup(f"index ({self.factory})", "captions", [Task(FILE, len(self.search.candidates))])

    def prepare(self, work: Work, task: Task, advance: Advance) -> None:
        """Train and fill the index, on one thread: more would give another index on every run."""
        import faiss

        vectors = self._vectors(self.search.candidates)
        index, threads = make_index(self.factory, vectors.shape[1]), faiss.omp_get_max_threads()
        faiss.omp_set_num_threads(1)
        try:
            with index_errors(self.factory):
                if not index.is_trained:
                    index.train(vectors)
                index.add(vectors)
        finally:
            faiss.omp_set_num_threads(threads)
        work.file(FILE, lambda path: save_index(path, index))
        advance(task.size)

    def find(self, work: Work, queries: range, advance: Advance) -> tuple[Rows, Scores]:
        """See Finder.find."""
        import faiss

        index = faiss.read_index(str(work.folder / FILE))
        shape = (len(queries), self.search.width)
        rows, scores = np.empty(shape, np.int32), np.empty(shape)

        def some(start: int) -> int:
            faiss.omp_set_num_threads(1)  # of this thread alone; batches never depend on how many threads there are
            part = slice(start - queries.start, min(start + _TOGETHER, queries.stop) - queries.start)
            numbers = np.arange(start, min(start + _TOGETHER, queries.stop))
            rows[part], scores[part] = self._best(numbers, self._found(index, numbers))
            return len(numbers)

        with ThreadPoolExecutor(self.runtime.threads) as pool:
            for done in pool.map(some, range(queries.start, queries.stop, _TOGETHER)):
                advance(done)
        return rows, scores

    def _found(self, index: Any, numbers: NDArray[np.int64]) -> Rows:
        """(q, m) int32: rows that the index finds for each query, -1 where there is none; the query itself left out."""
        sets = self.search.queries.take(numbers)
        if self.pooling == "mean":
            sums = np.add.reduceat(self._vectors(sets.rows), sets.indptr[:-1], axis=0)
            asked, sets = sums, References.single(np.zeros(len(numbers), np.int32))
        elif self.pooling == "paired":
            asked = self._vectors(sets.rows[sets.indptr[:-1]])
            sets = References.single(np.zeros(len(numbers), np.int32))
        else:
            asked = self._vectors(sets.rows)
        many = min(self.search.k + 1, len(self.search.candidates))
        at = index.search(asked, many)[1]
        found = np.where(at >= 0, self.search.candidates[at], -1)
        sizes = np.diff(sets.indptr)
        out = np.full((len(numbers), int(sizes.max()), many), -1, np.int32)
        out[np.arange(sizes.max()) < sizes[:, None]] = found
        flat = np.sort(out.reshape(len(numbers), -1), axis=1)
        flat[:, 1:][flat[:, 1:] == flat[:, :-1]] = -1
        flat[flat == self.search.exclude[numbers][:, None]] = -1
        return flat

    def _best(self, numbers: NDArray[np.int64], found: Rows) -> tuple[Rows, Scores]:
        """Fill up, score and order what was found."""
        width = self.search.width
        for i in np.flatnonzero((found >= 0).sum(axis=1) < width):
            found[i] = self._filled(found[i], int(self.search.exclude[numbers[i]]))
        scores = np.full(found.shape, -np.inf)
        query, at = np.nonzero(found >= 0)
        asked = self.search.queries.take(numbers[query])
        scores[query, at] = self.relevance.pairs(asked, found[query, at], self.pooling)
        order = np.lexsort((found, -scores))[:, :width]
        return np.take_along_axis(found, order, 1), np.take_along_axis(scores, order, 1)

    def _filled(self, found: Rows, itself: int) -> Rows:
        known = found[found >= 0]
        first = self.search.candidates[: self.search.width + len(known) + 1]
        more = first[~np.isin(first, known) & (first != itself)]
        out = np.full(len(found), -1, np.int32)
        whole = np.concatenate([known, more[: self.search.width - len(known)]])
        out[: len(whole)] = whole
        return out

    def _vectors(self, rows: Rows) -> NDArray[np.float32]:
        places = np.asarray(rows, np.int64) - self.relevance.rows.start
        vectors = self.relevance.unit_vectors()
        assert vectors is not None, "a source without vectors takes no index"
        return np.nan_to_num(vectors[places])  # faiss takes no NaN, which stands for a failed row


@dataclass(frozen=True)
class Sample:
    """Some queries of a search, drawn by a seed."""

    numbers: NDArray[np.int64]
    search: Search

    @classmethod
    def of(cls, search: Search) -> Sample:
        """Draw them."""
        every = len(search.queries)
        numbers = np.sort(np.random.default_rng(SEED).choice(every, min(QUERIES, every), replace=False))
        queries = search.queries.take(numbers)
        return cls(numbers, Search(queries, search.exclude[numbers], search.candidates, search.k))

    def recall(self, exact: Scores, found: NDArray[np.float32]) -> dict[str, Any]:
        """Say what share of the best k was found; equals of the k-th count as found.

        Parameters
        ----------
        exact : (q, width) float64
            Scores of the best.
        found : (q, width) float32
            Scores of what was found.
        """
        least = exact[:, -1:].astype(np.float32)
        value = float((~(found < least)).mean()) if found.size else 1.0  # a failed row has no best to miss
        return {"at": self.search.width, "value": value, "queries": len(self.numbers), "seed": SEED}
