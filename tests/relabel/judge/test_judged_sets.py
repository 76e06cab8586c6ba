"""Contract of judged sets: ratings are correlated by the statistics of the set, every rating by itself; an item of
choices is as right as its worst comparison; pairs without a score are left out and counted; every figure has an
interval over clusters.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kendalltau, pearsonr, spearmanr

from relabel.core.errors import CheckError
from relabel.core.runtime import Runtime
from relabel.datasets.judged import JudgedSet, Judgements, PublishedFigures, choices_of
from relabel.judge.judged_sets import (
    Cost,
    headline,
    score_judgements,
    score_with_function,
    set_figures,
    set_report,
    summary_report,
)
from relabel.sources.cider import Cider, CiderParams
from relabel.sources.texts import TextScores, score_texts

RNG = np.random.default_rng(3)
P = 40
RATINGS = RNG.integers(1, 5, (P, 3)).astype(float)
SCORES = np.round(RATINGS.mean(axis=1) + RNG.normal(size=P), 1)
GROUPS = ["x" if p % 2 else "y" for p in range(P)]
RATED = Judgements(
    references=[["a"]] * P, candidates=["b"] * P, ratings=RATINGS, groups=GROUPS,
    clusters=[str(p // 2) for p in range(P)],
)  # fmt: skip


def judged(**changed: object) -> JudgedSet:
    fields: dict[str, object] = {"name": "mine", "title": "Mine", "dataset": "mine", "protocol": "P.", "read": None}
    return JudgedSet(**(fields | changed))  # type: ignore[arg-type]


def test_ratings_equal_scipy_over_all_pairs_and_each_group() -> None:
    figures = set_figures(judged(statistics=("pearson", "spearman", "tau_b", "tau_c")), RATED, SCORES, 100)
    assert [(f.statistic, f.group) for f in figures][:5] == [
        ("pearson", "all"), ("spearman", "all"), ("tau_b", "all"), ("tau_c", "all"), ("pearson", "y")
    ]  # fmt: skip
    for group in ("all", "x", "y"):
        rows = [p for p in range(P) if group in ("all", GROUPS[p])]
        x, y = np.repeat(SCORES[rows], 3), RATINGS[rows].ravel()
        expected = (pearsonr(x, y)[0], spearmanr(x, y)[0], kendalltau(x, y)[0], kendalltau(x, y, variant="c")[0])
        found = [f for f in figures if f.group == group]
        assert [f.value for f in found] == pytest.approx(expected, abs=1e-4)
        for f in found:
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
def test_an_item_is_as_right_as_its_worst_comparison(ties: float, expected: list[float]) -> None:
    items = [[(0, 1), (0, 2)], [(1, 0), (0, 2)], [(0, 3), (0, 1)]]
    choices = Judgements(
        references=[["a"]] * 5, candidates=["b"] * 5, choices=choices_of(items), groups=["x", "x", "z"],
        clusters=["0", "1", "2"],
    )  # fmt: skip
    figures = set_figures(judged(ties=ties), choices, np.array([0.9, 0.1, 0.2, 0.9, 0.0]), 50)
    assert [f.group for f in figures] == ["x", "z", "mean"]
    assert [f.value for f in figures] == expected
    assert headline(judged(), figures).group == "mean"
    missing = set_figures(judged(ties=ties), choices, np.array([0.9, 0.1, 0.2, np.nan, 0.0]), 0)
    assert [(f.n, f.missing, f.value) for f in missing][1] == (0, 1, None)


def test_a_source_in_both_orders_and_a_function() -> None:
    pairs = Judgements(
        references=[["a dog runs"], ["two cats"]], candidates=["a dog", "two cats sleep"], both_orders=True,
        ratings=np.ones((2, 1)), groups=["all"] * 2, clusters=["0", "1"],
    )  # fmt: skip
    source = Cider(CiderParams(tokenizer="lower_split"))
    scored = score_judgements(pairs, source, Runtime())
    texts = [*(r[0] for r in pairs.references), *pairs.candidates]
    swapped = [*pairs.candidates, *(r[0] for r in pairs.references)]
    each = score_texts(source, [[t] for t in texts], swapped, Runtime()).scores
    np.testing.assert_allclose(scored.scores, (each[:2] + each[2:]) / 2)
    lengths = score_with_function(pairs, lambda references, candidates: [len(r[0]) for r in references])
    np.testing.assert_array_equal(lengths, [(10 + 5) / 2, (8 + 14) / 2])
    with pytest.raises(CheckError, match=r"shape \(1,\) for 2 pairs"):
        score_with_function(pairs, lambda references, candidates: [1.0])
    with pytest.raises(CheckError, match="no numbers"):
        score_with_function(pairs, lambda references, candidates: ["x", "y"])


def test_the_report_shows_published_figures_and_what_was_left_out() -> None:
    one = judged(
        statistics=("tau_c",), published=(PublishedFigures("CIDEr", {"tau_c": 43.9}, "CLIPScore"),),
        papers={"CLIPScore": "Hessel et al."},
    )  # fmt: skip
    figures = set_figures(one, RATED, SCORES, 20)
    report = set_report(one, {"mine": figures}, {"same_image": "it reads no text"}, 20)
    (table,) = report.tables
    assert table.header == ("label", "tau-c all", "tau-c y", "tau-c x", "by")
    assert table.rows[1] == ("CIDEr", "43.9", "", "", "CLIPScore")  # of all pairs, not of a group
    assert "Not scored: same_image (it reads no text)." in table.notes
    assert report.records[0]["tau_c"] == figures[0].value
    assert set(report.records[0]) == {"label", "task", "subset", "n", "missing", "tau_c", "tau_c_low", "tau_c_high"}
    assert set_report(one, {}).tables == ()


def test_the_table_of_all_sets() -> None:
    cost = Cost.of([TextScores(np.zeros(1), 30, 2.0, 600), TextScores(np.zeros(1), 10, 2.0, 200)])
    assert cost == Cost(10.0, 20.0)
    report = summary_report({"a": {"one": 0.5, "two": None}, "b": {"two": 0.25}}, {"one": cost})
    assert report.tables[0].rows == (("one", "50.0", "", "10", "20"), ("two", "", "25.0", "", ""))
    assert report.records[1] == {
        "label": "two", "task": "summary", "subset": "all", "a": None, "b": 0.25, "captions_per_second": None,
        "bytes_per_caption": None,
    }  # fmt: skip
