"""CIDEr of any captions of an encoding: pairs, blocks, nearest captions and new texts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from relabel.corpus import Corpus, References
from relabel.neighbours.base import Search
from relabel.runtime import Runtime
from relabel.sources.base import Pooling, Relevance, Rows, Scores, pool
from relabel.sources.ngrams.finder import CiderFinder
from relabel.sources.ngrams.index import postings_of
from relabel.sources.ngrams.new_text import Vocabulary, new_features
from relabel.sources.ngrams.structures import Features, Merge, Postings, Weighting
from relabel.sources.ngrams.threads import share

_HELD = 4  # sets whose scores are held at once, a thread


@dataclass(frozen=True, eq=False)
class CiderRelevance(Relevance):
    """CIDEr-D or CIDEr of encoded captions, in 0..10.

    `refs` and `mean` are the same number, since CIDEr of a set is the mean over its captions.

    Attributes
    ----------
    features : Features
        The encoded rows.
    weighting : Weighting
    vocabulary_file : Path
        Read when a new text is asked for.
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
    vocabulary_file: Path
    split: Callable[[str], list[str]]
    unseen_idf: float
    sigma: float | None
    threads: int

    def pairs(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        """See Relevance.pairs; the same bits as `block`."""
        how, chosen = pooling or self.pooling, self._places(captions)
        sets = self.places(references, how)
        if how != "max":
            return self._score(self.features, self.weighting, sets, chosen)
        partner = np.repeat(chosen, np.diff(sets.indptr))
        singles = self._score(self.features, self.weighting, References.single(sets.rows), partner)
        return pool(singles, sets.indptr, "max")

    def block(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        """See Relevance.block."""
        return self.index(captions).block(references, pooling)

    def topk(
        self, references: References, captions: Rows, k: int, pooling: Pooling | None = None
    ) -> tuple[Rows, Scores]:
        """See CaptionIndex.topk; build an index once with `index` where several calls share the captions."""
        return self.index(captions).topk(references, k, pooling)

    def index(self, captions: Rows) -> CaptionIndex:
        """Invert N captions, once for many calls. Memory: see `postings_of`."""
        places = self._places(captions)
        postings = postings_of(self.features, places, np.asarray(captions, np.int32), self.weighting.starts)
        return CaptionIndex(self, postings)

    def query(self, text: str, captions: Rows) -> Scores:
        """See Relevance.query. N-grams that are nowhere in the vocabulary have document frequency 0."""
        words, chosen = self.split(text), self._places(captions)
        features = new_features(words, self._vocabulary, self.weighting, self.unseen_idf)
        longest = max(len(self.weighting.gauss), len(words))
        weighting = self.weighting._replace(gauss=gauss_of(self.sigma, longest))
        sets = References(np.arange(len(chosen) + 1), np.zeros(len(chosen), np.int32))
        return self._score(features, weighting, sets, chosen)

    def finder(self, search: Search, pooling: Pooling | None, runtime: Runtime) -> CiderFinder:
        """See Relevance.finder."""
        return CiderFinder(self, search, pooling or self.pooling, runtime)

    def places(self, references: References, how: Pooling) -> References:
        """Reference sets as places in `features`; `paired` keeps the first caption of each."""
        sets = References.single(references.rows[references.indptr[:-1]]) if how == "paired" else references
        return References(sets.indptr, self._places(sets.rows))

    def _score(self, refs: Features, weighting: Weighting, sets: References, chosen: Rows) -> Scores:
        """Score set p of rows of `refs` against the encoded caption at place ``chosen[p]``."""
        from relabel.sources.ngrams.kernels import score_pairs

        out, largest = np.empty(len(chosen)), int(np.diff(sets.indptr).max(initial=1))

        def work(lo: int, hi: int) -> None:
            indptr, part = sets.indptr[lo : hi + 1], slice(lo, hi)
            merge = Merge.room(largest)
            score_pairs(indptr, sets.rows, refs, chosen[part], self.features, weighting, merge, out[part])

        share(work, len(chosen), self.threads, step=4096)
        return out

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        return Vocabulary.open(self.vocabulary_file)

    def _places(self, captions: Rows) -> Rows:
        places = np.asarray(captions, np.int64) - self.rows.start
        if len(places) and not 0 <= places.min() <= places.max() < len(self.rows):
            raise IndexError(f"caption rows outside the encoded {self.rows}")
        return places.astype(np.int32)


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
        from relabel.sources.ngrams.kernels import select_top

        width = min(k, len(self))
        rows, best = np.empty((len(references), width), np.int32), np.empty((len(references), width))

        def keep(lo: int, hi: int, scores: Scores) -> None:
            select_top(scores, self.postings.rows, rows[lo:hi], best[lo:hi])

        if width:
            self._each(references, pooling, keep)
        return rows, best

    def _each(self, references: References, pooling: Pooling | None, keep: Callable[[int, int, Scores], None]) -> None:
        """Hand the scores of a few sets at a time, columns by position, to keep(lo, hi, scores)."""
        from relabel.sources.ngrams.kernels import score_sets

        relevance = self.relevance
        how = pooling or relevance.pooling
        sets = relevance.places(references, how)
        sizes = np.diff(sets.indptr)

        def work(lo: int, hi: int) -> None:
            merge = Merge.room(int(sizes.max(initial=1)))
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


def gauss_of(sigma: float | None, longest: int) -> NDArray[np.float64]:
    """Length penalty exp(-d^2 / (2 sigma^2)) for differences 0..longest; ones where sigma is None."""
    difference = np.arange(longest + 1, dtype=np.float64)
    return np.ones(longest + 1) if sigma is None else np.exp(-(difference**2) / (2 * sigma**2))
