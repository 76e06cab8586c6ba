"""R@K as retrieval papers use it: whether any of the K best is positive."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def recall_at_k(hits: NDArray[np.bool_], k: int) -> NDArray[np.float64]:
    """R@K of each query.

    Parameters
    ----------
    hits : (Q, L) bool
        Whether the item at each place is positive, best first.
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
    if not 1 <= k <= hits.shape[1]:
        raise ValueError(f"k = {k} is not in 1..{hits.shape[1]}")
    return np.asarray(hits[:, :k].any(axis=1), np.float64)
