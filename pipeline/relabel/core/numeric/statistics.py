"""Agreement of a label with human scores: Pearson, Spearman, Kendall tau-b, and a bootstrap interval over images.

A coefficient of a constant is undefined: None here, `undefined` in a table, never NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """A 95% bootstrap interval of Pearson's r: its ends, -1..1."""

    low: float
    high: float


@dataclass(frozen=True)
class Agreement:
    """How two variables agree over n pairs; each coefficient -1..1, None where it is undefined."""

    n: int
    pearson: float | None
    spearman: float | None
    kendall: float | None
    interval: Interval | None = None


def agreement(
    relevance: Vector, human: Vector, cluster: NDArray[np.integer] | None = None, resamples: int = 1000, seed: int = 0
) -> Agreement:
    """All coefficients at once; see `pearson`, `spearman`, `kendall`, `bootstrap` and `round_relative`.

    Parameters
    ----------
    relevance, human : (P,) float64
        Finite.
    cluster : (P,) int, optional
        Cluster of each pair; None or ``resamples=0`` gives no interval.
    """
    x, y = round_relative(relevance), human
    interval = None if cluster is None or not resamples else bootstrap(x, y, cluster, resamples, seed)
    return Agreement(len(x), pearson(x, y), spearman(x, y), kendall(x, y), interval)


def round_relative(x: Vector) -> Vector:
    """Round to 1e-5 of the largest magnitude, so that values equal up to float32 rounding are ties and not an order.

    The cosine of a caption with itself is 1 give or take 3e-7: 25,000 such pairs must not be ranked by their noise.
    """
    scale = float(np.abs(x).max(initial=0.0))
    return x if scale == 0 else np.asarray(np.round(x / scale, 5) * scale, np.float64)


def pearson(x: Vector, y: Vector) -> float | None:
    """Pearson's r of two (P,) float64; None if either is constant or P < 2."""
    if _constant(x) or _constant(y):
        return None
    a, b = x - x.mean(), y - y.mean()
    r = float(a @ b / np.sqrt((a @ a) * (b @ b)))
    return min(1.0, max(-1.0, r))


def spearman(x: Vector, y: Vector) -> float | None:
    """Spearman's rho: Pearson's r of ranks, ties share their mean rank; None if either is constant."""
    from scipy.stats import rankdata

    return pearson(rankdata(x), rankdata(y))


def kendall(x: Vector, y: Vector) -> float | None:
    """Kendall's tau-b (Kendall 1945, the ties paper) in O(P log P); None if either is constant."""
    if _constant(x) or _constant(y):
        return None
    from scipy.stats import kendalltau

    method: Literal["exact", "asymptotic"] = (
        "exact" if len(x) == 2 else "asymptotic"
    )  # of the p-value, which is dropped
    return float(kendalltau(x, y, method=method).statistic)


def bootstrap(
    x: Vector, y: Vector, cluster: NDArray[np.integer], resamples: int = 1000, seed: int = 0, level: float = 0.95
) -> Interval | None:
    """Percentile bootstrap interval of Pearson's r, resampling whole clusters.

    Pairs that share an image are not independent, so images are drawn, C of C with replacement, and every pair of a
    drawn image comes along as often as its image was drawn. r of a resample needs each cluster's sums alone (n, x, y,
    xx, yy, xy), so all resamples are one (resamples, C) x (C, 6) product of counts and sums. Equal C and seed draw
    equal resamples: intervals of two labels on the same pairs are comparable.

    Parameters
    ----------
    x, y : (P,) float64
    cluster : (P,) int
        Any numbering.
    resamples : int
    seed : int
    level : float
        Share of the resamples inside the interval.

    Returns
    -------
    Interval or None
        None if r is undefined, or there are fewer than two clusters.
    """
    names, index = np.unique(cluster, return_inverse=True)
    if pearson(x, y) is None or len(names) < 2:
        return None
    a, b = x - x.mean(), y - y.mean()  # centred, so that no sum of squares swamps a difference
    columns = (np.ones_like(a), a, b, a * a, b * b, a * b)
    sums = np.stack([np.bincount(index, c, len(names)) for c in columns], axis=1)
    r = _correlations(cluster_counts(len(names), resamples, seed) @ sums)
    r = r[np.isfinite(r)]  # a resample may be constant where few clusters carry all variance
    if not len(r):
        return None
    low, high = np.quantile(r, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))


def _constant(x: Vector) -> bool:
    return len(x) < 2 or bool((x == x[0]).all())


def _correlations(sums: Vector) -> Vector:
    n, sx, sy, sxx, syy, sxy = sums.T
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((n * sxy - sx * sy) / np.sqrt((n * sxx - sx * sx) * (n * syy - sy * sy)), np.float64)


@lru_cache(maxsize=4)
def cluster_counts(clusters: int, resamples: int, seed: int) -> Vector:
    """Count how often each cluster is drawn: (resamples, clusters), each row sums to `clusters`; a shared array."""
    generator = np.random.default_rng(seed)
    counts = np.empty((resamples, clusters))
    for row in counts:
        row[:] = np.bincount(generator.integers(0, clusters, clusters), minlength=clusters)
    return counts
