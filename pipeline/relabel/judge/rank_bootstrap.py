"""Bootstrap intervals of rank correlations, and CxC's sampled Spearman correlation."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.csr import indptr_of
from relabel.core.numeric.kernels import jit
from relabel.core.numeric.statistics import Interval, Vector, cluster_counts, percentile_interval, round_relative
from relabel.core.numeric.threads import run_chunks

_CELLS = 1 << 20  # random numbers per batch of draws
_TOGETHER = 32  # resamples per task of a thread: the tree of CxC's 501 human scores is then 128 KiB


class RankIntervals(NamedTuple):
    """Intervals of Spearman's rho and of Kendall's tau-b and tau-c. None if undefined."""

    spearman: Interval | None
    tau_b: Interval | None
    tau_c: Interval | None


def rank_intervals(
    relevance: Vector,
    human: Vector,
    cluster: NDArray[np.integer],
    resamples: int = 1000,
    seed: int = 0,
    threads: int = 1,
) -> RankIntervals:
    """Return 95% percentile bootstrap intervals of rank correlations, resampling clusters of pairs.

    In a resample, the weight of a pair is the number of times that its cluster was drawn. The coefficients are computed
    from these weights, as if the pairs were repeated.

    `relevance`, `human`: (P,) float64; finite. Relevance is first rounded by `round_relative`. `cluster`: (P,) int;
    cluster of each pair, with any numbers. `resamples`, `seed`: the draws depend only on these and on the number of
    clusters; see `relabel.core.numeric.statistics.bootstrap`. Returns RankIntervals, with None for all if a variable is
    constant, there are fewer than two clusters, or `resamples` is 0.
    """
    names, index = np.unique(cluster, return_inverse=True)
    x = np.unique(round_relative(relevance), return_inverse=True)[1]
    y = np.unique(human, return_inverse=True)[1]
    if len(names) < 2 or not resamples or not x.any() or not y.any():
        return RankIntervals(None, None, None)
    # The kernel processes groups of equal relevance in ascending order.
    order = np.argsort(x, kind="stable")
    starts = np.flatnonzero(np.diff(x[order], prepend=-1, append=x.max() + 1)).astype(np.int64)
    y, index = y[order].astype(np.int64), index[order].astype(np.int64)
    counts = cluster_counts(len(names), resamples, seed)
    out = np.empty((resamples, 3))

    def work(lo: int, hi: int) -> None:
        _rank_correlations(starts, y, index, np.ascontiguousarray(counts[lo:hi].T), int(y.max()) + 1, out[lo:hi])

    run_chunks(work, resamples, threads, _TOGETHER)
    return RankIntervals(*(percentile_interval(column) for column in out.T))


@jit
def _rank_correlations(
    starts: NDArray[np.int64],
    y: NDArray[np.int64],
    cluster: NDArray[np.int64],
    counts: Vector,
    levels: int,
    out: Vector,
) -> None:
    """Write rho, tau-b and tau-c of each resample to `out`, (R, 3), with NaN if undefined.

    Pairs are sorted by relevance, and group g of equal relevance is ``starts[g]:starts[g + 1]``. A pair has the human
    level ``y[p]``, of `levels`, and the weight ``counts[cluster[p], r]`` in resample r. All inner loops run over the
    resamples, because the compiler can vectorise them.
    """
    size = counts.shape[1]
    level_rank = np.zeros((levels, size))
    total = np.zeros(size)
    for p in range(len(y)):
        for r in range(size):
            level_rank[y[p], r] += counts[cluster[p], r]
            total[r] += counts[cluster[p], r]
    # Convert the weight of each human level to its mean rank, centred, with pairs repeated by weight.
    before, yy, tied_y, distinct_y = np.zeros(size), np.zeros(size), np.zeros(size), np.zeros(size)
    for j in range(levels):
        for r in range(size):
            weight = level_rank[j, r]
            rank = before[r] + (weight - total[r]) / 2.0
            level_rank[j, r] = rank
            before[r] += weight
            distinct_y[r] += weight > 0.0
            yy[r] += weight * rank * rank
            tied_y[r] += weight * (weight - 1.0) / 2.0
    # Fenwick tree over human levels with the weight of all groups of lower relevance. `seen` has the same, by level.
    tree, seen = np.zeros((levels + 1, size)), np.zeros((levels, size))
    below, group, sum_y = np.zeros(size), np.zeros(size), np.zeros(size)
    xx, xy, tied_x, balance = np.zeros(size), np.zeros(size), np.zeros(size), np.zeros(size)
    distinct_x = np.zeros(size)
    before[:] = 0.0
    for g in range(len(starts) - 1):
        group[:] = 0.0
        sum_y[:] = 0.0
        for p in range(starts[g], starts[g + 1]):
            below[:] = 0.0
            j = y[p]
            while j > 0:
                for r in range(size):
                    below[r] += tree[j, r]
                j -= j & -j
            # Concordant with lower levels, discordant with higher ones (before - below - seen), tied with equal ones.
            for r in range(size):
                weight = counts[cluster[p], r]
                group[r] += weight
                sum_y[r] += weight * level_rank[y[p], r]
                balance[r] += weight * (2.0 * below[r] + seen[y[p], r] - before[r])
        # A group is added to the tree after all its pairs were compared, because they are ties.
        for p in range(starts[g], starts[g + 1]):
            for r in range(size):
                seen[y[p], r] += counts[cluster[p], r]
            j = y[p] + 1
            while j <= levels:
                for r in range(size):
                    tree[j, r] += counts[cluster[p], r]
                j += j & -j
        for r in range(size):
            rank = before[r] + (group[r] - total[r]) / 2.0
            xx[r] += group[r] * rank * rank
            xy[r] += rank * sum_y[r]
            tied_x[r] += group[r] * (group[r] - 1.0) / 2.0
            before[r] += group[r]
            distinct_x[r] += group[r] > 0.0
    for r in range(size):
        every = total[r] * (total[r] - 1.0) / 2.0
        spread = np.sqrt(xx[r] * yy[r])
        untied = np.sqrt((every - tied_x[r]) * (every - tied_y[r]))
        # Due to rounding, the result for a perfect order may exceed 1.
        out[r, 0] = min(1.0, max(-1.0, xy[r] / spread)) if spread > 0.0 else np.nan
        out[r, 1] = min(1.0, max(-1.0, balance[r] / untied)) if untied > 0.0 else np.nan
        # Tau-c divides by the maximum difference for tables of the same shape.
        shorter = min(distinct_x[r], distinct_y[r])
        maximum = total[r] * total[r] * (shorter - 1.0) / (2.0 * shorter) if shorter > 1.0 else 0.0
        out[r, 2] = balance[r] / maximum if maximum > 0.0 else np.nan


class SampledSpearman(NamedTuple):
    """Sampled Spearman correlation, the protocol of CxC's authors (Parekh et al., EACL 2021, section 5).

    Pairs that share an item are correlated, and in CxC some items have far more ratings than others. So each draw takes
    half of the items and one rated pair of each, and the figure is the mean of Spearman's rho over many draws.

    `sampled_spearman`, `sampled_deviation`: mean and standard deviation of Spearman's rho over the draws, -1..1.
    `units`: Q, the number of items with a pair; a draw takes ``Q // 2`` of them.
    `draws`: number of draws with a defined rho.
    """

    sampled_spearman: float
    sampled_deviation: float
    units: int
    draws: int


def sampled_spearman(
    relevance: Vector, human: Vector, units: NDArray[Any], draws: int, seed: int
) -> SampledSpearman | None:
    """Average Spearman's rho over draws of half of the units, with one pair of each.

    Each draw takes ``Q // 2`` of the Q units without replacement, and one pair of each unit uniformly. Ties have their
    mean rank.

    `relevance`: (P,) float64; finite; first rounded by `round_relative`. `human`: (P,) float64; finite. `units`: (P,);
    number or name of the unit of each pair. Returns None if rho is undefined in every draw, because there are fewer
    than four units or a variable is constant.
    """
    # Make the pairs of each unit consecutive.
    order, sizes = np.argsort(units, kind="stable"), np.unique(units, return_counts=True)[1]
    if len(sizes) < 4:
        return None
    x, y = (np.unique(values, return_inverse=True)[1] for values in (round_relative(relevance), human))
    rho = np.empty(draws)
    _correlate_draws(draw_pairs(sizes.tobytes(), len(human), draws, seed), x[order], y[order], rho)
    # Rho is undefined if all relevances or all human scores of a draw are equal.
    rho = rho[np.isfinite(rho)]
    return SampledSpearman(float(rho.mean()), float(rho.std()), len(sizes), len(rho)) if len(rho) else None


@lru_cache(maxsize=4)
def draw_pairs(sizes: bytes, pairs: int, draws: int, seed: int) -> NDArray[np.int32]:
    """Return the pairs of each draw, (draws, Q // 2) int32, as positions in the list of pairs sorted by unit.

    `sizes`: bytes of (Q,) int64; number of pairs of each unit. `pairs`: P, from which the size of a batch of draws
    follows. The result is cached, because labels with the same scored pairs share their draws.
    """
    width, generator = np.frombuffer(sizes, np.int64), np.random.default_rng(seed)
    indptr, half = indptr_of(width), len(width) // 2
    step = max(1, _CELLS // max(len(width), pairs))
    drawn = np.empty((draws, half), np.int32)
    for a in range(0, draws, step):
        # The units with the `half` lowest random keys are a sample without replacement.
        keys = generator.random((min(step, draws - a), len(width)))
        bound = np.partition(keys, half - 1, axis=1)[:, half - 1, None]
        # `nonzero` returns the units in ascending order, so the choice of pairs depends only on the seed.
        units = np.nonzero(keys <= bound)[1].reshape(len(keys), half)
        drawn[a : a + step] = indptr[units] + (generator.random(units.shape) * width[units]).astype(np.int64)
    return drawn


@jit
def _correlate_draws(drawn: NDArray[np.int32], x: NDArray[np.int64], y: NDArray[np.int64], rho: Vector) -> None:
    """Write Spearman's rho of each draw, with NaN if all its relevances or all its human scores are equal.

    `x`, `y`: relevance and human score of each pair, as ascending numbers of their distinct values.
    """
    for r in range(len(drawn)):
        a, b = _centred_ranks(x[drawn[r]]), _centred_ranks(y[drawn[r]])
        # Ranks are multiples of 0.5, so these sums are exact in any order.
        rho[r] = np.divide((a * b).sum(), np.sqrt((a * a).sum() * (b * b).sum()))


@jit
def _centred_ranks(values: NDArray[np.int64]) -> Vector:
    """Return the mean ranks of non-negative values, minus the mean of all ranks."""
    counts = np.bincount(values)
    return (np.cumsum(counts) - (counts + len(values)) / 2.0)[values]
