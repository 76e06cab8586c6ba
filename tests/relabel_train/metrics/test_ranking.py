"""Contract: ranked lists, R@K, tau-a and tau-b equal their definitions as loops, ties follow the documented rule,
ranked lists end anywhere, and bad lists are refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from relabel_train import metrics


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
@pytest.mark.parametrize("ties", ["pessimistic", "row"])
def test_lists_and_recalls_equal_their_definitions(ties: metrics.Ties, seed: int) -> None:
    generator = np.random.default_rng(seed)
    scores = generator.integers(0, 2 + seed * 4, (7, 40)) / 4.0
    scores[2, 5:], scores[3] = -np.inf, 1.0
    positive = np.zeros((7, 40), bool)
    for row in positive:
        row[generator.choice(40, generator.integers(1, 13), replace=False)] = True
    hits = metrics.ranked_hits(scores, positive, 20, ties)
    for q in range(7):
        second = positive[q] if ties == "pessimistic" else np.zeros(40)
        expected = [positive[q, j] for j in sorted(range(40), key=lambda j: (-scores[q, j], second[j], j))]
        for length in (0, 1, 13, 40):
            assert metrics.ranked_hits(scores, positive, length, ties)[q].tolist() == expected[:length]
        for k in (1, 5, 20):
            assert metrics.recall_at_k(hits, k)[q] == float(any(expected[:k]))


SCORES, NONE = np.zeros((2, 3)), np.zeros((2, 3), bool)
REFUSED: list[Any] = [
    (r"length 4 is not in 0\.\.3", metrics.ranked_hits, SCORES, NONE, 4),
    ("positive is", metrics.ranked_hits, SCORES, NONE[:, :2], 1),
    ("NaN", metrics.ranked_hits, SCORES * np.nan, NONE, 1),
    ("too short for R = 4", metrics.r_precision, NONE, np.array([1, 4])),
    ("query 1 has no positive", metrics.average_precision_at_r, NONE, np.array([1, 0])),
    ("k = 0", metrics.recall_at_k, NONE, 0),
    ("scores: NaN at row 1, column 0", metrics.kendall_tau, np.array([[1, 2], [np.nan, 3]]), np.ones((2, 2))),
    ("labels: NaN at row 0, column 199", metrics.kendall_tau, np.ones((1, 200)), np.array([[1.0] * 199 + [np.nan]])),
]


def test_refusals() -> None:
    for message, function, *given in REFUSED:
        with pytest.raises(ValueError, match=message):
            function(*given)


KINDS = ("no ties", "no ties, float32", "ties", "ties that float32 does not hold", "nearly all the same")


def draw(kind: str, generator: np.random.Generator, n: int) -> NDArray[Any]:
    if kind == "ties":
        return generator.integers(-2, 3, (3, n)) / 4.0
    if kind == "ties that float32 does not hold":
        return generator.integers(-n, n, (3, n)) / 7.0
    if kind == "nearly all the same":
        return (generator.random((3, n)) < 1 / n).astype(np.float32)
    return generator.standard_normal((3, n), np.float32 if "float32" in kind else np.float64)


@pytest.mark.parametrize("left", KINDS)
@pytest.mark.parametrize("right", KINDS)
@pytest.mark.parametrize("n", [1, 2, 7, 130])
def test_tau(left: str, right: str, n: int) -> None:
    generator = np.random.default_rng(n)
    scores, labels = draw(left, generator, n), draw(right, generator, n)
    tau_a, tau_b = metrics.kendall_tau(scores, labels)
    for q in range(3):
        x, y = (np.sign(v[q][:, None] - v[q]).astype(int) for v in (scores, labels))
        total, ordered = int((x * y).sum()), np.abs(x).sum() * np.abs(y).sum()
        assert tau_a[q] == pytest.approx(total / (n * (n - 1)) if n > 1 else np.nan, abs=1e-12, nan_ok=True)
        assert tau_b[q] == pytest.approx(total / np.sqrt(ordered) if ordered else np.nan, abs=1e-9, nan_ok=True)


@pytest.mark.parametrize("ties", ["pessimistic", "row"])
def test_a_list_of_any_depth_is_the_start_of_the_complete_one(ties: Any) -> None:
    generator = np.random.default_rng(3)
    scores, labels = generator.integers(-2, 3, (6, 50)) / 4.0, generator.integers(0, 4, (6, 50)) / 3.0
    scores[0], scores[1, :40], scores[2, 1] = 0.5, -np.inf, -0.0
    for removed in (None, (np.repeat(np.arange(6), 45), np.tile(np.arange(45), 6))):
        complete = metrics.Ranking(scores, labels, ties).best(None, removed)
        for depth in (0, 1, 7, 50, 51):
            best = metrics.Ranking(scores, labels, ties).best(depth, removed)
            np.testing.assert_array_equal(best.labels, complete.labels[:, :depth])
            np.testing.assert_array_equal(best.scores, complete.scores[:, :depth])
