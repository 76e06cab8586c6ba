"""Contract: tau-a and tau-b equal their definitions over pairs; ranked and ideal lists end anywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from relabel_train.metrics import Ranking, cs_at_k, ideal_labels, kendall_tau

Make = Callable[[np.random.Generator, int], NDArray[Any]]
KINDS: dict[str, Make] = {
    "no ties": lambda g, n: g.normal(size=(3, n)),
    "no ties, float32": lambda g, n: g.standard_normal((3, n), np.float32),
    "ties": lambda g, n: g.integers(-2, 3, (3, n)) / 4.0,
    "ties that float32 does not hold": lambda g, n: g.integers(-n, n, (3, n)) / 7.0,
    "nearly all the same": lambda g, n: (g.random((3, n)) < 1 / n).astype(np.float32),
}


@pytest.mark.parametrize("left", KINDS)
@pytest.mark.parametrize("right", KINDS)
@pytest.mark.parametrize("n", [2, 7, 130])
def test_tau(left: str, right: str, n: int) -> None:
    generator = np.random.default_rng(n)
    scores, labels = KINDS[left](generator, n), KINDS[right](generator, n)
    tau_a, tau_b = kendall_tau(scores, labels)
    for q in range(3):
        x, y = (np.sign(v[q][:, None] - v[q]).astype(int) for v in (scores, labels))
        assert tau_a[q] == pytest.approx(int((x * y).sum()) / (n * (n - 1)), abs=1e-12)
        pairs = np.abs(x).sum() * np.abs(y).sum()
        expected = int((x * y).sum()) / np.sqrt(pairs) if pairs else np.nan
        assert tau_b[q] == pytest.approx(expected, abs=1e-9, nan_ok=True)


def test_tau_of_a_perfect_list() -> None:
    labels = np.array([[1.0, 1, 1, 0.5, 0.25, 0]])
    tau_a, tau_b = kendall_tau(labels, labels)
    assert tau_b[0] == 1
    assert tau_a[0] == 12 / 15  # five captions with one label keep tau-a below 1
    assert kendall_tau(-labels, labels)[1][0] == -1
    assert np.isnan(kendall_tau(labels[:, :1], labels[:, :1])).all()


def test_cs_of_the_order_of_labels_is_one() -> None:
    labels = np.random.default_rng(0).permutation(40).reshape(2, 20) / 3.0
    best = Ranking(2 * labels - 5, labels).best()
    for k in (2, 7, 20, 99):
        assert cs_at_k(best, k).tolist() == [1, 1]
    assert np.isnan(cs_at_k(Ranking(labels, labels * 0).best(), 5)).all()


@pytest.mark.parametrize("ties", ["pessimistic", "row"])
def test_a_list_of_any_depth_is_the_start_of_the_complete_one(ties: Any) -> None:
    generator = np.random.default_rng(3)
    scores, labels = generator.integers(-2, 3, (6, 50)) / 4.0, generator.integers(0, 4, (6, 50)) / 3.0
    scores[0], scores[1, :40], scores[2, 1] = 0.5, -np.inf, -0.0
    for removed in (None, (np.repeat(np.arange(6), 45), np.tile(np.arange(45), 6))):
        complete = Ranking(scores, labels, ties).best(None, removed)
        for depth in (0, 1, 7, 50, 51):
            best = Ranking(scores, labels, ties).best(depth, removed)
            np.testing.assert_array_equal(best.labels, complete.labels[:, :depth])
            np.testing.assert_array_equal(best.scores, complete.scores[:, :depth])


def test_ideal_labels_without_own_items() -> None:
    labels = np.array([[0.1, 0.9, 0.5], [0.2, 0.2, 0.8]])
    own_pairs = (np.array([0, 1, 1]), np.array([1, 0, 1]))
    assert ideal_labels(labels, 3, own_pairs).tolist() == [[0.5, 0.1, 0], [0.8, 0, 0]]
    assert Ranking(-labels, labels).best(3, own_pairs).labels.tolist() == [[0.1, 0.5, 0], [0.8, 0, 0]]
    assert Ranking(-labels, labels, "row").best(3, own_pairs).labels.tolist() == [[0.1, 0.5, 0], [0.8, 0, 0]]
    assert labels[0, 1] == 0.9
