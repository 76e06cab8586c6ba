"""Contract: a report has the same figures in every form. A constant reads `undefined`; protocol, missing pairs and
papers are noted below.
"""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from relabel.corpus import Corpus
from relabel.judge import JudgeParams
from relabel.judge.cxc import score_cxc
from relabel.judge.cxc_figures import PairScores, baseline, compare
from relabel.judge.report import JudgedLabel, Report, metrics
from relabel.judge.tables import cxc_report
from relabel.sources.cider import CiderParams
from relabel.store.workdir import Work


@pytest.fixture(scope="module")
def report(few: Corpus, odd: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Return the report on the pairs of 300 images."""
    return reported(few, odd, tmp_path_factory.mktemp("odd"))


@pytest.fixture(scope="module")
def full_report(cxc_test: Corpus, odd: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Return the report on all pairs."""
    return reported(cxc_test, odd, tmp_path_factory.mktemp("whole"))


def reported(corpus: Corpus, odd: SimpleNamespace, folder: Path) -> Report:
    """Judge the test relevance under the name of a label for which SAM publishes figures."""
    label = JudgedLabel(label="cider_lower", params=CiderParams(tokenizer="lower_split").model_dump())
    score_cxc(corpus, odd.Relevance(corpus, range(len(corpus))), False, "test", Work(folder))
    scored = PairScores.open(folder, label, "test", False)
    params = JudgeParams(resamples=100, draws=0)
    return cxc_report([compare(one, params) for one in (baseline(scored), scored)], params)


def test_text_is_aligned_and_fits(full_report: Report) -> None:
    shown = full_report.render("text")
    assert max(map(len, shown.splitlines())) <= 100
    assert shown.isascii()
    lines = shown.splitlines()
    assert lines[0] == "CxC test, caption and image (SITS): Pearson's r with human scores, 44,833 pairs"
    assert lines[2].split() == ["label", "all", "GT", "non-GT", "paper", "by"]
    rows = {line.split()[0]: line for line in lines[4:6]}
    assert rows["same_image"].split()[-4:] == ["0.711", "/", "0.000", "SAM"]
    assert rows["same_image"].split().count("undefined") == 2
    assert rows["cider_lower"].endswith("0.734 / 0.453  SAM")


def test_all_forms_hold_the_same_figures(report: Report, full_report: Report) -> None:
    def row(records: list[dict[str, str]], label: str, subset: str) -> dict[str, str]:
        return next(r for r in records if (r["label"], r["task"], r["subset"]) == (label, "sits", subset))

    record = row(list(report.records), "cider_lower", "all")
    for style in ("text", "md", "latex"):
        assert f"{record['pearson']:.4f}" in report.render(style)  # type: ignore[arg-type]
    records = list(csv.DictReader(io.StringIO(report.render("csv"))))
    assert len(records) == len(report.records) == 14
    again = row(records, "cider_lower", "all")
    assert float(again["pearson"]) == record["pearson"]
    assert int(again["missing"]) == int(record["missing"]) > 40_000
    assert again["paper"] == ""
    assert row(list(csv.DictReader(io.StringIO(full_report.render("csv")))), "cider_lower", "all")["paper"] == "0.734"
    undefined = row(records, "same_image", "c2i_intrasim")
    assert undefined["pearson"] == undefined["low"] == undefined["kendall"] == ""
    assert json.loads(json.dumps(report.data, allow_nan=False))["rows"] == list(report.records)
    points = list(csv.DictReader(io.StringIO(report.points["cxc.agreement.csv"])))
    assert {(p["task"], p["subset"]) for p in points if p["label"] == "same_image"} == {("sts", "all"), ("sits", "all")}
    assert {p["label"] for p in csv.DictReader(io.StringIO(report.points["cxc.calibration.csv"]))} == {
        "same_image",
        "cider_lower",
    }


def test_metrics_are_one_defined_figure_per_label(report: Report) -> None:
    figures = {(r["label"], r["task"], r["subset"]): r["pearson"] for r in report.records}
    assert metrics(report.records) == {"cider_lower": round(figures["cider_lower", "sits", "c2i_intrasim"], 4)}
