"""Sampled Spearman correlation, the protocol of CxC's authors (Parekh et al., EACL 2021, section 5)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.csr import indptr_of
from relabel.core.numeric.kernels import jit
from relabel.core.numeric.statistics import Vector, round_relative

_CELLS = 1 << 20  # random numbers of a batch of draws


class SampledSpearman(NamedTuple):
    """Sampled Spearman correlation, the protocol of CxC's authors (Parekh et al., EACL 2021, section 5).

    Pairs that share an item are correlated, and CxC rates some items far more often than others. A draw therefore takes
    half of the items and one rated pair of each; the figure is the mean of Spearman's rho over many draws.

    `sampled_spearman`, `sampled_deviation`: mean and standard deviation of Spearman's rho over the draws, -1..1.
    `units`: Q, the number of items that have a pair; a draw takes ``Q // 2`` of them.
    `draws`: draws whose rho is defined.
    """

    sampled_spearman: float
    sampled_deviation: float
    units: int
    draws: int


def sampled_spearman(
    relevance: Vector, human: Vector, units: Sequence[NDArray[np.integer]], draws: int = 1000, seed: int = 0
) -> SampledSpearman | None:
    """Draw half of the units, one pair of each, and average Spearman's rho over the draws.

    Each draw takes ``Q // 2`` of the Q units without replacement and, uniformly, one of each unit's pairs. Ties share
    their mean rank.

    `relevance`: (P,) float64; finite; first rounded by `round_relative`. `human`: (P,) float64; finite. `units`: one or
    two arrays of (P,) int; units of each pair, in any numbering. Of two units, either may draw the pair. Returns None
    if rho is undefined in every draw: fewer than four units, or a constant.
    """
    # Numbers of both sides name the same kind of thing, so an item keeps its number. A pair of one unit counts once.
    member = np.unique(np.stack([np.concatenate(units), np.tile(np.arange(len(human)), len(units))]), axis=1)
    # The columns of `member` are sorted, so the pairs of a unit are a run.
    sizes = np.unique(member[0], return_counts=True)[1]
    if len(sizes) < 4:
        return None
    x, y = (np.unique(values, return_inverse=True)[1] for values in (round_relative(relevance), human))
    rho = np.empty(draws)
    _correlate_draws(draw_pairs(sizes.tobytes(), len(human), draws, seed), x[member[1]], y[member[1]], rho)
    # A draw whose relevance or human scores are all equal has no rho.
    rho = rho[np.isfinite(rho)]
    return SampledSpearman(float(rho.mean()), float(rho.std()), len(sizes), len(rho)) if len(rho) else None


@lru_cache(maxsize=4)
def draw_pairs(sizes: bytes, pairs: int, draws: int, seed: int) -> NDArray[np.int32]:
    """Return the pairs of each draw, (draws, Q // 2) int32, as positions in the list of all pairs of unit after unit.

    `sizes`: bytes of (Q,) int64; pairs of each unit. `pairs`: P, which decides how many draws are made at once. The
    array is cached: labels that have scored the same pairs share their draws.
    """
    indptr, generator = indptr_of(np.frombuffer(sizes, np.int64)), np.random.default_rng(seed)
    count = len(indptr) - 1
    half = count // 2
    step = max(1, _CELLS // max(count, pairs))
    drawn = np.empty((draws, half), np.int32)
    for a in range(0, draws, step):
        # The `half` smallest of independent random keys are a sample without replacement.
        keys = generator.random((min(step, draws - a), count))
        bound = np.partition(keys, half - 1, axis=1)[:, half - 1, None]
        # Nonzero lists the units in ascending order, so that the choice of pairs depends on the seed alone.
        units = np.nonzero(keys <= bound)[1].reshape(len(keys), half)
        width = indptr[units + 1] - indptr[units]
        drawn[a : a + step] = indptr[units] + (generator.random(units.shape) * width).astype(np.int64)
    return drawn


@jit
def _correlate_draws(drawn: NDArray[np.int32], x: NDArray[np.int64], y: NDArray[np.int64], rho: Vector) -> None:
    """Write Spearman's rho of each draw; NaN where all of its relevance or all of its human scores are equal.

    `x`, `y`: relevance and human score of each pair, as numbers of their distinct values in ascending order.
    """
    levels_x, levels_y = x.max() + 1, y.max() + 1
    for r in range(len(drawn)):
        rank_x, rank_y = _centred_ranks(x, levels_x, drawn[r]), _centred_ranks(y, levels_y, drawn[r])
        xx, xy, yy = 0.0, 0.0, 0.0
        # Ranks are multiples of 0.5, so that no order of these sums changes them.
        for p in drawn[r]:
            a, b = rank_x[x[p]], rank_y[y[p]]
            xx += a * a
            xy += a * b
            yy += b * b
        rho[r] = xy / np.sqrt(xx * yy) if xx > 0.0 and yy > 0.0 else np.nan


@jit
def _centred_ranks(values: NDArray[np.int64], levels: int, drawn: NDArray[np.int32]) -> Vector:
    """Return the mean rank of the drawn pairs of each level, less the mean of all their ranks: (levels,) float64."""
    ranks = np.zeros(levels)
    for p in drawn:
        ranks[values[p]] += 1.0
    below = 0.0
    for level in range(levels):
        size = ranks[level]
        ranks[level] = below + (size - len(drawn)) / 2.0
        below += size
    return ranks
