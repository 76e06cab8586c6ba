"""Fitting the head of a fuse: one piecewise-linear curve per feature, by weighted least squares with a ridge penalty.

Relevance never decreases in a feature, except in the features of free parts.

A caption that is among the references has a human score near 5. Curves order such captions by how typical they are of
the image, which Pearson's r rewards a little and rank correlation punishes. The cap gives most of them one score.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from relabel.core.numeric.statistics import pearson
from relabel.core.parameters import Parameters, Seed
from relabel.core.types import Scores
from relabel.sources.fuse.features import Feature
from relabel.sources.fuse.model import Curve, Head

Bools = NDArray[np.bool_]
_KNOTS = 32  # with 16, the curves are too coarse for altered captions


class FitParams(Parameters):
    """Parameters of the fit of a head."""

    penalty: float = Field(1e-3, ge=0, le=1e9, description="Ridge penalty of the rises of a curve, standardised.")
    free_parts: tuple[str, ...] = Field(
        (), description="Parts that may also be evidence against relevance: --free-parts cbow,cider."
    )
    cap: float = Field(
        0.9,
        ge=0,
        le=1,
        description="Share of the pairs of a caption and its own image that get one score, the largest.",
    )
    altered_weight: float = Field(
        0.3, gt=0, le=1e6, description="Weight of a pair of altered captions; a judged pair has 1."
    )
    folds: int = Field(5, ge=2, le=1000, description="Folds of images in the cross-validation.")
    seed: Seed = Field(0, description="Seed of the folds and of the altered captions.")


@dataclass(frozen=True, eq=False)
class Sample:
    """Pairs that a head is fitted to.

    `values`: (P, S, F) float64; features. S is 1, or 2 if a pair is scored in both directions, and its score is their
        mean.
    `human`: (P,) float64; human scores, 0..1.
    `images`: (P, 2) int; images of both sides; -1 for a pair of altered captions, which joins every fit.
    `method`: (P,) str; how a judged pair was chosen.
    """

    features: tuple[Feature, ...]
    values: NDArray[np.float64]
    human: Scores
    images: NDArray[np.integer]
    method: NDArray[np.str_]

    def take(self, pairs: Bools) -> Sample:
        """Return the sample of a selection of pairs."""
        return Sample(self.features, self.values[pairs], self.human[pairs], self.images[pairs], self.method[pairs])

    def joined(self, other: Sample) -> Sample:
        """Return the sample of the pairs of both."""
        names = ("values", "human", "images", "method")
        return Sample(self.features, *(np.concatenate([getattr(self, n), getattr(other, n)]) for n in names))

    def score(self, head: Head) -> Scores:
        """Score the pairs by a head, (P,) float64: the mean over S."""
        return np.asarray(head.score(np.moveaxis(self.values, 2, 0)).mean(axis=1), np.float64)


def fit_head(sample: Sample, params: FitParams) -> Head:
    """Fit a head to a sample."""
    # Both directions of a pair are observations of the same human score.
    columns, ways = sample.values.reshape(-1, len(sample.features)).T, sample.values.shape[1]
    human: Scores = np.repeat(sample.human, ways)
    altered = np.repeat(sample.images[:, 0] < 0, ways)
    weight, shown = np.where(altered, params.altered_weight, 1.0), _balanced(altered)
    knots = [np.unique(np.quantile(x[shown], np.linspace(0, 1, _KNOTS))) for x in columns]
    # Rise j of a curve goes from 0 to 1 between knots j and j + 1; a curve is the sum of its weighted rises.
    rises = [np.clip((x[:, None] - k[:-1]) / np.diff(k), 0, 1) for x, k in zip(columns, knots, strict=True)]
    sizes = [r.shape[1] for r in rises]
    free = np.repeat([feature.part in params.free_parts for feature in sample.features], sizes)
    intercept, weights = fit_linear(np.concatenate(rises, axis=1), human, weight, free, params.penalty)
    # Every curve starts from an equal share of the intercept.
    start = intercept / len(knots)
    curves = tuple(
        Curve(feature, tuple(k.tolist()), tuple((start + np.cumsum([0.0, *w])).tolist()))
        for feature, k, w in zip(sample.features, knots, np.split(weights, np.cumsum(sizes)[:-1]), strict=True)
    )
    head, own = Head(curves), (sample.images[:, 0] == sample.images[:, 1]) & (sample.images[:, 0] >= 0)
    if not params.cap or not own.any():
        return head
    return replace(head, cap=float(np.quantile(sample.score(head)[own], 1 - params.cap)))


def _balanced(altered: Bools) -> NDArray[np.int64]:
    """Return about as many judged pairs as altered ones: the few of these lie where a curve must bend."""
    judged, added = np.flatnonzero(~altered), np.flatnonzero(altered)
    return np.concatenate([judged[:: max(1, len(judged) // len(added))], added]) if len(added) else judged


def fit_linear(
    values: Scores, human: Scores, weight: Scores, free: Bools, penalty: float
) -> tuple[float, NDArray[np.float64]]:
    """Minimise the mean of |human - intercept - values w|^2, weighted, + penalty |w * std|^2 over w, >= 0 if not free.

    `values`: (P, F) float64. `free`: (F,). Returns the intercept and `w`, (F,) float64: 0 for a constant column.
    """
    from scipy.optimize import nnls

    share = weight / weight.sum()
    mean, level = share @ values, float(share @ human)
    standard = values - mean
    scale = np.sqrt(share @ standard**2)
    scale[scale < 1e-9] = np.inf  # a constant column is standardised to 0
    standard /= scale
    gram = standard.T @ (standard * share[:, None]) + (penalty + 1e-12) * np.eye(len(free))
    # nnls takes a matrix: |root w - target|^2 has the same minimum as the normal equations, and F rows in place of P.
    root = np.linalg.cholesky(gram).T
    target = np.linalg.solve(root.T, standard.T @ (share * (human - level)))
    # A free weight is the difference of two that are not negative.
    found = nnls(np.concatenate([root, -root[:, free]], axis=1), target)[0]
    weights, negative = found[: len(free)], found[len(free) :]
    weights[free] -= negative
    weights /= scale
    return level - float(mean @ weights), weights


def cross_validate(sample: Sample, params: FitParams) -> Scores:
    """Score every judged pair by a head that was fitted without any pair of its two images.

    Images are assigned to folds. Pairs between folds j and k are scored by a head that was fitted to the pairs without
    an image of either fold.

    Returns (P,) float64; NaN if no pairs remain for the fit, and for altered captions.
    """
    numbers = np.unique(sample.images)
    fold = np.random.default_rng(params.seed).integers(0, params.folds, len(numbers))
    fold[numbers < 0] = -1
    # Sorted, a pair between folds j and k has the sides (j, k) with j <= k.
    sides = np.sort(fold[np.searchsorted(numbers, sample.images)], axis=1)
    out = np.full(len(sample.human), np.nan)
    for folds in combinations_with_replacement(range(params.folds), 2):
        train = np.logical_not(np.isin(sides, folds).any(axis=1))
        test = np.asarray((sides == folds).all(axis=1))
        if train.any() and test.any():
            out[test] = sample.take(test).score(fit_head(sample.take(train), params))
    return out


def correlate_methods(sample: Sample, scores: Scores) -> dict[str, float | None]:
    """Compute Pearson's r over all pairs that have a score, and over those of each method."""
    methods = sorted(set(sample.method[sample.images[:, 0] >= 0].tolist()))
    subsets = {"all": np.full(len(scores), True)} | {name: sample.method == name for name in methods}
    masks = {name: subset & np.isfinite(scores) for name, subset in subsets.items()}
    return {name: pearson(scores[mask], sample.human[mask]) for name, mask in masks.items()}
