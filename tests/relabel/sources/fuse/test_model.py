"""Contract: a head is a sum of interpolated curves between 0 and its cap. A model read from disk equals the written
one, and a damaged one is refused.

Contract: weights are the optimum that scikit-learn finds, and curves increase, except those of free parts.
Cross-validation scores no pair with a head that saw its images.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.relabel.sources.fuse.fixtures import small_model, some_head, write_fuse_model

from relabel.core.errors import CheckError
from relabel.sources.fuse import fit as fuse_fit
from relabel.sources.fuse.fit import Sample, TuneFuseParams, cross_validate, fit_head, fit_linear
from relabel.sources.fuse.model import Curve, Feature, Head, read_model


def test_a_head_is_a_sum_of_curves_between_0_and_its_cap() -> None:
    head = some_head((Feature("a", "max"), Feature("a", "mean"), Feature("b", "set")))
    values = np.random.default_rng(1).random((500, 3)) * 3 - 1
    values[7, 1] = np.nan
    scores = head.score(values.T)
    for p, row in enumerate(values):
        total = 0.0
        for (_, knots, heights), value in zip(head.curves, row, strict=True):
            j = sum(value >= knot for knot in knots)
            if j in (0, len(knots)):
                total += heights[0 if j == 0 else -1]
            else:
                share = (value - knots[j - 1]) / (knots[j] - knots[j - 1])
                total += heights[j - 1] + share * (heights[j] - heights[j - 1])
        assert np.isnan(scores[p]) if p == 7 else scores[p] == pytest.approx(min(head.cap, max(0.0, total)))
    assert (scores == head.cap).any()
    assert np.array_equal(scores, np.concatenate([head.score(row[:, None]) for row in values]), equal_nan=True)


def test_a_damaged_model_is_refused(tmp_path: Path) -> None:
    write_fuse_model(tmp_path / "fuse", small_model())
    path = tmp_path / "fuse" / "model.json"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckError, match=r"model\.json"):
        read_model(tmp_path / "fuse")


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
