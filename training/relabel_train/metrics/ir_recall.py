"""IR recall: the share of a query's positives that is among its K best (SAM Eq. 1)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def ir_recall(hits: NDArray[np.bool_], positives: NDArray[np.integer], k: int) -> NDArray[np.float64]:
    """Share of each query's positives among its K best (Biten et al., Is An Image Worth Five Sentences?, Eq. 1).

    With five captions an image it can not pass K/5; with one positive a query it is R@K.

    Parameters
    ----------
    hits : (Q, L) bool
        Whether the item at each place is positive, best first.
    positives : (Q,) int
        How many positives each query has; at least 1.
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
    if not 1 <= k <= hits.shape[1]:
        raise ValueError(f"k = {k} is not in 1..{hits.shape[1]}")
    if len(positives) and positives.min() < 1:
        raise ValueError(f"query {int(positives.argmin())} has no positive")
    return np.asarray(hits[:, :k].sum(axis=1) / positives, np.float64)
