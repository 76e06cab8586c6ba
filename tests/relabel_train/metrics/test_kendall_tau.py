"""Contract: inversions equal a count over pairs, tau-b equals scipy's, tau-a equals its definition, and codes sort
like numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from relabel_train.metrics import Ranking, cs_at_k, ideal_labels, kendall_tau
from relabel_train.metrics.kendall import count_inversions, tied_pairs
from relabel_train.metrics.ranking import decode, encode, smallest

Make = Callable[[np.random.Generator, int], NDArray[Any]]
KINDS: dict[str, Make] = {
    "no ties": lambda g, n: g.normal(size=(3, n)),
    "no ties, float32": lambda g, n: g.standard_normal((3, n), np.float32),
    "ties": lambda g, n: g.integers(-2, 3, (3, n)) / 4.0,
    "ties that float32 does not hold": lambda g, n: g.integers(-n, n, (3, n)) / 7.0,
    "nearly all the same": lambda g, n: (g.random((3, n)) < 1 / n).astype(np.float32),
}


@pytest.mark.parametrize("n", [0, 1, 2, 3, 16, 17, 32, 33, 64, 65, 100, 515])
def test_inversions(n: int) -> None:
    generator = np.random.default_rng(n)
    rows = [generator.permutation(n) for _ in range(4)] + [np.arange(n), np.arange(n)[::-1]]
    orders = np.array(rows).reshape(6, n)
    expected = [int(np.triu(row[:, None] > row, 1).sum()) for row in rows]
    assert count_inversions(orders).tolist() == expected
    assert count_inversions(orders.astype(np.int32)[:0]).tolist() == []


def test_inversions_of_many_lists_equal_those_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(1)
    orders = np.array([generator.permutation(70) for _ in range(11)])
    together = count_inversions(orders)
    monkeypatch.setattr("relabel_train.metrics.kendall._LISTS", 140)
    assert together.tolist() == count_inversions(orders).tolist()


@pytest.mark.parametrize("left", KINDS)
@pytest.mark.parametrize("right", KINDS)
@pytest.mark.parametrize("n", [2, 7, 130])
def test_tau(left: str, right: str, n: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    generator = np.random.default_rng(n)
    scores, labels = KINDS[left](generator, n), KINDS[right](generator, n)
    tau_a, tau_b = kendall_tau(scores, labels)
    for q in range(3):
        x, y = (np.sign(v[q][:, None] - v[q]).astype(int) for v in (scores, labels))
        assert tau_a[q] == pytest.approx(int((x * y).sum()) / (n * (n - 1)), abs=1e-12)
        # Recent versions of scipy compute in the type of their input.
        expected = stats.kendalltau(scores[q].astype(np.float64), labels[q].astype(np.float64)).statistic
        assert tau_b[q] == pytest.approx(float(expected), abs=1e-9, nan_ok=True)


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


def test_codes_sort_as_numbers() -> None:
    few = [-np.inf, -3e38, -1.5, -1e-45, -0.0, 0.0, 1e-45, 0.1, 1.5, np.inf]
    for values in (np.array([few, few[::-1]], np.float32), np.array([few, few[::-1]])):
        codes, table = encode(values)
        assert (table is None) == (values.dtype == np.float32)
        for row, code in zip(values, codes, strict=True):
            assert np.array_equal(row[:, None] > row, code[:, None] > code)
        assert np.array_equal(decode(codes, table), values)


def test_keys_partition_as_they_sort() -> None:
    generator = np.random.default_rng(3)
    keys = generator.integers(-5, 5, (6, 50))
    for depth in (1, 7, 50, 51, None):
        assert np.array_equal(smallest(keys.copy(), depth), np.sort(keys, axis=1)[:, :depth])
    assert tied_pairs(np.sort(keys, axis=1)).tolist() == [
        sum(a == b for i, a in enumerate(row) for b in row[:i]) for row in keys.tolist()
    ]
    assert tied_pairs(np.zeros((2, 0))).tolist() == [0, 0]


def test_ideal_labels_without_own_items() -> None:
    labels = np.array([[0.1, 0.9, 0.5], [0.2, 0.2, 0.8]])
    own_pairs = (np.array([0, 1, 1]), np.array([1, 0, 1]))
    assert ideal_labels(labels, 3, own_pairs).tolist() == [[0.5, 0.1, 0], [0.8, 0, 0]]
    assert Ranking(-labels, labels).best(3, own_pairs).labels().tolist() == [[0.1, 0.5, 0], [0.8, 0, 0]]
    assert Ranking(-labels, labels, "row").best(3, own_pairs).labels().tolist() == [[0.1, 0.5, 0], [0.8, 0, 0]]
    assert labels[0, 1] == 0.9
