"""R-Precision: precision of the R best, R being how many positives the query has."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relabel_train.metrics.ranking import check_lists


def r_precision(hits: NDArray[np.bool_], positives: NDArray[np.integer]) -> NDArray[np.float64]:
    """R-Precision of each query.

    Parameters
    ----------
    hits : (Q, L) bool
        Whether the item at each place is positive, best first; L is at least the largest R.
    positives : (Q,) int
        R of each query: how many positives it has, retrieved or not; at least 1.

    Returns
    -------
    (Q,) float64
        0..1.

    Raises
    ------
    ValueError
        If a list is shorter than its R or an R is below 1.
    """
    check_lists(hits, positives)
    within = np.arange(hits.shape[1]) < positives[:, None]
    return np.asarray((hits & within).sum(axis=1) / positives, np.float64)
