"""Median rank of the best positive."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def median_rank(ranks: NDArray[np.integer]) -> float:
    """Median of ranks, counted from 1 and cut to a whole number, as VSE++ and its successors print it.

    Parameters
    ----------
    ranks : (Q,) int
        Counted from 0; see `best_ranks`.

    Returns
    -------
    float
        1 or more; NaN where there is no query.
    """
    return float(np.floor(np.median(ranks)) + 1) if len(ranks) else float("nan")
