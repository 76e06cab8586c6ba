"""Metrics of positives: recall, precision and ranks. An item is positive or not."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


def recall_at_k(hits: NDArray[np.bool_], k: int) -> NDArray[np.float64]:
    """Return R@K of each query as retrieval papers use it: 1 if any of the K best items is positive, 0 otherwise.

    Parameters
    ----------
    hits : (Q, L) bool
        Whether the item at each position is positive, best first.
    k : int
        1..L; ValueError for another one.

    Examples
    --------
    >>> hits = np.array([[False, True, False], [False, False, True]])
    >>> recall_at_k(hits, 2)
    array([1., 0.])
    """
    _check_depth(hits, k)
    return np.asarray(hits[:, :k].any(axis=1), np.float64)


def recall_percent(ranks: NDArray[np.integer], k: int) -> float:
    """Return R@K, 0..100: the share of queries with a positive among their K best items; NaN for no queries.

    `ranks`, (Q,) int, of the best positive of each query, counted from 0, as `rank_positives` returns them.

    Examples
    --------
    >>> recall_percent(np.array([0, 3, 7, 1]), 5)
    75.0
    """
    return float(np.mean(ranks < k) * 100) if len(ranks) else float("nan")


def ir_recall(hits: NDArray[np.bool_], positives: NDArray[np.integer], k: int) -> NDArray[np.float64]:
    """Return the share of each query's positives among its K best items (Biten et al., WACV 2022, Eq. 1).

    With five captions per image it cannot exceed K/5; with one positive per query it is R@K. Parameters are those of
    `recall_at_k` and `r_precision`.

    Examples
    --------
    >>> hits = np.array([[True, True, False], [False, False, True]])
    >>> ir_recall(hits, np.array([5, 1]), 3)
    array([0.4, 1. ])
    """
    _check_depth(hits, k)
    _check_counts(positives)
    return np.asarray(hits[:, :k].sum(axis=1) / positives, np.float64)


def r_precision(hits: NDArray[np.bool_], positives: NDArray[np.integer]) -> NDArray[np.float64]:
    """Return the precision of the R best items of each query, with R its number of positives: (Q,), 0..1.

    Parameters
    ----------
    hits : (Q, L) bool
        Whether the item at each position is positive, best first; ValueError if L is less than the maximum R.
    positives : (Q,) int
        R of each query, positives outside the list included; ValueError for less than 1.

    Examples
    --------
    >>> hits = np.array([[True, False, True, False], [False, True, True, True]])
    >>> r_precision(hits, np.array([2, 3]))
    array([0.5       , 0.66666667])
    """
    return np.asarray(_hits_within_r(hits, positives).sum(axis=1) / positives, np.float64)


def average_precision_at_r(hits: NDArray[np.bool_], positives: NDArray[np.integer]) -> NDArray[np.float64]:
    """Return the average precision at R of each query: (1 / R) sum over k <= R of hit_k times precision at k.

    mAP@R, its mean, is defined by Musgrave et al., A Metric Learning Reality Check, ECCV 2020. Parameters and errors
    are those of `r_precision`, an upper bound of it.

    Examples
    --------
    >>> hits = np.array([[True, False, True, False], [False, True, True, True]])
    >>> average_precision_at_r(hits, np.array([2, 3]))
    array([0.5       , 0.38888889])
    """
    hits_within = _hits_within_r(hits, positives)
    precision = np.cumsum(hits_within, axis=1) / np.arange(1, hits.shape[1] + 1)
    return np.asarray((precision * hits_within).sum(axis=1) / positives, np.float64)


def mean_rank(ranks: NDArray[np.integer]) -> float:
    """Return the mean of ranks, counted from 1; NaN for no queries. `ranks` are those of `recall_percent`.

    Examples
    --------
    >>> mean_rank(np.array([0, 3, 7, 1]))
    3.75
    """
    return float(np.mean(ranks) + 1) if len(ranks) else float("nan")


def median_rank(ranks: NDArray[np.integer]) -> float:
    """Return the median of ranks, counted from 1 and rounded down, as VSE++ prints it; NaN for no queries.

    Examples
    --------
    >>> median_rank(np.array([0, 4, 7, 1]))  # the median of 1, 2, 5, 8 is 3.5
    3.0
    """
    return float(np.floor(np.median(ranks)) + 1) if len(ranks) else float("nan")


def rsum(percents: Iterable[float]) -> float:
    """Return the sum of recalls in percent: R@1, R@5 and R@10 of both directions, 0..600.

    Over folds it is the sum of the means. The evaluation code of VSE++ and of SAM prints other numbers for five folds
    (docs/deviations.md).

    Examples
    --------
    >>> rsum([45.0, 75.0, 85.0, 35.0, 65.0, 75.0])
    380.0
    """
    return float(sum(percents))


def _hits_within_r(hits: NDArray[np.bool_], positives: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Clear the hits behind position R of each query, after a check of the lists."""
    if positives.shape != hits.shape[:1]:
        raise ValueError(f"hits are {hits.shape}, positives is {positives.shape}")
    _check_counts(positives)
    if len(positives) and positives.max() > hits.shape[1]:
        raise ValueError(f"lists of {hits.shape[1]} are too short for R = {int(positives.max())}")
    return hits & (np.arange(hits.shape[1]) < positives[:, None])


def _check_depth(hits: NDArray[np.bool_], k: int) -> None:
    if not 1 <= k <= hits.shape[1]:
        raise ValueError(f"k = {k} is not in 1..{hits.shape[1]}")


def _check_counts(positives: NDArray[np.integer]) -> None:
    if len(positives) and positives.min() < 1:
        raise ValueError(f"query {int(positives.argmin())} has no positive")
