"""Contract: coefficients equal their definitions, a constant is undefined and never NaN, and the interval is a cluster
bootstrap.
"""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

from relabel.core.numeric.statistics import bootstrap, kendall, pearson, round_relative, spearman

X = np.array([0.3, 0.1, 0.4, 0.1, 0.5, 0.9, 0.2, 0.6, 0.5, 0.3])
Y = np.array([2.7, 1.8, 2.8, 1.8, 2.8, 4.5, 0.4, 5.0, 2.3, 5.0])


def by_hand_pearson(x: list[float], y: list[float]) -> float:
    n, mx, my = len(x), sum(x) / len(x), sum(y) / len(y)
    sxy = sum((x[i] - mx) * (y[i] - my) for i in range(n))
    return sxy / math.sqrt(sum((a - mx) ** 2 for a in x) * sum((b - my) ** 2 for b in y))


def by_hand_ranks(x: list[float]) -> list[float]:
    return [sum(b < a for b in x) + (sum(b == a for b in x) + 1) / 2 for a in x]


def by_hand_tau_b(x: list[float], y: list[float]) -> float:
    score, ties_x, ties_y, pairs = 0, 0, 0, 0
    for i in range(len(x)):
        for j in range(i):
            pairs += 1
            ties_x += x[i] == x[j]
            ties_y += y[i] == y[j]
            score += int(np.sign(x[i] - x[j]) * np.sign(y[i] - y[j]))
    return score / math.sqrt((pairs - ties_x) * (pairs - ties_y))


def test_coefficients_equal_their_definitions() -> None:
    x, y = X.tolist(), Y.tolist()
    assert pearson(X, Y) == pytest.approx(by_hand_pearson(x, y), abs=1e-12)
    assert spearman(X, Y) == pytest.approx(by_hand_pearson(by_hand_ranks(x), by_hand_ranks(y)), abs=1e-12)
    assert kendall(X, Y) == pytest.approx(by_hand_tau_b(x, y), abs=1e-12)


@pytest.mark.parametrize("x", [np.full(10, 0.7), np.zeros(10), np.ones(10) + 1e-7 * X])
def test_a_constant_is_undefined_without_a_warning(x: np.ndarray) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for a, b in ((round_relative(x), Y), (Y, np.full(10, 5.0))):
            assert (pearson(a, b), spearman(a, b), kendall(a, b), bootstrap(a, b, np.arange(10))) == (None,) * 4


def test_rounding_noise_makes_no_order() -> None:
    noise = np.random.default_rng(0).uniform(-3e-7, 3e-7, 10)
    assert round_relative(1 + noise).tolist() == [round_relative(1 + noise)[0]] * 10
    steps = np.array([0.1, 0.1 + 2e-5, -0.4, 1.0])
    assert len(set(round_relative(steps))) == 4
    assert round_relative(X * 1e-9) == pytest.approx(X * 1e-9, rel=1e-4)
    mixed = np.concatenate([1 + noise, X])
    exact = np.concatenate([np.ones(10), X])
    human = np.concatenate([5 - Y, Y])
    assert kendall(round_relative(mixed), human) == kendall(round_relative(exact), human)


def test_interval_is_a_bootstrap_over_clusters() -> None:
    cluster = np.array([7, 7, 3, 3, 3, 9, 9, 1, 1, 4])
    names = [1, 3, 4, 7, 9]
    resamples, seed = 200, 5
    generator = np.random.default_rng(seed)
    oracle = []
    for _ in range(resamples):
        sample = generator.integers(0, len(names), len(names))
        rows = [i for d in sample for i in range(len(X)) if cluster[i] == names[d]]
        if len({X[i] for i in rows}) > 1 and len({Y[i] for i in rows}) > 1:
            oracle.append(by_hand_pearson([X[i] for i in rows], [Y[i] for i in rows]))
    interval = bootstrap(X, Y, cluster, resamples, seed)
    assert interval is not None
    low, high = np.quantile(oracle, [0.025, 0.975])
    assert (interval.low, interval.high) == (pytest.approx(low, abs=1e-9), pytest.approx(high, abs=1e-9))


def test_large_offsets_lose_no_digits() -> None:
    x, y = X + 1e6, Y + 1e6
    near = bootstrap(X, Y, np.arange(10))
    far = bootstrap(x, y, np.arange(10))
    assert near is not None
    assert far is not None
    assert far.low == pytest.approx(near.low, abs=1e-6)
