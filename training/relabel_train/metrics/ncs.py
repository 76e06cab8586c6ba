"""NCS: how relevant what was retrieved is, against the most relevant there is (SAM)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_EPSILON = 1e-10


def ncs(ranked: NDArray[np.float64], ideal: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    """Normalised Cumulative Semantic score: mean label of the K retrieved over that of the K most relevant.

    Biten et al., Is An Image Worth Five Sentences?, WACV 2022, as their code takes it (D15): everything retrieved
    counts, not what is in the extended set of Eq. 5; a mean of ratios, not a ratio of sums; no discount of places;
    1e-10 is added below. Without GT: the query's own items are left out of both lists. On 1K both lists are of the 1K
    gallery (D17: the authors' code takes the image queries' ideal from all 25,000 captions).

    Parameters
    ----------
    ranked : (Q, L) float64
        Labels, best-scored item first.
    ideal : (Q, L) float64
        Labels, most relevant first.
    k : int
        1 or more; a shorter list counts as it is.

    Returns
    -------
    (Q,) float64
        0..1 where labels are not negative; 0 where all are 0, which pulls the mean down.
    """
    return np.asarray(ranked[:, :k].mean(axis=1) / (ideal[:, :k].mean(axis=1) + _EPSILON))
