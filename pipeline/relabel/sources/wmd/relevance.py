"""Word mover's distance as relevance: an opened encoding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from relabel.core.runtime import Runtime
from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import Corpus, References
from relabel.sources.finder import Search
from relabel.sources.relevance import Relevance
from relabel.sources.wmd.distance import Bags, distances
from relabel.sources.wmd.search import WmdFinder
from relabel.sources.wmd.set_distance import CODES, of_sets, pooled

_CELLS = 1 << 20  # distances of captions held at once
NewText = Callable[[str], tuple[list[int], NDArray[np.int64], NDArray[np.float32]]]


@dataclass(frozen=True, eq=False)
class WmdRelevance(Relevance):
    """Relevance 1 - d / reach of word mover's distances d, pooled over references as distances; in [0, 1].

    `reach` is twice the length of the longest word vector, which no distance exceeds. So relevance is linear in the
    distance, as people's scores nearly are, and 1 - r is the distance but for one factor: what losses of label
    distances take (log-ratio does not see the factor). `distances` and `set_distances` keep their range, [0, inf].

    Attributes
    ----------
    bags : Bags
        Of the encoded rows.
    vectors : (V, D) float32
    encode_text : callable
        Turns a new text into its words by line of `vectors` (ascending, with those from V on being new), how often
        each is there, and the vectors of the new ones.
    threads : int
    """

    corpus: Corpus
    rows: range
    pooling: Pooling
    bags: Bags
    vectors: NDArray[np.float32]
    encode_text: NewText
    threads: int

    @override
    def pairs(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        terms = np.diff(references.indptr) + 1 if (pooling or self.pooling) == "refs" else 1
        return self.relevance_of(self.distances(references, captions, pooling), terms)

    @override
    def set_pairs(self, references: References, others: References, pooling: Pooling | None = None) -> Scores:
        refs = (pooling or self.pooling) == "refs"
        terms = np.diff(references.indptr) + np.diff(others.indptr) if refs else 1
        return self.relevance_of(self.set_distances(references, others, pooling), terms)

    @override
    def query(self, text: str, captions: Rows) -> Scores:
        words, counts, vectors = self.encode_text(text)
        bags = self.bags.with_one(np.array(words, np.int32), counts)
        every = np.vstack([self.wide, vectors.astype(np.float64)])
        asked = np.full(len(captions), len(self.rows), np.int64)
        return self.relevance_of(distances(bags, every, asked, self.positions(captions), self.threads))

    def distances(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        """Distance of P reference sets to a caption each, (P,) float64 in [0, inf].

        `refs`: the set distance to the caption as a set (LogRatio, eq. 13); `max`, the least: relevance is greatest;
        `mean`; `paired`, of the first reference. Infinite where the caption has no known word, or no reference has one;
        a reference without any counts as the mean of the others.
        """
        how = pooling or self.pooling
        if how == "paired":
            references = References.single(references.rows[references.indptr[:-1]])
        each = np.repeat(np.asarray(captions), np.diff(references.indptr))
        out = np.empty(len(references))
        pooled(self._between(references.rows, each), references.indptr, CODES[how], out)
        return out

    def set_distances(self, references: References, others: References, pooling: Pooling | None = None) -> Scores:
        """Distances of P pairs of sets, (P,) float64 in [0, inf]; symmetric.

        `refs`: W(X, Y) = sum_x min_y W(x, y) + sum_y min_x W(x, y) (LogRatio, eq. 13); `max`: the least of all pairs of
        captions; `mean`: their mean; `paired`: of the first captions.
        """
        out = np.empty(len(references))
        sizes, widths = np.diff(references.indptr), np.diff(others.indptr)
        cells = np.concatenate([[0], np.cumsum(sizes * widths)])
        a = 0
        while a < len(out):
            b = max(a + 1, int(np.searchsorted(cells, cells[a] + _CELLS, "right")) - 1)
            left, right = references.take(np.arange(a, b)), others.take(np.arange(a, b))
            one = np.repeat(left.rows, np.repeat(widths[a:b], sizes[a:b]))
            other = right.take(np.repeat(np.arange(b - a), sizes[a:b])).rows
            of_sets(self._between(one, other), sizes[a:b], widths[a:b], CODES[pooling or self.pooling], out[a:b])
            a = b
        return out

    @override
    def finder(self, search: Search, pooling: Pooling | None, runtime: Runtime) -> WmdFinder:
        return WmdFinder(self, search, pooling or self.pooling, runtime)

    def relevance_of(self, distances: Scores, terms: NDArray[np.int64] | int = 1) -> Scores:
        """Map distances to relevance: 1 - d / reach, in [0, 1].

        Parameters
        ----------
        distances : (P,) float64
        terms : (P,) int64 or 1
            Of a set distance: the captions of both sets, for each adds up to `reach`.
        """
        return np.maximum(0.0, 1.0 - distances / (self.reach * terms))

    @cached_property
    def reach(self) -> float:
        """No two of these words are farther apart; words of a new text may be, and have relevance 0 then."""
        return reach_of(self.vectors)

    @cached_property
    def wide(self) -> NDArray[np.float64]:
        """Word vectors in float64: (V, D)."""
        return np.ascontiguousarray(self.vectors, np.float64)

    def _between(self, one: Rows, other: Rows) -> Scores:
        return distances(self.bags, self.wide, self.positions(one), self.positions(other), self.threads)


def reach_of(vectors: NDArray[np.float32]) -> float:
    """Twice the length of the longest of (V, D) vectors; 1 where all are zero."""
    wide = vectors.astype(np.float64)
    return 2.0 * float(np.sqrt(max((one * one).sum() for one in wide))) or 1.0
