"""nDCG of graded labels, with the gain of S-NDCG and with that of log-ratio."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Gain = Literal["exponential", "inverse_distance"]
"""`exponential`: 2^r - 1. `inverse_distance`: 1 / (1 + d), which is 2^r' with r' = -log2(1 + d)."""


def ndcg(
    ranked: NDArray[np.float64], ideal: NDArray[np.float64], k: int | None = None, gain: Gain = "exponential"
) -> NDArray[np.float64]:
    """Discounted gain of the K best by score, over that of the K best by label.

    Parameters
    ----------
    ranked : (Q, L) float64
        `exponential`: labels, best-scored item first (S-NDCG, Eq. 4-6; its labels are (1 + cosine) / 2).
        `inverse_distance`: label distances, 0 or more, best-scored item first (Kim et al., Deep Metric Learning Beyond
        Binary Supervision, CVPR 2019, Eq. 12: its gain has no -1).
    ideal : (Q, L) float64
        Falling labels, or rising distances: the list sorted, ties in their places (not the shared best rank, D5).
    k : int, optional
        The whole list where not given.
    gain : "exponential" or "inverse_distance"

    Returns
    -------
    (Q,) float64
        At most 1, and 0 or more where gains are. NaN where the ideal has no gain above 0: no order is better there.
    """
    depth = ranked.shape[1] if k is None else min(k, ranked.shape[1])
    discount = 1 / np.log2(np.arange(2, depth + 2))
    # no matrix product: its last bits depend on how many queries it is given
    found, best = ((_gains(values[:, :depth], gain) * discount).sum(axis=1) for values in (ranked, ideal))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(best > 0, found / best, np.nan))


def _gains(values: NDArray[np.float64], gain: Gain) -> NDArray[np.float64]:
    if gain == "exponential":
        return np.asarray(np.exp2(values) - 1)
    return np.asarray(1 / (1 + values))
