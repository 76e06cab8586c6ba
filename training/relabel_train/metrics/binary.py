"""Metrics of positives: recall, precision and ranks. An item is positive or not."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


def recall_at_k(hits: NDArray[np.bool_], k: int) -> NDArray[np.float64]:
    """R@K of each query as retrieval papers use it: whether any of the K best items is positive.

    Parameters
    ----------
    hits : (Q, L) bool
        Whether the item at each position is positive, best first.
    k : int
        1..L.

    Returns
    -------
    (Q,) float64
        0 or 1; R@K is its mean.

    Raises
    ------
    ValueError
        If `k` is not in 1..L.
    """
    _check_depth(hits, k)
    return np.asarray(hits[:, :k].any(axis=1), np.float64)


def recall_percent(ranks: NDArray[np.integer], k: int) -> float:
    """R@K over queries, 0..100: the share of queries with a positive among their K best items.

    Parameters
    ----------
    ranks : (Q,) int
        Rank of the best positive of each query, counted from 0, as `best_ranks` returns it.
    k : int
        1 or more.

    Returns
    -------
    float
        NaN for no queries.
    """
    return float(np.mean(ranks < k) * 100) if len(ranks) else float("nan")


def ir_recall(hits: NDArray[np.bool_], positives: NDArray[np.integer], k: int) -> NDArray[np.float64]:
    """Share of each query's positives among its K best items (Biten et al., WACV 2022, Eq. 1).

    With five captions per image it cannot exceed K/5; with one positive per query it is R@K.

    Parameters
    ----------
    hits : (Q, L) bool
        Whether the item at each position is positive, best first.
    positives : (Q,) int
        Number of positives of each query; at least 1.
    k : int
        1..L.

    Returns
    -------
    (Q,) float64
        0..1.

    Raises
    ------
    ValueError
        If `k` is not in 1..L or a query has no positive.
    """
    _check_depth(hits, k)
    _check_counts(positives)
    return np.asarray(hits[:, :k].sum(axis=1) / positives, np.float64)


def r_precision(hits: NDArray[np.bool_], positives: NDArray[np.integer]) -> NDArray[np.float64]:
    """Precision of the R best items of each query, with R its number of positives.

    Parameters
    ----------
    hits : (Q, L) bool
        Whether the item at each position is positive, best first; L is at least the largest R.
    positives : (Q,) int
        R of each query, positives outside the list included; at least 1.

    Returns
    -------
    (Q,) float64
        0..1.

    Raises
    ------
    ValueError
        If a list is shorter than its R or an R is below 1.
    """
    return np.asarray(_hits_within_r(hits, positives).sum(axis=1) / positives, np.float64)


def average_precision_at_r(hits: NDArray[np.bool_], positives: NDArray[np.integer]) -> NDArray[np.float64]:
    """Average precision at R of each query: (1 / R) sum over k <= R of hit_k times precision at k.

    mAP@R, its mean, is of Musgrave et al., A Metric Learning Reality Check, ECCV 2020. Parameters, range and errors are
    those of `r_precision`.
    """
    counted = _hits_within_r(hits, positives)
    precision = np.cumsum(counted, axis=1) / np.arange(1, hits.shape[1] + 1)
    return np.asarray((precision * counted).sum(axis=1) / positives, np.float64)


def mean_rank(ranks: NDArray[np.integer]) -> float:
    """Mean of ranks, counted from 1; NaN for no queries.

    Parameters
    ----------
    ranks : (Q,) int
        Rank of the best positive of each query, counted from 0, as `best_ranks` returns it.
    """
    return float(np.mean(ranks) + 1) if len(ranks) else float("nan")


def median_rank(ranks: NDArray[np.integer]) -> float:
    """Median of ranks, counted from 1 and rounded down, as VSE++ prints it; NaN for no queries.

    Parameters are those of `mean_rank`.
    """
    return float(np.floor(np.median(ranks)) + 1) if len(ranks) else float("nan")


def rsum(percents: Iterable[float]) -> float:
    """Sum of recalls in percent: R@1, R@5 and R@10 of both directions, 0..600.

    Over folds it is the sum of the means. The evaluation code of vsepp prints 6 times that sum for five folds, and the
    code of SAM prints 6 times the mean of the image-to-text recalls.
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
