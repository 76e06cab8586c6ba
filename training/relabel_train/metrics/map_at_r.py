"""mAP@R: the mean of average precision at R (Musgrave et al., A Metric Learning Reality Check, ECCV 2020)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relabel_train.metrics.ranking import check_lists


def average_precision_at_r(hits: NDArray[np.bool_], positives: NDArray[np.integer]) -> NDArray[np.float64]:
    """Average precision at R of each query: (1 / R) sum over k <= R of hit_k times precision at k.

    Parameters
    ----------
    hits : (Q, L) bool
        Whether the item at each place is positive, best first; L is at least the largest R.
    positives : (Q,) int
        R of each query: how many positives it has, retrieved or not; at least 1.

    Returns
    -------
    (Q,) float64
        0..1; mAP@R is its mean.

    Raises
    ------
    ValueError
        If a list is shorter than its R or an R is below 1.
    """
    check_lists(hits, positives)
    places = np.arange(1, hits.shape[1] + 1)
    counted = hits & (places <= positives[:, None])
    precision = np.cumsum(counted, axis=1) / places
    return np.asarray((precision * counted).sum(axis=1) / positives, np.float64)
