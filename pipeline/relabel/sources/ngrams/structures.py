"""What the kernels read: captions as sparse rows, an inverted index over some of them, and weights."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Features(NamedTuple):
    """Captions as sparse rows (CSR), ids ascending within a row.

    Attributes
    ----------
    indptr : (N + 1,) int64
    ids, counts : (indptr[-1],) int32
        N-gram ids and how often each occurs.
    bigrams : (N,) int32
        Length of each caption as CIDEr-D takes it: words - 1, at least 0.
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
        Corpus row of each position, and its column in the caller's order.
    ids : (C,) int32
        N-grams that occur, ascending.
    segments : (C + 1,) int64
        The segments of n-gram j are ``segments[j]:segments[j + 1]``.
    begin : (S + 1,) int64
        The postings of segment s are ``begin[s]:begin[s + 1]``.
    counts, bigrams : (S,) int32
        Count and length that the postings of a segment share.
    position : (E,) int32
    inverse : (E,) float64
        1 / norm of the posting's caption, of the n-gram's order.
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
    """What turns counts into relevance.

    Attributes
    ----------
    starts : (n + 1,) int64
        The ids of order k (from 1) are ``starts[k - 1]`` to ``starts[k] - 1``.
    idf : (V,) float64
    gauss : (longest + 1,) float64
        Factor for each difference in length; all ones for plain CIDEr.
    clip : bool
        Count min(tf_c, tf_r) (CIDEr-D) instead of tf_c (CIDEr).
    """

    starts: NDArray[np.int64]
    idf: NDArray[np.float64]
    gauss: NDArray[np.float64]
    clip: bool


class Merge(NamedTuple):
    """Room for the merge of up to R sorted rows: where each stands and ends, and the ones that hold an n-gram."""

    cursor: NDArray[np.int64]
    stop: NDArray[np.int64]
    counts: NDArray[np.int32]
    bigrams: NDArray[np.int32]
    weight: NDArray[np.float64]

    @classmethod
    def room(cls, size: int) -> Merge:
        """Make room for sets of up to `size` captions."""
        i8, i4 = np.int64, np.int32
        return cls(np.empty(size, i8), np.empty(size, i8), np.empty(size, i4), np.empty(size, i4), np.empty(size))
