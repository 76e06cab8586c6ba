"""Contract: a report has the same figures in every form. A constant reads `undefined`; protocol, missing pairs and
papers are noted below.
"""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from relabel.corpus import Corpus
from relabel.judge import JudgeParams
from relabel.judge.compare import compare
from relabel.judge.cxc import score_cxc
from relabel.judge.cxc_report import PairScores, baseline, cxc_report
from relabel.judge.eccv_report import Ranking, eccv_report
from relabel.judge.report import Report, metrics
from relabel.sources.cider import CiderParams
from relabel.sources.sbert import SbertParams
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
    (folder / ".done").mkdir()
    work = Work(folder, {"label": "cider_lower", "params": CiderParams(tokenizer="lower_split").model_dump()})
    score_cxc(corpus, odd.Relevance(corpus, range(len(corpus))), odd.Source, "test", work)
    scored = PairScores.open(folder, work.facts)
    return cxc_report([compare(one, JudgeParams(resamples=100, draws=0)) for one in (baseline(scored), scored)], 100)


@pytest.fixture
def ranked() -> list[Ranking]:
    figures = {"map_at_r": 50.0, "r_precision": 25.0, "r_at_1": 50.0}
    facts = {"ties": "pessimistic", "figures": {"i2t": {"n": 1261, **figures}, "t2i": {"n": 1332, **figures}}}
    params = {"sbert": SbertParams().model_dump(), "meteor": {"source": "meteor", "pooling": "refs"}}
    gates: dict[str, dict[str, Any]] = {
        "sbert": {"gate": None, "gate_top": None},
        "meteor": {"gate": "sbert", "gate_top": 100},
    }
    return [Ranking.of({"label": n, "params": params[n], "eccv": facts | gates[n]}) for n in params]


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


def test_text_fits_terminals(full_report: Report, ranked: list[Ranking]) -> None:
    for report in (full_report, eccv_report(ranked)):
        assert max(map(len, report.render("text", 80).splitlines())) <= 80


def test_notes_state_protocol_interval_missing_pairs_and_papers(report: Report, full_report: Report) -> None:
    notes = " ".join(" ".join(table.notes) for table in report.tables)
    assert "judged caption itself is among the references" in notes
    assert "100 bootstrap resamples of images, seed 0" in notes
    assert "cider_lower: " in notes
    assert "pairs left out: coco:" in notes
    assert "not in the corpus" in notes
    assert "WACV 2022, arXiv 2110.02623, Table 1" in notes  # for same_image, which is always included
    assert "left out" not in " ".join(" ".join(table.notes) for table in full_report.tables)
    assert "mean for refs" in notes
    shown = report.render("text")
    assert shown.count("bootstrap resamples") == 1
    assert report.render("md").count("bootstrap resamples") == 3


def test_all_forms_hold_the_same_figures(report: Report, full_report: Report) -> None:
    record = next(r for r in report.records if (r["label"], r["task"], r["subset"]) == ("cider_lower", "sits", "all"))
    cell = f"{record['pearson']:.4f}"
    for style in ("text", "md", "latex"):
        assert cell in report.render(style)  # type: ignore[arg-type]
    records = list(csv.DictReader(io.StringIO(report.render("csv"))))
    assert len(records) == len(report.records) == 14
    again = next(r for r in records if (r["label"], r["task"], r["subset"]) == ("cider_lower", "sits", "all"))
    assert float(again["pearson"]) == record["pearson"]
    assert int(again["missing"]) == record["missing"] > 40_000
    assert again["paper"] == ""
    complete = list(csv.DictReader(io.StringIO(full_report.render("csv"))))
    (again,) = [r for r in complete if (r["label"], r["task"], r["subset"]) == ("cider_lower", "sits", "all")]
    assert again["paper"] == "0.734"
    undefined = next(r for r in records if r["label"] == "same_image" and r["subset"] == "c2i_intrasim")
    assert undefined["pearson"] == undefined["low"] == undefined["kendall"] == ""
    data = json.loads(json.dumps(report.data, allow_nan=False))
    assert data["rows"] == list(report.records)


def test_metrics_are_one_defined_figure_per_label(report: Report) -> None:
    figures = {(r["label"], r["task"], r["subset"]): r["pearson"] for r in report.records}
    assert metrics(report.records) == {"cider_lower": round(figures["cider_lower", "sits", "c2i_intrasim"], 4)}


def test_undefined_is_explained_once_under_the_tables(report: Report) -> None:
    text = report.render("text")
    assert text.count("undefined: a coefficient") == 1
    assert [any("undefined: " in note for note in table.notes) for table in report.tables] == [
        any("undefined" in cell for row in table.rows for cell in row) for table in report.tables
    ]
    doubled = report + report
    assert all(len(table.notes) == len(set(table.notes)) for table in doubled.tables)


def test_rankings(ranked: list[Ranking]) -> None:
    report = eccv_report(ranked)
    (table,) = report.tables
    assert table.rows[0][:3] == ("sbert", "50.00", "25.00")
    assert table.rows[0][-2:] == ("39.93 / 43.73", "37.53 / 44.94")
    assert table.rows[1][0] == "meteor *"
    assert table.rows[1][-2:] == ("", "")
    assert any("* meteor: re-ranks the best of sbert, top 100" in note for note in table.notes)
    assert "sbert: S-NDCG does not name its checkpoint." in table.notes
    assert max(map(len, report.render("text").splitlines())) <= 100
    assert metrics(report.records) == {"sbert": 50.0, "meteor": 50.0}
    assert eccv_report([]) == Report()
    assert (report + report).tables == (table, table)


def test_columns_and_notes_of_a_paper_require_its_labels(ranked: list[Ranking]) -> None:
    tuned = replace(ranked[0], own_model=True)
    (table,) = eccv_report([tuned, ranked[1]]).tables
    assert table.header[-1] == "R@1"
    assert {len(row) for row in table.rows} == {len(table.header)}
    assert not any("S-NDCG" in note for note in table.notes)


def test_word_vectors_follow_the_label_and_models_are_noted(ranked: list[Ranking]) -> None:
    vectors = replace(ranked[0], label="cbow", uses="glove.6B.100d (400,000 words)")
    model = replace(ranked[0], uses="org/model")
    report = eccv_report([vectors, model], ["meteor"])
    (table,) = report.tables
    assert [row[0] for row in table.rows] == ["cbow (glove.6B.100d)", "sbert"]
    assert table.notes[-1] == "Models: cbow: glove.6B.100d (400,000 words); sbert: org/model."
    assert table.notes[-2].startswith("Scored pair by pair and not ranked: meteor.")
    uses = {record["label"]: record["uses"] for record in report.records}
    assert uses == {"cbow": "glove.6B.100d (400,000 words)", "sbert": "org/model"}
