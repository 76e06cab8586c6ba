"""Contract: weights are the optimum that scikit-learn finds, and curves increase, except those of free parts.
Cross-validation scores no pair with a head that saw its images.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from relabel.sources.fuse import fit as fuse_fit
from relabel.sources.fuse.fit import Sample, TuneFuseParams, cross_validate, fit_head, fit_linear
from relabel.sources.fuse.model import Curve, Feature, Head

Array = np.ndarray[Any, Any]


def sample(seed: int = 0, pairs: int = 900, ways: int = 1, images: int = 60) -> Sample:
    random = np.random.default_rng(seed)
    values = random.random((pairs, ways, 4))
    target = values.mean(axis=1) @ np.array([0.5, 0.3, 0.0, -0.4]) + random.normal(size=pairs) / 20
    features = tuple(Feature(part, look) for part in "ab" for look in ("max", "mean"))
    return some_sample(features, values, target, random.integers(0, images, (pairs, 2)))


def some_sample(features: tuple[Feature, ...], values: Array, human: Array, images: Array) -> Sample:
    return Sample(features, values, human, images, np.full(len(human), "some"))


def with_altered(one: Sample, values: Array, score: float) -> Sample:
    """Return a sample with pairs of no image."""
    n = len(values)
    return one.joined(some_sample(one.features, values, np.full(n, score), np.full((n, 2), -1)))


@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize("penalty", [1e-9, 1e-3, 1.0])
def test_weights_are_the_optimum(penalty: float, free: bool) -> None:
    """Compare with scikit-learn's weighted ridge on columns scaled by their penalties."""
    from sklearn.linear_model import Ridge

    one = sample()
    weight, scale = np.random.default_rng(2).random((2, 900))
    values, scale = np.concatenate([one.values[:, 0], np.ones((900, 1))], axis=1), scale[:5] + 0.5
    intercept, weights = fit_linear(values, one.human, weight, np.full(5, free), penalty / scale**2)
    assert weights[4] == pytest.approx(0, abs=1e-12)
    assert (weights[3] < 0) == free
    ridge = Ridge(alpha=penalty, positive=not free, tol=1e-12, max_iter=100_000)
    ridge.fit(values * scale, one.human, weight / weight.sum())
    assert ridge.predict(values * scale) == pytest.approx(values @ weights + intercept, abs=1e-5)


def test_noise_in_tied_features_is_not_amplified() -> None:
    """Half the pairs have a feature of 1 but for rounding, where many knots lie."""
    one, random = sample(), np.random.default_rng(1)
    values = np.where(random.random(one.values.shape) < 0.5, 1.0, one.values)
    scores = []
    for seed in range(2):
        noise = np.random.default_rng(seed).uniform(-1e-7, 1e-7, values.shape)
        noisy = replace(one, values=values + noise)
        scores.append(noisy.score(fit_head(noisy, TuneFuseParams(free_parts=("b",)))))
    assert np.abs(scores[0] - scores[1]).max() < 1e-5


def test_a_head_increases_with_every_feature() -> None:
    head = fit_head(sample(), TuneFuseParams())
    for curve in head.curves:
        assert (np.diff(curve.knots) > 0).all()
        assert (np.diff(curve.values) >= 0).all()


def test_a_curve_follows_its_feature() -> None:
    """Check a bent function of one feature between its knots, quantiles of the sample."""
    one = sample()
    bent = replace(one, human=np.minimum(one.values[:, 0, 0], 0.5))
    head = fit_head(bent, TuneFuseParams(penalty=1e-9, cap=0))
    assert one.score(head) == pytest.approx(bent.human, abs=0.03)
    assert head.curves[0].knots == pytest.approx(np.quantile(one.values[:, 0, 0], np.linspace(0, 1, 32)))


def test_a_free_part_may_count_against_relevance() -> None:
    """The target falls with `b`: only a head in which `b` is free follows it."""
    random = np.random.default_rng(0)
    values = random.random((900, 1, 2))
    features = (Feature("a", "max"), Feature("b", "max"))
    human = 0.5 + 0.3 * values[:, 0, 0] - 0.3 * values[:, 0, 1]
    one = some_sample(features, values, human, random.integers(0, 60, (900, 2)))
    errors = {}
    for free in ((), ("b",)):
        head = fit_head(one, TuneFuseParams(free_parts=free, cap=0))
        errors[free] = np.abs(one.score(head) - one.human).mean()
        assert (np.diff(head.curves[0].values) >= 0).all()  # `a` stays monotone
    assert errors[("b",)] < errors[()] / 3


def test_altered_captions_count() -> None:
    """Pairs with a low score in a corner without judged pairs lower the corner, and it alone."""
    random = np.random.default_rng(0)
    values = random.random((900, 2, 2)) * 0.8
    features = (Feature("a", "max"), Feature("b", "max"))
    one = some_sample(features, values, values.mean(axis=(1, 2)), random.integers(0, 60, (900, 2)))
    params = TuneFuseParams(free_parts=("a", "b"), cap=0)
    corner = 0.9 + random.random((100, 2, 2)) / 10
    before, after = fit_head(one, params), fit_head(with_altered(one, corner, 0.2), params)
    assert before.score(corner[:, 0].T).mean() > 0.5
    assert after.score(corner[:, 0].T).mean() == pytest.approx(0.2, abs=0.05)
    assert np.abs(one.score(after) - one.score(before)).mean() < 0.05


def test_altered_captions_are_not_cross_validated() -> None:
    one = sample(pairs=300)
    scores = cross_validate(with_altered(one, one.values[:7], 0.5), TuneFuseParams(folds=3))
    assert np.isfinite(scores[:300]).all()
    assert np.isnan(scores[300:]).all()


def test_the_best_pairs_of_one_image_share_the_largest_score() -> None:
    one = sample()
    images = np.where(np.arange(900)[:, None] < 400, np.arange(900)[:, None], one.images)
    one = replace(one, images=images, human=0.4 + one.human / 2)
    plain = one.score(fit_head(one, TuneFuseParams(cap=0)))
    head = fit_head(one, TuneFuseParams(cap=0.9))
    capped, same = one.score(head), one.images[:, 0] == one.images[:, 1]
    assert (capped[same] == head.cap).mean() == pytest.approx(0.9, abs=0.01)
    assert np.array_equal(capped, np.minimum(plain, head.cap))


def test_a_fit_is_reproducible_for_any_number_of_threads() -> None:
    from threadpoolctl import threadpool_limits

    with threadpool_limits(4):
        a = fit_head(sample(), TuneFuseParams())
    b = fit_head(sample(), TuneFuseParams())
    for x, y in zip(a.curves, b.curves, strict=True):
        assert x.values == pytest.approx(y.values, abs=1e-9)


def test_no_pair_is_scored_by_a_head_that_saw_its_images(monkeypatch: pytest.MonkeyPatch) -> None:
    one = sample(pairs=300)
    seen: list[set[int]] = []
    scored: list[int] = []

    def spy(train: Sample, params: TuneFuseParams) -> Head:
        seen.append(set(train.images.ravel().tolist()))
        return Head(tuple(Curve(feature, (0.0,), (0.5,)) for feature in train.features))

    def check(self: Sample, head: Head) -> Any:
        assert not seen[-1] & set(self.images.ravel().tolist())
        scored.append(len(self.human))
        return np.zeros(len(self.human))

    monkeypatch.setattr(fuse_fit, "fit_head", spy)
    monkeypatch.setattr(Sample, "score", check)
    assert np.isfinite(cross_validate(one, TuneFuseParams(folds=4))).all()
    assert sum(scored) == 300


def test_a_pair_scored_in_both_orders_has_the_mean() -> None:
    two = sample(ways=2)
    head = fit_head(two, TuneFuseParams())
    assert two.score(head) == pytest.approx((head.score(two.values[:, 0].T) + head.score(two.values[:, 1].T)) / 2)
