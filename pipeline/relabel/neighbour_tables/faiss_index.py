"""Approximate neighbours from a faiss index, for exploring very large corpora, and their recall.

The candidates that the index returns are scored exactly. Recall is measured with an exact search for a sample of
queries and recorded in the manifest.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel.core.runtime import Advance, Runtime
from relabel.core.types import Pooling, Rows, Scores
from relabel.sources.finder import Finder, Search
from relabel.sources.relevance import Relevance
from relabel.store.arrays import save_index
from relabel.store.workdir import Step, Task, Work
from relabel.topk.vector_index import MAX_GPU_NEIGHBOURS, change_index, import_faiss, make_index, to_device

FILE = "search.faiss"
QUERIES, SEED = 1000, 0
"""Number of queries in the sample for recall, and its random seed."""
_BATCH = 256  # queries per call of the index


@dataclass(frozen=True, eq=False)
class IndexFinder(Finder):
    """Approximate search for neighbours with a faiss index.

    Pooling `max` searches with every reference of a set, `mean` with the mean of the references, and `first` with the
    first one. If the index returns fewer than k candidates, the list is filled with the first captions of the corpus
    and their exact scores.

    `factory`: string for `faiss.index_factory`.
    """

    relevance: Relevance
    search: Search
    pooling: Pooling
    runtime: Runtime
    factory: str

    def build(self, work: Work) -> Step:
        """Return the step that builds the index of all candidates."""
        return Step(f"index ({self.factory})", "captions", [Task(FILE, self._write, len(self.search.candidates))])

    def _write(self, path: Path) -> None:
        """Train and fill the index."""
        vectors = self._vectors(self.search.candidates)

        def build(place: Any) -> None:
            if not place.is_trained:
                place.train(vectors)
            place.add(vectors)

        index = change_index(make_index(self.factory, vectors.shape[1]), self.factory, self.runtime.device, build)
        save_index(path, index)

    def find(self, work: Work, queries: range, advance: Advance) -> tuple[Rows, Scores]:
        """Search the index for a range of queries, and score the candidates exactly."""
        faiss = import_faiss()
        stored = faiss.read_index(str(work.folder / FILE))
        index = to_device(stored, self.runtime.device) if self._count <= MAX_GPU_NEIGHBOURS else stored
        shape = (len(queries), self.search.width)
        rows, scores = np.empty(shape, np.int32), np.empty(shape)

        def run(start: int) -> int:
            # Applies to this thread only. Batches do not depend on the number of threads.
            faiss.omp_set_num_threads(1)
            numbers = np.arange(start, min(start + _BATCH, queries.stop))
            batch = slice(start - queries.start, start - queries.start + len(numbers))
            rows[batch], scores[batch] = self._rank(numbers, self._lookup(index, numbers))
            return len(numbers)

        # An index on a GPU can only be searched by one thread at a time.
        with ThreadPoolExecutor(self.runtime.threads if index is stored else 1) as pool:
            for done in pool.map(run, range(queries.start, queries.stop, _BATCH)):
                advance(done)
        return rows, scores

    @property
    def _count(self) -> int:
        """Number of candidates per query."""
        # k + 1, because the query itself is usually among them.
        return min(self.search.k + 1, len(self.search.candidates))

    def _lookup(self, index: Any, numbers: NDArray[np.int64]) -> Rows:
        """Return the distinct rows that the index returns for each query, (q, m) int32, padded with -1."""
        sets = self.search.queries.take(numbers)
        vectors = self._vectors(sets.first().rows if self.pooling == "first" else sets.rows)
        if self.pooling == "mean":
            # The sum has the direction of the mean, and a search by cosine depends only on the direction.
            vectors = np.add.reduceat(vectors, sets.indptr[:-1], axis=0)
        # Vectors per query.
        sizes = np.diff(sets.indptr) if self.pooling == "max" else np.ones(len(numbers), np.int64)
        count = self._count
        positions = index.search(vectors, count)[1]
        rows = np.where(positions >= 0, self.search.candidates[positions], -1)
        # One line of candidates per vector, with padding for sets of fewer references.
        padded = np.full((len(numbers), int(sizes.max()), count), -1, np.int32)
        padded[np.arange(sizes.max()) < sizes[:, None]] = rows
        # Sort to make duplicates adjacent, and replace all but the first by padding.
        distinct = np.sort(padded.reshape(len(numbers), -1), axis=1)
        distinct[:, 1:][distinct[:, 1:] == distinct[:, :-1]] = -1
        distinct[distinct == self.search.exclude[numbers][:, None]] = -1
        return distinct

    def _rank(self, numbers: NDArray[np.int64], rows: Rows) -> tuple[Rows, Scores]:
        """Fill short lists, score all candidates exactly and sort them by (-score, row)."""
        width = self.search.width
        for i in np.flatnonzero((rows >= 0).sum(axis=1) < width):
            rows[i] = self._fill(rows[i], int(self.search.exclude[numbers[i]]))
        # Padding keeps -inf and is sorted after all candidates.
        scores = np.full(rows.shape, -np.inf)
        query, column = np.nonzero(rows >= 0)
        sets = self.search.queries.take(numbers[query])
        scores[query, column] = self.relevance.pairs(sets, rows[query, column], self.pooling)
        order = np.lexsort((rows, -scores))[:, :width]
        return np.take_along_axis(rows, order, 1), np.take_along_axis(scores, order, 1)

    def _fill(self, rows: Rows, itself: int) -> Rows:
        """Append the first candidates that are not in a list, up to the width of the table."""
        present = rows[rows >= 0]
        first = self.search.candidates[: self.search.width + len(present) + 1]
        more = first[~np.isin(first, present) & (first != itself)]
        out = np.full(len(rows), -1, np.int32)
        filled = np.concatenate([present, more[: self.search.width - len(present)]])
        out[: len(filled)] = filled
        return out

    def _vectors(self, rows: Rows) -> NDArray[np.float32]:
        positions = self.relevance.positions(rows)
        vectors = self.relevance.unit_vectors()
        assert vectors is not None, "only sources with vectors support an index"
        return np.nan_to_num(vectors[positions])  # failed rows are NaN, but faiss needs finite vectors


def draw_sample(queries: int) -> NDArray[np.int64]:
    """Draw the sample of queries for the recall of an index: (q,) int64, ascending."""
    return np.sort(np.random.default_rng(SEED).choice(queries, min(QUERIES, queries), replace=False))


def recall(exact: Scores, approximate: NDArray[np.float32]) -> float:
    """Return the share of the k best neighbours that an index returns. Ties with the k-th count as hits.

    `exact`, `approximate`: (q, k) scores of the neighbours from the exact search and from the index.
    """
    kth = exact[:, -1:].astype(np.float32)
    # Not "approximate >= kth": failed rows have NaN scores, and count as hits.
    return float((~(approximate < kth)).mean()) if approximate.size else 1.0
