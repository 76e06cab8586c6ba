"""Contract: the table of all judged sets has one row per label and one column per set, with the best label marked. The
figures of CxC and ECCV Caption come from their records, and costs are sums over sets.
"""

from __future__ import annotations

from typing import Any

import pytest

from relabel.core.numeric.statistics import Interval
from relabel.datasets.judged import JudgedSet
from relabel.judge.judged_figures import Estimate, Figure
from relabel.judge.judged_report import Column, Cost, judged_columns, set_report, summary_report


def test_one_row_per_label_with_the_best_marked() -> None:
    costs = [{"captions": 30, "seconds": 2.0, "bytes": 600}, {"captions": 10, "seconds": 2.0, "bytes": 200}]
    cost = Cost.of(costs)
    assert cost == Cost(10.0, 20.0)
    columns = [
        Column("a", "Pearson", {"one": Estimate(0.5), "two": Estimate(None), "three": Estimate(0.25)}),
        Column("b", "tau-c", {"two": Estimate(0.25)}),
    ]
    report = summary_report(columns, {"one": cost}, ["Not judged: c."])
    (table,) = report.tables
    assert table.header == ("label", "a", "b", "captions/s", "bytes/caption")
    assert table.rows == (
        ("one", "50.0 *", "", "10", "20"), ("two", "undefined", "25.0", "", ""), ("three", "25.0", "", "", "")
    )  # fmt: skip
    assert summary_report(columns[:1], {"one": Cost(0.34, 20.0)}).tables[0].rows[0][2] == "0.3"
    assert table.notes[0].startswith("a: Pearson; b: tau-c.")
    assert table.notes[-2] == "Not judged: c."
    assert table.notes[-1].startswith("undefined: ")
    assert report.records[1] == {
        "label": "two", "task": "summary", "subset": "all", "a": None, "b": 0.25, "captions_per_second": None,
        "bytes_per_caption": None,
    }  # fmt: skip


def test_columns_of_encoded_sets_come_from_records() -> None:
    records = [
        {"label": "x", "task": "sits", "subset": "all", "pearson": 0.9, "low": 0.8, "high": 0.95},
        {"label": "x", "task": "sits", "subset": "c2i_original", "pearson": 0.1, "low": None, "high": None},
        {"label": "x", "task": "eccv", "subset": "t2i", "map_at_r": 36.5},
    ]
    first, second = judged_columns(records, [])
    assert (first.title, first.estimates) == ("SITS", {"x": Estimate(0.9, Interval(0.8, 0.95))})
    assert (second.title, second.estimates) == ("ECCV t2i", {"x": Estimate(0.365)})


@pytest.mark.parametrize(
    ("statistics", "group", "title"), [(("spearman",), "test", "test Spearman"), ((), "all", "mean accuracy")]
)
def test_the_column_of_a_set_names_its_group(statistics: Any, group: str, title: str) -> None:
    judged = JudgedSet(
        name="s", title="S", dataset="s", read=None, statistics=statistics, group=group, pair_ids="n", protocol="P."
    )  # type: ignore[arg-type]  # fmt: skip
    names = statistics or ("accuracy",)
    figures = [
        Figure(names[0], "dev", 9, 0, 0.1, None), Figure(names[0], title.split()[0], 9, 0, 0.2, Interval(0.1, 0.3))
    ]  # fmt: skip
    records = set_report(judged, {"x": figures}).records
    assert judged_columns(records, [judged]) == [Column("s", title, {"x": Estimate(0.2, Interval(0.1, 0.3))})]
