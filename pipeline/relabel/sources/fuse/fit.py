"""Fit of the head of a fuse: one piecewise-linear curve per feature, by penalized weighted least squares.

The penalty is the mean squared slope of each curve, over a feature scaled to a range of 1. If a feature has ties, such
as the cosine 1 of a caption with itself, knots at quantiles can differ only by rounding errors. The penalty makes
curves flat between such knots. Scores on different processors then differ no more than the features do.

Relevance is monotonically increasing in all features, except those of free parts.

Captions that are among the references have human scores near 5. The curves rank these captions by similarity to the
other references. This improves Pearson's r slightly, but makes rank correlations worse. The cap therefore gives the
same score to 90% of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from relabel.core.numeric.statistics import pearson
from relabel.core.parameters import Parameters
from relabel.core.types import Scores
from relabel_train.scoring.fuse import Curve, Feature, Head

Bools = NDArray[np.bool_]
_PENALTY = 1e-5  # weight of the mean squared slope; with less, curves follow rounding errors between ties
CAP = 0.9
"""Share of the pairs of a caption and its own image that get the same, maximum score."""
FOLDS = 5
"""Number of folds of images in the cross-validation. It does not affect the model."""
SEED = 0
"""Seed of the folds and of the altered captions."""
_KNOTS = 32  # with 16, the curves are too coarse for altered captions
_ALTERED_WEIGHT = 0.3  # weight of a pair of altered captions; judged pairs have weight 1


class TuneFuseParams(Parameters):
    """Parameters of `relabel tune fuse`."""

    parts: tuple[str, ...] = Field(
        ("sbert", "cider", "meteor"), min_length=1, description="Labels to combine: --parts sbert,cider."
    )
    altered_pairs: int = Field(
        0, ge=0, le=100_000, description="Number of captions of COCO's train2014 to add to STS with an altered copy."
    )
    free_parts: tuple[str, ...] = Field(
        (), description="Parts that may also decrease relevance: --free-parts word2vec,cider."
    )


@dataclass(frozen=True, eq=False)
class Sample:
    """Pairs for fitting a head.

    `values`: (P, S, F) float64; features. S is 1, or 2 if pairs are scored in both directions and averaged.
    `human`: (P,) float64; human scores, 0..1.
    `images`: (P, 2) int; images of both sides, or -1 for pairs of altered captions; these are part of every fit.
    `method`: (P,) str; sampling method of judged pairs.
    """

    features: tuple[Feature, ...]
    values: NDArray[np.float64]
    human: Scores
    images: NDArray[np.integer]
    method: NDArray[np.str_]

    def take(self, pairs: Bools) -> Sample:
        """Select pairs by a mask."""
        return Sample(self.features, self.values[pairs], self.human[pairs], self.images[pairs], self.method[pairs])

    def joined(self, other: Sample) -> Sample:
        """Return the union of two samples."""
        names = ("values", "human", "images", "method")
        return Sample(self.features, *(np.concatenate([getattr(self, n), getattr(other, n)]) for n in names))

    def score(self, head: Head) -> Scores:
        """Score the pairs with a head, (P,) float64: the mean over S."""
        return np.asarray(head.score(np.moveaxis(self.values, 2, 0)).mean(axis=1), np.float64)


def fit_head(sample: Sample, params: TuneFuseParams, cap: float = CAP) -> Head:
    """Fit a head to a sample. With a `cap` of 0, scores are not capped."""
    # Both directions of a pair are observations of the same human score.
    columns, ways = sample.values.reshape(-1, len(sample.features)).T, sample.values.shape[1]
    human: Scores = np.repeat(sample.human, ways)
    altered = np.repeat(sample.images[:, 0] < 0, ways)
    weight = np.where(altered, _ALTERED_WEIGHT, 1.0)
    # Add quantiles of altered captions, because few judged pairs have similar features.
    kinds, shares = [kind for kind in (~altered, altered) if kind.any()], np.linspace(0, 1, _KNOTS)
    knots = [np.unique([np.quantile(x[kind], shares) for kind in kinds]) for x in columns]
    # Basis function j of a curve rises from 0 to 1 between knots j and j + 1; a curve is their weighted sum.
    rises = [np.clip((x[:, None] - k[:-1]) / np.diff(k), 0, 1) for x, k in zip(columns, knots, strict=True)]
    sizes = [r.shape[1] for r in rises]
    free = np.repeat([feature.part in params.free_parts for feature in sample.features], sizes)
    penalty = np.concatenate([_PENALTY * (k[-1] - k[0]) / np.diff(k) for k in knots])
    intercept, weights = fit_linear(np.concatenate(rises, axis=1), human, weight, free, penalty)
    # All curves start at an equal share of the intercept.
    curves = tuple(
        Curve(feature, tuple(k.tolist()), tuple((intercept / len(knots) + np.cumsum([0.0, *w])).tolist()))
        for feature, k, w in zip(sample.features, knots, np.split(weights, np.cumsum(sizes)[:-1]), strict=True)
    )
    head, one_image = Head(curves), (sample.images[:, 0] == sample.images[:, 1]) & (sample.images[:, 0] >= 0)
    capped = cap and one_image.any()
    return replace(head, cap=float(np.quantile(sample.score(head)[one_image], 1 - cap))) if capped else head


def fit_linear(
    values: Scores, human: Scores, weight: Scores, free: Bools, penalty: Scores
) -> tuple[float, NDArray[np.float64]]:
    """Minimise the weighted mean of |human - intercept - values w|^2 + sum of penalty w^2, with w >= 0 unless free.

    `values`: (P, F) float64. `free`, `penalty`: (F,); all penalties are positive. Returns the intercept and `w`, (F,)
    float64.
    """
    from scipy.optimize import nnls

    share = weight / weight.sum()
    mean, level = share @ values, float(share @ human)
    centred = values - mean
    gram = centred.T @ (centred * share[:, None]) + np.diag(penalty)
    # |root w - target|^2 has the same minimum, but only F rows instead of P.
    root = np.linalg.cholesky(gram).T
    target = np.linalg.solve(root.T, centred.T @ (share * (human - level)))
    # A free weight is the difference of two non-negative weights.
    solution = nnls(np.concatenate([root, -root[:, free]], axis=1), target)[0]
    weights, negative = solution[: len(free)], solution[len(free) :]
    weights[free] -= negative
    return level - float(mean @ weights), weights


def cross_validate(sample: Sample, params: TuneFuseParams, cap: float = CAP, folds: int = FOLDS) -> Scores:
    """Score every judged pair with a head that was fitted without the pair's images.

    Images are assigned to folds. Pairs between folds j and k are scored with a head fitted to the pairs without images
    of these folds.

    Returns (P,) float64; NaN for altered captions, and if there are no pairs for the fit.
    """
    fold = np.random.default_rng(SEED).integers(0, folds, sample.images.max() + 1)
    # Sorted to (j, k) with j <= k.
    sides = np.sort(np.where(sample.images < 0, -1, fold[sample.images]), axis=1)
    out = np.full(len(sample.human), np.nan)
    for pair in combinations_with_replacement(range(folds), 2):
        train = np.logical_not(np.isin(sides, pair).any(axis=1))
        test = np.asarray((sides == pair).all(axis=1))
        if train.any() and test.any():
            out[test] = sample.take(test).score(fit_head(sample.take(train), params, cap))
    return out


def correlate_methods(sample: Sample, scores: Scores) -> dict[str, float | None]:
    """Compute Pearson's r over all pairs with a score, and over the pairs of each method."""
    scored = np.isfinite(scores)
    masks = {"all": scored} | {name: scored & (sample.method == name) for name in np.unique(sample.method[scored])}
    return {name: pearson(scores[mask], sample.human[mask]) for name, mask in masks.items()}
