"""Distances of sets of captions, from the distances of their captions; compiled.

An infinite distance means that a caption has no word with a vector. Such a caption carries no information about its
set and counts as the mean of the others. If it were dropped from a sum, its set would seem nearer; if it counted as
infinite, a single such caption would make the set infinitely far.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.jit import jit
from relabel.core.types import Pooling

F8 = NDArray[np.float64]
I8 = NDArray[np.int64]
PAIRED, MAX, MEAN, REFS = 0, 1, 2, 3
"""Codes of poolings in the kernels. The names refer to relevance: MAX takes the least distance."""
CODES: dict[Pooling, int] = {"paired": PAIRED, "max": MAX, "mean": MEAN, "refs": REFS}


@jit
def pool_to_caption(distances: F8, lo: int, hi: int, pooling: int) -> float:
    """Compute the distance of a reference set to one caption.

    Parameters
    ----------
    distances : (..., ) float64
        The distances of the set's captions to the caption are ``distances[lo:hi]``.
    pooling : int
        PAIRED takes the first distance, MAX the least, MEAN the mean. REFS is the set distance to the caption as a set
        of its own, that is the sum plus the least (Kim et al., "Deep Metric Learning Beyond Binary Supervision", CVPR
        2019, eq. 13).

    Examples
    --------
    >>> import numpy as np
    >>> from relabel.sources.wmd.set_distance import CODES, pool_to_caption
    >>> distances = np.array([2.0, 1.0, 3.0])
    >>> [pool_to_caption(distances, 0, 3, CODES[pooling]) for pooling in ("paired", "max", "mean", "refs")]
    [2.0, 1.0, 2.0, 7.0]
    """
    if pooling == PAIRED:
        return float(distances[lo])
    least, total, finite = np.inf, 0.0, 0
    for e in range(lo, hi):
        if distances[e] < np.inf:
            least = min(least, distances[e])
            total += distances[e]
            finite += 1
    if pooling == MAX or finite == 0:
        return float(least)
    # A caption without a known word counts as the mean of the others, so the sum is scaled to all of them.
    return total / finite if pooling == MEAN else total * ((hi - lo) / finite) + least


@jit
def relevance_of_set(distance: float, size: int, pooling: int, reach: float) -> float:
    """Compute the relevance of a caption to a set of `size` captions: 1 - d / reach, at least 0.

    Examples
    --------
    >>> from relabel.sources.wmd.set_distance import CODES, relevance_of_set
    >>> relevance_of_set(1.0, 5, CODES["max"], 4.0)
    0.75
    """
    # The set distance has one term per caption of both sets, each of which is at most `reach`.
    terms = size + 1 if pooling == REFS else 1
    return max(0.0, 1.0 - distance / (reach * terms))


@jit
def pool_sets(distances: F8, indptr: I8, pooling: int, out: F8) -> None:
    """Compute the distances of P reference sets to a caption each: fill `out`, (P,) (see `pool_to_caption`).

    The distances of set p are ``distances[indptr[p]:indptr[p + 1]]``.
    """
    for p in range(len(out)):
        out[p] = pool_to_caption(distances, indptr[p], indptr[p + 1], pooling)


@jit
def pool_pairs_of_sets(distances: F8, left: I8, right: I8, pooling: int, out: F8) -> None:
    """Compute the distances of P pairs of sets, which are symmetric.

    PAIRED takes the distance of the first captions, MAX the least of all pairs, MEAN their mean. REFS is the set
    distance (eq. 13): each caption's distance to the nearest caption of the other set, summed over both sets.

    Parameters
    ----------
    distances : (sum of left * right,) float64
        Distances of every caption of one set to every caption of the other, row by row, for one pair of sets after the
        other.
    left, right : (P,) int64
        Sizes of the sets.
    out : (P,) float64
        Filled.
    """
    start = 0
    for p in range(len(out)):
        m, n = left[p], right[p]
        if pooling == REFS:
            # The transpose exchanges the sets, so both sums use the same function.
            cells = distances[start : start + m * n].reshape((m, n))
            out[p] = _sum_nearest(cells) + _sum_nearest(cells.T)
        else:
            out[p] = pool_to_caption(distances, start, start + m * n, pooling)
        start += m * n


@jit
def _sum_nearest(cells: F8) -> float:
    """Sum the least distance of each row; a row of infinite distances counts as the mean of the others."""
    total, finite = 0.0, 0
    for i in range(cells.shape[0]):
        least = np.inf
        for j in range(cells.shape[1]):
            least = min(least, cells[i, j])
        if least < np.inf:
            total += least
            finite += 1
    return np.inf if finite == 0 else total * (cells.shape[0] / finite)
