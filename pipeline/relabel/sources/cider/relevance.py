"""CIDEr of any captions of an encoding: pairs, blocks, nearest captions and new texts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from relabel.core.numeric.threads import run_chunks
from relabel.core.progress import Advance
from relabel.core.runtime import Runtime
from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import Corpus, References
from relabel.sources.cider.features import (
    MAX_SCORE,
    Features,
    MergeState,
    Postings,
    Weighting,
    features_of_text,
    postings_of,
)
from relabel.sources.cider.ngrams import Vocabulary, number_ngrams
from relabel.sources.finder import EMPTY_SLOT, Search, SlabFinder
from relabel.sources.relevance import LookupArrays, Relevance, pool
from relabel.store.workdir import Work

if TYPE_CHECKING:
    from relabel.sources.cider.impact_index import ImpactIndex

BOUNDS = (0.0, MAX_SCORE)
"""Least and largest relevance."""
LEAVE_OUT = 0.4
"""Default share of the k-th best sum that the search may leave out at first."""
_SETS = 4  # sets whose scores a thread holds at a time
_QUERIES = 128  # queries per task of a thread


@dataclass(frozen=True, eq=False, repr=False)
class CiderRelevance(Relevance):
    """CIDEr-D or CIDEr of encoded captions, in 0..10.

    `refs` and `mean` are the same number, since CIDEr of a set is the mean over its captions. `Cider` shows an example.

    Attributes
    ----------
    features : Features
        The encoded rows.
    weighting : Weighting
    open_vocabulary : callable
        Reads the vocabulary; called for the first new text.
    split : callable
        Splits a new text into words.
    unseen_idf : float
        idf of an n-gram that no document holds: ln(documents).
    sigma : float or None
        Width of the length penalty; None for plain CIDEr.
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
        """Score P pairs of a reference set and a caption; each score has the bits that `block` gives."""
        mode, candidates = pooling or self.pooling, self.positions(captions).astype(np.int32)
        sets = self.set_positions(references, mode)
        if mode != "max":
            return self._score(self.features, self.weighting, sets, candidates)
        partner = np.repeat(candidates, np.diff(sets.indptr))
        singles = self._score(self.features, self.weighting, References.single(sets.rows), partner)
        return pool(singles, sets.indptr, "max")

    @override
    def block(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        # One reference against most captions, as `relabel nearest` asks, is not worth loading the compiled kernels.
        if len(references) == 1 and 2 * len(captions) > len(self.rows):
            sets = self.set_positions(references, pooling or self.pooling)
            if len(sets.rows) == 1:
                return self._score_reference(self.features, int(sets.rows[0]), self.weighting, captions)[None]
        return self.index(captions).block(references, pooling)

    @override
    def block_scorer(self, captions: Rows) -> Callable[[References, Pooling], Scores]:
        return self.index(captions).block

    @override
    def write_lookup(self, work: Work) -> LookupArrays:
        from relabel.sources.cider.export import write_features

        return LookupArrays("features", "float64", self.failed, write_features(self, BOUNDS[1], work))

    def topk(
        self, references: References, captions: Rows, k: int, pooling: Pooling | None = None
    ) -> tuple[Rows, Scores]:
        """Find the k most relevant captions of each set; to reuse the inverted captions, call `index` once instead.

        Parameters and returns are those of `CaptionIndex.topk`.
        """
        return self.index(captions).topk(references, k, pooling)

    def index(self, captions: Rows) -> CaptionIndex:
        """Invert N captions once for many calls."""
        positions = self.positions(captions).astype(np.int32)
        postings = postings_of(self.features, positions, np.asarray(captions, np.int32), self.weighting.starts)
        return CaptionIndex(self, postings)

    @override
    def query(self, text: str, captions: Rows) -> Scores:
        """Score N captions against one new text; n-grams that the vocabulary lacks have document frequency 0."""
        ngrams = number_ngrams([text], self.split, len(self.weighting.starts) - 1)
        features = features_of_text(ngrams, self._vocabulary, self.weighting, self.unseen_idf)
        # The text may be longer than every caption: the table of penalties must cover the difference.
        longest = max(len(self.weighting.gauss), ngrams.ids.shape[1])
        weighting = self.weighting._replace(gauss=gauss_of(self.sigma, longest))
        return self._score_reference(features, 0, weighting, captions)

    @override
    def finder(self, search: Search, pooling: Pooling | None, runtime: Runtime) -> CiderFinder:
        return CiderFinder(self, search, pooling or self.pooling, runtime)

    def _score(self, refs: Features, weighting: Weighting, sets: References, candidates: Rows) -> Scores:
        """Score set p of rows of `refs` against the encoded caption in row ``candidates[p]`` of `features`."""
        from relabel.sources.cider.kernels import score_pairs

        out, largest = np.empty(len(candidates)), int(np.diff(sets.indptr).max(initial=1))

        def work(lo: int, hi: int) -> None:
            indptr, part = sets.indptr[lo : hi + 1], slice(lo, hi)
            merge = MergeState.allocate(largest)
            score_pairs(indptr, sets.rows, refs, candidates[part], self.features, weighting, merge, out[part])

        run_chunks(work, len(candidates), self.threads, step=4096)
        return out

    def _score_reference(self, refs: Features, row: int, weighting: Weighting, captions: Rows) -> Scores:
        """Score row `row` of `refs`, as the only reference, against captions, with the bits of `_score`."""
        own, held = slice(refs.indptr[row], refs.indptr[row + 1]), self.features
        grams, orders = refs.ids[own], len(weighting.starts) - 1
        # Entry of the reference by n-gram. Most entries of the candidates are dropped by one look at this table.
        entry = np.full(len(weighting.idf), -1, np.int32)
        entry[grams] = np.arange(len(grams))
        shared = np.flatnonzero(entry[held.ids] >= 0)
        candidate = np.searchsorted(held.indptr, shared, side="right") - 1
        order = np.searchsorted(weighting.starts, grams, side="right") - 1
        weight = weighting.idf[grams] ** 2 * refs.counts[own] * refs.inverse[row, order]
        at, count = entry[held.ids[shared]], held.counts[shared]
        if weighting.clip:
            count = np.minimum(count, refs.counts[own][at])
        gauss = weighting.gauss[np.abs(held.bigrams[candidate] - refs.bigrams[row])]
        terms = weight[at] * count * gauss * held.inverse[candidate, order[at]]
        # `bincount` adds the terms of a caption one after another, by ascending n-gram, as the compiled loops do.
        total = np.bincount(candidate, terms, len(held.bigrams))[self.positions(captions)]
        scores: Scores = np.minimum(total * (MAX_SCORE / orders), MAX_SCORE)
        return scores

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        return self.open_vocabulary()


@dataclass(frozen=True, eq=False)
class CaptionIndex:
    """Inverted index of N candidate captions, for reference sets of encoded rows.

    Beside its result, a call holds the scores of 4 sets per thread: 32 N bytes, times the set size for `max`.

    Attributes
    ----------
    relevance : CiderRelevance
    postings : Postings
    """

    relevance: CiderRelevance
    postings: Postings

    def __len__(self) -> int:
        return len(self.postings.rows)

    def block(self, references: References, pooling: Pooling | None = None) -> Scores:
        """Score M sets against all candidates: (M, N) float64, columns in the order of the caller's captions."""
        out = np.empty((len(references), len(self)))

        def write(lo: int, hi: int, scores: Scores) -> None:
            out[lo:hi, self.postings.column] = scores

        self._score_sets(references, pooling, write)
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

        def select(lo: int, hi: int, scores: Scores) -> None:
            select_top(scores, self.postings.rows, rows[lo:hi], best[lo:hi])

        if width:
            self._score_sets(references, pooling, select)
        return rows, best

    def _score_sets(
        self, references: References, pooling: Pooling | None, use: Callable[[int, int, Scores], None]
    ) -> None:
        """Call use(lo, hi, scores) with the scores of sets lo to hi - 1 at a time, columns by position."""
        from relabel.sources.cider.kernels import score_sets

        relevance = self.relevance
        mode = pooling or relevance.pooling
        sets = relevance.set_positions(references, mode)
        sizes = np.diff(sets.indptr)

        def work(lo: int, hi: int) -> None:
            merge = MergeState.allocate(int(sizes.max(initial=1)))
            held = np.empty((_SETS * int(sizes[lo:hi].max()) if mode == "max" else _SETS, len(self)))
            for a in range(lo, hi, _SETS):
                b = min(a + _SETS, hi)
                indptr = sets.indptr[a : b + 1]
                if mode == "max":  # every reference is a set of its own; `pool` joins their scores
                    indptr = np.arange(indptr[0], indptr[-1] + 1)
                scores = held[: len(indptr) - 1]
                score_sets(indptr, sets.rows, relevance.features, self.postings, relevance.weighting, merge, scores)
                use(a, b, pool(scores, sets.indptr[a : b + 1] - sets.indptr[a], "max") if mode == "max" else scores)

        run_chunks(work, len(sets), relevance.threads, step=16 * _SETS)


@dataclass(frozen=True, eq=False)
class CiderFinder(SlabFinder["ImpactIndex"]):
    """Neighbours of reference sets by CIDEr or CIDEr-D.

    Pooling `max` is searched reference by reference: the k best of a set are among the k best of its references.

    Attributes
    ----------
    relevance, search, pooling, runtime
        See SlabFinder.
    leave_out : float
        `share` of `maxscore.search`, from 0 to below 1. It affects the time only.
    """

    relevance: CiderRelevance
    leave_out: float = LEAVE_OUT

    @override
    def search_slab(
        self, sets: References, exclude: Rows, slab: ImpactIndex, rows: Rows, scores: Scores, done: Advance
    ) -> None:
        from relabel.sources.cider.impact_index import Terms
        from relabel.sources.cider.maxscore import Sums, merge_references, search

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
                # Each reference has heaps of its own, which start empty and are merged below.
                out = np.repeat(out, np.diff(indptr))
                best = (
                    np.full((len(out), rows.shape[1]), EMPTY_SLOT, np.int32),
                    np.full((len(out), rows.shape[1]), -1.0),
                )
                indptr = np.arange(indptr[0], indptr[-1] + 1)
            search(indptr, sets.rows, out, features, slab, weighting, left_out, merge, terms, sums, *best)
            if single:
                merge_references(sets.indptr[lo : hi + 1], *best, rows[lo:hi], scores[lo:hi])

        run_chunks(work, len(sets), self.runtime.threads, _QUERIES, done)

    @override
    def build_slab(self, rows: Rows) -> ImpactIndex:
        from relabel.sources.cider.impact_index import impact_index_of

        positions = self.relevance.positions(rows).astype(np.int32)
        return impact_index_of(self.relevance.features, self.relevance.weighting, positions, rows)

    @override
    def max_slab_rows(self) -> int:
        """Return the number of candidates per slab: memory holds the slab's index and the sums of each thread."""
        from relabel.sources.cider.impact_index import MAX_CANDIDATES

        features, grams = self.relevance.features, int(self.relevance.weighting.starts[-1])
        # Per candidate: 4 bytes per posting, float32 norms, row, position and length; per thread 2 + 4 + 1 + 4 of sums.
        postings = len(features.ids) / max(1, len(features.bigrams))
        each = 4 * postings + 4 * features.inverse.shape[1] + 12 + 11 * self.runtime.threads
        return min(int((self.runtime.memory - 12 * grams) / each), MAX_CANDIDATES)


def gauss_of(sigma: float | None, longest: int) -> NDArray[np.float64]:
    """Compute the length penalty exp(-d^2 / (2 sigma^2)) for differences d = 0..longest.

    Parameters
    ----------
    sigma : float or None
        None gives ones: plain CIDEr has no penalty.
    longest : int

    Returns
    -------
    (longest + 1,) float64

    Examples
    --------
    >>> from relabel.sources.cider.relevance import gauss_of
    >>> gauss_of(6.0, 3).round(3)
    array([1.   , 0.986, 0.946, 0.882])
    >>> gauss_of(None, 2)
    array([1., 1., 1.])
    """
    difference = np.arange(longest + 1, dtype=np.float64)
    return np.ones(longest + 1) if sigma is None else np.exp(-(difference**2) / (2 * sigma**2))
