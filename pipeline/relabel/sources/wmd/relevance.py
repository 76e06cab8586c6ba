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
from relabel.sources.wmd.set_distance import CODES, pool_pairs_of_sets, pool_sets

_CELLS = 1 << 20  # distances of captions held at a time
NewText = Callable[[str], tuple[list[int], NDArray[np.int64], NDArray[np.float32]]]


@dataclass(frozen=True, eq=False, repr=False)
class WmdRelevance(Relevance):
    """Relevance 1 - d / reach of word mover's distances d, in [0, 1]; distances are pooled over references first.

    `reach` is twice the length of the longest word vector, which no distance exceeds. Relevance is linear in the
    distance, as human scores nearly are. 1 - r is the distance up to a constant factor, as losses of label distances
    expect (the log-ratio loss is independent of the factor). `distances` and `set_distances` return d, in [0, inf].

    Examples
    --------
    >>> import numpy as np
    >>> from relabel.corpus import References
    >>> from relabel.sources.wmd.distance import Bags
    >>> from relabel.sources.wmd.relevance import WmdRelevance
    >>> vectors = np.array([[0, 0], [3, 0], [0, 4]], np.float32)
    >>> bags = Bags.of(np.arange(4), np.arange(3), np.ones(3, np.int64))  # three captions of one word
    >>> relevance = WmdRelevance(None, range(3), "max", bags, vectors, None, threads=1)
    >>> relevance.reach
    8.0
    >>> relevance.pairs(References.of([[0, 1], [0, 1]]), np.array([0, 2], np.int32))  # 1 - 0 / 8, 1 - 4 / 8
    array([1. , 0.5])

    Attributes
    ----------
    bags : Bags
        Bags of the encoded rows.
    vectors : (V, D) float32
    encode_text : callable
        Returns the words of a new text as rows of `vectors` (ascending, new words from V on), their counts, and the
        vectors of the new words.
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
        text_bag = np.full(len(captions), len(self.rows), np.int64)
        return self.relevance_of(distances(bags, every, text_bag, self.positions(captions), self.threads))

    def distances(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        """Compute the distances of P reference sets to a caption each, (P,) float64 in [0, inf].

        `refs` is the set distance to the caption as a set of its own (log-ratio paper, eq. 13). `max` is the least
        distance, where relevance is greatest; `mean` is the mean; `paired` is the distance to the first reference. The
        distance is infinite if the caption, or every reference, has no word with a vector. A single reference without
        such a word counts as the mean of the others.
        """
        mode = pooling or self.pooling
        if mode == "paired":
            references = References.single(references.rows[references.indptr[:-1]])
        each = np.repeat(np.asarray(captions), np.diff(references.indptr))
        out = np.empty(len(references))
        pool_sets(self._between(references.rows, each), references.indptr, CODES[mode], out)
        return out

    def set_distances(self, references: References, others: References, pooling: Pooling | None = None) -> Scores:
        """Compute the distances of P pairs of sets, (P,) float64 in [0, inf]; symmetric.

        `refs` is W(X, Y) = sum_x min_y W(x, y) + sum_y min_x W(x, y) (log-ratio paper, eq. 13). `max` is the least
        distance of all pairs of captions, `mean` is their mean, and `paired` is the distance of the first captions.
        """
        out = np.empty(len(references))
        sizes, widths = np.diff(references.indptr), np.diff(others.indptr)
        cells = np.concatenate([[0], np.cumsum(sizes * widths)])
        a = 0
        while a < len(out):
            # The longest run of pairs of sets within `_CELLS` distances, and at least one pair.
            b = max(a + 1, int(np.searchsorted(cells, cells[a] + _CELLS, "right")) - 1)
            left, right = references.take(np.arange(a, b)), others.take(np.arange(a, b))
            # Row by row: every caption of the left set beside all captions of the right one.
            one = np.repeat(left.rows, np.repeat(widths[a:b], sizes[a:b]))
            other = right.take(np.repeat(np.arange(b - a), sizes[a:b])).rows
            pool_pairs_of_sets(
                self._between(one, other), sizes[a:b], widths[a:b], CODES[pooling or self.pooling], out[a:b]
            )
            a = b
        return out

    @override
    def finder(self, search: Search, pooling: Pooling | None, runtime: Runtime) -> WmdFinder:
        return WmdFinder(self, search, pooling or self.pooling, runtime)

    def relevance_of(self, distances: Scores, terms: NDArray[np.int64] | int = 1) -> Scores:
        """Convert distances to relevance: 1 - d / reach, in [0, 1].

        Parameters
        ----------
        distances : (P,) float64
        terms : (P,) int64 or 1
            Terms of a set distance: the number of captions of both sets, each of which adds at most `reach`.
        """
        return np.maximum(0.0, 1.0 - distances / (self.reach * terms))

    @cached_property
    def reach(self) -> float:
        """Bound of the distances of words; a word of a new text may exceed it, and relevance is then cut at 0."""
        return reach_of(self.vectors)

    @cached_property
    def wide(self) -> NDArray[np.float64]:
        """Word vectors in float64: (V, D)."""
        return np.ascontiguousarray(self.vectors, np.float64)

    def _between(self, one: Rows, other: Rows) -> Scores:
        """Return the distances of pairs of captions, given by corpus row."""
        return distances(self.bags, self.wide, self.positions(one), self.positions(other), self.threads)


def reach_of(vectors: NDArray[np.float32]) -> float:
    """Return twice the length of the longest of (V, D) vectors, or 1 if all are zero."""
    wide = vectors.astype(np.float64)
    return 2.0 * float(np.sqrt(max((one * one).sum() for one in wide))) or 1.0
