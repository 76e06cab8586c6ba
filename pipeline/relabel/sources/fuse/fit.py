"""Fitting the head of a fuse: least squares with non-negative weights, and boosted trees of its residuals.

Relevance never decreases in a feature: weights are not negative, and trees are monotone, except in the features of free
parts. Trees are constant where judged pairs are few, so a share of the linear fit is kept below them, which orders the
pairs of one leaf.

A caption that is among the references has a human score near 5. A head orders such captions by how typical they are of
the image, which Pearson's r rewards a little and rank correlation punishes. All but the least of them share one score.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from relabel.core.numeric.statistics import pearson
from relabel.core.parameters import Parameters, Seed
from relabel.core.types import Scores
from relabel.sources.fuse.features import Feature
from relabel.sources.fuse.model import Head, Plateau, export_trees
from relabel_train.lookup.fuse import LEAVES

Bools = NDArray[np.bool_]


class FitParams(Parameters):
    """Parameters of the fit of a head. The defaults were chosen on val, where none of them matters much."""

    model: Literal["boosted", "linear"] = Field(
        "boosted", description="boosted trees on top of a linear fit, or the linear fit alone."
    )
    penalty: float = Field(
        1e-3, ge=0, le=1e9, description="Ridge penalty of the linear fit, its features standardised."
    )
    trunk: float = Field(0.8, ge=0, le=1, description="Share of the linear fit that trees are boosted on.")
    trees: int = Field(100, ge=1, le=10_000, description="Number of trees.")
    leaves: int = Field(8, ge=2, le=LEAVES, description="Most leaves of a tree; a lookup reads no more than 8.")
    leaf_pairs: int = Field(60, ge=1, le=1_000_000_000, description="Fewest judged pairs in a leaf.")
    rate: float = Field(0.06, gt=0, le=1, description="Learning rate: factor of each tree.")
    free: tuple[str, ...] = Field(
        (), description="Parts that trees may also take as evidence against relevance: --free cbow,cider."
    )
    plateau: float = Field(
        0.9,
        ge=0,
        le=1,
        description="Share of the pairs of a caption and its own image that get one score, the largest.",
    )
    folds: int = Field(5, ge=2, le=1000, description="Folds of images in the cross-validation.")
    seed: Seed = Field(0, description="Seed of the folds and of the trees.")


@dataclass(frozen=True, eq=False)
class AddedPairs:
    """Pairs of no image, which join the trees' judged pairs in every fit.

    `values`: (S, N, F) float64; features, in the order of the sample's.
    `human`: (N,) float64; assumed scores, 0..1.
    `weight`: weight of a pair; a judged pair has 1.
    """

    values: NDArray[np.float64]
    human: Scores
    weight: float


@dataclass(frozen=True, eq=False)
class Sample:
    """Judged pairs that a head is fitted to.

    `values`: (S, P, F) float64; features. S is 1, or 2 if a pair is scored in both directions, and its score is their
        mean.
    `human`: (P,) float64; human scores, 0..1.
    `images`: (P, 2) int; images of both sides.
    """

    features: tuple[Feature, ...]
    values: NDArray[np.float64]
    human: Scores
    images: NDArray[np.integer]
    added: AddedPairs | None = None

    def take(self, pairs: NDArray[np.integer] | Bools) -> Sample:
        """Return the sample of a selection of pairs."""
        return replace(self, values=self.values[:, pairs], human=self.human[pairs], images=self.images[pairs])

    def only(self, parts: Sequence[str]) -> Sample:
        """Return the sample with the features of these parts only."""
        columns = [f for f, feature in enumerate(self.features) if feature.part in parts]
        added = None if self.added is None else replace(self.added, values=self.added.values[:, :, columns])
        features = tuple(self.features[f] for f in columns)
        return replace(self, features=features, values=self.values[:, :, columns], added=added)

    def score(self, head: Head) -> Scores:
        """Score the pairs by a head, (P,) float64: the mean over S."""
        return np.asarray(np.mean([head.score(v) for v in self.values], axis=0), np.float64)


def fit_head(sample: Sample, params: FitParams) -> Head:
    """Fit a head to a sample."""
    # Both directions of a pair are observations of the same human score.
    values = np.ascontiguousarray(sample.values.reshape(-1, len(sample.features)))
    human = np.tile(sample.human, len(sample.values))
    intercept, weights = fit_linear(values, human, params.penalty)
    if params.model == "linear":
        return with_plateau(Head(sample.features, intercept, weights), sample, params.plateau)
    from sklearn.ensemble import HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits

    trunk = Head(sample.features, params.trunk * intercept, params.trunk * weights)
    booster = HistGradientBoostingRegressor(
        learning_rate=params.rate,
        max_iter=params.trees,
        max_leaf_nodes=params.leaves,
        min_samples_leaf=params.leaf_pairs * len(sample.values),
        l2_regularization=1.0,
        monotonic_cst=[0 if feature.part in params.free else 1 for feature in sample.features],
        early_stopping=False,
        random_state=params.seed,
    )
    weight = None
    if (added := sample.added) is not None:
        # Behind the linear fit: a weight says how much a feature counts for all pairs, a tree for pairs of a kind.
        weight = np.repeat([1.0, added.weight], [len(human), added.values.shape[0] * added.values.shape[1]])
        values = np.concatenate([values, added.values.reshape(-1, values.shape[1])])
        human = np.concatenate([human, np.tile(added.human, len(added.values))])
    # One thread: the order of a sum over several threads varies, and with it the last bits of the trees.
    with threadpool_limits(1):
        booster.fit(values, human - (trunk.intercept + values @ trunk.weights), weight)
    # The booster starts from the mean residual, which becomes part of the intercept.
    base = float(np.ravel(booster._baseline_prediction)[0])
    head = Head(sample.features, trunk.intercept + base, trunk.weights, export_trees(booster))
    return with_plateau(head, sample, params.plateau)


def with_plateau(head: Head, sample: Sample, share: float) -> Head:
    """Return the head with one score for the best `share` of the pairs of one image, and for all that are as good.

    The score is the mean of these pairs' scores. A sample without such pairs, or a share of 0, gives no plateau.
    """
    one_image = sample.images[:, 0] == sample.images[:, 1]
    scores = sample.score(head)[one_image]
    if not share or not len(scores):
        return head
    start = float(np.quantile(scores, 1 - share))
    best = scores[scores > start]
    return replace(head, plateau=Plateau(start, float(best.mean()))) if len(best) else head


def fit_linear(values: Scores, human: Scores, penalty: float) -> tuple[float, Scores]:
    """Minimise |human - intercept - values w|^2 / P + penalty |w * std|^2 over w >= 0.

    `values`: (P, F) float64. `human`: (P,) float64. Returns `w`, (F,) float64: 0 for a constant feature.
    """
    from scipy.optimize import nnls

    mean, scale = values.mean(axis=0), values.std(axis=0)
    scale[scale == 0] = np.inf  # a constant feature is standardised to 0
    count = values.shape[1]
    standard = (values - mean) / scale
    gram = standard.T @ standard / len(values) + penalty * np.eye(count)
    # nnls takes a matrix: |root w - target|^2 has the same minimum as the normal equations, and F rows in place of P.
    root = np.linalg.cholesky(gram + 1e-12 * np.eye(count)).T
    target = np.linalg.solve(root.T, standard.T @ (human - human.mean()) / len(values))
    weights = nnls(root, target)[0] / scale
    return float(human.mean() - mean @ weights), weights


def cross_validate(sample: Sample, params: FitParams) -> Scores:
    """Score every pair by a head that was fitted without any pair of its two images.

    Images are assigned to folds. Pairs between folds j and k are scored by a head that was fitted to the pairs without
    an image of either fold.

    Returns (P,) float64; NaN if no pairs remain for the fit.
    """
    numbers = np.unique(sample.images)
    fold = np.random.default_rng(params.seed).integers(0, params.folds, len(numbers))
    # Sorted, a pair between folds j and k has the sides (j, k) with j <= k.
    sides = np.sort(fold[np.searchsorted(numbers, sample.images)], axis=1)
    out = np.full(len(sample.human), np.nan)
    for folds in combinations_with_replacement(range(params.folds), 2):
        train = np.logical_not(np.isin(sides, folds).any(axis=1))
        test = np.asarray((sides == folds).all(axis=1))
        if train.any() and test.any():
            out[test] = sample.take(test).score(fit_head(sample.take(train), params))
    return out


def subset_correlations(scores: Scores, human: Scores, subsets: dict[str, Bools]) -> dict[str, float | None]:
    """Compute Pearson's r of each subset over the pairs that have a score."""
    scored = np.isfinite(scores)
    return {name: pearson(scores[mask & scored], human[mask & scored]) for name, mask in subsets.items()}
