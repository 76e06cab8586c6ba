"""Contract: claims compare rows seed by seed. Verdicts exclude each other. They follow from two intervals: the paired
t-test of scipy over seeds, and a bootstrap over test images. No label judges its own training. Means and standard
deviations of the table are those over the seeds. The recorded trainings alone give the recorded tables, and the page on
comparing losses shows them.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr, ttest_rel
from tests.examples.documents import ROOT

from experiments.fit_table import FitTable
from experiments.fit_table.claims import (
    Difference,
    claims_tables,
    image_interval,
    judge_claims,
    paired_difference,
    verdict,
)
from experiments.fit_table.table import columns, figures, summary, to_table
from experiments.params import Budget, FitTableParams, load_experiments
from experiments.rows import Row
from relabel.stages import Session


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
        ((-8.0, 0.1), False, "undecided"),
        ((-2.0, 2.9), False, "undecided"),
        ((-9.0, -0.1), False, "does not hold"),
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
    other = {"figures": {"all": graded["figures"]["all"], "labels": labels | {"ndcg": {"i2t": 0.5, "t2i": 0.7}}}}
    found = figures({"graded": {"sbert": graded, "cider": other}, "retrieval": retrieval}, FitTableParams())
    return {"figures": found, "lr": 0.001, "value": 0.2}


def test_means_and_spreads() -> None:
    params = FitTableParams(rows={"a": Row(loss={"name": "bcls"}), "b": Row(loss={"name": "triplet"})})
    rows = summary({"a": [record(1), record(2), record(6)], "b": [record(5, eccv=False)]}, params)
    expected = {"RSUM": 30, "ECCV i2t": 3, "ECCV t2i": 5}
    for judge in ("sbert", "cider"):
        means = {"nDCG": 4 if judge == "sbert" else 0.6, "CS@100": 4, "Kendall tau": 4, "NCS": 3}
        expected |= {f"{name} ({judge})": mean for name, mean in means.items()}
    assert {name: rows["a"][name]["mean"] for name in columns(params)} == pytest.approx(expected)
    assert rows["a"]["nDCG (sbert)"]["sd"] == pytest.approx(np.std([1, 2, 6], ddof=1))
    assert (rows["b"]["nDCG (sbert)"]["sd"], rows["b"]["ECCV i2t"]["mean"]) == (None, None)
    (table,) = to_table({"vsepp": rows}, params, ["a stand-in"])
    assert table.rows[0][:3] == ("a", "0.001, 0.2", "30.0 ± 26.5")
    assert table.notes == ("a stand-in",)
    # Figures of the training's own label are marked; the triplet loss has none.
    marked = [[name for name, cell in zip(table.header, row, strict=True) if cell.endswith("*")] for row in table.rows]
    assert marked == [["nDCG (sbert)", "CS@100 (sbert)", "Kendall tau (sbert)", "NCS (sbert)"], []]


def test_the_interval_over_images_is_a_bootstrap_of_their_means() -> None:
    rng = np.random.default_rng(1)
    base = rng.normal(300, 80, (3, 400))
    rows, baselines = ([{"images": values.tolist()} for values in each] for each in (base + rng.normal(9, 40), base))
    low, high = image_interval(rows, baselines)
    assert high - low < 1e-6  # every image differs by the same
    noisy = base + rng.normal(9, 40, (3, 400))
    low, high = image_interval([{"images": values.tolist()} for values in noisy], baselines)
    values = (noisy - base).mean(axis=0)
    # The normal approximation of the mean of 400 images; a bootstrap of 2,000 samples is within a tenth of it.
    half = 1.96 * values.std() / 20
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=half / 8)


def trained(names: list[str], values: list[float], images: float | None = None) -> list[dict[str, Any]]:
    """Return one record per value; `images` is added to the part of every second test image."""
    parts = {} if images is None else {"images": [images, 0.0] * 50}
    return [{"figures": dict.fromkeys(names, value), **parts} for value in values]


def test_no_label_judges_its_own_training() -> None:
    params = FitTableParams()
    both = ["RSUM", "ECCV i2t", "ECCV t2i", "Kendall tau (sbert)", "Kendall tau (cider)", "NCS (sbert)", "NCS (cider)"]
    values = {"bcls": [310.0, 311.0, 312.0], "triplet_soft": [300.0, 301.0, 303.0]}
    values |= {"triplet + sam": [305.0, 306.0, 308.0], "triplet": [301.0, 303.5, 302.0]}

    def judge(names: list[str]) -> dict[tuple[str, str], str]:
        rows = {name: trained(names, of_row) for name, of_row in values.items()}
        return {(c["paper"], c["figure"]): c["verdict"] for c in judge_claims("vsepp", rows, params)}

    found = judge(both)
    # BCLS is trained with sbert, SAM with cider: each is judged by the other label.
    assert ("BCLS", "Kendall tau (cider)") in found
    assert ("SAM", "NCS (sbert)") in found
    assert not {("BCLS", "Kendall tau (sbert)"), ("SAM", "NCS (cider)")} & set(found)
    assert "own label" not in found.values()
    only = judge(["RSUM", "ECCV i2t", "ECCV t2i", "Kendall tau (sbert)", "NCS (cider)"])
    assert {only["BCLS", "Kendall tau (sbert)"], only["SAM", "NCS (cider)"]} == {"own label"}


@pytest.mark.parametrize(("images", "expected"), [(None, "holds"), (9.0, "holds"), (-9.0, "undecided")])
def test_both_intervals_decide(images: float | None, expected: str) -> None:
    rows = {
        "bcls": trained(["RSUM", "Kendall tau (cider)"], [310.0, 311.0, 312.0], images),
        "triplet_soft": trained(["RSUM", "Kendall tau (cider)"], [300.0, 301.0, 303.0], 0.0),
    }
    claim, tau = judge_claims("vsepp", rows, FitTableParams())
    assert "images" not in tau
    assert claim["low"] > 0
    assert claim["verdict"] == expected
    assert ("images" in claim) == (images is not None)
    text = claims_tables([claim])[0].rows[0][2]
    assert (", images [" in text) == (images is not None)


RESULTS = ROOT / "benchmarks" / "results"


@pytest.mark.slow
@pytest.mark.parametrize("budget", ["full", "papers"])
def test_the_trainings_give_the_table(budget: Budget, small_project: Session, tmp_path: Path) -> None:
    """Check settings, figures, claims and points of the picture; a training that is missing would need features."""
    shutil.copytree(small_project.folder("corpus"), tmp_path / "coco" / "corpus")
    session = replace(small_project, labels=tmp_path)
    trials = RESULTS / {"full": "fit_trials.jsonl", "papers": "fit_papers_trials.jsonl"}[budget]
    table = FitTable(session, load_experiments(budget=budget), trials)
    table.run()
    for suffix in ("json", "md"):
        recorded = (RESULTS / f"fit_{budget}.{suffix}").read_text(encoding="utf-8")
        assert (table.out / f"table.{suffix}").read_text(encoding="utf-8") == recorded
    assert not (table.out / "labels.png").exists() or (table.out / "labels.png").stat().st_size > 10_000


def test_the_page_shows_the_claims_at_the_settings_of_the_papers() -> None:
    page = (ROOT / "docs" / "loss-comparison.md").read_text(encoding="utf-8")
    recorded = (RESULTS / "fit_papers.md").read_text(encoding="utf-8")
    (claims,) = re.findall(r"### Claims of the papers.*\n\n((?:\|.*\n)+)", recorded)
    assert claims in page


def test_the_page_has_the_rank_correlations_of_labels() -> None:
    """Compute them from the recorded table, without `same_image`, which has no agreement."""
    page = " ".join((ROOT / "docs" / "loss-comparison.md").read_text(encoding="utf-8").split())
    points = json.loads((RESULTS / "fit_full.json").read_text(encoding="utf-8"))["labels"]
    found = {}
    for model, loss in {(p["model"], p["loss"]) for p in points}:
        some = [p for p in points if (p["model"], p["loss"]) == (model, loss) and p["pearson"] is not None]
        assert len(some) == 6
        found[model, loss] = spearmanr([p["pearson"] for p in some], [p["RSUM"]["mean"] for p in some]).statistic
    a, b, c, d = (found[m, x] for m in ("vsepp", "vse_inf") for x in ("smooth_ndcg_triplet", "soft_target"))
    assert f"over the six labels with an agreement: {a:.2f} for S-NDCG with a triplet, {b:.2f} for" in page
    assert f"VSE-infinity ({c:.2f} and {d:.2f})" in page
