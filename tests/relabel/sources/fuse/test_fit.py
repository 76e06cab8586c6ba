"""Contract: linear weights are the optimum that scikit-learn finds, and trees increase with every feature.
Cross-validation scores no pair with a head that saw its images.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from relabel.sources.fuse import fit as fuse_fit
from relabel.sources.fuse.features import Feature
from relabel.sources.fuse.fit import AddedPairs, FitParams, Sample, cross_validate, fit_head, fit_linear
from relabel.sources.fuse.model import Head

FAST = {"trees": 5, "leaf_pairs": 2}


# Fit


def sample(seed: int = 0, pairs: int = 900, ways: int = 1, images: int = 60) -> Sample:
    random = np.random.default_rng(seed)
    values = random.random((ways, pairs, 4))
    target = values.mean(axis=0) @ np.array([0.5, 0.3, 0.0, -0.4]) + random.normal(size=pairs) / 20
    features = tuple(Feature("a", look) for look in ("max", "second", "mean", "refs"))
    return Sample(features, values, target, random.integers(0, images, (pairs, 2)))


@pytest.mark.parametrize("penalty", [0.0, 1e-3, 1.0])
def test_weights_are_the_optimum(penalty: float) -> None:
    """Compare with scikit-learn's positive ridge on standardised features; negative and constant features have
    weight 0.
    """
    from sklearn.linear_model import Ridge

    one = sample()
    values = np.concatenate([one.values[0], np.ones((900, 1))], axis=1)
    intercept, weights = fit_linear(values, one.human, penalty)
    assert weights[3] == weights[4] == 0
    standard = (values[:, :4] - values[:, :4].mean(axis=0)) / values[:, :4].std(axis=0)
    ridge = Ridge(alpha=penalty * 900, positive=True, tol=1e-12, max_iter=100_000).fit(standard, one.human)
    assert standard @ ridge.coef_ + ridge.intercept_ == pytest.approx(values @ weights + intercept, abs=1e-5)


def test_a_head_increases_with_every_feature() -> None:
    head = fit_head(sample(), FitParams(trees=40))
    random = np.random.default_rng(1)
    for f in range(4):
        values = np.repeat(random.random((1, 4)), 50, axis=0)
        values[:, f] = np.linspace(-1, 2, 50)
        assert (np.diff(head.score(values)) >= 0).all()


def test_the_trunk_scales_the_linear_fit() -> None:
    """Check that trunk=1 with untrained trees equals the linear fit, and that a linear head has no trees."""
    one = sample()
    straight = fit_head(one, FitParams(model="linear"))
    assert not len(straight.trees.roots)
    head = fit_head(one, FitParams(trunk=1.0, trees=1, leaf_pairs=900, rate=1e-9))
    assert head.score(one.values[0]) == pytest.approx(straight.score(one.values[0]), abs=1e-6)
    half = fit_head(one, FitParams(trunk=0.5))
    assert half.weights == pytest.approx(straight.weights / 2)


def test_a_free_part_may_count_against_relevance() -> None:
    """The target falls with `b`: only a head in which `b` is free follows it."""
    random = np.random.default_rng(0)
    values = random.random((1, 900, 2))
    features = (Feature("a", "max"), Feature("b", "max"))
    one = Sample(
        features, values, 0.5 + 0.3 * values[0, :, 0] - 0.3 * values[0, :, 1], random.integers(0, 60, (900, 2))
    )
    errors = {}
    for free in ((), ("b",)):
        head = fit_head(one, FitParams(free=free, plateau=0))
        errors[free] = np.abs(one.score(head) - one.human).mean()
        grid = np.stack([np.linspace(0, 1, 50), np.full(50, 0.5)], axis=1)
        assert (np.diff(head.score(grid)) >= 0).all()  # `a` stays monotone
    assert errors[("b",)] < errors[()] / 3


def test_added_pairs_shape_trees_by_their_weight() -> None:
    """Pairs with a low score in a corner without judged pairs: the more weight, the lower the corner."""
    random = np.random.default_rng(0)
    values = random.random((2, 900, 2)) * 0.8
    features = (Feature("a", "max"), Feature("b", "max"))
    human = values.mean(axis=(0, 2))
    one = Sample(features, values, human, random.integers(0, 60, (900, 2)))
    params = FitParams(free=("a", "b"), leaf_pairs=20, plateau=0)
    corner = np.full((2, 100, 2), 0.95)
    scores = [fit_head(one, params).score(corner[0])[0]]
    for weight in (0.5, 5.0):
        added = AddedPairs(corner, np.full(100, 0.2), weight)
        scores.append(fit_head(replace(one, added=added), params).score(corner[0])[0])
    assert scores[0] > 0.6
    assert scores[0] > scores[1] > scores[2]
    assert scores[2] == pytest.approx(0.2, abs=0.05)


def test_added_pairs_join_every_fit_and_no_score(monkeypatch: pytest.MonkeyPatch) -> None:
    one = sample(pairs=300)
    one = replace(one, added=AddedPairs(one.values[:, :7], one.human[:7], 1.0))
    assert one.take(np.arange(5)).added is one.added
    assert one.only(["b"]).added.values.shape == (1, 7, 0)  # type: ignore[union-attr]
    assert len(cross_validate(one, FitParams(folds=3, trees=2))) == 300


@pytest.mark.parametrize("model", ["linear", "boosted"])
def test_the_best_pairs_of_one_image_share_the_largest_score(model: str) -> None:
    one = sample()
    images = np.where(np.arange(900)[:, None] < 400, np.arange(900)[:, None], one.images)
    one = replace(one, images=images, human=0.4 + one.human / 2)
    plain = one.score(fit_head(one, FitParams(model=model, trees=20, plateau=0)))  # type: ignore[arg-type]
    head = fit_head(one, FitParams(model=model, trees=20, plateau=0.9))  # type: ignore[arg-type]
    flat = one.score(head)
    same = one.images[:, 0] == one.images[:, 1]
    assert (flat[same] == head.plateau.score).mean() == pytest.approx(0.9, abs=0.01)
    assert flat.max() == head.plateau.score == pytest.approx(plain[same][plain[same] > head.plateau.start].mean())
    below = plain <= head.plateau.start
    assert np.array_equal(flat[below], plain[below])
    # Another order of pairs than before would be no plateau.
    order = np.argsort(plain, kind="stable")
    assert (np.diff(flat[order]) >= 0).all()


def test_a_fit_is_reproducible_for_any_number_of_threads() -> None:
    from threadpoolctl import threadpool_limits

    with threadpool_limits(4):
        a = fit_head(sample(), FitParams(trees=8))
    b = fit_head(sample(), FitParams(trees=8))
    for x, y in zip((a.weights, *a.trees), (b.weights, *b.trees), strict=True):
        assert np.array_equal(x, y)


def test_no_pair_is_scored_by_a_head_that_saw_its_images(monkeypatch: pytest.MonkeyPatch) -> None:
    one = sample(pairs=300)
    seen: list[set[int]] = []
    scored: list[int] = []

    def spy(train: Sample, params: FitParams) -> Head:
        seen.append(set(train.images.ravel().tolist()))
        return Head(train.features, 0.5, np.zeros(4))

    def check(self: Sample, head: Head) -> Any:
        assert not seen[-1] & set(self.images.ravel().tolist())
        scored.append(len(self.human))
        return np.zeros(len(self.human))

    monkeypatch.setattr(fuse_fit, "fit_head", spy)
    monkeypatch.setattr(Sample, "score", check)
    assert np.isfinite(cross_validate(one, FitParams(folds=4))).all()
    assert sum(scored) == 300


def test_a_pair_scored_in_both_orders_has_the_mean() -> None:
    two = sample(ways=2)
    head = fit_head(two, FitParams(**FAST))
    assert two.score(head) == pytest.approx((head.score(two.values[0]) + head.score(two.values[1])) / 2)
