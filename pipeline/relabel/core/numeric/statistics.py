"""Agreement of a label with human scores: Pearson, Spearman, Kendall tau-b, and a bootstrap interval over images.

Coefficients of constant arrays are undefined: None in Python, `undefined` in a table, never NaN.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


class Interval(NamedTuple):
    """Bounds of a 95% bootstrap interval, on the scale of the statistic."""

    low: float
    high: float


def round_relative(x: Vector) -> Vector:
    """Round to 1e-5 of the maximum magnitude, which turns differences by float32 rounding into ties.

    The cosine of a caption with itself is 1 plus or minus 3e-7. The ranks of 25,000 such pairs would be noise.
    """
    scale = float(np.fmax.reduce(np.abs(x), initial=0.0))
    return x if scale == 0 else np.asarray(np.round(x / scale, 5) * scale, np.float64)


def pearson(x: Vector, y: Vector) -> float | None:
    """Compute Pearson's r of two (P,) float64 arrays; None if either is constant or P < 2."""
    if _constant(x) or _constant(y):
        return None
    a, b = x - x.mean(), y - y.mean()
    r = float(a @ b / np.sqrt((a @ a) * (b @ b)))
    # Rounding can exceed the range by a few ulps.
    return min(1.0, max(-1.0, r))


def spearman(x: Vector, y: Vector) -> float | None:
    """Compute Spearman's rho: Pearson's r of ranks, with mean ranks for ties; None if either is constant."""
    from scipy.stats import rankdata

    return pearson(rankdata(x), rankdata(y))


def kendall(x: Vector, y: Vector) -> float | None:
    """Compute Kendall's tau-b (Kendall 1945, on ties) in O(P log P); None if either is constant."""
    if _constant(x) or _constant(y):
        return None
    from scipy.stats import kendalltau

    return float(kendalltau(x, y).statistic)


def bootstrap(
    x: Vector, y: Vector, cluster: NDArray[np.integer], resamples: int = 1000, seed: int = 0
) -> Interval | None:
    """Compute a 95% percentile bootstrap interval of Pearson's r, resampling clusters.

    Pairs that share an image are not independent. Each resample therefore draws C of the C images with replacement and
    weights every pair by the draws of its image. Equal C and seed give equal resamples, so the intervals of two labels
    on the same pairs are comparable.

    `x`, `y`: (P,) float64. `cluster`: (P,) int; any numbering. Returns None if r is undefined, there are fewer than two
    clusters, or `resamples` is 0.
    """
    names, index = np.unique(cluster, return_inverse=True)
    if pearson(x, y) is None or len(names) < 2:
        return None
    # Centring avoids cancellation in the differences of sums of squares.
    a, b = x - x.mean(), y - y.mean()
    # r depends only on the sums of 1, x, y, xx, yy and xy per cluster. The sums of all resamples are one product of
    # counts and sums, (resamples, C) x (C, 6).
    columns = (np.ones_like(a), a, b, a * a, b * b, a * b)
    sums = np.stack([np.bincount(index, c, len(names)) for c in columns], axis=1)
    n, sx, sy, sxx, syy, sxy = (cluster_counts(len(names), resamples, seed) @ sums).T
    with np.errstate(divide="ignore", invalid="ignore"):
        r = (n * sxy - sx * sy) / np.sqrt((n * sxx - sx * sx) * (n * syy - sy * sy))
    return percentile_interval(r)


def percentile_interval(values: Vector) -> Interval | None:
    """Return the interval between the 2.5% and 97.5% quantiles of resampled values; None if no value is finite.

    `values`: (resamples,) float64. NaN is ignored: the statistic of a resample can be undefined if few clusters carry
    all variance.
    """
    finite = values[np.isfinite(values)]
    if not len(finite):
        return None
    low, high = np.quantile(finite, [0.025, 0.975])
    return Interval(float(low), float(high))


def _constant(x: Vector) -> bool:
    return len(x) < 2 or bool((x == x[0]).all())


@lru_cache(maxsize=4)
def cluster_counts(clusters: int, resamples: int, seed: int) -> Vector:
    """Count the draws of each cluster: (resamples, clusters); every row sums to `clusters`. The array is cached."""
    counts = np.empty((resamples, clusters))
    for row, drawn in zip(counts, draw_clusters(clusters, resamples, seed), strict=True):
        row[:] = drawn
    return counts


def draw_clusters(clusters: int, resamples: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Yield the rows of `cluster_counts` one by one, for callers without memory for the whole array."""
    generator = np.random.default_rng(seed)
    for _ in range(resamples):
        yield np.bincount(generator.integers(0, clusters, clusters), minlength=clusters)
