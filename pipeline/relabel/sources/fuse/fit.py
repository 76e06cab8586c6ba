"""Fitting the head of a fuse: one piecewise-linear curve per feature, by weighted least squares with a penalty.

The penalty is the mean squared slope of each curve, over a feature scaled to a range of 1. Where a feature has ties, as
the cosine 1 of captions and themselves, knots at quantiles differ by rounding errors alone. The penalty makes a curve
flat between such knots, so that another processor gives another score only in as far as its features differ.

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
from relabel.core.parameters import Parameters
from relabel.core.types import Scores
from relabel_train.scoring.fuse import Curve, Feature, Head

Bools = NDArray[np.bool_]
_PENALTY = 1e-5  # of the mean squared slope; less gives curves that follow rounding errors between ties
CAP = 0.9
"""Share of the pairs of a caption and its own image that get one score, the largest."""
FOLDS = 5
"""Folds of images in the cross-validation, which only reports figures."""
SEED = 0
"""Seed of the folds and of the altered captions."""
_KNOTS = 32  # with 16, the curves are too coarse for altered captions
_ALTERED_WEIGHT = 0.3  # of a pair of altered captions; a judged pair has 1


class TuneFuseParams(Parameters):
    """Parameters of `relabel tune fuse`."""

    parts: tuple[str, ...] = Field(
        ("sbert", "cider", "meteor"), min_length=1, description="Labels that it combines: --parts sbert,cider."
    )
    altered_pairs: int = Field(
        0, ge=0, le=100_000, description="Captions of COCO's train2014 that join STS with an altered copy; 0 for none."
    )
    free_parts: tuple[str, ...] = Field(
        (), description="Parts that may also be evidence against relevance: --free-parts word2vec,cider."
    )


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


def fit_head(sample: Sample, params: TuneFuseParams, cap: float = CAP) -> Head:
    """Fit a head to a sample; a `cap` of 0 leaves the scores of captions of their own image unchanged."""
    # Both directions of a pair are observations of the same human score.
    columns, ways = sample.values.reshape(-1, len(sample.features)).T, sample.values.shape[1]
    human: Scores = np.repeat(sample.human, ways)
    altered = np.repeat(sample.images[:, 0] < 0, ways)
    weight = np.where(altered, _ALTERED_WEIGHT, 1.0)
    # Quantiles of altered captions too: few judged pairs lie where these bend a curve.
    kinds, shares = [kind for kind in (~altered, altered) if kind.any()], np.linspace(0, 1, _KNOTS)
    knots = [np.unique([np.quantile(x[kind], shares) for kind in kinds]) for x in columns]
    # Rise j of a curve goes from 0 to 1 between knots j and j + 1; a curve is the sum of its weighted rises.
    rises = [np.clip((x[:, None] - k[:-1]) / np.diff(k), 0, 1) for x, k in zip(columns, knots, strict=True)]
    sizes = [r.shape[1] for r in rises]
    free = np.repeat([feature.part in params.free_parts for feature in sample.features], sizes)
    penalty = np.concatenate([_PENALTY * (k[-1] - k[0]) / np.diff(k) for k in knots])
    intercept, weights = fit_linear(np.concatenate(rises, axis=1), human, weight, free, penalty)
    # Every curve starts from an equal share of the intercept.
    curves = tuple(
        Curve(feature, tuple(k.tolist()), tuple((intercept / len(knots) + np.cumsum([0.0, *w])).tolist()))
        for feature, k, w in zip(sample.features, knots, np.split(weights, np.cumsum(sizes)[:-1]), strict=True)
    )
    head, own = Head(curves), (sample.images[:, 0] == sample.images[:, 1]) & (sample.images[:, 0] >= 0)
    capped = cap and own.any()
    return replace(head, cap=float(np.quantile(sample.score(head)[own], 1 - cap))) if capped else head


def fit_linear(
    values: Scores, human: Scores, weight: Scores, free: Bools, penalty: Scores
) -> tuple[float, NDArray[np.float64]]:
    """Minimise the mean of |human - intercept - values w|^2, weighted, + sum of penalty w^2 over w, >= 0 if not free.

    `values`: (P, F) float64. `free`, `penalty`: (F,); the penalty is above 0. Returns the intercept and `w`, (F,)
    float64.
    """
    from scipy.optimize import nnls

    share = weight / weight.sum()
    mean, level = share @ values, float(share @ human)
    centred = values - mean
    gram = centred.T @ (centred * share[:, None]) + np.diag(penalty)
    # nnls takes a matrix: |root w - target|^2 has the same minimum as the normal equations, and F rows in place of P.
    root = np.linalg.cholesky(gram).T
    target = np.linalg.solve(root.T, centred.T @ (share * (human - level)))
    # A free weight is the difference of two that are not negative.
    found = nnls(np.concatenate([root, -root[:, free]], axis=1), target)[0]
    weights, negative = found[: len(free)], found[len(free) :]
    weights[free] -= negative
    return level - float(mean @ weights), weights


def cross_validate(sample: Sample, params: TuneFuseParams, cap: float = CAP, folds: int = FOLDS) -> Scores:
    """Score every judged pair by a head that was fitted without any pair of its two images.

    Images are assigned to folds. Pairs between folds j and k are scored by a head that was fitted to the pairs without
    an image of either fold.

    Returns (P,) float64; NaN if no pairs remain for the fit, and for altered captions.
    """
    fold = np.random.default_rng(SEED).integers(0, folds, sample.images.max() + 1)
    # Sorted, a pair between folds j and k has the sides (j, k) with j <= k.
    sides = np.sort(np.where(sample.images < 0, -1, fold[sample.images]), axis=1)
    out = np.full(len(sample.human), np.nan)
    for pair in combinations_with_replacement(range(folds), 2):
        train = np.logical_not(np.isin(sides, pair).any(axis=1))
        test = np.asarray((sides == pair).all(axis=1))
        if train.any() and test.any():
            out[test] = sample.take(test).score(fit_head(sample.take(train), params, cap))
    return out


def correlate_methods(sample: Sample, scores: Scores) -> dict[str, float | None]:
    """Compute Pearson's r over all pairs that have a score, and over those of each method."""
    scored = np.isfinite(scores)
    masks = {"all": scored} | {name: scored & (sample.method == name) for name in np.unique(sample.method[scored])}
    return {name: pearson(scores[mask], sample.human[mask]) for name, mask in masks.items()}
