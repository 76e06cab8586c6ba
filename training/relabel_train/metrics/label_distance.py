"""Mean label distance: how far, by label, what was retrieved is from the query (log-ratio)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def label_distance(ranked: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    """Mean label distance of the K best of each query (Kim et al., CVPR 2019).

    Parameters
    ----------
    ranked : (Q, L) float64
        Label distances, best-scored item first.
    k : int
        1 or more; a shorter list counts as it is.

    Returns
    -------
    (Q,) float64
        In units of the label distance.
    """
    return np.asarray(ranked[:, :k].mean(axis=1))
