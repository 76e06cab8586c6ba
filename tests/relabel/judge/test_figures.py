"""Contract: ratings are correlated by the statistics of the set, each rating as one observation. An item of choices is
correct if its worst comparison is. Pairs without a score are excluded and counted. Every figure has an interval over
clusters.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kendalltau, pearsonr, spearmanr
from tests.relabel.judge.rated_pairs import GROUPS, RATED, RATINGS, SCORES, P, judged

from relabel.datasets.evaluation_sets import Judgements
from relabel.judge import JudgeParams
from relabel.judge.figures import set_figures


def test_ratings_equal_scipy_over_all_pairs_and_each_group() -> None:
    names = ("pearson", "spearman", "tau_b", "tau_c")
    records = set_figures(judged(statistics=names), RATED, SCORES, JudgeParams(resamples=100))
    assert [record["subset"] for record in records] == ["all", "y", "x"]
    for record in records:
        rows = [p for p in range(P) if record["subset"] in ("all", GROUPS[p])]
        x, y = np.repeat(SCORES[rows], 3), RATINGS[rows].ravel()
        expected = (pearsonr(x, y)[0], spearmanr(x, y)[0], kendalltau(x, y)[0], kendalltau(x, y, variant="c")[0])
        assert [record[name] for name in names] == pytest.approx(expected, abs=1e-4)
        assert record["n"] == 3 * len(rows)
        assert all(record[f"{name}_low"] < record[name] < record[f"{name}_high"] for name in names)


NONE = JudgeParams(resamples=0)


def test_pairs_without_a_score_are_counted() -> None:
    scores = SCORES.copy()
    scores[:2] = np.nan
    records = set_figures(judged(statistics=("tau_c",)), RATED, scores, NONE)
    assert [(r["subset"], r["n"], r["missing"]) for r in records] == [("all", 114, 6), ("y", 57, 3), ("x", 57, 3)]
    assert all(record["tau_c_low"] is None for record in records)
    nothing = set_figures(judged(statistics=("pearson", "tau_c")), RATED, np.full(P, np.nan), JudgeParams(resamples=50))
    assert all(record["pearson"] is None and record["tau_c"] is None for record in nothing)


@pytest.mark.parametrize(("ties", "expected"), [(0.0, [0.5, 0.0, 0.25]), (0.5, [0.5, 0.5, 0.5])])
def test_an_item_is_correct_if_its_worst_comparison_is(ties: float, expected: list[float]) -> None:
    items = [[(0, 1), (0, 2)], [(1, 0), (0, 2)], [(0, 3), (0, 1)]]
    choices = Judgements(
        ids=list("abcde"),
        references=[["a"]] * 5, candidates=["b"] * 5, choices=np.array(items), groups=["x", "x", "z"],
        clusters=["0", "1", "2"],
    )  # fmt: skip
    records = set_figures(judged(ties=ties), choices, np.array([0.9, 0.1, 0.2, 0.9, 0.0]), JudgeParams(resamples=50))
    assert [(record["subset"], record["accuracy"]) for record in records] == list(
        zip(("x", "z", "mean"), expected, strict=True)
    )
    missing = set_figures(judged(ties=ties), choices, np.array([0.9, 0.1, 0.2, np.nan, 0.0]), NONE)
    assert [(r["n"], r["missing"], r["accuracy"]) for r in missing][1:] == [(0, 1, None), (2, 1, None)]
