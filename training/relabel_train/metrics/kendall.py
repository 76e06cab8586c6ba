"""Kendall's tau of scores and labels: tau-a, as BCLS Eq. 2, and tau-b, with a correction for ties."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel_train.metrics.ranking import RankedLabels
from relabel_train.metrics.scores import check_ordered

_FEW = 128
"""Maximum length of lists to compare pairs directly: for short lists, scipy takes ten times as long."""
Taus = tuple[NDArray[np.float64], NDArray[np.float64]]


def kendall_tau(scores: NDArray[np.number[Any]], labels: NDArray[np.number[Any]]) -> Taus:
    """Return Kendall's tau between the scores and the labels of each query; more than 128 items need scipy.

    Parameters
    ----------
    scores, labels : (Q, n) numbers
        ValueError for NaN and +inf.

    Returns
    -------
    tau_a : (Q,) float64
        (C - D) / (n (n - 1) / 2), -1..1 (Li et al., arXiv 2210.11319, Eq. 2). Pairs that are tied in scores or in
        labels are neither concordant nor discordant, so a perfect list with tied labels (five captions of label 1)
        stays below 1. NaN for n < 2.
    tau_b : (Q,) float64
        (C - D) / sqrt of the product of the numbers of pairs untied in scores and untied in labels (Kendall 1945);
        scipy's default. NaN if all scores or all labels are the same.

    Examples
    --------
    >>> scores, labels = np.array([[0.9, 0.5, 0.4, 0.1]]), np.array([[1.0, 1.0, 0.2, 0.6]])
    >>> tau_a, tau_b = kendall_tau(scores, labels)
    >>> tau_a.round(4), tau_b.round(4)  # 4 pairs agree, 1 disagrees, 1 is tied
    (array([0.5]), array([0.5477]))
    """
    check_ordered(scores, "scores")
    check_ordered(labels, "labels")
    n = scores.shape[1]
    if n < 2:
        return np.full(len(scores), np.nan), np.full(len(scores), np.nan)
    if n <= _FEW:
        above, more_relevant = (lists[:, :, None] > lists[:, None, :] for lists in (scores, labels))
        agree, disagree = (_count(above & other) for other in (more_relevant, more_relevant.transpose(0, 2, 1)))
        difference, root = agree - disagree, np.sqrt(_count(above) * _count(more_relevant))
    else:
        # Imported late: nothing else of the package needs scipy.
        from scipy.stats import kendalltau

        # In float64, since scipy computes in the type of its input.
        lists = zip(scores.astype(np.float64), labels.astype(np.float64), strict=True)
        root = np.sqrt(untied_pairs(scores) * untied_pairs(labels))
        difference = np.array([kendalltau(*pair).statistic for pair in lists], np.float64) * root
    tau_a = np.where(root > 0, difference, 0) / (n * (n - 1) / 2)
    return tau_a, np.divide(difference, root, out=np.full(len(scores), np.nan), where=root > 0)


def _count(pairs: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Count the marked pairs of each query, (Q, n, n) to (Q,)."""
    return np.asarray(np.count_nonzero(pairs, axis=(1, 2)), np.float64)


def cs_at_k(ranked: RankedLabels, k: int) -> NDArray[np.float64]:
    """Return the Coherent Score: Kendall's tau-b of scores and labels of the K best-scored items of each query.

    Zhou et al., Ladder Loss for Coherent Visual-Semantic Embedding, AAAI 2020; tau-b, as their released code.

    Parameters
    ----------
    ranked : RankedLabels
    k : int
        2 or more; shorter lists are used completely.

    Returns
    -------
    (Q,) float64
        -1..1. NaN if the K labels, or the K scores, are all the same.

    Examples
    --------
    >>> from relabel_train.metrics import Ranking
    >>> scores, labels = np.array([[0.9, 0.5, 0.4, 0.1]]), np.array([[1.0, 0.8, 0.2, 0.6]])
    >>> cs_at_k(Ranking(scores, labels).best(3), 3)
    array([1.])
    """
    return kendall_tau(ranked.scores[:, :k], ranked.labels[:, :k])[1]


def untied_pairs(values: NDArray[np.number[Any]]) -> NDArray[np.float64]:
    """Count the pairs of different values in each row: (Q, n) to (Q,)."""
    n = values.shape[1]
    # Of the pairs of n items, n^2 ordered ones with themselves, those within a group of s equal ones are s^2.
    groups = [np.unique(row, return_counts=True)[1] for row in values]
    return np.array([(n * n - int((sizes**2).sum())) / 2 for sizes in groups], np.float64)
