"""Sampled Spearman correlation with human scores, the protocol of CxC's authors.

Pairs that share an item are correlated, and CxC rates some items far more often than others. A draw therefore takes
half of the items and one rated pair of each; the figure is the mean of Spearman's rho over many draws (Parekh et al.,
EACL 2021, section 5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.csr import indptr_of
from relabel.core.numeric.statistics import Vector, round_relative

_CELLS = 1 << 20  # array elements of a batch of draws


@dataclass(frozen=True)
class SampledSpearman:
    """Sampled Spearman correlation.

    Attributes
    ----------
    mean, deviation : float
        Mean and standard deviation of Spearman's rho over the draws, -1..1.
    units : int
        Q, the number of items that have a pair; a draw takes ``Q // 2`` of them.
    draws : int
        Draws whose rho is defined.
    """

    mean: float
    deviation: float
    units: int
    draws: int


def sampled_spearman(
    relevance: Vector,
    human: Vector,
    units: NDArray[np.integer] | tuple[NDArray[np.integer], ...],
    draws: int = 1000,
    seed: int = 0,
) -> SampledSpearman | None:
    """Draw half of the units, one pair of each, and average Spearman's rho over the draws.

    Each draw takes ``Q // 2`` of the Q units without replacement and, uniformly, one of each unit's pairs. Ties share
    their mean rank.

    Parameters
    ----------
    relevance, human : (P,) float64
        Finite. Relevance is first rounded by `round_relative`.
    units : (P,) int, or a tuple of such
        Unit of each pair, in any numbering. With two arrays a pair belongs to two units, and either may draw it.
    draws : int
    seed : int

    Returns
    -------
    SampledSpearman or None
        None if rho is undefined in every draw: fewer than four units, or a constant.

    Examples
    --------
    >>> import numpy as np
    >>> from relabel.judge.sampled_spearman import sampled_spearman
    >>> relevance = np.array([0.9, 0.1, 0.5, 0.3, 0.7, 0.2])
    >>> sampled_spearman(relevance, 5 * relevance, np.array([0, 0, 1, 2, 3, 4]), draws=10)
    SampledSpearman(mean=1.0, deviation=0.0, units=5, draws=10)
    """
    return sampled_spearman_of_labels([relevance], human, units, draws, seed)[0]


def sampled_spearman_of_labels(
    relevances: Sequence[Vector],
    human: Vector,
    units: NDArray[np.integer] | tuple[NDArray[np.integer], ...],
    draws: int = 1000,
    seed: int = 0,
) -> list[SampledSpearman | None]:
    """Compute `sampled_spearman` of several labels, which share the draws and the ranks of the human scores.

    Parameters
    ----------
    relevances : sequence of (P,) float64
        Relevance of the same pairs according to each label.
    human, units, draws, seed
        As for `sampled_spearman`.

    Returns
    -------
    list of SampledSpearman or None
        Equal to one call of `sampled_spearman` per label.
    """
    sides = units if isinstance(units, tuple) else (units,)
    # Numbers of both sides name the same kind of thing, so an item keeps its number. A pair of one unit counts once.
    member = np.unique(np.stack([np.concatenate(sides), np.tile(np.arange(len(human)), len(sides))]), axis=1)
    names, unit = np.unique(member[0], return_inverse=True)
    # The columns of `member` are sorted, so the pairs of a unit are a run.
    pairs_of, indptr = member[1], indptr_of(np.bincount(unit, minlength=len(names)))
    xs, y = [_codes(round_relative(relevance)) for relevance in relevances], _codes(human)
    half = len(names) // 2
    if half < 2:
        return [None] * len(xs)
    generator = np.random.default_rng(seed)
    step = max(1, _CELLS // max(len(names), len(human)))
    rho = np.empty((len(xs), draws))
    for a in range(0, draws, step):
        batch = slice(a, min(a + step, draws))
        picked = _draw_pairs(generator, batch.stop - a, half, indptr, pairs_of)
        ranks = _centred_ranks(y[picked])
        for x, values in zip(xs, rho, strict=True):
            values[batch] = _correlate_rows(_centred_ranks(x[picked]), ranks)
    return [_summarize(values, len(names)) for values in rho]


def _summarize(rho: Vector, units: int) -> SampledSpearman | None:
    # A draw whose relevance or human scores are all equal has no rho.
    rho = rho[np.isfinite(rho)]
    return SampledSpearman(float(rho.mean()), float(rho.std()), units, len(rho)) if len(rho) else None


def _draw_pairs(
    generator: np.random.Generator,
    draws: int,
    half: int,
    indptr: NDArray[np.int64],
    pairs_of: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return the pairs of a batch of draws, (draws, half) int64."""
    # The `half` smallest of independent random keys are a sample without replacement.
    keys = generator.random((draws, len(indptr) - 1))
    bound = np.partition(keys, half - 1, axis=1)[:, half - 1, None]
    # Nonzero lists the units in ascending order, so that the choice of pairs depends on the seed alone.
    units = np.nonzero(keys <= bound)[1].reshape(draws, half)
    sizes = indptr[units + 1] - indptr[units]
    return pairs_of[indptr[units] + (generator.random(units.shape) * sizes).astype(np.int64)]


def _correlate_rows(a: Vector, b: Vector) -> Vector:
    """Return Pearson's r of each row of two centred matrices, (rows,) float64; NaN where a row is constant."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((a * b).sum(axis=1) / np.sqrt((a * a).sum(axis=1) * (b * b).sum(axis=1)), np.float64)


def _codes(values: Vector) -> NDArray[np.int64]:
    """Number distinct values in ascending order, (P,) int64."""
    return np.asarray(np.unique(values, return_inverse=True)[1], np.int64)


def _centred_ranks(codes: NDArray[np.int64]) -> Vector:
    """Return the mean rank of each code within its row, less the mean of all ranks: (B, N) float64."""
    rows, size = codes.shape
    # Counting replaces sorting: codes are dense, so cumulative counts per row are the ranks.
    width = int(codes.max()) + 1
    cell = codes + width * np.arange(rows)[:, None]
    count = np.bincount(cell.ravel(), minlength=rows * width).reshape(rows, width)
    last = np.cumsum(count, axis=1)
    # Ranks last - count + 1 to last share their mean.
    mean = last - (count - 1) / 2
    return np.asarray(mean.ravel()[cell] - (size + 1) / 2, np.float64)
