"""CIDEr of any captions of an encoding: captions as weighted sparse rows of n-grams, and the scores of these rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from relabel.core.numeric.csr import owners
from relabel.core.numeric.threads import run_chunks
from relabel.core.runtime import Runtime
from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import Corpus, References
from relabel.sources.cider.ngrams import NgramOccurrences, Vocabulary, number_ngrams
from relabel.sources.finder import Finder, Search
from relabel.sources.relevance import LookupArrays, Relevance, pool
from relabel.store.workdir import Work

if TYPE_CHECKING:
    from relabel.sources.cider.caption_index import CaptionIndex

MAX_SCORE = 10.0
"""Relevance of a caption to itself."""
BOUNDS = (0.0, MAX_SCORE)
"""Least and largest relevance."""


class Features(NamedTuple):
    """Captions as sparse rows (CSR), ids ascending within a row.

    `indptr`: (N + 1,) int64.
    `ids`, `counts`: (indptr[-1],) int32; N-gram ids and how often each occurs.
    `bigrams`: (N,) int32; length of each caption in CIDEr-D's penalty: words - 1, at least 0.
    `inverse`: (N, n) float64; 1 / norm of each order's tf * idf; 0 where the norm is 0.
    """

    indptr: NDArray[np.int64]
    ids: NDArray[np.int32]
    counts: NDArray[np.int32]
    bigrams: NDArray[np.int32]
    inverse: NDArray[np.float64]


class Weighting(NamedTuple):
    """Parameters that turn counts into relevance.

    `starts`: (n + 1,) int64; the ids of order k (from 1) are ``starts[k - 1]`` to ``starts[k] - 1``.
    `idf`: (V,) float64.
    `gauss`: (longest + 1,) float64; factor for each difference in length; all ones for plain CIDEr.
    `clip`: True for CIDEr-D, which counts min(tf_c, tf_r); False for plain CIDEr, which counts tf_c.
    """

    starts: NDArray[np.int64]
    idf: NDArray[np.float64]
    gauss: NDArray[np.float64]
    clip: bool


def idf_of(df: NDArray[np.int32], documents: int) -> NDArray[np.float64]:
    """Compute inverse document frequencies ln(documents) - ln(max(1, df)), exactly 0 where df = documents.

    `df`: (V,) int32; documents that hold each n-gram, in 0..documents. `documents`: at least 1. Returns (V,) float64.
    """
    idf = np.log(float(documents)) - np.log(np.maximum(1, df).astype(np.float64))
    # The kernels skip n-grams whose idf is 0. The logarithms of a scalar and of an array may differ in the last bit.
    return np.asarray(np.where(df >= documents, 0.0, idf))


def features_of(
    indptr: NDArray[np.int64],
    ids: NDArray[np.int32],
    counts: NDArray[np.int32],
    words: NDArray[np.int32],
    weighting: Weighting,
) -> Features:
    """Add lengths and norms to counted captions.

    `indptr`, `ids`, `counts`: see Features. `words`: (N,) int32; number of words of each caption.
    """
    orders = len(weighting.starts) - 1
    order = np.searchsorted(weighting.starts, ids, side="right") - 1
    cell = owners(indptr) * orders + order
    squared = np.bincount(cell, (counts * weighting.idf[ids]) ** 2, len(words) * orders).astype(np.float64)
    return features_with_norms(indptr, ids, counts, words, squared.reshape(-1, orders))


def features_with_norms(
    indptr: NDArray[np.int64],
    ids: NDArray[np.int32],
    counts: NDArray[np.int32],
    words: NDArray[np.int32],
    squared: NDArray[np.float64],
) -> Features:
    """Join counted captions with the squared norms of their orders, (N, n) float64."""
    inverse = np.zeros(squared.shape)
    np.divide(1.0, np.sqrt(squared), out=inverse, where=squared > 0)
    flags: list[Literal["C", "W", "O"]] = ["C", "W", "O"]  # one memory layout, so that the kernels compile once
    return Features(
        np.require(indptr, np.int64, flags),
        np.require(ids, np.int32, flags),
        np.require(counts, np.int32, flags),
        np.require(np.maximum(0, words - 1), np.int32, flags),
        inverse,
    )


def features_of_text(
    ngrams: NgramOccurrences, vocabulary: Vocabulary, weighting: Weighting, unseen_idf: float
) -> Features:
    """Make the single row of a new text.

    `ngrams`: of the text alone. `vocabulary`: of the encoding. `unseen_idf`: idf of an n-gram that the vocabulary
    lacks. Such an n-gram matches nothing, but counts in the norm.
    """
    _, local, counts = ngrams.counts(0, 1)
    ids = vocabulary.find(ngrams.vocabulary)[local]
    seen = ids >= 0
    idf = np.full(len(ids), unseen_idf)
    idf[seen] = weighting.idf[ids[seen]]
    orders = len(weighting.starts) - 1
    order = np.searchsorted(ngrams.vocabulary.starts, local, side="right") - 1
    squared = np.bincount(order, (counts * idf) ** 2, orders).astype(np.float64)[None]
    words = np.array([ngrams.ids.shape[1]], np.int32)
    return features_with_norms(np.array([0, seen.sum()]), ids[seen], counts[seen], words, squared)


@dataclass(frozen=True, eq=False, repr=False)
class CiderRelevance(Relevance):
    """CIDEr-D or CIDEr of encoded captions, in 0..10.

    `refs` and `mean` are the same number, since CIDEr of a set is the mean over its captions. `Cider` shows an example.

    `features`: the encoded rows.
    `open_vocabulary`: reads the vocabulary; called for the first new text.
    `split`: splits a new text into words.
    `unseen_idf`: idf of an n-gram that no document holds: ln(documents).
    `sigma`: width of the length penalty; None for plain CIDEr.
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
        from relabel.sources.cider.caption_index import CaptionIndex, postings_of

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
    def finder(self, search: Search, pooling: Pooling | None, runtime: Runtime) -> Finder:
        from relabel.sources.cider.maxscore import CiderFinder

        return CiderFinder(self, search, pooling or self.pooling, runtime)

    def _score(self, refs: Features, weighting: Weighting, sets: References, candidates: Rows) -> Scores:
        """Score set p of rows of `refs` against the encoded caption in row ``candidates[p]`` of `features`."""
        from relabel.sources.cider.caption_index import MergeState, score_pairs

        out, largest = np.empty(len(candidates)), int(np.diff(sets.indptr).max(initial=1))

        def work(lo: int, hi: int) -> None:
            indptr, part = sets.indptr[lo : hi + 1], slice(lo, hi)
            merge = MergeState.allocate(largest)
            score_pairs(indptr, sets.rows, refs, candidates[part], self.features, weighting, merge, out[part])

        run_chunks(work, len(candidates), self.threads, step=4096)
        return out

    def _score_reference(self, refs: Features, row: int, weighting: Weighting, captions: Rows) -> Scores:
        """Score row `row` of `refs`, as the only reference, against captions, with the bits of `_score`."""
        reference, features = slice(refs.indptr[row], refs.indptr[row + 1]), self.features
        grams, orders = refs.ids[reference], len(weighting.starts) - 1
        # Entry of the reference by n-gram. Most entries of the candidates are dropped by one look at this table.
        entry = np.full(len(weighting.idf), -1, np.int32)
        entry[grams] = np.arange(len(grams))
        shared = np.flatnonzero(entry[features.ids] >= 0)
        candidate = np.searchsorted(features.indptr, shared, side="right") - 1
        order = np.searchsorted(weighting.starts, grams, side="right") - 1
        weight = weighting.idf[grams] ** 2 * refs.counts[reference] * refs.inverse[row, order]
        at, count = entry[features.ids[shared]], features.counts[shared]
        if weighting.clip:
            count = np.minimum(count, refs.counts[reference][at])
        gauss = weighting.gauss[np.abs(features.bigrams[candidate] - refs.bigrams[row])]
        terms = weight[at] * count * gauss * features.inverse[candidate, order[at]]
        # `bincount` adds the terms of a caption one after another, by ascending n-gram, as the compiled loops do.
        total = np.bincount(candidate, terms, len(features.bigrams))[self.positions(captions)]
        scores: Scores = np.minimum(total * (MAX_SCORE / orders), MAX_SCORE)
        return scores

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        return self.open_vocabulary()


def gauss_of(sigma: float | None, longest: int) -> NDArray[np.float64]:
    """Compute the length penalty exp(-d^2 / (2 sigma^2)) for differences d = 0..longest.

    `sigma`: None gives ones: plain CIDEr has no penalty. Returns (longest + 1,) float64.
    """
    difference = np.arange(longest + 1, dtype=np.float64)
    return np.ones(longest + 1) if sigma is None else np.exp(-(difference**2) / (2 * sigma**2))
