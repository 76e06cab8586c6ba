"""Contract: mAP@R, R-Precision and R@K equal their definitions as loops, ties follow the documented rule, and bad
lists are refused. On rankings without ties they equal eccv_caption's code.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from relabel_train.metrics import Ties, average_precision_at_r, r_precision, ranked_hits, recall_at_k


def order_by_hand(scores: list[float], positive: list[bool], ties: Ties) -> list[int]:
    """Return columns from best to worst."""
    second = (lambda j: positive[j]) if ties == "pessimistic" else (lambda j: j)
    return sorted(range(len(scores)), key=lambda j: (-scores[j], second(j), j))


def ap_by_hand(hits: list[bool], positives: int) -> float:
    total = 0.0
    for k in range(1, positives + 1):
        if hits[k - 1]:
            total += sum(hits[:k]) / k
    return total / positives


@pytest.fixture(params=[0, 1, 2, 3])
def tied(request: pytest.FixtureRequest) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Draw scores of few values, (7, 40), some of them -inf, and 1 to 12 positives per query."""
    generator = np.random.default_rng(request.param)
    scores = generator.integers(0, 2 + request.param * 4, (7, 40)) / 4.0
    scores[2, 5:] = -np.inf
    scores[3] = 1.0
    positive = np.zeros((7, 40), bool)
    for row in positive:
        row[generator.choice(40, generator.integers(1, 13), replace=False)] = True
    return scores, positive


@pytest.mark.parametrize("ties", ["pessimistic", "row"])
@pytest.mark.parametrize("length", [0, 1, 13, 40])
def test_lists_equal_a_plain_sort(tied: tuple[NDArray[np.float64], NDArray[np.bool_]], ties: Ties, length: int) -> None:
    scores, positive = tied
    hits = ranked_hits(scores, positive, length, ties)
    assert hits.shape == (7, length)
    for q in range(7):
        order = order_by_hand(scores[q].tolist(), positive[q].tolist(), ties)
        assert hits[q].tolist() == [positive[q, j] for j in order[:length]]


def test_metrics_equal_their_definitions(tied: tuple[NDArray[np.float64], NDArray[np.bool_]]) -> None:
    scores, positive = tied
    outside = np.array([0, 0, 1, 0, 2, 0, 0])  # positives outside the gallery count in R
    count = positive.sum(axis=1) + outside
    hits = ranked_hits(scores, positive, 20)
    ap, precision = average_precision_at_r(hits, count), r_precision(hits, count)
    for q in range(7):
        row, r = hits[q].tolist(), int(count[q])
        assert ap[q] == pytest.approx(ap_by_hand(row, r), abs=1e-12)
        assert precision[q] == pytest.approx(sum(row[:r]) / r, abs=1e-12)
        assert ap[q] <= precision[q]
        for k in (1, 5, 20):
            assert recall_at_k(hits, k)[q] == float(any(row[:k]))


def test_pessimistic_ties_give_no_chance_hits() -> None:
    scores, positive = np.zeros((1, 9)), np.zeros((1, 9), bool)
    positive[0, 0] = True
    assert not ranked_hits(scores, positive, 8)[0].any()
    assert ranked_hits(scores, positive, 8, "row")[0, 0]


def test_equal_to_eccv_caption() -> None:
    metrics = pytest.importorskip("eccv_caption._metrics")
    generator = np.random.default_rng(7)
    scores, positive = generator.normal(size=(30, 200)), generator.random((30, 200)) < 0.08
    positive[np.arange(30), generator.integers(0, 200, 30)] = True
    count = positive.sum(axis=1)
    hits = ranked_hits(scores, positive, int(count.max()))
    ranked = {q: np.argsort(-scores[q]).tolist() for q in range(30)}
    truth = {q: np.flatnonzero(positive[q]).tolist() for q in range(30)}
    theirs = metrics.compute_eccv_metrics(ranked, truth)
    assert average_precision_at_r(hits, count).mean() == pytest.approx(theirs["eccv_map_at_r"], abs=1e-12)
    assert r_precision(hits, count).mean() == pytest.approx(theirs["eccv_rprecision"], abs=1e-12)
    assert recall_at_k(hits, 1).mean() == pytest.approx(theirs["eccv_r1"], abs=1e-12)
