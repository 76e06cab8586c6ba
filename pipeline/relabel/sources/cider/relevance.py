"""CIDEr of any captions of an encoding: pairs, blocks, nearest captions and new texts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from relabel.core.numeric.threads import share
from relabel.core.runtime import Runtime
from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import Corpus, References
from relabel.sources.cider.features import Features, MergeState, Postings, Weighting, new_features, postings_of
from relabel.sources.cider.ngrams import Vocabulary, number_ngrams
from relabel.sources.finder import Search
from relabel.sources.relevance import LookupArrays, Relevance, pool
from relabel.sources.slab_search import EMPTY, SlabFinder
from relabel.store.tasks import Advance
from relabel.store.workdir import Work

if TYPE_CHECKING:
    from relabel.sources.cider.impact_index import Screen

BOUNDS = (0.0, 10.0)
"""Least and largest relevance."""
_HELD = 4  # sets whose scores are held at once, a thread
LEAVE_OUT = 0.4
_TOGETHER = 128  # queries a piece


@dataclass(frozen=True, eq=False)
class CiderRelevance(Relevance):
    """CIDEr-D or CIDEr of encoded captions, in 0..10.

    `refs` and `mean` are the same number, since CIDEr of a set is the mean over its captions.

    Attributes
    ----------
    features : Features
        The encoded rows.
    weighting : Weighting
    open_vocabulary : callable
        Reads the vocabulary; called when a new text is asked for.
    split : callable
        Makes the words of a new text.
    unseen_idf : float
        idf of an n-gram that no document holds: ln(documents).
    sigma : float or None
        Of the length penalty; None for plain CIDEr.
    threads : int
    """

    corpus: Corpus
    rows: range
    pooling: Pooling
    features: Features
    weighting: Weighting
    open_vocabulary: Callable[[], Vocabulary]
    split: Callable[[str], list[str]]
    unseen_idf: float
    sigma: float | None
    threads: int

    @override
    def pairs(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        """Return the same bits as `block`."""
        how, chosen = pooling or self.pooling, self.positions(captions).astype(np.int32)
        sets = self.set_positions(references, how)
        if how != "max":
            return self._score(self.features, self.weighting, sets, chosen)
        partner = np.repeat(chosen, np.diff(sets.indptr))
        singles = self._score(self.features, self.weighting, References.single(sets.rows), partner)
        return pool(singles, sets.indptr, "max")

    @override
    def block(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        return self.index(captions).block(references, pooling)

    @override
    def against(self, captions: Rows) -> Callable[[References, Pooling], Scores]:
        return self.index(captions).block

    @override
    def write_lookup(self, work: Work) -> LookupArrays:
        from relabel.sources.cider.export import write_features

        return LookupArrays("features", "float64", self.failed, write_features(self, BOUNDS[1], work))

    def topk(
        self, references: References, captions: Rows, k: int, pooling: Pooling | None = None
    ) -> tuple[Rows, Scores]:
        """Search once; where several calls share the captions, build an index once with `index`."""
        return self.index(captions).topk(references, k, pooling)

    def index(self, captions: Rows) -> CaptionIndex:
        """Invert N captions, once for many calls. Memory: see `postings_of`."""
        places = self.positions(captions).astype(np.int32)
        postings = postings_of(self.features, places, np.asarray(captions, np.int32), self.weighting.starts)
        return CaptionIndex(self, postings)

    @override
    def query(self, text: str, captions: Rows) -> Scores:
        """N-grams that are nowhere in the vocabulary have document frequency 0."""
        ngrams = number_ngrams([text], self.split, len(self.weighting.starts) - 1)
        chosen = self.positions(captions).astype(np.int32)
        features = new_features(ngrams, self._vocabulary, self.weighting, self.unseen_idf)
        longest = max(len(self.weighting.gauss), ngrams.ids.shape[1])
        weighting = self.weighting._replace(gauss=gauss_of(self.sigma, longest))
        sets = References(np.arange(len(chosen) + 1), np.zeros(len(chosen), np.int32))
        return self._score(features, weighting, sets, chosen)

    @override
    def finder(self, search: Search, pooling: Pooling | None, runtime: Runtime) -> CiderFinder:
        return CiderFinder(self, search, pooling or self.pooling, runtime)

    def _score(self, refs: Features, weighting: Weighting, sets: References, chosen: Rows) -> Scores:
        """Score set p of rows of `refs` against the encoded caption at place ``chosen[p]``."""
        from relabel.sources.cider.kernels import score_pairs

        out, largest = np.empty(len(chosen)), int(np.diff(sets.indptr).max(initial=1))

        def work(lo: int, hi: int) -> None:
            indptr, part = sets.indptr[lo : hi + 1], slice(lo, hi)
            merge = MergeState.allocate(largest)
            score_pairs(indptr, sets.rows, refs, chosen[part], self.features, weighting, merge, out[part])

        share(work, len(chosen), self.threads, step=4096)
        return out

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        return self.open_vocabulary()


@dataclass(frozen=True, eq=False)
class CaptionIndex:
    """N candidate captions, inverted; the reference sets are rows of `relevance`.

    A call holds 4 sets' scores a thread (32 N bytes; `max` all captions of 4 sets) beside its answer.
    """

    relevance: CiderRelevance
    postings: Postings

    def __len__(self) -> int:
        return len(self.postings.rows)

    def block(self, references: References, pooling: Pooling | None = None) -> Scores:
        """Score M sets against all candidates: (M, N) float64, columns in the callers' order."""
        out = np.empty((len(references), len(self)))

        def keep(lo: int, hi: int, scores: Scores) -> None:
            out[lo:hi, self.postings.column] = scores

        self._each(references, pooling, keep)
        return out

    def topk(self, references: References, k: int, pooling: Pooling | None = None) -> tuple[Rows, Scores]:
        """Find the k most relevant candidates of each of M reference sets, without the (M, N) matrix.

        Parameters
        ----------
        references : References
            Of encoded rows. Sets of one caption give the neighbours of captions.
        k : int
            At least 1; cut to N.
        pooling : Pooling, optional

        Returns
        -------
        rows : (M, K) int32
            Corpus rows by (-score, row).
        scores : (M, K) float64
        """
        from relabel.core.numeric.heap import select_top

        width = min(k, len(self))
        rows, best = np.empty((len(references), width), np.int32), np.empty((len(references), width))

        def keep(lo: int, hi: int, scores: Scores) -> None:
            select_top(scores, self.postings.rows, rows[lo:hi], best[lo:hi])

        if width:
            self._each(references, pooling, keep)
        return rows, best

    def _each(self, references: References, pooling: Pooling | None, keep: Callable[[int, int, Scores], None]) -> None:
        """Hand the scores of a few sets at a time, columns by position, to keep(lo, hi, scores)."""
        from relabel.sources.cider.kernels import score_sets

        relevance = self.relevance
        how = pooling or relevance.pooling
        sets = relevance.set_positions(references, how)
        sizes = np.diff(sets.indptr)

        def work(lo: int, hi: int) -> None:
            merge = MergeState.allocate(int(sizes.max(initial=1)))
            held = np.empty((_HELD * int(sizes[lo:hi].max()) if how == "max" else _HELD, len(self)))
            for a in range(lo, hi, _HELD):
                b = min(a + _HELD, hi)
                indptr = sets.indptr[a : b + 1]
                if how == "max":
                    indptr = np.arange(indptr[0], indptr[-1] + 1)
                scores = held[: len(indptr) - 1]
                score_sets(indptr, sets.rows, relevance.features, self.postings, relevance.weighting, merge, scores)
                keep(a, b, pool(scores, sets.indptr[a : b + 1] - sets.indptr[a], "max") if how == "max" else scores)

        share(work, len(sets), relevance.threads, step=16 * _HELD)


@dataclass(frozen=True, eq=False)
class CiderFinder(SlabFinder["Screen"]):
    """Neighbours of reference sets by CIDEr or CIDEr-D.

    Pooling `max` is searched reference by reference: the best of a set are among the best of its references.

    Attributes
    ----------
    relevance, search, pooling, runtime
        See SlabFinder.
    leave_out : float
        `share` of `pruned.search`, from 0 to below 1: changes nothing but the time.
    """

    relevance: CiderRelevance
    leave_out: float = LEAVE_OUT

    @override
    def improve(self, sets: References, exclude: Rows, slab: Screen, rows: Rows, scores: Scores, done: Advance) -> None:
        from relabel.sources.cider.impact_index import Terms
        from relabel.sources.cider.maxscore import Sums, join, search

        features, weighting = self.relevance.features, self.relevance.weighting
        single = self.pooling == "max"
        sizes = np.diff(features.indptr)[sets.rows]
        largest = int(sizes.max() if single else np.add.reduceat(sizes, sets.indptr[:-1]).max())
        references = 1 if single else int(np.diff(sets.indptr).max())

        def work(lo: int, hi: int) -> None:
            merge, terms, sums = (
                MergeState.allocate(references),
                Terms.allocate(largest),
                Sums.allocate(len(slab.rows), weighting),
            )
            indptr, out, left_out = sets.indptr[lo : hi + 1], exclude[lo:hi], self.leave_out
            best = rows[lo:hi], scores[lo:hi]
            if single:
                out = np.repeat(out, np.diff(indptr))
                best = np.full((len(out), rows.shape[1]), EMPTY, np.int32), np.full((len(out), rows.shape[1]), -1.0)
                indptr = np.arange(indptr[0], indptr[-1] + 1)
            search(indptr, sets.rows, out, features, slab, weighting, left_out, merge, terms, sums, *best)
            if single:
                join(sets.indptr[lo : hi + 1], *best, rows[lo:hi], scores[lo:hi])

        share(work, len(sets), self.runtime.threads, _TOGETHER, done)

    @override
    def slab(self, rows: Rows) -> Screen:
        from relabel.sources.cider.impact_index import screen_of

        places = self.relevance.positions(rows).astype(np.int32)
        return screen_of(self.relevance.features, self.relevance.weighting, places, rows)

    @override
    def fitting(self) -> int:
        """Return how many candidates fit: a slab is its screen and each thread's sums."""
        from relabel.sources.cider.impact_index import LONGEST

        features, grams = self.relevance.features, int(self.relevance.weighting.starts[-1])
        postings = len(features.ids) / max(1, len(features.bigrams))
        each = 4 * postings + 4 * features.inverse.shape[1] + 12 + 11 * self.runtime.threads
        return min(int((self.runtime.memory - 12 * grams) / each), LONGEST)


def gauss_of(sigma: float | None, longest: int) -> NDArray[np.float64]:
    """Length penalty exp(-d^2 / (2 sigma^2)) for differences 0..longest; ones where sigma is None."""
    difference = np.arange(longest + 1, dtype=np.float64)
    return np.ones(longest + 1) if sigma is None else np.exp(-(difference**2) / (2 * sigma**2))
