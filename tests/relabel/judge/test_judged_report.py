"""Contract: the report on a judged set shows published figures below the labels, in the matching column, and names
labels that cannot score the set with the reason.
"""

from __future__ import annotations

from tests.relabel.judge.rated_pairs import RATED, SCORES, judged

from relabel.datasets.judged import PublishedFigures
from relabel.judge.judged_figures import set_figures
from relabel.judge.judged_report import set_report


def test_the_report_shows_published_figures_and_excluded_labels() -> None:
    rated = judged(
        statistics=("tau_c",), published=(PublishedFigures("CIDEr", {"tau_c": 43.9}, "CLIPScore"),),
        papers={"CLIPScore": "Hessel et al."},
    )  # fmt: skip
    figures = set_figures(rated, RATED, SCORES, 20)
    report = set_report(rated, {"mine": figures}, {"same_image": "it reads no text"}, 20)
    (table,) = report.tables
    assert table.header == ("label", "all tau-c", "y tau-c", "x tau-c", "by")
    assert table.rows[1] == ("CIDEr", "43.9", "", "", "CLIPScore")  # of all pairs, not of one group
    assert "Not scored: same_image (it reads no text)." in table.notes
    assert report.records[0]["tau_c"] == figures[0].value
    assert set(report.records[0]) == {"label", "task", "subset", "n", "missing", "tau_c", "tau_c_low", "tau_c_high"}
    assert set_report(rated, {}).tables == ()


def test_several_statistics_of_separate_collections() -> None:
    rated = judged(statistics=("spearman", "pearson"), group="x")
    (table,) = set_report(rated, {"mine": set_figures(rated, RATED, SCORES, 0)}).tables
    assert table.header == ("label", "y Spearman", "y Pearson", "x Spearman", "x Pearson")
    assert "120 judgements" in table.title  # of both groups
