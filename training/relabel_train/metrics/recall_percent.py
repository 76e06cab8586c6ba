"""R@K in percent: how many queries have a positive among their K best."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def recall_percent(ranks: NDArray[np.integer], k: int) -> float:
    """R@K of queries, 0..100.

    Parameters
    ----------
    ranks : (Q,) int
        Rank of each query's best positive, counted from 0; see `best_ranks`.
    k : int
        1 or more.

    Returns
    -------
    float
        NaN where there is no query.
    """
    return float(np.mean(ranks < k) * 100) if len(ranks) else float("nan")
