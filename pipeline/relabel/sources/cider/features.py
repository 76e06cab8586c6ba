"""Captions as weighted sparse rows of n-grams (see `pairs` for the formula)."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.csr import indptr_of, owners, ranges
from relabel.corpus import References
from relabel.sources.cider.ngrams import NgramOccurrences, Vocabulary

I4 = NDArray[np.int32]
I8 = NDArray[np.int64]
F8 = NDArray[np.float64]
MAX_SCORE = 10.0
"""Relevance of a caption to itself."""
BOUNDS = (0.0, MAX_SCORE)
"""Minimum and maximum relevance."""


class Features(NamedTuple):
    """Captions as sparse rows (CSR) with ascending ids.

    `indptr`: (N + 1,) int64.
    `ids`, `counts`: (indptr[-1],) int32; n-gram ids and their counts.
    `bigrams`: (N,) int32; length of each caption in CIDEr-D's penalty: words - 1, at least 0.
    `inverse`: (N, n) float64; 1 / norm of tf * idf for each order, or 0 if the norm is 0.
    """

    indptr: I8
    ids: I4
    counts: I4
    bigrams: I4
    inverse: F8


class Weighting(NamedTuple):
    """Parameters for computing relevance from counts.

    `starts`: (n + 1,) int64; the ids of order k (from 1) are ``starts[k - 1]`` to ``starts[k] - 1``.
    `idf`: (V,) float64.
    `gauss`: (longest + 1,) float64; factor by difference in length; ones for plain CIDEr.
    `clip`: True for CIDEr-D, with min(tf_c, tf_r); False for plain CIDEr, with tf_c.
    """

    starts: I8
    idf: F8
    gauss: F8
    clip: bool


def idf_of(df: I4, documents: int) -> F8:
    """Compute inverse document frequencies ln(documents) - ln(max(1, df)), exactly 0 for df = documents.

    `df`: (V,) int32; number of documents with each n-gram, in 0..documents. `documents`: at least 1. Returns (V,)
    float64.
    """
    idf = np.log(float(documents)) - np.log(np.maximum(1, df).astype(np.float64))
    # Set to 0, because logarithms of a scalar and of an array may differ in the last bit, and kernels skip zeros.
    return np.asarray(np.where(df >= documents, 0.0, idf))


def orders_of(ids: I4, weighting: Weighting) -> I8:
    """Return the order of each n-gram, numbered from 0."""
    return np.searchsorted(weighting.starts, ids, side="right") - 1


def features_of(indptr: I8, ids: I4, counts: I4, words: I4, weighting: Weighting) -> Features:
    """Create features from the n-gram counts of captions, with lengths and norms."""
    orders = len(weighting.starts) - 1
    cell = owners(indptr) * orders + orders_of(ids, weighting)
    squared = np.bincount(cell, (counts * weighting.idf[ids]) ** 2, len(words) * orders).astype(np.float64)
    return features_with_norms(indptr, ids, counts, words, squared.reshape(-1, orders))


def features_with_norms(indptr: I8, ids: I4, counts: I4, words: I4, squared: F8) -> Features:
    """Create features from n-gram counts and the squared norms of each order, (N, n) float64."""
    inverse = np.zeros(squared.shape)
    np.divide(1.0, np.sqrt(squared), out=inverse, where=squared > 0)
    flags: list[Literal["C", "W", "O"]] = ["C", "W", "O"]  # one memory layout, so kernels are compiled once
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
    """Create the features of a new text, a single row.

    `ngrams`: n-grams of the text. `vocabulary`: vocabulary of the encoding. `unseen_idf`: idf of n-grams that are not
    in the vocabulary. They do not match any caption, but count in the norm.
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


def gauss_of(sigma: float | None, longest: int) -> F8:
    """Compute the length penalty exp(-d^2 / (2 sigma^2)) for differences d = 0..longest.

    `sigma`: None gives ones, for plain CIDEr. Returns (longest + 1,) float64.
    """
    difference = np.arange(longest + 1, dtype=np.float64)
    return np.ones(longest + 1) if sigma is None else np.exp(-(difference**2) / (2 * sigma**2))


class SetEntries(NamedTuple):
    """E n-grams of the references of M sets, sorted by (set, n-gram, reference).

    `owner`: (E,) int64; number of the set.
    `ids`, `counts`, `bigrams`: (E,) int32; n-gram, its count, and the length of the reference.
    `weight`: (E,) float64; idf^2 tf / |r|_k, times 10 / n.
    """

    owner: I8
    ids: I4
    counts: I4
    bigrams: I4
    weight: F8


def entries_of(sets: References, refs: Features, weighting: Weighting, wanted: NDArray[Any]) -> SetEntries:
    """Return the n-grams of M sets of rows of `refs`, without those that are 0 in `wanted`, (V,)."""
    sizes = np.diff(refs.indptr)[sets.rows]
    entry = ranges(refs.indptr[sets.rows], sizes)
    index = np.flatnonzero(wanted[refs.ids[entry]])
    reference = owners(indptr_of(sizes))[index]
    entry, owner = entry[index], owners(sets.indptr)[reference]
    # A stable sort keeps the order of the references. Ids have at most 31 bits.
    order = np.argsort(owner << 31 | refs.ids[entry], kind="stable")
    entry, owner, row = entry[order], owner[order], sets.rows[reference[order]]
    ids, counts = refs.ids[entry], refs.counts[entry]
    weight = weighting.idf[ids] ** 2 * counts * refs.inverse[row, orders_of(ids, weighting)]
    return SetEntries(owner, ids, counts, refs.bigrams[row], weight * (MAX_SCORE / refs.inverse.shape[1]))
