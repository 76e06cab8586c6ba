"""Captions as weighted sparse rows of n-grams, and the inverted index of a set of candidates."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel.core.errors import UsageError
from relabel.core.numeric.csr import owners, ranges
from relabel.sources.cider.ngrams import NgramOccurrences, Vocabulary

MAX_SCORE = 10.0
"""Relevance of a caption to itself."""


class Features(NamedTuple):
    """Captions as sparse rows (CSR), ids ascending within a row.

    Attributes
    ----------
    indptr : (N + 1,) int64
    ids, counts : (indptr[-1],) int32
        N-gram ids and how often each occurs.
    bigrams : (N,) int32
        Length of each caption in CIDEr-D's penalty: words - 1, at least 0.
    inverse : (N, n) float64
        1 / norm of each order's tf * idf; 0 where the norm is 0.
    """

    indptr: NDArray[np.int64]
    ids: NDArray[np.int32]
    counts: NDArray[np.int32]
    bigrams: NDArray[np.int32]
    inverse: NDArray[np.float64]


class Postings(NamedTuple):
    """Inverted index of N candidates, sorted by length.

    Attributes
    ----------
    rows, column : (N,) int32
        Corpus row of each position, and its column in the order of the caller's candidates.
    ids : (C,) int32
        N-grams that some candidate holds, ascending.
    segments : (C + 1,) int64
        The segments of n-gram j are ``segments[j]:segments[j + 1]``.
    begin : (S + 1,) int64
        The postings of segment s are ``begin[s]:begin[s + 1]``.
    counts, bigrams : (S,) int32
        Count and length that the postings of a segment share.
    position : (E,) int32
    inverse : (E,) float64
        1 / norm of the posting's caption for the n-gram's order.
    """

    rows: NDArray[np.int32]
    column: NDArray[np.int32]
    ids: NDArray[np.int32]
    segments: NDArray[np.int64]
    begin: NDArray[np.int64]
    counts: NDArray[np.int32]
    bigrams: NDArray[np.int32]
    position: NDArray[np.int32]
    inverse: NDArray[np.float64]


class Weighting(NamedTuple):
    """Parameters that turn counts into relevance.

    Attributes
    ----------
    starts : (n + 1,) int64
        The ids of order k (from 1) are ``starts[k - 1]`` to ``starts[k] - 1``.
    idf : (V,) float64
    gauss : (longest + 1,) float64
        Factor for each difference in length; all ones for plain CIDEr.
    clip : bool
        True for CIDEr-D, which counts min(tf_c, tf_r); False for plain CIDEr, which counts tf_c.
    """

    starts: NDArray[np.int64]
    idf: NDArray[np.float64]
    gauss: NDArray[np.float64]
    clip: bool


class MergeState(NamedTuple):
    """Buffers of a merge of up to R sorted rows.

    Attributes
    ----------
    cursor, stop : (R,) int64
        Current entry and end of each row.
    counts, bigrams, weight : (R,) int32, int32, float64
        Count, caption length and idf^2 tf / norm of the rows that hold the current n-gram, compacted to the front.
    """

    cursor: NDArray[np.int64]
    stop: NDArray[np.int64]
    counts: NDArray[np.int32]
    bigrams: NDArray[np.int32]
    weight: NDArray[np.float64]

    @classmethod
    def allocate(cls, size: int) -> MergeState:
        """Allocate buffers for sets of up to `size` captions."""
        i8, i4 = np.int64, np.int32
        return cls(np.empty(size, i8), np.empty(size, i8), np.empty(size, i4), np.empty(size, i4), np.empty(size))


def idf_of(df: NDArray[np.int32], documents: int) -> NDArray[np.float64]:
    """Compute inverse document frequencies ln(documents) - ln(max(1, df)), exactly 0 where df = documents.

    Parameters
    ----------
    df : (V,) int32
        Documents that hold each n-gram, in 0..documents.
    documents : int
        At least 1.

    Returns
    -------
    (V,) float64

    Examples
    --------
    >>> import numpy as np
    >>> from relabel.sources.cider.features import idf_of
    >>> idf_of(np.array([0, 1, 2, 4], np.int32), documents=4).round(3)
    array([1.386, 1.386, 0.693, 0.   ])
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

    Parameters
    ----------
    indptr, ids, counts
        See Features.
    words : (N,) int32
        Number of words of each caption.
    weighting : Weighting

    Examples
    --------
    >>> import numpy as np
    >>> from relabel.sources.cider.features import Weighting, features_of
    >>> weighting = Weighting(np.array([0, 2]), np.array([1.0, 2.0]), np.ones(4), clip=True)
    >>> features = features_of(np.array([0, 2]), np.array([0, 1]), np.array([3, 2]), np.array([5]), weighting)
    >>> features.inverse  # 1 / sqrt((3 * 1)^2 + (2 * 2)^2)
    array([[0.2]])
    >>> features.bigrams
    array([4], dtype=int32)
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

    Parameters
    ----------
    ngrams : NgramOccurrences
        Of the text alone.
    vocabulary : Vocabulary
        Of the encoding.
    weighting : Weighting
    unseen_idf : float
        idf of an n-gram that the vocabulary lacks. Such an n-gram matches nothing, but counts in the norm.
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


def postings_of(
    features: Features, positions: NDArray[np.integer], rows: NDArray[np.int32], starts: NDArray[np.int64]
) -> Postings:
    """Invert candidate captions.

    Parameters
    ----------
    features : Features
    positions : (N,) int
        Rows of `features` to invert, repeats allowed.
    rows : (N,) int32
        Their corpus rows.
    starts : (n + 1,) int64
        See Weighting.

    Raises
    ------
    UsageError
        If the sort key of a posting does not fit into 63 bits.
    """
    # Sorted by length, candidates of equal length are neighbours within an n-gram's list, so segments are long.
    column = np.argsort(features.bigrams[positions], kind="stable").astype(np.int32)
    positions = positions[column]
    sizes = np.diff(features.indptr)[positions]
    entry = ranges(features.indptr[positions], sizes)
    ids, counts = features.ids[entry], features.counts[entry]
    # N-gram, count and candidate are packed into one int64 per posting: one sort orders by all three.
    count_bits, position_bits = (int(v).bit_length() for v in (counts.max(initial=0), len(positions)))
    if int(starts[-1]).bit_length() + count_bits + position_bits > 63:
        raise UsageError(f"{len(positions)} captions are too many for one index", todo="Index them in pieces.")
    keys = ids.astype(np.int64) << (count_bits + position_bits)
    keys |= counts.astype(np.int64) << position_bits
    keys |= np.repeat(np.arange(len(positions)), sizes)
    keys.sort()
    position = (keys & ((1 << position_bits) - 1)).astype(np.int32)
    keys >>= position_bits  # from now on: n-gram and count
    bigrams = features.bigrams[positions][position]
    # A segment begins wherever the n-gram, the count or the length changes.
    fresh = np.ones(len(keys), bool)
    np.not_equal(keys[1:], keys[:-1], out=fresh[1:])
    fresh[1:] |= bigrams[1:] != bigrams[:-1]
    begin = np.flatnonzero(fresh)
    grams = (keys[begin] >> count_bits).astype(np.int32)
    segments = np.flatnonzero(np.diff(grams, prepend=-1))
    inverse = np.empty(len(keys))
    # Ids ascend by order, so the postings of one order are one slice.
    cuts = np.searchsorted(keys, starts << count_bits)
    for order, (a, b) in enumerate(pairwise(cuts.tolist())):
        inverse[a:b] = features.inverse[positions[position[a:b]], order]
    return Postings(
        np.ascontiguousarray(rows[column]),
        column,
        grams[segments],
        np.append(segments, len(begin)),
        np.append(begin, len(keys)),
        (keys[begin] & ((1 << count_bits) - 1)).astype(np.int32),
        bigrams[begin],
        position,
        inverse,
    )
