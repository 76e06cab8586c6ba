"""Kendall's tau of scores and labels: tau-a, as BCLS Eq. 2, and tau-b, which corrects for ties."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel_train.metrics.inversions import count_inversions
from relabel_train.metrics.ranked_labels import Keys, Ranking, tied_pairs

Taus = tuple[NDArray[np.float64], NDArray[np.float64]]


def kendall_tau(scores: NDArray[np.floating[Any]], labels: NDArray[np.floating[Any]]) -> Taus:
    """Tau of each query's whole list.

    Parameters
    ----------
    scores, labels : (Q, n) float32 or float64
        Without NaN.

    Returns
    -------
    tau_a : (Q,) float64
        (C - D) / (n (n - 1) / 2), -1..1 (Zheng et al., arXiv 2210.11319, Eq. 2). Pairs tied in either count neither
        way, so a perfect list with tied labels, five captions of label 1, stays below 1. NaN where n < 2.
    tau_b : (Q,) float64
        (C - D) / sqrt of the product of pairs that scores, and labels, tell apart (Kendall 1945); scipy's default. NaN
        where scores or labels are all the same.
    """
    return taus_of(Ranking(scores, labels).best().sorted_keys())


def taus_of(keys: Keys) -> Taus:
    """Tau-a and tau-b of sorted keys, (Q, n); see `RankedLabels.sorted_keys`."""
    queries, n = keys.shape
    every = n * (n - 1) // 2
    tied_scores, tied_both = tied_pairs(keys >> 32), tied_pairs(keys)
    by_label = (keys & 0xFFFFFFFF) << 31  # the label's code, with room for a place below
    by_label |= np.arange(n)
    by_label.sort(axis=1)
    tied_labels = tied_pairs(by_label >> 31)
    # labels rise, equal labels keep their places, equal scores have places in the order of labels: what is out of
    # order is what scores and labels both put the same way round
    concordant = count_inversions(by_label & 0x7FFFFFFF)
    apart = every - tied_scores - tied_labels + tied_both
    difference = (2 * concordant - apart).astype(np.float64)
    both = (every - tied_scores).astype(np.float64) * (every - tied_labels)
    with np.errstate(divide="ignore", invalid="ignore"):
        tau_b = np.where(both > 0, difference / np.sqrt(both), np.nan)
        return (difference / every if every else np.full(queries, np.nan)), tau_b
