"""The mean human score at each level of relevance: what a picture draws as a line and `dvc plots` as points."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Binned:
    """Pairs in bins of equally many, by relevance; at most B bins.

    Attributes
    ----------
    relevance : (B,) float64
        Mean relevance of each bin, ascending.
    mean, spread : (B,) float64
        Mean and standard deviation of the human scores, 0..5.
    n : (B,) int64
        Pairs of each bin.
    """

    relevance: NDArray[np.float64]
    mean: NDArray[np.float64]
    spread: NDArray[np.float64]
    n: NDArray[np.int64]


def binned(relevance: NDArray[np.float64], human: NDArray[np.float64], bins: int = 20) -> Binned:
    """Cut pairs into bins of equally many by relevance; equal relevance shares a bin, so ties can make fewer bins.

    Parameters
    ----------
    relevance, human : (P,) float64
        Finite.
    bins : int
    """
    if not len(relevance):
        empty = np.empty(0)
        return Binned(empty, empty, empty, np.empty(0, np.int64))
    last = len(relevance) * np.arange(1, bins) // bins - 1  # of each bin but the last one, in order of relevance
    edges = np.unique(np.sort(relevance)[last[last >= 0]])
    index = np.searchsorted(edges, relevance, side="left")
    n = np.bincount(index, minlength=len(edges) + 1)
    kept = n > 0
    with np.errstate(invalid="ignore"):
        x, mean = (np.bincount(index, v, len(n)) / n for v in (relevance, human))
        variance = np.bincount(index, (human - mean[index]) ** 2, len(n)) / n
    return Binned(x[kept], mean[kept], np.sqrt(variance[kept]), n[kept])
