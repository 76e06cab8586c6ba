"""Ranked lists: what each query finds at which place, with the rule for ties said out loud."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from relabel_train.metrics.codes import encode, smallest

Ties = Literal["pessimistic", "row"]
"""`pessimistic`: among equal scores, items that are not positive come first. `row`: the lower column comes first."""
_CELLS = 1 << 18
"""Scores ranked together: 2 MiB of keys, which a cache holds."""


def ranked_hits(
    scores: NDArray[np.floating[Any]], positive: NDArray[np.bool_], length: int, ties: Ties = "pessimistic"
) -> NDArray[np.bool_]:
    """Say which of the `length` best items of each query are positive, best first.

    Parameters
    ----------
    scores : (Q, N) float
        Score of each item for each query; larger is better. -inf is allowed, NaN is not.
    positive : (Q, N) bool
    length : int
        0..N.
    ties : "pessimistic" or "row"
        Chance hits among ties flatter a coarse score; "pessimistic" gives none. "row" is what a stable sort gives.

    Returns
    -------
    (Q, length) bool

    Raises
    ------
    ValueError
        If `length` is not in 0..N, the shapes differ, or a score is NaN.
    """
    queries, items = scores.shape
    if positive.shape != scores.shape:
        raise ValueError(f"scores are {scores.shape}, positive is {positive.shape}")
    if not 0 <= length <= items:
        raise ValueError(f"length {length} is not in 0..{items}")
    if scores.size and np.isnan(scores.max()):
        raise ValueError("a score is NaN")
    hits = np.zeros((queries, length), np.bool_)
    step = max(1, _CELLS // max(1, items))
    for a in range(0, queries if length else 0, step):
        some = slice(a, a + step)
        keys = (~encode(scores[some])[0]).astype(np.int64)
        if ties == "pessimistic":
            keys <<= 1
            keys |= positive[some]
            hits[some] = smallest(keys, length) & 1
        else:
            keys <<= 32
            keys |= np.arange(items)
            hits[some] = np.take_along_axis(positive[some], smallest(keys, length) & 0xFFFFFFFF, axis=1)
    return hits


def kth_largest(scores: NDArray[np.floating[Any]], k: int) -> NDArray[np.floating[Any]]:
    """Find the k-th largest score of each row, fast also where most scores tie.

    The k-th largest of the maxima of G >= k groups of columns is a lower bound; few items reach it, or all that do tie.

    Parameters
    ----------
    scores : (Q, N) float
        Without NaN.
    k : int
        1..N.

    Returns
    -------
    (Q,) float
    """
    queries, items = scores.shape
    width = max(1, items // (8 * k))
    groups = items // width
    maxima = scores[:, : groups * width].reshape(queries, groups, width).max(axis=2)
    bound = np.partition(maxima, groups - k, axis=1)[:, groups - k]
    out = bound.copy()
    for q in range(queries):
        above = scores[q][scores[q] > bound[q]]
        if len(above) >= k:
            out[q] = np.partition(above, len(above) - k)[len(above) - k]
    return out


def check_lists(hits: NDArray[np.bool_], positives: NDArray[np.integer]) -> None:
    """Refuse lists too short for their R.

    Raises
    ------
    ValueError
        If `positives` is not (Q,), an R is below 1, or a list is shorter than its R.
    """
    if positives.shape != hits.shape[:1]:
        raise ValueError(f"hits are {hits.shape}, positives is {positives.shape}")
    if len(positives) and positives.min() < 1:
        raise ValueError(f"query {int(positives.argmin())} has no positive")
    if len(positives) and positives.max() > hits.shape[1]:
        raise ValueError(f"lists of {hits.shape[1]} are too short for R = {int(positives.max())}")
