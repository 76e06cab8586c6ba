"""Fitting the head of a fuse: least squares with weights that are not negative, and boosted trees upon it.

Relevance does not fall when a part's does: weights are not negative, trees are monotone in every feature. Trees are
flat where judged pairs are few, so half of the linear fit stays below them and keeps an order where they have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from relabel.core.numeric.statistics import pearson
from relabel.core.parameters import Parameters, Seed
from relabel.core.types import Scores
from relabel.sources.fuse.features import Feature
from relabel.sources.fuse.model import Head
from relabel.sources.fuse.trees import trees_of
from relabel_train.lookup.fuse import LEAVES

Bools = NDArray[np.bool_]


class FitParams(Parameters):
    """How a head is fitted; chosen on val, where none of them matters much."""

    model: Literal["boosted", "linear"] = Field("boosted", description="boosted trees upon a linear fit, or it alone.")
    penalty: float = Field(
        1e-3, ge=0, le=1e9, description="Ridge penalty of the linear fit, its features standardised."
    )
    trunk: float = Field(0.5, ge=0, le=1, description="Share of the linear fit that trees are boosted upon.")
    trees: int = Field(150, ge=1, le=10_000, description="How many trees.")
    leaves: int = Field(8, ge=2, le=LEAVES, description="Most leaves of a tree; a lookup reads no more than 8.")
    leaf_pairs: int = Field(60, ge=1, le=1_000_000_000, description="Fewest judged pairs in a leaf.")
    rate: float = Field(0.06, gt=0, le=1, description="What is taken of each tree.")
    folds: int = Field(5, ge=2, le=1000, description="Folds of images that the fit is cross-validated over.")
    seed: Seed = Field(0, description="Of the folds, and of the trees.")


@dataclass(frozen=True, eq=False)
class Sample:
    """Judged pairs that a head is fitted to.

    Attributes
    ----------
    values : (S, P, F) float64
        Features. S is 1, or 2 where a pair is scored both ways and its score is the mean.
    human : (P,) float64
        0..1.
    images : (P, 2) int
        The images of both sides.
    """

    features: tuple[Feature, ...]
    values: NDArray[np.float64]
    human: Scores
    images: NDArray[np.integer]

    def take(self, some: NDArray[np.integer] | Bools) -> Sample:
        """Select pairs."""
        return Sample(self.features, self.values[:, some], self.human[some], self.images[some])

    def only(self, parts: Sequence[str]) -> Sample:
        """Select the features of some parts."""
        some = [f for f, feature in enumerate(self.features) if feature.part in parts]
        return Sample(tuple(self.features[f] for f in some), self.values[:, :, some], self.human, self.images)

    def score(self, head: Head) -> Scores:
        """Score the pairs, (P,) float64: the mean over S."""
        return np.asarray(np.mean([head.score(v) for v in self.values], axis=0), np.float64)


def fit(sample: Sample, params: FitParams) -> Head:
    """Fit a head. One thread: sums of several would differ in their last bits."""
    values = np.ascontiguousarray(sample.values.reshape(-1, len(sample.features)))
    human = np.tile(sample.human, len(sample.values))
    intercept, weights = linear(values, human, params.penalty)
    if params.model == "linear":
        return Head(sample.features, intercept, weights)
    from sklearn.ensemble import HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits

    trunk = Head(sample.features, params.trunk * intercept, params.trunk * weights)
    booster = HistGradientBoostingRegressor(
        learning_rate=params.rate,
        max_iter=params.trees,
        max_leaf_nodes=params.leaves,
        min_samples_leaf=params.leaf_pairs * len(sample.values),
        l2_regularization=1.0,
        monotonic_cst=[1] * len(sample.features),
        early_stopping=False,
        random_state=params.seed,
    )
    with threadpool_limits(1):
        booster.fit(values, human - (trunk.intercept + values @ trunk.weights))
    base = float(np.ravel(booster._baseline_prediction)[0])
    return Head(sample.features, trunk.intercept + base, trunk.weights, trees_of(booster))


def linear(values: Scores, human: Scores, penalty: float) -> tuple[float, Scores]:
    """Minimise |human - intercept - values w|^2 / P + penalty |w * std|^2 over w >= 0; return the intercept and w.

    A feature that is constant gets no weight.
    """
    from scipy.optimize import nnls

    mean, scale = values.mean(axis=0), values.std(axis=0)
    scale[scale == 0] = np.inf
    count = values.shape[1]
    standard = (values - mean) / scale
    gram = standard.T @ standard / len(values) + penalty * np.eye(count)
    root = np.linalg.cholesky(gram + 1e-12 * np.eye(count)).T  # |root w - target|^2 has the same minimum, F x F
    target = np.linalg.solve(root.T, standard.T @ (human - human.mean()) / len(values))
    weights = nnls(root, target)[0] / scale
    return float(human.mean() - mean @ weights), weights


def cross_validate(sample: Sample, params: FitParams) -> Scores:
    """Score every pair by a head that saw no pair of either of its images, (P,) float64.

    Images are dealt into folds. Pairs that touch folds j and k are scored by a head that was fitted to the pairs that
    touch neither.
    """
    numbers = np.unique(sample.images)
    fold = np.random.default_rng(params.seed).integers(0, params.folds, len(numbers))
    sides = np.sort(fold[np.searchsorted(numbers, sample.images)], axis=1)
    out = np.full(len(sample.human), np.nan)
    for held in combinations_with_replacement(range(params.folds), 2):
        train = np.logical_not(np.isin(sides, held).any(axis=1))
        test = np.asarray((sides == held).all(axis=1))
        if train.any() and test.any():
            out[test] = sample.take(test).score(fit(sample.take(train), params))
    return out


def agreement(scores: Scores, human: Scores, subsets: dict[str, Bools]) -> dict[str, float | None]:
    """Pearson's r of some subsets, of pairs that were scored."""
    known = np.isfinite(scores)
    return {name: pearson(scores[mask & known], human[mask & known]) for name, mask in subsets.items()}
