"""Word mover's distance as relevance: an opened encoding and its exact neighbours.

The relaxed word mover's distance (Kusner et al., ICML 2015, section 3) is a lower bound: each word moves completely to
the nearest word of the other caption. Relaxed from the candidate's side, it is a sum over the candidate's words of
their distances to the nearest word of the reference. These distances are computed once per reference for all words of
candidates (as in Atasu et al., IEEE Big Data 2017). Pooling and relevance are monotone, so the bounds of a set's
captions give a bound for the set. Candidates are scored by descending bound on their relevance, until the bound is
below the k-th best relevance.

Kusner's word centroid distance is not used. On COCO's test captions, it is a better bound for only 0.1% of the pairs,
and it is slower.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from typing_extensions import override

from relabel.core.numeric.threads import run_chunks, single_blas_thread
from relabel.core.runtime import Advance, Runtime
from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import References
from relabel.sources.finder import Finder, Search
from relabel.sources.relevance import Relevance
from relabel.sources.wmd.distance import CODES, Bags, distances, pool_to_captions
from relabel.store.workdir import Work

_BATCH = 64  # minimum number of candidates per batch of a search
_SLACK = 1.0 - 1e-12  # keeps the bound below the distance despite different orders of summation
NewText = Callable[[str], tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]]


@dataclass(frozen=True, eq=False, repr=False)
class WmdRelevance(Relevance):
    """Relevance 1 - d / reach, in [0, 1], of word mover's distances d that are pooled over references.

    `reach` is twice the maximum norm of a word vector, an upper bound on all distances. Relevance is linear in the
    distance, because human scores nearly are. Losses of label distances can use 1 - r, the distance up to a constant
    factor; the log-ratio loss does not depend on this factor. `distances` returns d, in [0, inf].

    `bags`: bags of the encoded rows.
    `vectors`: (V, D) float32.
    `encode_text`: returns the words of a new text as ascending rows of `vectors` (new words from V on), their counts,
        and the vectors of the new words.
    """

    bags: Bags
    vectors: NDArray[np.float32]
    encode_text: NewText
    threads: int

    @override
    def pairs(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        return self.set_pairs(references, References.single(captions), pooling)

    @override
    def set_pairs(self, references: References, others: References, pooling: Pooling | None = None) -> Scores:
        pooling = pooling or self.pooling
        sizes = np.diff(references.indptr) + np.diff(others.indptr)
        return self.relevance_of(self.distances(references, others, pooling), sizes, pooling)

    @override
    def query(self, text: str, captions: Rows) -> Scores:
        words, counts, vectors = self.encode_text(text)
        indptr = np.append(self.bags.indptr, self.bags.indptr[-1] + len(words))
        bags = Bags.of(indptr, np.append(self.bags.words, words), np.append(self.bags.counts, counts))
        every = np.vstack([self.wide, vectors.astype(np.float64)])
        text_bag = References.single(np.full(len(captions), len(self.rows), np.int32))
        others = References.single(self.positions(captions).astype(np.int32))
        return self.relevance_of(distances(bags, every, text_bag, others, "first", self.threads))

    def distances(self, references: References, others: References, pooling: Pooling | None = None) -> Scores:
        """Compute the symmetric distances of P pairs of sets of rows, (P,) float64 in [0, inf].

        Poolings are described in `relabel.sources.wmd.distance.distances`. The distance is infinite if no caption of a
        set has a word with a vector. A single caption without word vectors counts as the mean of the others.
        """
        pooling = pooling or self.pooling
        left, right = self.set_positions(references, pooling), self.set_positions(others, pooling)
        return distances(self.bags, self.wide, left, right, pooling, self.threads)

    @override
    def finder(self, search: Search, pooling: Pooling | None, runtime: Runtime) -> WmdFinder:
        return WmdFinder(self, search, pooling or self.pooling, runtime)

    def relevance_of(self, distances: Scores, sizes: NDArray[np.int64] | int = 2, pooling: Pooling = "first") -> Scores:
        """Convert distances to relevance: 1 - d / reach, in [0, 1].

        `distances`: (P,) float64. `sizes`: (P,) int64 or int; total number of captions of both sets. With pooling
        `set`, each caption adds a term of at most `reach`.
        """
        return np.maximum(0.0, 1.0 - distances / (self.reach * (sizes if pooling == "set" else 1)))

    @cached_property
    def reach(self) -> float:
        """Upper bound on the distances of words. Words of new texts may exceed it; relevance is then 0."""
        return reach_of(self.vectors)

    @cached_property
    def wide(self) -> NDArray[np.float64]:
        """Word vectors in float64, (V, D)."""
        return np.ascontiguousarray(self.vectors, np.float64)


@dataclass(frozen=True, eq=False)
class WmdFinder(Finder):
    """Neighbours of reference sets by word mover's distance."""

    relevance: WmdRelevance
    search: Search
    pooling: Pooling
    runtime: Runtime

    @override
    def find(self, work: Work | None, queries: range, advance: Advance) -> tuple[Rows, Scores]:
        shape = (len(queries), self.search.width)
        rows, scores = np.empty(shape, np.int32), np.empty(shape)

        def find_some(lo: int, hi: int) -> None:
            for i in range(lo, hi):
                rows[i], scores[i] = self._find_one(queries.start + i)

        if shape[1]:
            # The products of one query are too small for several BLAS threads.
            with single_blas_thread():
                run_chunks(find_some, len(queries), self.runtime.threads, 1, advance)
        else:
            advance(len(queries))
        return rows, scores

    def _find_one(self, query: int) -> tuple[Rows, Scores]:
        """Find the neighbours of one query: rows and relevance, (width,) each."""
        candidates, width = self.search.candidates, self.search.width
        references = self.search.queries.take(np.array([query]))
        bound = self._bound_relevance(references)
        order = np.argsort(-bound)
        order = order[candidates[order] != self.search.exclude[query]]
        best, scores, step = np.empty(0, np.int32), np.empty(0), max(width, _BATCH)
        for start in range(0, len(order), step):
            batch = order[start : start + step]
            # Keep candidates with an equal bound: at equal relevance, the smaller row wins.
            if len(best) == width:
                batch = batch[bound[batch] >= scores[-1]]
            if not len(batch):
                break
            copies = references.take(np.zeros(len(batch), np.int64))
            rows = np.append(best, candidates[batch])
            scores = np.append(scores, self.relevance.pairs(copies, candidates[batch], self.pooling))
            order_of_best = np.lexsort((rows, -scores))[:width]
            best, scores = rows[order_of_best], scores[order_of_best]
        return best, scores

    def _bound_relevance(self, references: References) -> Scores:
        """Return upper bounds on the relevance of all candidates to a reference set: (C,) float64."""
        relevance, weights, vectors = self.relevance, self._weights, self.relevance.wide
        bags = relevance.bags.take(relevance.positions(references.rows))
        # The distance to a caption without words is infinite.
        has_words = bags.totals > 0
        minimum = np.full((weights.shape[0], len(references.rows)), np.inf)
        if has_words.any():
            # Squared distances by a matrix product, minus a bound on its rounding error.
            squared = self._squared[bags.words][:, None] + self._squared - 2.0 * (vectors[bags.words] @ vectors.T)
            rounding = (vectors.shape[1] + 4) * 2.0**-52 * relevance.reach**2
            word_distances = np.sqrt(np.maximum(squared - rounding, 0.0))
            # Every word moves at least the distance to the nearest word of the reference.
            near = np.minimum.reduceat(word_distances, bags.indptr[:-1][has_words])
            minimum[:, has_words] = (weights @ near.T) * _SLACK
            minimum[np.diff(weights.indptr) == 0] = np.inf
        bound = np.empty(len(minimum))
        pool_to_captions(minimum, CODES[self.pooling], bound)
        return relevance.relevance_of(bound, len(references.rows) + 1, self.pooling)

    @cached_property
    def _weights(self) -> csr_array:
        """Relative frequencies of the words of each candidate, (C, V)."""
        bags = self.relevance.bags.take(self.relevance.positions(self.search.candidates))
        shares = bags.counts / np.repeat(bags.totals, np.diff(bags.indptr))
        return csr_array((shares, bags.words, bags.indptr), shape=(len(bags.totals), len(self.relevance.vectors)))

    @cached_property
    def _squared(self) -> NDArray[np.float64]:
        """Squared norms of the word vectors, (V,)."""
        return np.asarray((self.relevance.wide**2).sum(axis=1))


def reach_of(vectors: NDArray[np.float32]) -> float:
    """Return twice the maximum norm of (V, D) vectors, or 1 if all are zero."""
    wide = vectors.astype(np.float64)
    return 2.0 * float(np.sqrt(max((vector * vector).sum() for vector in wide))) or 1.0
