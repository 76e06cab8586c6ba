"""Metrics of graded labels, from ranked labels and from the ideal list."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Gain = Literal["exponential", "inverse_distance"]
"""`exponential`: 2^r - 1. `inverse_distance`: 1 / (1 + d), equal to 2^r' with r' = -log2(1 + d)."""
_EPSILON = 1e-10


def ncs(ranked: NDArray[np.float64], ideal: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    """Return the Normalised Cumulative Semantic score: mean label of the K retrieved over that of the K most relevant.

    Biten et al., Is An Image Worth Five Sentences?, WACV 2022, as their released code computes it. The code differs
    from Eq. 5 of the paper (docs/deviations.md). The score is a mean of ratios, not a ratio of sums. It has no discount
    by rank and adds 1e-10 to the denominator. "Without GT" removes the query's own items from both lists.

    Parameters
    ----------
    ranked, ideal : (Q, L) float64
        Labels, best-scored and most relevant item first.
    k : int
        1 or more; shorter lists are used completely.

    Returns
    -------
    (Q,) float64
        0..1 for non-negative labels. A query with only zero labels has score 0 and lowers the mean.

    Examples
    --------
    >>> from relabel_train.metrics import ideal_labels
    >>> ranked = np.array([[0.25, 0.75, 1.0, 0.5]])
    >>> ncs(ranked, ideal_labels(ranked), 2).round(4)  # (0.25 + 0.75) / (1.0 + 0.75)
    array([0.5714])
    """
    return np.asarray(ranked[:, :k].mean(axis=1) / (ideal[:, :k].mean(axis=1) + _EPSILON))


def ndcg(
    ranked: NDArray[np.float64], ideal: NDArray[np.float64], k: int | None = None, gain: Gain = "exponential"
) -> NDArray[np.float64]:
    """Return the discounted gain of the K best items by score, over that of the K best by label.

    Parameters
    ----------
    ranked : (Q, L) float64
        `exponential`: labels, best-scored item first (S-NDCG, Eq. 4-6; its labels are (1 + cosine) / 2).
        `inverse_distance`: label distances, 0 or more, best-scored item first (Kim et al., Deep Metric Learning Beyond
        Binary Supervision, CVPR 2019, Eq. 12; its gain has no -1).
    ideal : (Q, L) float64
        Falling labels, or rising distances. Tied labels take consecutive ranks; in the ideal DCG of the S-NDCG paper
        they share the best one.
    k : int, optional
        The complete list by default.
    gain : "exponential" or "inverse_distance"

    Returns
    -------
    (Q,) float64
        At most 1, and 0 or more for such gains. NaN if the ideal list has no gain above 0.

    Examples
    --------
    >>> from relabel_train.metrics import ideal_labels
    >>> ranked = np.array([[0.25, 0.75, 1.0, 0.5]])
    >>> ndcg(ranked, ideal_labels(ranked)).round(4)
    array([0.7551])
    >>> distances = 1 - ranked
    >>> ndcg(distances, np.sort(distances), k=2, gain="inverse_distance").round(4)
    array([0.7152])
    """
    depth = ranked.shape[1] if k is None else min(k, ranked.shape[1])
    discount = 1 / np.log2(np.arange(2, depth + 2))
    # Not a matrix product: its last bits depend on the number of queries.
    dcg, ideal_dcg = ((_gains(values[:, :depth], gain) * discount).sum(axis=1) for values in (ranked, ideal))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(ideal_dcg > 0, dcg / ideal_dcg, np.nan))


def _gains(values: NDArray[np.float64], gain: Gain) -> NDArray[np.float64]:
    if gain == "exponential":
        return np.asarray(np.exp2(values) - 1)
    return np.asarray(1 / (1 + values))


def label_distance(ranked: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    """Return the mean label distance of the K best-scored items of each query (Kim et al., CVPR 2019).

    Parameters
    ----------
    ranked : (Q, L) float64
        Label distances, best-scored item first.
    k : int
        1 or more; shorter lists are used completely.

    Examples
    --------
    >>> label_distance(np.array([[0.75, 0.25, 0.0, 0.5]]), 2)
    array([0.5])
    """
    return np.asarray(ranked[:, :k].mean(axis=1))
