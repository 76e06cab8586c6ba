"""Contract: claims compare rows seed by seed. Verdicts follow from the interval, that of scipy's paired t-test. Means
and standard deviations of the table are those over the seeds. The recorded trainings alone give the recorded table,
and the page on comparing losses shows it.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import ttest_rel
from tests.examples.documents import ROOT

from experiments.fit_table import FitTable
from experiments.fit_table.claims import Difference, paired_difference, verdict
from experiments.fit_table.table import COLUMNS, figures, summary, to_table
from experiments.params import FitTableParams, load_experiments
from relabel.stages import Project


def test_the_interval_is_that_of_a_paired_t_test() -> None:
    rng = np.random.default_rng(0)
    row, baseline = rng.normal(310, 4, 5), rng.normal(300, 4, 5)
    expected = ttest_rel(row, baseline).confidence_interval(0.95)
    found = paired_difference(row.tolist(), baseline.tolist())
    assert found.mean == pytest.approx((row - baseline).mean())
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


@pytest.mark.parametrize(
    ("interval", "keeps", "expected"),
    [
        ((0.1, 8.0), False, "holds"),
        ((-0.1, 8.0), False, "undecided"),
        ((-2.0, 2.9), False, "does not hold"),  # 1% of 300 is the smallest difference that counts
        ((-9.0, -1.0), False, "does not hold"),
        ((-2.9, 5.0), True, "holds"),
        ((-3.1, 5.0), True, "undecided"),
        ((-9.0, -3.1), True, "does not hold"),
    ],
)
def test_verdicts(interval: tuple[float, float], keeps: bool, expected: str) -> None:
    assert verdict(Difference(sum(interval) / 2, *interval), 300.0, keeps) == expected


def record(value: float, eccv: bool = True) -> dict[str, Any]:
    two = {"i2t": value, "t2i": value + 2}
    labels = {"ndcg": two, "cs100": two, "kendall_tau_b": two, "nsum_without_gt_percent": {"both": 6 * value}}
    graded = {"figures": {"all": {"rsum_percent": {"both": value * 10}}, "labels": labels}}
    retrieval = {"figures": {"eccv": {"map_at_r_percent": two}} if eccv else {}}
    found = figures({"graded": {"sbert": graded, "cider": graded}, "retrieval": retrieval}, FitTableParams())
    return {"figures": found, "lr": 0.001, "value": 0.2}


def test_means_and_spreads() -> None:
    rows = summary({"a": [record(1), record(2), record(6)], "b": [record(5, eccv=False)]})
    expected = {"RSUM": 30, "nDCG": 4, "CS@100": 4, "Kendall tau": 4, "NCS": 3, "ECCV i2t": 3, "ECCV t2i": 5}
    assert {name: rows["a"][name]["mean"] for name in COLUMNS} == pytest.approx(expected)
    assert rows["a"]["nDCG"]["sd"] == pytest.approx(np.std([1, 2, 6], ddof=1))
    assert (rows["b"]["nDCG"]["sd"], rows["b"]["ECCV i2t"]["mean"]) == (None, None)
    (table,) = to_table({"vsepp": rows}, FitTableParams(), ["a stand-in"])
    assert table.rows[0][:3] == ("a", "0.001, 0.2", "30.0 ± 26.5")
    assert table.notes == ("a stand-in",)


RESULTS = ROOT / "benchmarks" / "results"


@pytest.mark.slow
def test_the_trainings_give_the_table(small_project: Project, tmp_path: Path) -> None:
    """Check settings, figures, claims and points of the picture; a training that is missing would need features."""
    shutil.copytree(small_project.folder("corpus"), tmp_path / "coco" / "corpus")
    project = replace(small_project, labels=tmp_path)
    table = FitTable(project, load_experiments(budget="full"), RESULTS / "fit_trials.jsonl")
    table.run()
    for name, recorded in (("table.json", "fit_full.json"), ("table.md", "fit_full.md")):
        assert (table.out / name).read_text(encoding="utf-8") == (RESULTS / recorded).read_text(encoding="utf-8")
    assert (table.out / "labels.png").stat().st_size > 10_000


def test_the_page_shows_the_table() -> None:
    page = (ROOT / "docs" / "loss-comparison.md").read_text(encoding="utf-8")
    blocks = re.findall(r"### .+\n\n(?:\|.*\n)+", (RESULTS / "fit_full.md").read_text(encoding="utf-8"))
    assert len(blocks) >= 2
    for block in blocks:
        assert block in page, block
