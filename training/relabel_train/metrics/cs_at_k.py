"""CS@K: whether the order of the K best agrees with their labels (Ladder)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relabel_train.metrics.kendall_tau import taus_of
from relabel_train.metrics.ranked_labels import RankedLabels


def cs_at_k(ranked: RankedLabels, k: int) -> NDArray[np.float64]:
    """Coherent Score: Kendall's tau-b between scores and labels of the K best-scored of each query.

    Zhou et al., Ladder Loss for Coherent Visual-Semantic Embedding, AAAI 2020, as released: scipy's default, tau-b.

    Parameters
    ----------
    ranked : RankedLabels
        Q queries.
    k : int
        2 or more; a shorter list counts as it is.

    Returns
    -------
    (Q,) float64
        -1..1. NaN where the K labels, or the K scores, are all the same: no order is coherent or incoherent there.
    """
    return taus_of(ranked.sorted_keys(k))[1]
