"""Mean rank of the best positive."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def mean_rank(ranks: NDArray[np.integer]) -> float:
    """Mean of ranks, counted from 1.

    Parameters
    ----------
    ranks : (Q,) int
        Counted from 0; see `best_ranks`.

    Returns
    -------
    float
        1 or more; NaN where there is no query.
    """
    return float(np.mean(ranks) + 1) if len(ranks) else float("nan")
