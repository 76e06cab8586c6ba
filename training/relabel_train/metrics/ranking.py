"""Ranked lists: what each query finds at which place, with the rule for ties said out loud."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Ties = Literal["pessimistic", "row"]
"""`pessimistic`: among equal scores, items that are not positive come first. `row`: the lower column comes first."""


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
    if np.isnan(scores).any():
        raise ValueError("a score is NaN")
    hits = np.zeros((queries, length), np.bool_)
    if length == 0:
        return hits
    worst = kth_largest(scores, length)
    for q in range(queries):
        above = np.flatnonzero(scores[q] > worst[q])  # fewer than `length`
        order = np.lexsort((above, positive[q, above] if ties == "pessimistic" else above, -scores[q, above]))
        hits[q, : len(above)] = positive[q, above[order]]
        level = positive[q, scores[q] == worst[q]]  # all items that tie for the last places, in column order
        room = length - len(above)
        if ties == "row":
            hits[q, len(above) :] = level[:room]
        else:
            hits[q, len(above) :] = np.arange(room) >= len(level) - np.count_nonzero(level)
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
