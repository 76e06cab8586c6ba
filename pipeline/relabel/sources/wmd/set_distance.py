"""Distances of sets of captions, from the distances of their captions.

An infinite distance says that a caption has no known word. Such a caption says nothing of its set: it counts as the
mean of the others, or the set of an image would seem near for every caption that is missing, or far for one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.jit import jit
from relabel.core.types import Pooling

F8 = NDArray[np.float64]
I8 = NDArray[np.int64]
PAIRED, MAX, MEAN, REFS = 0, 1, 2, 3
CODES: dict[Pooling, int] = {"paired": PAIRED, "max": MAX, "mean": MEAN, "refs": REFS}


@jit
def to_caption(distances: F8, lo: int, hi: int, pooling: int) -> float:
    """Distance of a reference set to one caption.

    Parameters
    ----------
    distances : (..., ) float64
        Of the set's captions to it: ``distances[lo:hi]``.
    pooling : int
        PAIRED the first; MAX the least; MEAN the mean; REFS the set distance to the set of this caption alone (Kim et
        al., "Deep Metric Learning Beyond Binary Supervision", CVPR 2019, eq. 13): the sum and the least.
    """
    if pooling == PAIRED:
        return float(distances[lo])
    least, total, known = np.inf, 0.0, 0
    for e in range(lo, hi):
        if distances[e] < np.inf:
            least = min(least, distances[e])
            total += distances[e]
            known += 1
    if pooling == MAX or known == 0:
        return float(least)
    return total / known if pooling == MEAN else total * ((hi - lo) / known) + least


@jit
def relevance_of_set(distance: float, size: int, pooling: int, reach: float) -> float:
    """Relevance of a caption to a set of `size` captions: 1 - d / reach, 0 where that is below 0.

    The set distance has a term for every caption of both sets; `reach` bounds each.
    """
    terms = size + 1 if pooling == REFS else 1
    return max(0.0, 1.0 - distance / (reach * terms))


@jit
def pooled(distances: F8, indptr: I8, pooling: int, out: F8) -> None:
    """Fill `out`, (P,): set p owns ``distances[indptr[p]:indptr[p + 1]]``; see `to_caption`."""
    for p in range(len(out)):
        out[p] = to_caption(distances, indptr[p], indptr[p + 1], pooling)


@jit
def of_sets(distances: F8, left: I8, right: I8, pooling: int, out: F8) -> None:
    """Distances of P pairs of sets, symmetric.

    PAIRED: of the first captions. MAX: the least of all pairs. MEAN: their mean. REFS, the set distance (eq. 13): every
    caption's distance to the nearest of the other set, summed over both sets.

    Parameters
    ----------
    distances : float64
        Of every caption of one set to every caption of the other, pair of sets after pair of sets, row by row.
    left, right : (P,) int64
        Sizes of the sets.
    out : (P,) float64
        Filled.
    """
    start = 0
    for p in range(len(out)):
        m, n = left[p], right[p]
        if pooling == REFS:
            cells = distances[start : start + m * n].reshape((m, n))
            out[p] = _nearest(cells) + _nearest(cells.T)
        else:
            out[p] = to_caption(distances, start, start + m * n, pooling)
        start += m * n


@jit
def _nearest(cells: F8) -> float:
    """Sum over rows of the least of a row; rows without any distance count as the mean of the others."""
    total, known = 0.0, 0
    for i in range(cells.shape[0]):
        least = np.inf
        for j in range(cells.shape[1]):
            least = min(least, cells[i, j])
        if least < np.inf:
            total += least
            known += 1
    return np.inf if known == 0 else total * (cells.shape[0] / known)
