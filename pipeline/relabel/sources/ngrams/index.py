"""Sparse rows and inverted indexes made from counts: what is computed once a corpus or once a set of candidates."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from relabel.errors import UsageError
from relabel.sources.ngrams.structures import Features, Postings, Weighting


def idf_of(df: NDArray[np.int32], documents: int) -> NDArray[np.float64]:
    """Inverse document frequency ln(documents) - ln(max(1, df)), natural logarithm; exactly 0 where df = documents.

    Parameters
    ----------
    df : (V,) int32
        In 0..documents.
    documents : int
        At least 1.
    """
    idf = np.log(float(documents)) - np.log(np.maximum(1, df).astype(np.float64))
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
        Words of each caption.
    weighting : Weighting
    """
    orders = len(weighting.starts) - 1
    order = np.searchsorted(weighting.starts, ids, side="right") - 1
    cell = np.repeat(np.arange(len(words)) * orders, np.diff(indptr)) + order
    squared = np.bincount(cell, (counts * weighting.idf[ids]) ** 2, len(words) * orders).astype(np.float64)
    return features_with_norms(indptr, ids, counts, words, squared.reshape(-1, orders))


def features_with_norms(
    indptr: NDArray[np.int64],
    ids: NDArray[np.int32],
    counts: NDArray[np.int32],
    words: NDArray[np.int32],
    squared: NDArray[np.float64],
) -> Features:
    """Join counted captions with the (N, n) float64 squared norms of their orders."""
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


def postings_of(
    features: Features, places: NDArray[np.integer], rows: NDArray[np.int32], starts: NDArray[np.int64]
) -> Postings:
    """Invert some captions.

    Parameters
    ----------
    features : Features
    places : (N,) int
        Rows of `features` to invert, repeats allowed.
    rows : (N,) int32
        Their corpus rows.
    starts : (n + 1,) int64
        See Weighting.

    Notes
    -----
    One int64 a posting is sorted: n-gram, count and position packed.
    """
    column = np.argsort(features.bigrams[places], kind="stable").astype(np.int32)
    places = places[column]
    sizes = np.diff(features.indptr)[places]
    entry = np.repeat(features.indptr[places] - (np.cumsum(sizes) - sizes), sizes)
    entry += np.arange(len(entry))
    ids, counts = features.ids[entry], features.counts[entry]
    count_bits, place_bits = (int(v).bit_length() for v in (counts.max(initial=0), len(places)))
    if int(starts[-1]).bit_length() + count_bits + place_bits > 63:
        raise UsageError(f"{len(places)} captions are too many for one index", todo="Index them in pieces.")
    keys = ids.astype(np.int64) << (count_bits + place_bits)
    keys |= counts.astype(np.int64) << place_bits
    keys |= np.repeat(np.arange(len(places)), sizes)
    keys.sort()
    position = (keys & ((1 << place_bits) - 1)).astype(np.int32)
    keys >>= place_bits
    bigrams = features.bigrams[places][position]
    fresh = np.ones(len(keys), bool)
    np.not_equal(keys[1:], keys[:-1], out=fresh[1:])
    fresh[1:] |= bigrams[1:] != bigrams[:-1]
    begin = np.flatnonzero(fresh)
    grams = (keys[begin] >> count_bits).astype(np.int32)
    segments = np.flatnonzero(np.diff(grams, prepend=-1))
    inverse = np.empty(len(keys))
    cuts = np.searchsorted(keys, starts << count_bits)
    for order, (a, b) in enumerate(pairwise(cuts.tolist())):
        inverse[a:b] = features.inverse[places[position[a:b]], order]
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
