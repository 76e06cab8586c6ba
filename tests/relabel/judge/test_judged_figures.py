"""Contract: ratings are correlated by the statistics of the set, each rating as one observation. An item of choices is
correct if its worst comparison is. Pairs without a score are excluded and counted. Every figure has an interval over
clusters.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kendalltau, pearsonr, spearmanr
from tests.relabel.judge.rated_pairs import GROUPS, RATED, RATINGS, SCORES, P, judged

from relabel.datasets.judged import Judgements
from relabel.judge.judged_figures import set_figures


def test_ratings_equal_scipy_over_all_pairs_and_each_group() -> None:
    figures = set_figures(judged(statistics=("pearson", "spearman", "tau_b", "tau_c")), RATED, SCORES, 100)
    assert [(f.statistic, f.group) for f in figures][:5] == [
        ("pearson", "all"), ("spearman", "all"), ("tau_b", "all"), ("tau_c", "all"), ("pearson", "y")
    ]  # fmt: skip
    for group in ("all", "x", "y"):
        rows = [p for p in range(P) if group in ("all", GROUPS[p])]
        x, y = np.repeat(SCORES[rows], 3), RATINGS[rows].ravel()
        expected = (pearsonr(x, y)[0], spearmanr(x, y)[0], kendalltau(x, y)[0], kendalltau(x, y, variant="c")[0])
        of_group = [f for f in figures if f.group == group]
        assert [f.value for f in of_group] == pytest.approx(expected, abs=1e-4)
        for f in of_group:
            assert f.n == 3 * len(rows)
            assert f.interval is not None
            assert f.interval.low < f.value < f.interval.high  # type: ignore[operator]


def test_pairs_without_a_score_are_counted() -> None:
    scores = SCORES.copy()
    scores[:2] = np.nan
    figures = set_figures(judged(statistics=("tau_c",)), RATED, scores, 0)
    assert [(f.group, f.n, f.missing) for f in figures] == [("all", 114, 6), ("y", 57, 3), ("x", 57, 3)]
    assert all(f.interval is None for f in figures)
    nothing = set_figures(judged(statistics=("pearson", "tau_c")), RATED, np.full(P, np.nan), 50)
    assert all(f.value is None and f.interval is None for f in nothing)


@pytest.mark.parametrize(("ties", "expected"), [(0.0, [0.5, 0.0, 0.25]), (0.5, [0.5, 0.5, 0.5])])
def test_an_item_is_correct_if_its_worst_comparison_is(ties: float, expected: list[float]) -> None:
    items = [[(0, 1), (0, 2)], [(1, 0), (0, 2)], [(0, 3), (0, 1)]]
    choices = Judgements(
        ids=list("abcde"),
        references=[["a"]] * 5, candidates=["b"] * 5, choices=np.array(items), groups=["x", "x", "z"],
        clusters=["0", "1", "2"],
    )  # fmt: skip
    figures = set_figures(judged(ties=ties), choices, np.array([0.9, 0.1, 0.2, 0.9, 0.0]), 50)
    assert [f.group for f in figures] == ["x", "z", "mean"]
    assert [f.value for f in figures] == expected
    missing = set_figures(judged(ties=ties), choices, np.array([0.9, 0.1, 0.2, np.nan, 0.0]), 0)
    assert [(f.n, f.missing, f.value) for f in missing][1] == (0, 1, None)


def test_separate_collections_are_not_pooled() -> None:
    rated = judged(statistics=("spearman",), group="x")
    figures = set_figures(rated, RATED, SCORES, 0)
    assert [f.group for f in figures] == ["y", "x"]
